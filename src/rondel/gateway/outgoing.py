"""The way back to a caller: one answer over ASGI, whole or streamed, kept alive while nothing comes.

Nothing is sent before it is known what the answer is, so that an early failure has its own status; after that a failure
is said in the stream. Waiting for a slow caller is waiting for the model: `Flushing` asks the engine for more only when
what was said has gone out. Knows no dialect's words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias, cast

from ..engine import Engine
from ..prompt import Prompt
from ..values import Delta, ModelFacts

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
        if self._buffer:
            data = b"".join(self._buffer) if len(self._buffer) > 1 else self._buffer[0]
            self._buffer.clear()
            await self.write(data)

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


class Flushing:
    """An engine that sends what was said whenever it is about to wait for more.

    What came in one piece goes out in one piece, and a caller who does not read holds the model back.
    """

    def __init__(self, engine: Engine, outgoing: Outgoing) -> None:
        self._engine, self._outgoing = engine, outgoing

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        outgoing = self._outgoing
        async with aclosing(cast(AsyncGenerator[Delta], self._engine.stream(prompt))) as deltas:
            try:
                while True:
                    yield await _Next(deltas, outgoing)
            except StopAsyncIteration:
                pass
        await outgoing.flush()


class _Next:
    """The next delta. Before the first real wait, what was said is sent; without one, nothing is."""

    __slots__ = ("_deltas", "_outgoing")

    def __init__(self, deltas: AsyncGenerator[Delta], outgoing: Outgoing) -> None:
        self._deltas, self._outgoing = deltas, outgoing

    def __await__(self) -> Generator[Any, Any, Delta]:
        step = self._deltas.__anext__().__await__()
        try:
            wait = next(step)
            try:
                yield from self._outgoing.flush().__await__()
            except BaseException as error:
                _give_up(step)  # the engine must not wait on, and has no part in this error
                raise error
            while True:
                try:
                    sent = yield wait
                except BaseException as error:  # a cancellation, which the engine must hear
                    wait = step.throw(error)
                else:
                    wait = step.send(sent)
        except StopIteration as ready:
            return ready.value


def _give_up(step: Generator[Any, Any, Delta]) -> None:
    with contextlib.suppress(asyncio.CancelledError, StopIteration, StopAsyncIteration):
        step.throw(asyncio.CancelledError())
