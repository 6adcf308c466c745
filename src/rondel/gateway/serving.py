"""The gateway on a socket: an address that is bound first, so that a port that is taken is one clear sentence, our own
HTTP server, and the fastest event loop that is installed.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import RondelError
from ..http import server as http

T = TypeVar("T")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(http.BACKLOG)
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


class Server(http.Server):
    async def run(self) -> None:
        _spare_the_collector()
        await super().run()


def _spare_the_collector() -> None:
    """What is there by now stays until the end: the garbage collector need not look at it again with every hundredth
    request, nor once before the first. Requests leave few cycles behind, so it need not come as often either."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a program on the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:  # Windows, or an interpreter that has none
        return asyncio.run(main)
    return uvloop.run(main)
