"""Reads a streamed answer event by event: what all dialects share.

An error in the same bytes as valid events is reported after them, so that no text is lost. Knows no single wire format,
no network and no clock.
"""

from __future__ import annotations

from ..contracts.dialect import Json
from ..errors import EngineError, EngineGarbled
from ..values import Delta, PartDelta, Reply
from ._failures import error_of_answer
from ._sse import SseDecoder
from ._wire import WireError, reading_reply


class EventReader:
    """A subclass says what an event means."""

    name = ""
    ends_with = ""  # the event that ends an answer, named in the error if it is missing

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._done = False
        self.failure: EngineError | None = None

    # --- what a dialect defines ---------------------------------------------------------------------------------------

    def _event(self, data: bytes, out: list[Delta]) -> None:
        """Read the data of an event. Raises WireError for nonsense, or the error that the event is."""
        raise NotImplementedError

    def _whole(self, body: Json) -> Reply:
        """Read a reply that did not stream. Raises as `_event` does."""
        raise NotImplementedError

    def _missing_end(self, out: list[Delta]) -> None:
        raise EngineGarbled(f"the answer broke off before its {self.ends_with}; ask again")

    def read_whole(self, body: Json) -> Reply:
        with reading_reply(self.name):
            return self._whole(body)

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        return error_of_answer(status, body, provider=provider, model=model)

    # --- bytes --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Delta]:
        return self._read(self._sse.feed(data))

    def finish(self) -> list[Delta]:
        deltas = self._read(self._sse.finish())
        if not self._done and self.failure is None:
            self._missing_end(deltas)
        return deltas

    def _read(self, events: list[bytes]) -> list[Delta]:
        if self.failure is not None:
            raise self.failure
        out: list[Delta] = []
        try:
            for data in events:
                if self._done:  # anything after the end does not belong to the answer
                    break
                self._event(data, out)
        except EngineError as error:
            self._fail(error, out)
        except WireError as error:
            self._fail(EngineGarbled(f"the answer does not follow the {self.name} protocol: {error}"), out)
        return out

    def _fail(self, error: EngineError, out: list[Delta]) -> None:
        self.failure = error
        if not any(type(delta) is PartDelta for delta in out):  # no text is lost
            raise error from None
