"""Sends one answer to a caller over ASGI, whole or streamed, with pings while nothing comes.

Nothing is sent before the kind of answer is known, so that an early failure has its own status; a later failure is an
event of the stream. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

Send: TypeAlias = Callable[[Any], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold tokens back
]


class Outgoing:
    """One answer. `head` returns headers to add when it begins; `upstream` are headers of the model's server."""

    def __init__(self, send: Send, time: Callable[[], float]) -> None:
        """`time` is the event loop's clock."""
        self._send, self.time = send, time
        self._buffer: list[bytes] = []
        self._busy = False
        self.head: Callable[[], Headers] = list
        self.upstream: Headers = []
        self.started = self.ended = False
        self.status = 0
        self.last_write = time()
        self.ping = b""  # sent while nothing comes; empty if the answer does not stream

    def is_over(self) -> bool:
        return self.ended

    async def whole(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        await self._send(self._start(status, [(b"content-length", b"%d" % len(body)), *headers]))
        self.ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def begin_stream(self) -> None:
        await self._send(self._start(200, STREAM_HEADERS))

    def _start(self, status: int, headers: Headers) -> dict[str, Any]:
        self.started, self.status = True, status
        return {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, *self.head(), *self.upstream],
        }

    def say(self, data: bytes) -> None:
        """Buffer a piece of the stream; the next `flush` sends it."""
        if data:
            self._buffer.append(data)

    async def flush(self) -> None:
        """Send what is buffered, and wait until the caller takes it."""
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
        """Send a ping. Begins the stream if needed: from then on a failure is an event of it."""
        if self.ping and not self._busy and not self.ended:
            await self.write(self.ping)
