"""Writes a streamed reply delta by delta: what all dialects share. Knows no single wire format."""

from __future__ import annotations

from ..contracts.dialect import Json
from ..errors import EngineError
from ..values import (
    Delta,
    Media,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Usage,
)
from ._sse import comment
from ._wire import PartsInOrder, mention


class EventWriter:
    """Calls a dialect's methods for one part after the other, and ends the stream once."""

    keep_alive = comment("ping")

    def __init__(self) -> None:
        self._order = PartsInOrder()
        self._started = self._done = False

    # --- what a dialect writes ----------------------------------------------------------------------------------------

    def _start(self, usage: Usage | None = None) -> bytes:
        """Begin the reply, once."""
        raise NotImplementedError

    def _start_part(self, index: int, part: Part) -> bytes:
        raise NotImplementedError

    def _piece(self, index: int, text: str) -> bytes:
        raise NotImplementedError

    def _finish_part(self, index: int, part: Part) -> bytes:
        raise NotImplementedError

    def _finish(self, end: ReplyFinished) -> bytes:
        raise NotImplementedError

    def _failure(self, error: EngineError) -> bytes:
        raise NotImplementedError

    def _for_caller(self, part: Part) -> Part:
        """Return the part in a form that callers of this dialect can read; no dialect has media in a reply."""
        return Text(mention(part)) if isinstance(part, Media) else part

    def write_whole(self, reply: Reply) -> Json:
        raise NotImplementedError

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        raise NotImplementedError

    # --- deltas -------------------------------------------------------------------------------------------------------

    def feed(self, delta: Delta) -> bytes:
        if self._done:
            return b""
        if type(delta) is PartDelta and delta.index == self._order.current:
            return self._piece(delta.index, delta.text)
        return b"".join(map(self._write, self._order.feed(delta)))

    def fail(self, error: EngineError) -> bytes:
        if self._done:
            return b""
        written = self._failure(error)
        self._done = True
        return written

    def ping(self) -> bytes:
        return b"" if self._done else self.keep_alive

    def _write(self, delta: Delta) -> bytes:
        if isinstance(delta, PartDelta):
            return self._piece(delta.index, delta.text)
        if isinstance(delta, PartStarted):
            return self._start() + self._start_part(delta.index, self._for_caller(delta.part))
        if isinstance(delta, PartFinished):
            return self._finish_part(delta.index, self._for_caller(delta.part))
        if isinstance(delta, ReplyStarted):
            return self._start(delta.usage)
        if isinstance(delta, ReplyFinished):
            written = self._start() + self._finish(delta)
            self._done = True
            return written
        return b""
