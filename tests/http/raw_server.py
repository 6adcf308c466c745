"""Servers that do what no framework allows, on loopback: a test writes the bytes itself.

Tests run on asyncio's own loop and on uvloop, whose transports differ in all that is not documented.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rondel.http import Answer, Client, Head

WAIT_S = 20.0  # Nothing that a test waits for takes longer, unless it never comes

on_both_loops = pytest.mark.usefixtures("loop")


class Line:
    """One connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.task = asyncio.current_task()

    async def request(self) -> tuple[str, bytes]:
        """Head and body of the next request."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        sizes = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        return head, await self.reader.readexactly(int(sizes[0].partition(":")[2]) if sizes else 0)

    async def say(self, *pieces: bytes) -> None:
        """Each piece in a packet of its own, as far as that can be had."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)

    async def left(self) -> None:
        """Returns when the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Serve = Callable[[Line], Awaitable[Any]]


class Server:
    """Plays one script for each connection, in order; the last one again and again."""

    def __init__(self, *scripts: Serve) -> None:
        self._scripts = list(scripts)
        self.lines: list[Line] = []
        self.port = 0
        self.ended = 0
        self._came = asyncio.Condition()

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        script = self._scripts[min(len(self.lines), len(self._scripts) - 1)]
        self.lines.append(line)
        try:
            await script(line)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            async with self._came:
                self.ended += 1
                self._came.notify_all()

    async def all_ended(self, count: int) -> None:
        async with self._came:
            await self._came.wait_for(lambda: self.ended >= count)


@contextlib.asynccontextmanager
async def serving(
    *scripts: Serve, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Server]:
    server = Server(*scripts)
    listening = await asyncio.start_server(server.play, host, port, ssl=tls, limit=4_000_000)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for line in server.lines:
            line.reset()
            assert line.task is not None
            line.task.cancel()
        await server.all_ended(len(server.lines))


@contextlib.asynccontextmanager
async def playing(*scripts: Serve, **options: Any) -> AsyncIterator[tuple[Client, Server]]:
    """A client and its server. `options` are the client's."""
    async with serving(*scripts) as server:
        client = Client(f"http://127.0.0.1:{server.port}", **options)
        try:
            yield client, server
        finally:
            client.close()


async def get(client: Client, target: str = "/", **times: float) -> Answer:
    return await client.ask("GET", target, Head({"x-a": "1"}), **times)


async def whole(answer: Answer) -> bytes:
    pieces: list[bytes] = []
    while piece := await answer.read():
        pieces.append(piece)
    return b"".join(pieces)


async def asked(client: Client, **times: float) -> bytes:
    return await whole(await get(client, **times))


def ok(body: bytes = b"hello", *lines: str) -> bytes:
    head = "\r\n".join(("HTTP/1.1 200 OK", f"content-length: {len(body)}", *lines))
    return f"{head}\r\n\r\n".encode() + body


def saying(*pieces: bytes, close: bool = False) -> Serve:
    """Answers each request with these bytes."""

    async def script(line: Line) -> None:
        while True:
            await line.request()
            await line.say(*pieces)
            if close:
                return

    return script
