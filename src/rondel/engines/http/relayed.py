"""Answers that are passed on to a caller who speaks the same dialect: as bytes, past a meter.

Knows no wire format and no client.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect import Meter
from ...errors import EngineError
from ...values import Usage
from .body import Body
from .faults import Faults


class WholeAnswer:
    """An answer that is there: a body, or events that were made of one."""

    def __init__(self, data: bytes, meter: Meter, headers: Mapping[str, str], status: int = 200) -> None:
        self._data, self._meter = data, meter
        self.headers, self.status = headers, status
        self.failure: EngineError | None = None
        self.finished = False

    @property
    def model(self) -> str:
        return self._meter.model

    @property
    def usage(self) -> Usage:
        return self._meter.usage

    async def read(self) -> bytes:
        data, self._data = self._data, b""
        self.finished = True
        return data

    def fail(self, error: EngineError) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is open."""


class StreamedAnswer:
    """An answer while it comes. `begin` first: it returns with the first token, and whatever goes wrong until then is
    raised there, when another attempt can still answer."""

    def __init__(
        self, body: Body, meter: Meter, headers: Mapping[str, str], faults: Faults, dialect: str, status: int = 200
    ) -> None:
        self._body, self._meter, self._faults, self._dialect = body, meter, faults, dialect
        self.headers, self.status = headers, status
        self._held = b""

    @property
    def model(self) -> str:
        return self._meter.model

    @property
    def usage(self) -> Usage:
        return self._meter.usage

    @property
    def finished(self) -> bool:
        return self._meter.done and not self._held

    @property
    def failure(self) -> EngineError | None:
        return self._meter.failure

    async def begin(self, first: bytes) -> None:
        held, size = list[bytes](), 0
        while not self._meter.token_seen:
            chunk = first or await self._body.read()
            first = b""
            size = self._body.bounded(size + len(chunk))
            held.append(self._past_meter(chunk))
        self._body.expect_tokens()
        self._held = b"".join(held)

    async def read(self) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            return data
        try:
            while not self._meter.done:
                chunk = b"" if self._meter.broken else await self._body.read()
                if data := self._past_meter(chunk):
                    return data
        except BaseException:
            self._body.close()
            raise
        self.close()
        return b""

    def fail(self, error: EngineError) -> bytes:
        return self._meter.fail(error)

    def close(self) -> None:
        if self._meter.done and self._meter.failure is None:
            self._body.let_go()
        else:
            self._body.close()

    def _past_meter(self, chunk: bytes) -> bytes:
        """The events that a chunk completes; an empty one is the end."""
        try:
            data = self._meter.feed(chunk) if chunk else self._meter.finish()
        except Exception as error:
            failure = self._faults.of_answer(error, self._dialect)
        else:
            if self._meter.failure is None:
                return data
            self._faults.owned(self._meter.failure)
            return self._faults.without_key(data)
        raise failure
