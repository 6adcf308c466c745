"""One connection to a server, and the answer that comes over it. One request at a time.

A read is one future, and only where it has to wait. Who reads slowly holds the server back: what has arrived and was
not read is bounded. Knows no addresses and no pool; whoever made the connection is told when it is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ..deadline import Deadlines
from .errors import Broken, HttpError, NotHttp, Silence

HEAD_BYTES_MAX = 256 * 1024
"""So much may come without being body: heads, trailers, and what chunks say of themselves."""
BUFFERED_BYTES_MAX = 256 * 1024
"""So much may wait to be read before the server is told to wait."""
PIECE_BYTES = 256 * 1024
"""Bodies are written in pieces of this size, so that a large one does not hold up the loop."""
FOREVER = float("inf")
LINGER_S = 0.5
"""How long a server may take to end an answer whose rest nobody wants; then its connection is not used again."""


class Answer:
    """What a server answers, while it comes: first the head, then the body in pieces.

    It may take until `first_due` (a time of the loop) for something to come, and `idle_s` from one piece to the next.
    Pieces that say nothing do not count as an answer: until somebody sets `begun`, the later of the two holds.
    """

    __slots__ = (
        "_bytes_seen",
        "_connection",
        "_failure",
        "_held_back",
        "_pieces",
        "_size",
        "_waiter",
        "at",
        "begun",
        "ended",
        "first_due",
        "headers",
        "idle_s",
        "status",
        "waiting_since",
    )

    def __init__(self, connection: Connection, first_due: float, idle_s: float) -> None:
        self._connection = connection
        self.first_due, self.idle_s = first_due, idle_s
        self.status = 0
        self.headers: dict[str, str] = {}
        """By name, in lower case; what comes in several lines is one list."""
        self.ended = self.begun = False
        """Whether all of it has arrived; whether it has said something, which is for the reader to know."""
        self.at = first_due
        """When it is looked at next; never, when 0."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._held_back = self._bytes_seen = False
        self._failure: HttpError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.waiting_since: float | None = None
        """Since when somebody has been waiting for it."""

    async def read(self) -> bytes:
        """What has arrived, as soon as anything has; nothing at the end."""
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                return b""
            await self._wait()
        pieces, self._pieces = self._pieces, []
        self._size, self._bytes_seen = 0, True
        if self._held_back:
            self.go_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Give the rest up, and close the connection at once, unless the answer has ended or was let go."""
        if not self.ended and not self._connection.discard:
            self._connection.abort()

    def let_go(self) -> None:
        """Let the server end its answer, which nobody reads on: soon, and the connection can be used again."""
        if self.ended or self._failure is not None:
            return
        connection = self._connection
        self._pieces.clear()
        self.waiting_since = connection.time()
        self.begun, self.idle_s = True, LINGER_S
        self.at = self.waiting_since + LINGER_S
        connection.deadlines.add(self)
        connection.discard = True
        self.go_on()

    async def wait_for_head(self) -> None:
        while not self.status:
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def _wait(self) -> None:
        connection = self._connection
        self._waiter = connection.loop.create_future()
        self.waiting_since = connection.time()
        if not self.at and (due := self._due(self.waiting_since)) != FOREVER:
            self.at = due
            connection.deadlines.add(self)
        try:
            await self._waiter
        finally:
            self._waiter = self.waiting_since = None

    # --- what the connection tells ------------------------------------------------------------------------------------

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self, piece: bytes) -> bool:
        """Keep what has arrived. Says whether that is enough for now."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > BUFFERED_BYTES_MAX and not self._held_back:
            self._held_back = True
            return True
        return False

    def go_on(self) -> None:
        """Hold the server back no longer."""
        if self._held_back:
            self._held_back = False
            self._connection.go_on()

    def fail(self, failure: HttpError) -> None:
        if self._failure is None:
            self._failure = failure
        self.wake()

    # --- patience -----------------------------------------------------------------------------------------------------

    def expect_more(self) -> None:
        """It has said something: from now on a wait is for the next piece, and may be due earlier than was thought."""
        self.begun = True
        self.at = 0.0

    def _due(self, since: float) -> float:
        if self.begun:
            return since + self.idle_s
        return max(self.first_due, since + self.idle_s) if self._bytes_seen else self.first_due

    def expire(self) -> None:
        """For the deadlines: one timer serves the whole answer. When it goes off it looks since when a read has been
        waiting, so that a piece costs two assignments, and who reads slowly is not taken for a silent server."""
        self.at = 0.0
        if self.waiting_since is None or self.ended:
            return  # nobody waits; the next read says when
        connection = self._connection
        due = self._due(self.waiting_since)
        if connection.time() < due:
            self.at = due
            connection.deadlines.add(self)
        else:
            self.fail(Silence("nothing came for too long"))
            connection.abort()


class Connection(asyncio.Protocol):
    """A connection that is used again and again, until either side closes it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, on_free: Callable[[Connection], None]
    ) -> None:
        self.loop, self.deadlines, self.time = loop, deadlines, loop.time
        self._on_free = on_free
        self.transport: asyncio.Transport | None = None
        self.free_since = 0.0
        self.used = False
        """Whether it has brought an answer before."""
        self.discard = False
        """Whether nobody wants the rest of the answer."""
        self.tunnels = False
        """Whether a proxy was asked for a tunnel, so that what follows the head of its answer is no body."""
        self.head_size = 0
        """How much has come that is no body, since the last piece of one; none, when nothing came at all."""
        self._parser = HttpResponseParser(self)
        self._answer: Answer | None = None
        self._head: list[tuple[bytes, bytes]] = []
        self._may_end_at_close = False
        self._can_write: asyncio.Future[None] | None = None
        self._sent = True
        self._stray = False

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def ask(self, head: bytes, body: bytes, first_due: float = FOREVER, idle_s: float = FOREVER) -> Answer:
        """Send a request. A body that is larger than a piece is sent by `send_rest`."""
        assert self.transport is not None, "a connection is open before it is used"
        assert self._answer is None, "one request at a time"
        answer = self._answer = Answer(self, first_due, idle_s)
        if first_due != FOREVER:
            self.deadlines.add(answer)
        self.head_size, self.discard = 0, False
        if len(body) <= PIECE_BYTES:
            self.transport.write(head + body)
        else:
            self._sent = False
            self.transport.write(head)
        return answer

    async def send_rest(self, body: bytes) -> None:
        """Send a large body, piece by piece, until it is sent or the server has answered already."""
        answer, view = self._answer, memoryview(body)
        for at in range(0, len(view), PIECE_BYTES):
            if self._can_write is not None and answer is not None:
                answer.waiting_since = self.time()
                await self._can_write
                answer.waiting_since = None
            if self._answer is not answer or answer is None or answer.status or not self.is_open:
                return
            cast(asyncio.Transport, self.transport).write(view[at : at + PIECE_BYTES])
        self._sent = True

    def hand_over(self) -> asyncio.Transport:
        """The transport, which is somebody else's from now on."""
        assert self.transport is not None
        transport, self.transport = self.transport, None
        if self._answer is not None:
            self.deadlines.remove(self._answer)
            self._answer = None
        return transport

    def go_on(self) -> None:
        if self.is_open:
            cast(asyncio.Transport, self.transport).resume_reading()

    def abort(self) -> None:
        """Close it at once."""
        if self.transport is not None:
            self.transport.abort()
        self._end(Broken("the connection was closed"))

    # --- what the transport tells -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._can_write = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._can_write is not None and not self._can_write.done():
            self._can_write.set_result(None)
        self._can_write = None

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # nobody asked: whatever it is, it must not be taken for the next answer
            return self.abort()
        self.head_size += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            return self._fail(NotHttp("the server wants to speak something else"))
        except HttpParserError as error:
            if not answer.ended:
                return self._fail(NotHttp(str(error)))
            self.abort()  # what broke stands behind the end of an answer that is whole
        if self._stray:
            self.abort()
        elif self.head_size > HEAD_BYTES_MAX and not answer.ended:
            return self._fail(NotHttp("the head of the answer does not end"))
        answer.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        answer = self._answer
        if answer is not None and answer.status and self._may_end_at_close and exc is None:
            return self._end(None)
        self._end(Broken(f"the connection broke: {exc}" if exc else "the server closed the connection"))

    # --- what the parser tells ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._stray = self._answer is None  # what follows an answer must not be taken for the next one

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None and not self._answer.status:  # else it is a trailer, which nobody reads
            self._head.append((name, value))

    def on_headers_complete(self) -> None:
        lines, self._head = self._head, []
        status = self._parser.get_status_code()
        answer = self._answer
        if answer is None or status < 200:  # on the way to the real one
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in lines}
        if len(headers) < len(lines):
            headers = _joined(lines)
        self._may_end_at_close = "content-length" not in headers and (
            "transfer-encoding" not in headers or not headers["transfer-encoding"].lower().endswith("chunked")
        )
        answer.headers, answer.status = headers, status
        if not self._sent:
            self.resume_writing()  # who answers already may not read the rest

    def on_body(self, body: bytes) -> None:
        self.head_size = 0
        answer = self._answer
        if answer is not None and not self.discard and answer.take(body) and self.transport is not None:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or not answer.status or self.tunnels:  # an answer on the way to the real one has ended
            return
        answer.ended = True
        self._answer = None
        self.used = True
        self.deadlines.remove(answer)
        if not (self._sent and self._parser.should_keep_alive() and self.is_open):
            return self.abort()  # nothing that is still to be sent matters
        answer.go_on()  # whoever is next must not wait for this one's reader
        self._on_free(self)

    def _fail(self, failure: HttpError) -> None:
        answer = self._answer
        if answer is not None:
            answer.fail(failure)
        self.abort()

    def _end(self, failure: HttpError | None) -> None:
        """The connection is no more: what had not arrived will not come."""
        answer, self._answer = self._answer, None
        self._on_free(self)
        if answer is None:
            return
        self.deadlines.remove(answer)
        if failure is None:
            answer.ended = True
            answer.wake()
        else:
            answer.fail(failure)


def _joined(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in lines:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
