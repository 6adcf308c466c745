"""A client with a pool of connections to one server.

The most recently used connection is used first, so that those of a burst become idle and are closed. A server may close
a connection just as it is reused: if nothing of the answer has arrived, the request is sent again on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..contracts.deadline import Deadlines
from .connection import FOREVER, PIECE_BYTES, Answer, Connection
from .dialing import Origin, Proxy, dial, resolve
from .errors import Broken, ConnectTimeout, HttpError, Silence

if TYPE_CHECKING:
    import ssl

IDLE_S = 45.0  # how long an idle connection stays open
ADDRESSES_S = 60.0  # how long resolved addresses are used


class Head:
    """Headers as bytes on the wire, encoded once for many requests. Raises HttpError for an invalid header."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
            raise HttpError("a header contains a line break or NUL")
        self.lines = lines


class Client:
    """Sends requests to one server. Belongs to the event loop in which it was created, and is closed there.

    `proxy` is a proxy's URL. `addresses` replace the resolution of the URL's host. `tls` defaults to the certificates
    that this machine trusts.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_s: float = 10.0,
        proxy: str = "",
        addresses: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._origin, self._proxy = Origin.of(url), Proxy.of(proxy) if proxy else None
        self._connect_s, self._tls = connect_s, tls
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._given, self._known, self._known_until = addresses, list[str](), 0.0
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._before, self._host = "", f"host: {self._origin.authority}\r\n"
        if self._proxy is not None and not self._origin.is_secure:
            # A proxy for plain HTTP expects the whole URL in the request line.
            self._before = f"{self._origin.scheme}://{self._origin.authority}"
            if self._proxy.authorization:
                self._host += f"proxy-authorization: {self._proxy.authorization}\r\n"

    async def ask(
        self,
        method: str,
        target: str,
        head: Head,
        body: bytes = b"",
        *,
        wait_s: float = FOREVER,
        idle_s: float = FOREVER,
    ) -> Answer:
        """Send a request and return the answer as soon as its head has arrived. `target` is path and query. Raises
        HttpError, also when the first bytes take longer than `wait_s`, or later ones longer than `idle_s`.
        """
        first_due = self._loop.time() + wait_s
        asked = self._asked(method, target, head, len(body))
        if (connection := self._taken()) is not None:
            try:
                return await _answer(connection, asked, body, first_due, idle_s)
            except Broken:
                if connection.head_size:
                    raise
        return await _answer(await self._new(), asked, body, first_due, idle_s)

    @property
    def is_here(self) -> bool:
        return not self._closed and self._loop is asyncio.get_running_loop()

    def close(self) -> None:
        """Close all connections, also those with a request in progress."""
        self._closed = True
        self._deadlines.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            connection.abort()

    def _asked(self, method: str, target: str, head: Head, size: int) -> bytes:
        if not target.isascii() or not target.isprintable() or " " in target:
            raise HttpError("the address contains an invalid character")
        length = f"content-length: {size}\r\n" if size or method != "GET" else ""
        asked = f"{method} {self._before}{target} HTTP/1.1\r\n{self._host}{head.lines}{length}\r\n"
        try:
            return asked.encode("latin-1")
        except UnicodeEncodeError:
            return asked.encode()

    # --- connections --------------------------------------------------------------------------------------------------

    def _taken(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_open:
                return connection
        return None

    async def _new(self) -> Connection:
        if self._closed:
            raise Broken("the client is closed")
        try:
            async with asyncio.timeout(self._connect_s):
                addresses = await self._addresses()
                connection = await dial(self._make, self._origin, addresses, proxy=self._proxy, tls=self._tls)
        except TimeoutError:
            raise ConnectTimeout(f"no connection within {self._connect_s:g} s") from None
        except HttpError:
            self._known = []  # resolve again next time: it may have moved
            raise
        if self._closed:
            connection.abort()
            raise Broken("the client is closed")
        self._open.add(connection)
        return connection

    def _make(self) -> Connection:
        return Connection(self._loop, self._deadlines, self._freed)

    async def _addresses(self) -> Sequence[str]:
        if self._given:
            return self._given
        now = self._loop.time()
        if not self._known or now > self._known_until:
            whom = self._proxy.origin if self._proxy is not None else self._origin
            self._known = await resolve(whom.host, whom.port)
            self._known_until = now + ADDRESSES_S
        return self._known

    def _freed(self, connection: Connection) -> None:
        """Called when a connection is free for the next request, or closed."""
        if not connection.is_open:
            self._open.discard(connection)
            if connection in self._free:
                self._free.remove(connection)
            return
        connection.free_since = self._loop.time()
        self._free.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long; the oldest are first in the list."""
        self._sweeper = None
        old = self._loop.time() - IDLE_S
        while self._free and self._free[0].free_since <= old:
            self._free[0].abort()
        if self._free:
            wait_s = max(0.1, self._free[0].free_since - old)
            self._sweeper = self._loop.call_later(wait_s, self._sweep)


async def get(
    url: str, headers: Mapping[str, str] | None = None, *, timeout_s: float, bytes_max: int
) -> tuple[int, bytes]:
    """Return the status and the body of a small answer, without a proxy. A longer body is cut off. Raises HttpError."""
    client, head = Client(url, connect_s=timeout_s), Head({"connection": "close", **(headers or {})})
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.ask("GET", urlsplit(url).path or "/", head)
            body = bytearray()
            while len(body) < bytes_max and (piece := await answer.read()):
                body += piece
            return answer.status, bytes(body[:bytes_max])
    except TimeoutError:
        raise Silence(f"no answer within {timeout_s:g} s") from None
    finally:
        client.close()


async def _answer(connection: Connection, asked: bytes, body: bytes, first_due: float, idle_s: float) -> Answer:
    try:
        answer = connection.ask(asked, body, first_due, idle_s)
        if len(body) > PIECE_BYTES:
            await connection.send_rest(body)
        await answer.wait_for_head()
        return answer
    except BaseException:
        connection.abort()
        raise
