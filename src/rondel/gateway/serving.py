"""The gateway behind a real HTTP server: uvicorn, with its parser and event loop in C where they are installed.

Only this file knows the server. It binds the address itself, so that a port that is taken is one clear sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from ..errors import RondelError

T = TypeVar("T")

KEEPALIVE_S = 75
"""How long an idle connection of a caller stays open; clients with a pool close theirs earlier."""
BACKLOG = 2_048
DRAIN_S = 10
"""How long requests may go on after the server was told to stop."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
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
        return f"port {port} of {host} is taken; stop what listens there, or take another one: rondel serve --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} may not be opened by this user; take one above 1023: rondel serve --port 8484"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine has no address {host!r}; check `host` in [gateway]"
    return f"{host}:{port} cannot be listened on: {error.strerror or error}"


def address_of(listening: socket.socket) -> str:
    """The web address that callers use."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Joining:
    """A transport that writes the head of an answer together with what comes next: each write is a call to the system.
    A head with which nothing comes in the same pass of the loop goes alone."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._head = transport, loop, b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():  # the caller may have left since
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _protocol() -> Any:
    """uvicorn's own, over a transport that joins."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(cast(asyncio.Transport, Joining(transport, self.loop)))

    return Protocol


class Server:
    """Serves an ASGI application on a socket until `stop` is called."""

    def __init__(self, application: Any, listening: socket.socket) -> None:
        import uvicorn

        config = uvicorn.Config(
            application,
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # who a caller is, its key says
            timeout_keep_alive=KEEPALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            ws="none",
            http=_protocol(),
        )
        self._server: Any = uvicorn.Server(config)
        # Signals are the program's business: uvicorn would raise them again before what is below it is closed.
        self._server.capture_signals = contextlib.nullcontext
        self._listening = listening

    async def run(self) -> None:
        _spare_the_collector()
        try:
            await self._server.serve(sockets=[self._listening])
        finally:
            self._listening.close()

    def stop(self, *, at_once: bool = False) -> None:
        """End when the requests under way have ended, or at once."""
        self._server.should_exit = True
        self._server.force_exit = self._server.force_exit or at_once


def _spare_the_collector() -> None:
    """What is there by now stays until the end: the garbage collector need not look at it again with every hundredth
    request, nor once before the first. Requests leave few cycles behind, so it need not come as often either."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()  # a program that starts a gateway may have turned it off


def say_nothing() -> None:
    """Keep the server's own messages from a terminal that belongs to another program."""
    logging.getLogger("uvicorn").addHandler(logging.NullHandler())


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a program on the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:  # Windows, or an interpreter that has none
        return asyncio.run(main)
    return uvloop.run(main)
