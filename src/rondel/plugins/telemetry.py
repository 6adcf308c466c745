"""Sends every turn to an OpenTelemetry collector, as spans of agents, models and tools.

Texts of people, models and tools are sent only with `content`. A turn never waits for the collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, get_args

from ..events import DurableEvent, Entry, Event, Nested, TurnFinished
from ..machine.turn import Turn
from ..plugin import Key, Plugin
from ..trace.telemetry import Sender

if TYPE_CHECKING:
    from ..app.app import App

log = logging.getLogger("rondel.telemetry")

CLOSE_S = 1.0  # how long closing the app waits for spans to be sent

_KEPT = frozenset(get_args(DurableEvent))


_SEEN = Key("telemetry.seen", dict[str, list[Entry]])  # a turn's entries so far, by conversation


class Telemetry(Plugin):
    """Sends turns as OpenTelemetry spans; needs `rondel[otel]`.

    Args:
        endpoint: the address of the collector
        headers: headers for it, for example a key
        content: send what was said, too
    """

    name = "telemetry"

    def __init__(self, endpoint: str = "", headers: Mapping[str, str] | None = None, content: bool = False) -> None:
        self._settings = (endpoint, headers, content)
        self.sender: Sender | None = None  # made for the first turn that is sent
        self._lives = 0
        self._told = ""

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        """Close the sender when the last agent that shares the plugin is done."""
        self._lives += 1
        try:
            yield
        finally:
            self._lives -= 1
            if self._lives == 0 and self.sender is not None:
                sender, self.sender = self.sender, None
                await asyncio.to_thread(sender.close, CLOSE_S)
                if sender.problem != self._told:  # no later turn could show it
                    self._told = sender.problem
                    log.warning("%s", sender.problem)

    def applies(self, turn: Turn) -> bool:
        return "/" not in turn.id and not turn.previewing  # `<turn>/<call>` is an inner turn, reported by the outer

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
        entries = seen.setdefault(conversation, [])
        entries.append(Entry(len(entries) + 1, turn.now(), event))  # type: ignore[arg-type]
        if isinstance(event, TurnFinished) and event.turn == turn.id:
            turn.state[_SEEN] = {}
            if self.sender is None:
                endpoint, headers, content = self._settings
                self.sender = Sender(endpoint, headers=headers, content=content)
            self.sender.submit(turn.conversation, seen.pop(turn.conversation), seen)
