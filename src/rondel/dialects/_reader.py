"""Reads a streamed answer event by event: the part that is the same for all dialects.

What is found wrong behind good events of the same bytes is told after those: nobody loses words because an error came
in one piece with them. Knows no single wire format, no network and no clock.
"""

from __future__ import annotations

from ..errors import EngineError, EngineGarbled
from ..sse import SseDecoder
from ..values import Delta, PartDelta
from ._wire import WireError


class EventReader:
    """A dialect says what an event means."""

    name = ""
    ends_with = ""
    """The event that ends an answer, for the error when it does not come."""

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._done = False
        self.failure: EngineError | None = None

    # --- what a dialect says ------------------------------------------------------------------------------------------

    def _plain(self, data: bytes, out: list[Delta]) -> bool:
        """Read the data of an event that is only one more piece of a part, as nearly all are; False for any other."""
        raise NotImplementedError

    def _event(self, data: bytes, out: list[Delta]) -> None:
        """Read the data of any other event. Raises WireError for nonsense, and the error that it may be."""
        raise NotImplementedError

    def _missing_end(self, out: list[Delta]) -> None:
        """The upstream closed without its last event."""
        raise EngineGarbled(f"the answer broke off before its {self.ends_with}; ask again")

    # --- bytes --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Delta]:
        return self._read(self._sse.feed_data(data))

    def finish(self) -> list[Delta]:
        deltas = self._read(self._sse.finish_data())
        if not self._done and self.failure is None:
            self._missing_end(deltas)
        return deltas

    def _read(self, events: list[bytes]) -> list[Delta]:
        if self.failure is not None:
            raise self.failure
        out: list[Delta] = []
        try:
            for data in events:
                if self._done:  # whatever comes after the end is no part of the answer
                    break
                if not self._plain(data, out):
                    self._event(data, out)
        except EngineError as error:
            self._fail(error, out)
        except WireError as error:
            self._fail(EngineGarbled(f"the answer does not follow the {self.name} protocol: {error}"), out)
        return out

    def _fail(self, error: EngineError, out: list[Delta]) -> None:
        self.failure = error
        if not any(type(delta) is PartDelta for delta in out):  # no words are lost
            raise error from None
