"""The way back to a caller: one answer over ASGI, whole or streamed, kept alive while nothing comes.

Nothing is sent before it is known what the answer is, so that an early failure has its own status; after that a failure
is said in the stream. Knows no dialect's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

Send: TypeAlias = Callable[[Any], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects would hold tokens back
]


class Outgoing:
    """One answer. `head` gives headers to add, when it begins, and `upstream` are those of whoever made it."""

    __slots__ = (
        *("_buffer", "_busy", "_send", "ended", "head", "last_write", "ping", "started", "status", "time"),
        "upstream",
    )

    def __init__(self, send: Send, time: Callable[[], float]) -> None:
        """`time` is the loop's."""
        self._send, self.time = send, time
        self._buffer: list[bytes] = []
        self._busy = False
        self.head: Callable[[], Headers] = list
        self.upstream: Headers = []
        self.started = self.ended = False
        self.status = 0
        self.last_write = time()
        self.ping = b""
        """What to say while nothing comes; empty when the answer is no stream."""

    def is_over(self) -> bool:
        return self.ended

    async def whole(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """A whole answer, at once."""
        await self._send(self._start(status, [(b"content-length", b"%d" % len(body)), *headers]))
        self.ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def begin_stream(self, status: int = 200, headers: Headers = STREAM_HEADERS) -> None:
        await self._send(self._start(status, headers))

    def _start(self, status: int, headers: Headers) -> dict[str, Any]:
        self.started, self.status = True, status
        return {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, *self.head(), *self.upstream],
        }

    def say(self, data: bytes) -> None:
        """Put something into the stream; it goes out with the next `flush`."""
        if data:
            self._buffer.append(data)

    async def flush(self) -> None:
        """Send what was said, and wait until the caller takes it."""
        if buffer := self._buffer:
            self._buffer = []
            await self.write(b"".join(buffer) if len(buffer) > 1 else buffer[0])

    async def write(self, data: bytes) -> None:
        if not self.started:
            await self.begin_stream()
        self._busy = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._busy = False
        self.last_write = self.time()

    async def end(self) -> None:
        if self.ended:
            return
        data = b"".join(self._buffer)
        self._buffer.clear()
        if not self.started:
            await self.begin_stream()
        self.ended = True
        await self._send({"type": "http.response.body", "body": data})

    async def keep_alive(self) -> None:
        """Say that the model still works. Begins the stream when it must: from then on failures are said in it."""
        if self.ping and not self._busy and not self.ended:
            await self.write(self.ping)
