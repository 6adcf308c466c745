"""A real server on loopback that plays scripted bytes, silences and resets, and records what it was asked.

Raw on purpose: it can do what no framework allows, such as half an event, a reset, or a line that never ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")
LIMIT_S = 20.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's work; nothing in it may take longer than the limit."""
    return asyncio.run(asyncio.wait_for(work, LIMIT_S))


class Silence(NamedTuple):
    """Say nothing until the client leaves."""


class Reset(NamedTuple):
    """Break the connection with a TCP reset."""


class Close(NamedTuple):
    """End the connection in good order."""


class Flood(NamedTuple):
    """Send this many bytes without a line's end, as fast as the client takes them."""

    size: int


Step = bytes | Silence | Reset | Close | Flood


class Request(NamedTuple):
    target: str
    headers: dict[str, str]
    body: Any


class ScriptedServer:
    """Each request is answered with the next script, which may depend on it; one request more than there are scripts
    fails the test."""

    def __init__(self, *scripts: Sequence[Step] | Callable[[Request], Sequence[Step]]) -> None:
        self._scripts = list(scripts)
        self._writers: list[asyncio.StreamWriter] = []
        self._failures: list[Exception] = []
        self.requests: list[Request] = []
        self.connections = 0
        self.bytes_sent = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()  # The client closed its side, or broke the connection

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._failures:
            raise self._failures[0]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                self.requests.append(await read_request(reader))
                self.asked.set()
                if not self._scripts:
                    raise AssertionError(f"request {len(self.requests)} was not expected: {self.requests[-1].target}")
                script = self._scripts.pop(0)
                for step in script(self.requests[-1]) if callable(script) else script:
                    await self._play(step, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        except asyncio.CancelledError:
            pass
        except Exception as failure:
            self._failures.append(failure)
        finally:
            writer.close()

    async def _play(self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match step:
            case bytes():
                writer.write(step)
                self.bytes_sent += len(step)
                await writer.drain()
            case Flood(size):
                piece = b"x" * 65536
                for _ in range(size // len(piece)):
                    await self._play(piece, reader, writer)
            case _:
                await play_end(step, reader, writer)


async def play_end(
    step: Silence | Reset | Close, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> NoReturn:
    """End a connection in one of these ways."""
    match step:
        case Silence():
            if await reader.read():
                raise AssertionError("the client sent more while it was to be answered with silence")
        case Reset():
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        case Close():
            writer.close()
    raise ConnectionResetError


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    is_form = headers.get("content-type", "").startswith("multipart/")
    return Request(first.split()[1], headers, body if is_form else json.loads(body) if body else None)


# --- the pieces of answers -------------------------------------------------------------------------------------------


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    """The head of an answer whose body goes on until the connection closes, unless a header says otherwise."""
    lines = [f"HTTP/1.1 {status} x", f"content-type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(body: bytes | str, status: int = 200, content_type: str = "application/json", **headers: str) -> bytes:
    """A whole answer of known length."""
    data = body.encode() if isinstance(body, str) else body
    return head(status, content_type, content_length=str(len(data)), **headers) + data


CHUNKED = head(transfer_encoding="chunked")
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue of connections is full: to connect to it takes for ever."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
