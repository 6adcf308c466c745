"""One connection to a server, with one request at a time, and the answer that arrives over it.

A read creates a future only if it has to wait. Backpressure: when too much has arrived and was not read, the transport
stops reading. Knows no addresses and no pool; `on_free` is called when the connection can be used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ..contracts.deadline import Deadlines
from .errors import Broken, HttpError, NotHttp, Silence

HEAD_BYTES_MAX = 256 * 1024  # the limit of everything but bodies: heads, trailers, chunk sizes and extensions
BUFFERED_BYTES_MAX = 256 * 1024  # reading pauses when this much has arrived and was not read
PIECE_BYTES = 256 * 1024  # bodies are written in pieces of this size, so that a large one does not block the loop
FOREVER = float("inf")
LINGER_S = 0.5  # how long a server may take to finish an answer that is no longer read; then the connection is closed


class Answer:
    """An answer while it arrives: first the head, then the body in pieces.

    The first bytes must arrive before `first_due` (a time of the loop), and each piece within `idle_s` of the one
    before. Pieces without content, such as pings, do not count: until the reader calls `expect_more`, the later of the
    two holds.
    """

    def __init__(self, connection: Connection, first_due: float, idle_s: float) -> None:
        self._connection = connection
        self.first_due, self.idle_s = first_due, idle_s
        self.status = 0
        self.headers: dict[str, str] = {}  # by lower-case name; repeated headers are joined with commas
        self.ended = self.begun = False  # whether all of it has arrived; whether the reader has seen content
        self.at = first_due  # when the deadline is checked next; 0 means that none is set
        self.pieces: list[bytes] = []  # of the body, which have arrived and were not read
        self.unread = 0  # bytes that have arrived since the last read, including those that are not body
        self._held_back = self._bytes_seen = False
        self._failure: HttpError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.waiting_since: float | None = None  # since when a read has been waiting

    async def read(self) -> bytes:
        """Wait for the next bytes of the body; empty at the end."""
        while (data := self.received()) is None:
            await self.arrival()
        return data

    def received(self) -> bytes | None:
        """Return the bytes of the body that have arrived since the last call; empty at the end, None if there are none
        yet."""
        if not self.pieces:
            if self._failure is not None:
                raise self._failure
            return b"" if self.ended else None
        pieces, self.pieces = self.pieces, []
        self.unread, self._bytes_seen = 0, True
        if self._held_back:
            self.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Discard the rest and close the connection, unless the answer has ended or `let_go` was called."""
        if not self.ended and not self._connection.discard:
            self._connection.abort()

    def let_go(self) -> None:
        """Stop reading, but give the server `LINGER_S` to finish, so that the connection can be used again."""
        if self.ended or self._failure is not None:
            return
        connection = self._connection
        self.pieces.clear()
        self.waiting_since = connection.time()
        self.begun, self.idle_s = True, LINGER_S
        self.at = self.waiting_since + LINGER_S
        connection.deadlines.add(self)
        connection.discard = True
        self.resume()

    async def wait_for_head(self) -> None:
        while not self.status:
            if self._failure is not None:
                raise self._failure
            await self.arrival()

    def arrival(self) -> asyncio.Future[None]:
        """Return a future that ends when data arrives, or when none will come any more."""
        connection = self._connection
        waiter = self._waiter = connection.loop.create_future()
        since = self.waiting_since = connection.time()
        if not self.at and (due := self._due(since)) != FOREVER:
            self.at = due
            connection.deadlines.add(self)
        return waiter

    # --- called by the connection -------------------------------------------------------------------------------------

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = self.waiting_since = None
            if not waiter.done():  # its reader may have been cancelled
                waiter.set_result(None)

    def hold_back(self) -> None:
        if not self._held_back:
            self._held_back = True
            self._connection.pause()

    def resume(self) -> None:
        if self._held_back:
            self._held_back = False
            self._connection.resume()

    def fail(self, failure: HttpError) -> None:
        if self._failure is None:
            self._failure = failure
        self.wake()

    # --- patience -----------------------------------------------------------------------------------------------------

    def expect_more(self) -> None:
        """Note that the answer has content: from now on the deadline is `idle_s` after the last piece, which may be
        earlier."""
        self.begun = True
        self.at = 0.0

    def _due(self, since: float) -> float:
        if self.begun:
            return since + self.idle_s
        return max(self.first_due, since + self.idle_s) if self._bytes_seen else self.first_due

    def expire(self) -> None:
        """Called by the deadlines. One timer serves the whole answer: when it fires, it checks how long a read has been
        waiting. So a piece costs two assignments, and a slow reader is not mistaken for a silent server."""
        self.at = 0.0
        if self.waiting_since is None or self.ended or (self._waiter is not None and self._waiter.cancelled()):
            return  # no read is waiting; the next one sets the deadline
        connection = self._connection
        due = self._due(self.waiting_since)
        if connection.time() < due:
            self.at = due
            connection.deadlines.add(self)
        else:
            self.fail(Silence("no data arrived for too long"))
            connection.abort()


class Connection(asyncio.Protocol):
    """A connection that is used for one request after the other, until either side closes it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, on_free: Callable[[Connection], None]
    ) -> None:
        self.loop, self.deadlines, self.time = loop, deadlines, loop.time
        self._on_free = on_free
        self.transport: asyncio.Transport | None = None
        self.free_since = 0.0
        self.used = False  # whether it has completed an answer before
        self.discard = False  # whether the rest of the answer is thrown away
        self.tunnels = False  # whether a tunnel was requested: what follows the head of that answer is not a body
        self.head_size = 0  # bytes since the last piece of a body; 0 if nothing has arrived at all
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
        """Send a large body in pieces. Stops early if the server answers before it is complete."""
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
        """Give up the transport, and return it."""
        assert self.transport is not None
        transport, self.transport = self.transport, None
        if self._answer is not None:
            self.deadlines.remove(self._answer)
            self._answer = None
        return transport

    def pause(self) -> None:
        if self.is_open:
            cast(asyncio.Transport, self.transport).pause_reading()

    def resume(self) -> None:
        if self.is_open:
            cast(asyncio.Transport, self.transport).resume_reading()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self._end(Broken("the connection was closed"))

    # --- the transport's callbacks ------------------------------------------------------------------------------------

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
        if answer is None:  # not requested: it must not be mistaken for the next answer
            return self.abort()
        size = len(data)
        self.head_size += size
        answer.unread += size
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            return self._fail(NotHttp("the server switched to another protocol"))
        except HttpParserError as error:
            if not answer.ended:
                return self._fail(NotHttp(str(error)))
            self.abort()  # the answer is complete; what follows it is broken
        if self._stray:
            self.abort()
        elif not answer.ended:
            if self.head_size > HEAD_BYTES_MAX:
                return self._fail(NotHttp("the head of the answer is too long"))
            if answer.unread > BUFFERED_BYTES_MAX and not self.discard:
                answer.hold_back()
        answer.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        answer = self._answer
        if answer is not None and answer.status and self._may_end_at_close and exc is None:
            return self._end(None)
        self._end(Broken(f"the connection broke: {exc}" if exc else "the server closed the connection"))

    # --- the parser's callbacks ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._stray = self._answer is None  # what follows an answer must not be mistaken for the next one

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None and not self._answer.status:  # else it is a trailer, which is ignored
            self._head.append((name, value))

    def on_headers_complete(self) -> None:
        lines, self._head = self._head, []
        status = self._parser.get_status_code()
        answer = self._answer
        if not 100 <= status < 600:
            return self._fail(NotHttp(f"{status:03} is not a status"))
        if answer is None or status < 200:  # informational; the real one follows
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in lines}
        if len(headers) < len(lines):
            headers = _joined(lines)
        self._may_end_at_close = "content-length" not in headers and (
            "transfer-encoding" not in headers or not headers["transfer-encoding"].lower().endswith("chunked")
        )
        answer.headers, answer.status = headers, status
        if not self._sent:
            self.resume_writing()  # a server that has answered may not read the rest

    def on_body(self, body: bytes) -> None:
        self.head_size = 0
        if self._answer is not None and not self.discard:
            self._answer.pieces.append(body)

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or not answer.status or self.tunnels:  # an informational answer has ended
            return
        answer.ended = True
        self._answer = None
        self.used = True
        self.deadlines.remove(answer)
        if not (self._sent and self._parser.should_keep_alive() and self.is_open):
            return self.abort()  # the rest of the request is not sent
        answer.resume()  # the next request must not wait for this one's reader
        self._on_free(self)

    def _fail(self, failure: HttpError) -> None:
        answer = self._answer
        if answer is not None:
            answer.fail(failure)
        self.abort()

    def _end(self, failure: HttpError | None) -> None:
        """End or fail the open answer, because the connection is closed."""
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
