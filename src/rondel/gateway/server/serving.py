"""The gateway on a socket: uvicorn's HTTP protocol with limits of our own, a graceful stop, and the fastest event loop
that is installed.

The socket is bound first, so that a port in use is one clear sentence. The only file that knows uvicorn and uvloop.
Knows no path and no dialect.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ...contracts.deadline import Deadlines
from ...errors import RondelError

HEADERS_MAX = 100
HEAD_BYTES_MAX = 64 * 1024
"""Everything that is not body counts: request line, headers, trailers, and what chunks say about themselves."""
PIPELINED_MAX = 16  # how many requests may wait on one connection for the answer to the first
CONNECTIONS_MAX = 10_000
HEAD_S = 30.0  # how long a connection may take to send the head of a request
BODY_S = 75.0  # how long a caller may pause within a body
KEEP_ALIVE_S = 75  # how long a connection may be idle between requests. Clients with a pool close theirs earlier.
UNREAD_S = 5.0
"""How long a caller may continue to send what was refused. Closing at once would reset the connection, and many clients
would never see the refusal."""
REFUSED_MAX = 16  # connections beyond the limit that stay open for that long: a flood must not use up all open files
CANCEL_S = 1.0  # how long requests have to end after their callers were disconnected
BACKLOG = 2_048

T = TypeVar("T")
Application: TypeAlias = Callable[
    [Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise RondelError(_why_not(error, host, port)) from None
    listening.setblocking(False)
    return listening


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; stop what listens there, or choose another: rondel serve --port NUMBER"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"permission denied for port {port}; use one above 1023: rondel serve --port 8484"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine has no address {host!r}; check `host` in [gateway]"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server:
    """Serves an ASGI application on a listening socket until `stop` is called.

    `X-Forwarded-For` is believed only in requests from one of the `proxies`.
    """

    def __init__(self, application: Application, listening: socket.socket, *, proxies: Sequence[str] = ()) -> None:
        self._listening = listening
        self.config = Config(
            application,
            http=Connection,
            ws="none",  # the gateway has no WebSocket: a request for one is answered over HTTP
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            server_header=False,
            date_header=False,
        )
        self.config.load()
        self.state = ServerState()
        self.connections_max = _connections_max()
        self.deadlines = Deadlines()
        self.is_stopping = False
        self._stop, self._ended = asyncio.Event(), asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.state.connections)

    async def run(self) -> None:
        _spare_the_collector()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: Connection(self, loop), sock=self._listening, backlog=BACKLOG)
            try:
                await self._stop.wait()
            finally:
                server.close()
            for connection in list(self.state.connections):
                connection.shutdown()
            self.check_ended()
            await self._ended.wait()
        finally:
            self._listening.close()
            await self._disconnect()
            self.deadlines.close()

    def stop(self, *, at_once: bool = False) -> None:
        self.is_stopping = True
        self._stop.set()
        if at_once:
            self._ended.set()

    def check_ended(self) -> None:
        if self.is_stopping and not self.connections:
            self._ended.set()

    async def _disconnect(self) -> None:
        for connection in list(self.state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        # The application notices that its callers have left, and ends by itself; what does not is cancelled.
        for seconds in (CANCEL_S, None):
            if left := set(self.state.tasks):
                _, left = await asyncio.wait(left, timeout=seconds)
            for task in left:
                task.cancel()


class _Refused(Exception):
    """Raised in a callback of the parser, to stop it at once. `Connection.data_received` sees a parser's error."""


class _HeadWithBody:
    """Stands in for the transport of a request until its answer has begun: it sends the head of the answer together
    with the first piece of the body, in one packet."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._transport = cycle, cycle.transport
        self._head = b""
        self.close, self.is_closing = cycle.transport.close, cycle.transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            self._cycle.transport = self._transport
            self._transport.write(self._head + data)
        elif data.startswith(b"HTTP/1.1 100 "):
            self._transport.write(data)
        else:
            self._head = data


async def _send_unchunked(cycle: RequestResponseCycle, message: Any) -> None:
    """`RequestResponseCycle.send` for a caller of HTTP/1.0, which has no chunks: a stream ends with the connection.
    uvicorn closes that after each request, and is told that the length of each piece was announced."""
    if message["type"] == "http.response.start":
        if all(name != b"content-length" for name, _ in message["headers"]):
            cycle.chunked_encoding = False
    elif not cycle.expected_content_length:
        cycle.expected_content_length = len(message.get("body", b""))
    await RequestResponseCycle.send(cycle, message)


class Connection(HttpToolsProtocol):
    """A caller's connection: uvicorn's, with limits on what a caller may send, and how slowly."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server.config, server.state, {}, loop)
        self._server, self._deadlines, self._time = server, server.deadlines, loop.time
        self.at = 0.0  # when the connection is closed unless the caller has sent what is awaited
        self._active: RequestResponseCycle | None = None
        """The request that is being answered; `cycle`, of uvicorn, is the one that was read last."""
        self._refusal = 400
        self._is_in_head = self._awaits_head = self._is_in_body = self._discards_input = False
        self._header_count = self._header_bytes = 0
        self._overhead = 0  # bytes since the last piece of a body or the last whole request

    # --- the transport's callbacks ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._expect(HEAD_S)
        if (surplus := self._server.connections - self._server.connections_max) > 0:
            self._send_status(503)
            if surplus > REFUSED_MAX:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.remove(self)
        # uvicorn tells only the request that was read last.
        for cycle in (self._active, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._server.check_ended()

    def data_received(self, data: bytes) -> None:
        if self._discards_input:
            return
        self._overhead += len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    data = b""
                except HttpParserUpgrade as upgrade:
                    data = self._without_upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self._refuse(self._refusal)
        else:
            if self._overhead > HEAD_BYTES_MAX:
                self._refuse(431)
            else:
                self._watch()

    def _watch(self) -> None:
        """Set the deadline for the rest of a request. The pieces of a head share one; each piece of a body has its own,
        unless the body was refused."""
        if self._is_in_body:
            if not self.cycle.response_complete:
                self._expect(BODY_S)
        elif self._is_in_head and not self._awaits_head:
            self._awaits_head = True
            self._expect(HEAD_S)

    def _without_upgrade(self, rest: bytes) -> bytes:
        """Return the request without its upgrade to another protocol, and what follows it.

        Some clients ask for HTTP/2 with each first request. The parser expects no body after such a head, so that it
        has to read the head once more.
        """
        if self.parser.get_method() == b"CONNECT":
            raise HttpParserError
        kept = [b"%b: %b\r\n" % header for header in self.headers if header[0] not in (b"connection", b"upgrade")]
        version = self.parser.get_http_version().encode()
        asked = b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, b"".join(kept))
        self.parser = HttpRequestParser(self)
        return asked + rest

    def expire(self) -> None:
        """Called by the deadlines when the caller has sent nothing for too long. If we are the ones who do not read, it
        gets more time. A caller without an open request gets the rest of its last answer, however slowly it reads."""
        if self.flow.read_paused:
            self._expect(BODY_S)
        elif self._active is None or self._is_in_head or self._is_in_body or self._discards_input:
            self.transport.abort()
        else:
            self.transport.close()

    def _expect(self, seconds: float) -> None:
        self.at = self._time() + seconds
        self._deadlines.add(self)

    # --- the parser's callbacks ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_in_head, self._awaits_head = True, False
        self._header_count = self._header_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > HEADERS_MAX or self._header_bytes > HEAD_BYTES_MAX:
            self._refusal = 431
            raise _Refused
        if self._is_in_head:  # a trailer must not change the headers that were checked
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) == PIPELINED_MAX:
            raise _Refused
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":
            self.cycle.transport = cast(asyncio.Transport, _HeadWithBody(self.cycle))
        if self.scope["http_version"] == "1.0":
            self.cycle.send = partial(_send_unchunked, self.cycle)
        self._is_in_body = True
        if self.expect_100_continue:
            # Unless its body is wanted, the caller may send it or not: nothing that follows could be understood.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._overhead = 0
        if self.parser.should_upgrade():
            return
        self._is_in_body = False
        if self.cycle.response_complete:
            self._expect(KEEP_ALIVE_S)
        else:
            self._deadlines.remove(self)
        if self.expect_100_continue and not self._server.is_stopping:
            self.cycle.keep_alive = self.parser.should_keep_alive()
        super().on_message_complete()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Begin the next request, or wait for one. Instead of uvicorn's, which sets a timer for each response."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._is_in_body:
            self._expect(UNREAD_S if self.cycle.response_complete else BODY_S)
        elif self.cycle.response_complete and not self._is_in_head:
            self._expect(KEEP_ALIVE_S)

    def _refuse(self, status: int) -> None:
        """Answer the requests that came before, but read nothing more."""
        self._discards_input = True
        if self._is_in_body and not self.pipeline:
            self._refuse_body(status)
            return
        if self._is_in_body:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._active
        if last is None or last.response_complete:
            self._send_status(status)
        else:
            last.keep_alive = False

    def _refuse_body(self, status: int) -> None:
        """The body of the request that is being answered is broken."""
        cycle = self.cycle
        if cycle.response_started:
            self.transport.abort()
            return
        cycle.disconnected = True
        cycle.message_event.set()
        self._send_status(status)

    def _send_status(self, status: int) -> None:
        self._discards_input = True
        head = STATUS_LINE[status]
        text = head.split(b" ", 2)[2].strip()
        head += b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
        self.transport.write(head + text)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._expect(UNREAD_S)


def _connections_max() -> int:
    """Each request needs two open files: its caller's connection and one to a model's server."""
    try:
        import resource
    except ImportError:  # Windows
        return CONNECTIONS_MAX
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if files < 0 else max(16, min(CONNECTIONS_MAX, files // 2 - 32))


def _spare_the_collector() -> None:
    """Existing objects live as long as the server, so the garbage collector need not look at them with every hundredth
    request, nor once before the first. Requests leave few cycles behind, so it need not run as often either."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:  # Windows, or an interpreter that has none
        return asyncio.run(main)
    return uvloop.run(main)
