"""Answers that are relayed as bytes, through a meter, to a caller that speaks the same dialect.

Knows no wire format and no client.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...contracts.dialect import StreamMeter
from ...errors import EngineError
from ...values import Usage
from .body import Body
from .faults import Faults


class WholeAnswer:
    """A complete answer: a body, or events that were made from one."""

    def __init__(
        self, data: bytes, meter: StreamMeter, headers: Mapping[str, str], faults: Faults, status: int = 200
    ) -> None:
        self._data, self._meter, self._redactor = faults.redactor.data(data), meter, faults.redactor
        self.headers, self.status = headers, status
        self.failure: EngineError | None = None
        self.finished = False
        self.engine, self.lost = "", tuple[str, ...]()

    @property
    def model(self) -> str:
        return self._redactor.text(self._meter.model)

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
    """An answer while it streams. Call `begin` first: it returns with the first token, and raises errors before that,
    while another engine can still answer."""

    def __init__(
        self,
        body: Body,
        meter: StreamMeter,
        headers: Mapping[str, str],
        faults: Faults,
        dialect: str,
        status: int = 200,
    ) -> None:
        self._body, self._meter, self._faults, self._dialect = body, meter, faults, dialect
        self.headers, self.status = headers, status
        self.finished = False
        self.engine, self.lost = "", tuple[str, ...]()
        self._held = b""

    @property
    def model(self) -> str:
        return self._faults.redactor.text(self._meter.model)

    @property
    def usage(self) -> Usage:
        return self._meter.usage

    @property
    def failure(self) -> EngineError | None:
        return self._meter.failure

    async def begin(self, first: bytes) -> None:
        held, size = list[bytes](), 0
        try:
            while not self._meter.token_seen:
                chunk = first or await self._body.read()
                first = b""
                size = self._body.bounded(size + len(chunk))
                held.append(self._past_meter(chunk))
        except EngineError as error:
            # Some servers report usage before they fail.
            error.may_have_spent = error.may_have_spent or self._meter.usage.tokens_in > 0
            raise
        self._body.expect_tokens()
        self._held = b"".join(held)

    async def read(self) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            self.finished = self._meter.done
            return data
        try:
            while not self._meter.done:
                chunk = b"" if self._meter.broken else await self._body.read()
                data = self._past_meter(chunk)
                self.finished = self._meter.done
                if data:
                    return data
        except BaseException:
            self._body.close()
            raise
        self.close()
        return b""

    def fail(self, error: EngineError) -> bytes:
        # The event repeats what the answer began with, such as the model's name.
        return self._faults.redactor.data(self._meter.fail(error))

    def close(self) -> None:
        if self._meter.done and self._meter.failure is None:
            self._body.let_go()
        else:
            self._body.close()

    def _past_meter(self, chunk: bytes) -> bytes:
        """Return the events that a chunk completes; an empty chunk is the end."""
        try:
            data = self._meter.feed(chunk) if chunk else self._meter.finish()
        except Exception as error:
            failure = self._faults.of_answer(error, self._dialect)
        else:
            if self._meter.failure is not None:
                self._faults.owned(self._meter.failure)
            return self._faults.redactor.data(data)  # whole events: no secret is split by the end of a chunk
        raise failure
