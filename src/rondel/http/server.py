"""HTTP/1.1 as a server: connections of callers, and an ASGI application that answers what they ask.

Parsing is httptools'. That a caller has left is told to the application at once; a caller who reads slowly holds it
back, and one who asks on before it has its answer waits. There is no TLS, no HTTP/2 and no WebSocket: a gateway for
others stands behind a server that has them. Knows no path and no dialect.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from ..deadline import Deadlines

HEAD_BYTES_MAX = 64 * 1024
BUFFERED_BYTES_MAX = 64 * 1024
"""So much of a body may wait for the application before the caller is held back."""
IDLE_S = 75.0
"""How long a connection may be without a request, or a request without its next piece; clients with a pool close theirs
earlier."""
AHEAD_MAX = 4
"""So much may be asked before the first answer is there; then the caller is held back."""
BACKLOG = 2_048
DRAIN_S = 10.0
"""How long requests may go on after the server was told to stop."""

Message: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any
]

LEFT: Message = {"type": "http.disconnect"}
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_PHRASES = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
"""For people who look at the bytes; programs read the number."""
_BODILESS = frozenset({204, 304})

log = logging.getLogger(__name__)


class _Stopped(Exception):
    """Ends what is still under way when the server ends."""


class Server:
    """Serves an application on a socket that listens, until it is told to stop."""

    def __init__(self, application: Application, listening: socket.socket) -> None:
        self.application, self._listening = application, listening
        self.connections: set[Connection] = set()
        self.deadlines = Deadlines()
        self.is_stopping = False
        self._told = asyncio.Event()
        self._is_empty = asyncio.Event()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve(group)
                raise _Stopped
        except* _Stopped:
            pass

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(self, loop, group), sock=self._listening, backlog=BACKLOG
            )
            try:
                await self._told.wait()
            finally:
                server.close()
            await self._drain()
        finally:
            self._listening.close()
            self.deadlines.close()
            for connection in list(self.connections):
                connection.transport.abort()

    def stop(self, *, at_once: bool = False) -> None:
        """End when the requests under way have ended, or at once."""
        self.is_stopping = True
        self._told.set()
        if at_once:
            self._is_empty.set()

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._is_empty.set()

    async def _drain(self) -> None:
        """Let requests under way end, but nobody begin another one."""
        for connection in list(self.connections):
            connection.close_if_free()
        if self.connections:
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self._is_empty.wait()
            except TimeoutError:
                log.warning("%d requests had not ended after %g s", len(self.connections), DRAIN_S)


class Connection(asyncio.Protocol):
    """One caller's connection: one request after the other."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, group: asyncio.TaskGroup) -> None:
        self.server, self.loop, self._group = server, loop, group
        self.at = 0.0
        """When a connection without a whole request is closed."""
        self.full: asyncio.Event | None = None
        """There while the caller reads too slowly; set when it has caught up."""
        self._parser = HttpRequestParser(self)
        self._exchange: Exchange | None = None
        """What is being answered."""
        self._next: list[Exchange] = []
        """What was asked before the answer was there."""
        self._reading: Exchange | None = None
        """Whose body comes."""
        self._is_paused = self._is_deaf = False
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._expects_word, self._is_in_head, self._head_size = False, False, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server.connections.add(self)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.deadlines.remove(self)
        self.server.forget(self)
        self.resume_writing()
        for exchange in (self._exchange, *self._next):
            if exchange is not None:
                exchange.leave()
        self._exchange = None
        self._next.clear()

    def close_if_free(self) -> None:
        if self._exchange is None:
            self.transport.close()

    # --- what the transport tells -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as end:
            self._stay(data[end.args[0] :])
        except HttpParserError:
            self._hear_no_more()
        else:
            if self._is_in_head:
                self._head_size += len(data)
                if self._head_size > HEAD_BYTES_MAX:
                    self.refuse(431)

    def _hear_no_more(self) -> None:
        """What came is no request. Whatever was asked before it is answered, and then it ends."""
        last = self._next[-1] if self._next else self._exchange
        if last is None or self._reading is not None:
            self.refuse(400)
        else:
            self._is_deaf = last.is_last = True

    def _stay(self, rest: bytes) -> None:
        """Read on as if nobody had asked for another protocol: the parser looks for no body behind such a head, and
        there are clients who ask for HTTP/2 with each first request."""
        if self._parser.get_method() == b"CONNECT":
            return self.refuse(400)  # which asks for nothing else
        kept = [b"%b: %b\r\n" % line for line in self._headers if line[0] not in (b"connection", b"upgrade")]
        asked = b"%b %b HTTP/1.1\r\n%b\r\n" % (self._parser.get_method(), self._url, b"".join(kept))
        self._parser = HttpRequestParser(self)
        self.data_received(asked + rest)

    def pause_writing(self) -> None:
        self.full = asyncio.Event()

    def resume_writing(self) -> None:
        if self.full is not None:
            self.full.set()
            self.full = None

    # --- what the parser tells ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []
        self._expects_word, self._is_in_head, self._head_size = False, True, 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # what stands behind a body says nothing about it: nobody has looked at it on the way
        name = name.lower()
        if name == b"expect":
            self._expects_word = value.lower() == b"100-continue"
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        parser = self._parser
        if parser.should_upgrade():
            return
        version = parser.get_http_version()
        raw_path, query = _split(self._url)
        path = raw_path.decode("latin-1")
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }
        exchange = self._reading = Exchange(self, scope, self._expects_word)
        exchange.is_last = version != "1.1" or not parser.should_keep_alive()
        if self._exchange is None:
            self._begin(exchange)
        else:
            self._next.append(exchange)
            if len(self._next) == AHEAD_MAX:
                self.pause()

    def on_body(self, body: bytes) -> None:
        self.at = self.loop.time() + IDLE_S
        if self._reading is not None and self._reading.take(body):
            self.pause()

    def on_message_complete(self) -> None:
        exchange, self._reading = self._reading, None
        if exchange is not None:
            exchange.end_body()
            if exchange is self._exchange:  # from now on it is the application's time
                self.server.deadlines.remove(self)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        if exchange is self._reading:
            self._wait_for_request()  # for the rest of it
        self._group.create_task(exchange.run(self.server.application))

    def answered(self, exchange: Exchange) -> None:
        """The answer to the first request is all written."""
        self._exchange = None
        if exchange.is_last or self.server.is_stopping:
            self.transport.close()
        elif self._next:
            self._begin(self._next.pop(0))
        else:
            self._wait_for_request()
        self.go_on()

    def _wait_for_request(self) -> None:
        self.at = self.loop.time() + IDLE_S
        self.server.deadlines.add(self)

    def expire(self) -> None:
        """For the deadlines: nobody asked for too long, or not to the end."""
        self.transport.close()

    def refuse(self, status: int) -> None:
        """Say that it cannot be answered, and close. Nothing can be said where an answer is being written already."""
        self._is_deaf = True
        if self._exchange is not None and self._exchange.has_begun:
            self.transport.abort()
            return
        text = _PHRASES[status].encode()
        head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
        self.transport.write(_status_line(status) + head + text)
        self.transport.close()

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self._is_paused and len(self._next) < AHEAD_MAX and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()


class Exchange:
    """A request and its answer, as an ASGI application sees them: `receive` and `send`."""

    __slots__ = (
        *("_connection", "_expects_word", "_left", "_more", "_pieces", "_scope", "_size", "_told", "_waiter"),
        *("_bodiless", "_chunked", "_head", "_rest", "has_begun", "has_ended", "is_last"),
    )

    def __init__(self, connection: Connection, scope: Message, expects_word: bool) -> None:
        """`expects_word`: the caller sends its body when it is told to."""
        self._connection, self._scope, self._expects_word = connection, scope, expects_word
        self.is_last = self.has_begun = self.has_ended = False
        """Whether the connection ends with this answer; whether any of the answer was written, and all of it."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._more, self._told, self._left = True, False, False
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._bodiless = self._chunked = False
        self._rest: int | None = None

    async def run(self, application: Application) -> None:
        try:
            await application(self._scope, self.receive, self.send)
        except Exception:
            log.exception("the application failed")
        if not self.has_ended and not self._left:
            self._connection.refuse(500)  # what has begun is broken off: it must not look finished

    # --- the request --------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next piece of the body; then, as soon as it is so, that the caller has left or has its answer."""
        while not self._pieces and (self._more or self._told) and not self._left and not self.has_ended:
            self._ask_for_body()
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        if self._left or self.has_ended:
            return LEFT
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces, self._size, self._told = [], 0, not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    def _ask_for_body(self) -> None:
        self._connection.go_on()
        if self._expects_word and self._more and self._head is None:
            self._expects_word = False
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take(self, piece: bytes) -> bool:
        """Keep a piece of the body. Says whether that is enough for now."""
        if self.has_ended:
            return False  # nobody wants it any more
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        return self._size > BUFFERED_BYTES_MAX

    def end_body(self) -> None:
        self._more = False
        self._wake()

    def leave(self) -> None:
        """The caller is no longer there."""
        self._left = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the answer ---------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        connection = self._connection
        while connection.full is not None and not self._left:
            await connection.full.wait()
        if self._left:
            return
        if message["type"] == "http.response.start":
            assert self._head is None, "an answer begins once"
            self._head = self._written_head(message["status"], message.get("headers", ()))
            return
        assert self._head is not None, "an answer begins with its head"
        assert not self.has_ended, "an answer ends once"
        more = message.get("more_body", False)
        data = self._written(message.get("body", b""), more)
        if not self.has_begun:
            self.has_begun = True
            data = self._head + data
        if data:
            connection.transport.write(data)
        if not more:
            self.has_ended = True
            self._wake()
            connection.answered(self)

    def _written_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        lines, length = [_status_line(status)], None
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            lines.append(b"%b: %b\r\n" % (name, value))
        if status in _BODILESS or self._scope["method"] == "HEAD":
            self._bodiless = True
        elif length is not None:
            self._rest = length
        elif self._scope["http_version"] == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        else:
            self.is_last = True  # the end of the connection is that of the answer
        if self._expects_word and self._more:
            self.is_last = True  # its body was not asked for, and may come or not
        if self.is_last or self._connection.server.is_stopping:
            self.is_last = True
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise ValueError("a header has a line break in it")
        return head + b"\r\n"

    def _written(self, body: bytes, more: bool) -> bytes:
        if self._bodiless:
            return b""
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return data if more else data + b"0\r\n\r\n"
        if self._rest is not None:
            self._rest -= len(body)
            if self._rest < 0 or (self._rest and not more):
                raise ValueError("an answer is not as long as its head says")
        return body


def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, "").encode())


def _split(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query of what was asked for."""
    if not url.startswith(b"/"):  # a whole address, as proxies are asked
        parsed = parse_url(url)
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"#")[0].partition(b"?")
    return path, query
