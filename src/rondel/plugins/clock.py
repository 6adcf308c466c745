"""Tells the model what time it is, by the clock of the turn.

At the end of the prompt, unless it is given a place: the time changes from round to round, and what stands before a
change need not be read anew by the model. Knows no calendar but the common one.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from ..errors import RondelError, nearest
from ..plugin import Plugin
from ..prompt import HISTORY, Node, Position, Prompt, position_of
from ..turn import Turn

PRECISIONS = {
    "minute": "%A, %d %B %Y, %H:%M",
    "hour": "%A, %d %B %Y, %H:00",
    "day": "%A, %d %B %Y",
}


class Clock(Plugin):
    """`zone` is a time zone such as `Europe/Berlin`; without it, the one of the machine that runs this."""

    name = "clock"

    def __init__(self, *, zone: str = "", target: str = "", position: str = "after", precision: str = "minute") -> None:
        if precision not in PRECISIONS:
            raise RondelError(f"{precision!r} is no precision{nearest(precision, tuple(PRECISIONS))}")
        self._zone = _zone(zone)
        self._target, self._form = target, PRECISIONS[precision]
        self._position: Position = position_of(position)
        # Only behind the conversation does it move nothing.
        self.moves_prefix = bool(target) and (target, position) != (HISTORY, "after")

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        told, source = self._told(turn.now()), ("plugins", self.entry or self.name)
        node = Node(self.name, text=told, role="system", source=source)
        if not self._target:
            return prompt.replace(nodes=(*prompt.nodes, node))
        edited = self._insert(prompt, node)
        if edited is prompt:
            await turn.warn(
                self.entry or self.name,
                f"there is no node {self._target!r} in the prompt, so the time is not told; give the id of one",
            )
        return edited

    def _insert(self, prompt: Prompt, node: Node) -> Prompt:
        if self._position == "child":  # inside another node it is a line of that node's text
            node = msgspec.structs.replace(node, role=None, text=f"\n{node.text}")
        return prompt.insert(node, self._position, self._target)

    def _told(self, now: float) -> str:
        moment = datetime.fromtimestamp(now, tz=self._zone).astimezone(self._zone)
        zone = self._zone.key if self._zone else moment.strftime("%Z")
        return f"It is {moment.strftime(self._form)} ({zone})."


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RondelError(f"there is no time zone {name!r}; write it as in 'Europe/Berlin' or 'UTC'") from None
