"""The bytes of an answer as they arrive, against the clock. Knows no wire format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...deadline import Deadlines
from ...endpoint import Endpoint
from ...errors import EngineError
from .faults import Faults

if TYPE_CHECKING:
    import aiohttp

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""How much may arrive without completing a delta; an answer that is not a stream may be as long."""
ERROR_BYTES_MAX = 64 * 1024
LINGER_S = 0.5
"""How long a server may take to end its answer after the reply is complete; then its connection is not used again."""


class _Silence(Exception):
    """A read has waited too long."""


class Body:
    """The bytes of an answer as they arrive.

    One deadline serves the whole answer: when it comes it looks since when a read has been waiting, and moves to when
    that read would be due. So a chunk costs two assignments, and a slow consumer is no silent server.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        endpoint: Endpoint,
        faults: Faults,
        started: float,
        deadlines: Deadlines,
        time: Callable[[], float],
    ) -> None:
        self._response, self._content, self._faults = response, response.content, faults
        self._first_due, self._idle_s = started + endpoint.first_token_s, endpoint.idle_s
        self._deadlines, self._time = deadlines, time
        self.at = 0.0
        """When it is looked at next; never, as long as nobody has read."""
        self._waiting_since: float | None = None
        self._bytes_seen = False
        self.token_seen = False

    async def read(self) -> bytes:
        """What has arrived, as soon as anything has; nothing at the end."""
        self._waiting_since = self._time()
        if not self.at:
            self._look_at(self._due(self._waiting_since))
        try:
            chunk = await self._content.readany()
        except _Silence:
            failure = (
                self._faults.timeout("idle", "fell silent in the middle of its answer")
                if self.token_seen
                else self._faults.timeout("first_token", "began to answer, but no token came")
            )
        except Exception as error:
            failure = self._faults.connection(error)
        else:
            self._bytes_seen = True
            return chunk
        finally:
            self._waiting_since = None
        raise failure

    def expect_tokens(self) -> None:
        """From now on a wait is for the next token, not for the first; it may be due earlier than the timer is set."""
        self.token_seen = True
        self.at = 0.0

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

    async def linger(self) -> None:
        """Let the server end its answer, so that the connection can be used again. The reply is complete already:
        nothing that goes wrong now matters."""
        if self._content.at_eof():
            return
        try:
            async with asyncio.timeout(LINGER_S):
                while await self._content.readany():
                    pass
        except Exception:
            return

    def close(self) -> None:
        """Close the connection at once; one whose answer has ended is in the pool again and stays open."""
        self._deadlines.remove(self)
        self._response.close()

    def _due(self, since: float) -> float:
        if self.token_seen:
            return since + self._idle_s
        # Bytes without a token (a ping, a comment) show that the server works: it may take as long as between tokens.
        return max(self._first_due, since + self._idle_s) if self._bytes_seen else self._first_due

    def _look_at(self, at: float) -> None:
        self.at = at
        self._deadlines.add(self)

    def expire(self) -> None:
        self.at = 0.0
        if self._waiting_since is None:
            return  # nobody waits; the next read says when
        due = self._due(self._waiting_since)
        if self._time() >= due:
            self._content.set_exception(_Silence())
        else:
            self._look_at(due)
