"""The bytes of an answer as they arrive. What goes wrong is said as an engine's error. Knows no wire format."""

from __future__ import annotations

from ...errors import EngineError
from ...http import Answer, HttpError, Silence
from .faults import Faults

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""How much may arrive without completing a delta; an answer that is not a stream may be as long."""
ERROR_BYTES_MAX = 64 * 1024


class Body:
    """The body of an answer. Whoever has one closes it, or lets it go."""

    __slots__ = ("_answer", "_faults", "close", "expect_tokens", "let_go")

    def __init__(self, answer: Answer, faults: Faults) -> None:
        self._answer, self._faults = answer, faults
        self.close, self.let_go = answer.close, answer.let_go
        self.expect_tokens = answer.expect_more
        """From now on a wait is for the next token, not for the first."""

    @property
    def token_seen(self) -> bool:
        return self._answer.begun

    async def read(self) -> bytes:
        """What has arrived, as soon as anything has; nothing at the end."""
        # Raised after the except clause: ours must not refer to another error, not even as its context.
        try:
            return await self._answer.read()
        except HttpError as error:
            failure = self._failure(error)
        raise failure

    def _failure(self, error: HttpError) -> EngineError:
        if not isinstance(error, Silence):
            return self._faults.connection(error)
        if self.token_seen:
            return self._faults.timeout("idle", "fell silent in the middle of its answer")
        return self._faults.timeout("first_token", "began to answer, but no token came")

    async def read_all(self, first: bytes) -> bytes:
        pieces, size = [first], len(first)
        while chunk := await self.read():
            pieces.append(chunk)
            size += len(chunk)
            self.bounded(size)
        return b"".join(pieces)

    def bounded(self, pending: int) -> int:
        if pending > EVENT_BYTES_MAX:
            raise self._faults.too_long(EVENT_BYTES_MAX)
        return pending

    async def read_some(self) -> bytes:
        """As much of an error's body as comes; the status is told even when the body breaks off."""
        self.expect_tokens()
        data = b""
        try:
            while len(data) < ERROR_BYTES_MAX and (chunk := await self.read()):
                data += chunk
        except EngineError:
            pass
        return data[:ERROR_BYTES_MAX]
