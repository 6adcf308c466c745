"""Tells the model the time, by the clock of the turn.

By default at the end of the prompt: a provider's cache only covers what comes before the first change.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..errors import RondelError, nearest
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import HISTORY, Node, Position, Prompt, position_of
from ..text.zone import zone_of

PRECISIONS = {"minute": "%A, %d %B %Y, %H:%M", "hour": "%A, %d %B %Y, %H:00", "day": "%A, %d %B %Y"}


class Clock(Plugin):
    """Inserts the date and the time.

    Args:
        zone: a time zone such as `Europe/Berlin`; the default is this machine's
        target: the node to insert it at; without one, after the conversation
        position: `before`, `after` or `child` of the target
        precision: `minute`, `hour` or `day`; a coarse one changes the prompt less often
    """

    name = "clock"

    def __init__(self, *, zone: str = "", target: str = "", position: str = "after", precision: str = "minute") -> None:
        if precision not in PRECISIONS:
            raise RondelError(f"{precision!r} is not a precision{nearest(precision, tuple(PRECISIONS))}")
        self._zone = zone_of(zone) if zone else None
        self._target, self._form = target, PRECISIONS[precision]
        self._position: Position = position_of(position)
        # Only after the conversation does it leave the cached prefix as it is.
        self.moves_prefix = bool(target) and (target, position) != (HISTORY, "after")

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        entry = self.entry or self.name
        node = Node(self.name, text=self._text(turn.now()), role="system", source=("plugins", entry))
        if not self._target:
            return prompt.replace(nodes=(*prompt.nodes, node))
        if self._position == "child":  # inside another node it becomes part of that node's text
            node = msgspec.structs.replace(node, role=None, text=f"\n{node.text}")
        edited = prompt.insert(node, self._position, self._target)
        if edited is prompt:
            told = f"there is no node {self._target!r} in the prompt, so the time is left out; give the id of a node"
            await turn.warn(entry, told)
        return edited

    def _text(self, now: float) -> str:
        moment = datetime.fromtimestamp(now, tz=self._zone).astimezone(self._zone)
        zone = self._zone.key if self._zone else moment.strftime("%Z")
        return f"It is {moment.strftime(self._form)} ({zone})."
