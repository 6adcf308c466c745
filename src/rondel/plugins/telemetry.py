"""Sends what every turn did to an OpenTelemetry collector, as spans of agents, models and tools.

It watches the events of the outermost turns; those of the agents inside come nested in them. What people, models and
tools said leaves the program only with `content`. A turn never waits for the collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, get_args

from ..events import Entry, Event, Kept, Nested, TurnFinished
from ..plugin import Key, Plugin
from ..telemetry import Sender
from ..turn import Turn

if TYPE_CHECKING:
    from ..app import App

log = logging.getLogger("rondel.telemetry")

CLOSE_S = 1.0
"""How long the end of the app waits for what is still to be sent."""

_KEPT = frozenset(get_args(Kept))


class _Seen:
    """What happened in a turn so far: entries by the conversation that they are in."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}


_SEEN = Key("telemetry.seen", _Seen)


class Telemetry(Plugin):
    name = "telemetry"

    def __init__(self, endpoint: str = "", headers: Mapping[str, str] | None = None, content: bool = False) -> None:
        self._settings = (endpoint, headers, content)
        self.sender: Sender | None = None
        """Made with the first turn that is sent."""
        self._lives = 0
        self._told = ""

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        """All agents of an app share the plugin; the last one that leaves closes it."""
        self._lives += 1
        try:
            yield
        finally:
            self._lives -= 1
            if self._lives == 0 and self.sender is not None:
                sender, self.sender = self.sender, None
                await asyncio.to_thread(sender.close, CLOSE_S)
                if sender.problem != self._told:  # there was no turn after it to say it in
                    self._told = sender.problem
                    log.warning("%s", sender.problem)

    def applies(self, turn: Turn) -> bool:
        return "/" not in turn.id and not turn.previewing  # `<turn>/<call>` works for a call, and is seen from above

    async def on_turn_start(self, turn: Turn) -> None:
        if self.sender is not None and self.sender.problem != self._told:
            self._told = self.sender.problem
            await turn.warn(self.name, self._told)

    def on_event(self, turn: Turn, event: Event) -> None:
        conversation = turn.conversation
        while type(event) is Nested:
            conversation, event = f"{conversation}/{event.call_id}", event.event
        if type(event) not in _KEPT:
            return
        seen = turn.state[_SEEN]
        entries = seen.entries.setdefault(conversation, [])
        entries.append(Entry(len(entries) + 1, turn.now(), event))  # type: ignore[arg-type]
        if isinstance(event, TurnFinished) and event.turn == turn.id:
            turn.state[_SEEN] = _Seen()
            self._send(turn.conversation, seen.entries)

    def _send(self, conversation: str, entries: dict[str, list[Entry]]) -> None:
        if self.sender is None:
            endpoint, headers, content = self._settings
            self.sender = Sender(endpoint, headers=headers, content=content)
        own = entries.pop(conversation)
        self.sender.submit(conversation, own, entries)
