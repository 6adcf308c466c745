"""Reads the bytes of an answer as they arrive, and raises engine errors. Knows no wire format."""

from __future__ import annotations

from ...errors import EngineError
from ...http import Answer, HttpError, Silence
from .faults import Faults

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""The bytes that may arrive without completing a delta, and the size of an answer that does not stream."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""The bytes of one answer. A reply's own limits are far lower, but do not count comments and ignored fields."""
ERROR_BYTES_MAX = 64 * 1024


class Body:
    """The body of an answer. Its owner calls `close` or `let_go`."""

    def __init__(self, answer: Answer, faults: Faults) -> None:
        self._answer, self._faults = answer, faults
        self._size = 0
        self.close, self.let_go = answer.close, answer.let_go
        self.expect_tokens = answer.expect_more  # wait for the next token from now on, not for the first

    @property
    def token_seen(self) -> bool:
        return self._answer.begun

    async def read(self) -> bytes:
        """Return what has arrived, as soon as anything has; b"" at the end."""
        # Like `Answer.read`, without its coroutine: this is called for every token.
        # Raised after the except clause, so that our error has no context, which could hold a secret.
        answer = self._answer
        try:
            while (data := answer.received()) is None:
                await answer.arrival()
        except HttpError as error:
            failure = self._failure(error)
        else:
            self._size += len(data)
            if self._size <= ANSWER_BYTES_MAX:
                return data
            failure = self._faults.endless(ANSWER_BYTES_MAX)
        raise failure

    def _failure(self, error: HttpError) -> EngineError:
        if not isinstance(error, Silence):
            return self._faults.connection(error)
        if self.token_seen:
            return self._faults.timeout("idle", "fell silent in the middle of its answer")
        return self._faults.timeout("first_token", "began to answer, but no token came")

    async def read_all(self, first: bytes, bytes_max: int | None = None) -> bytes:
        pieces, size = [first], len(first)
        while chunk := await self.read():
            pieces.append(chunk)
            size += len(chunk)
            self.bounded(size, bytes_max)
        return b"".join(pieces)

    def bounded(self, pending: int, bytes_max: int | None = None) -> int:
        if pending > (most := bytes_max or EVENT_BYTES_MAX):
            raise self._faults.too_long(most)
        return pending

    async def read_some(self) -> bytes:
        """Return as much of an error's body as arrives: the status matters even if the body breaks off."""
        self.expect_tokens()
        data = b""
        try:
            while len(data) < ERROR_BYTES_MAX and (chunk := await self.read()):
                data += chunk
        except EngineError:
            pass
        return data[:ERROR_BYTES_MAX]
