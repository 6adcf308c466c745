"""A conversation's events as server-sent events, encoded once for everyone who watches it.

A client that comes back with the number of its last entry gets every later entry once, from the journal, and then what
is happening: also the part of a reply that was said since the last entry, which no journal has. A slow client never
holds back the others: it skips live events and continues from the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, get_args

import msgspec

from ...contracts.clock import Clock
from ...events import DurableEvent, Entry, Event, Lagged, Nested
from ...machine.conversation import Conversation
from ...machine.journal import Watcher
from ...values import Media, MediaDelta, Message, Part, PartFinished, ToolResult
from .route import encode

ITEMS_MAX = 4_096  # pieces that a slow client may be behind
BYTES_MAX = 8_000_000
PING_S = 10.0
PING = b": ping\n\n"
FIRST = b"retry: 1000\n\n"

_DURABLE = frozenset(get_args(DurableEvent))


class _Item(msgspec.Struct, frozen=True):
    data: bytes
    seq: int  # the position of the last entry, this one included


class Feed:
    """What is sent to everyone who watches one conversation."""

    def __init__(self, conversation: Conversation, clock: Clock) -> None:
        self.conversation = conversation
        self.clients = 0
        self.seq = 0  # the position of the last entry that was sent
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._clock = clock
        self._items: deque[_Item] = deque()
        self._first = 0  # the number of the first item that is kept
        self._live = 0  # the number of the first item after the last entry
        self._size = 0
        self._joined = (0, 0, b"", 0)  # the newest items as bytes: from, until, bytes, the last entry
        self._waiting: list[asyncio.Future[bool]] = []
        self._ping: asyncio.TimerHandle | None = None

    def begin(self, seq: int) -> None:
        """Begin after entry `seq`, with what the running turn has streamed of its reply."""
        self.seq = seq
        self._ping_later()
        for event in (*self.conversation.reply_so_far(), *self.conversation.agents_so_far()):
            self._add(seq, event)

    async def run(self, watcher: Watcher) -> None:
        """Encode what the watcher sees."""
        with watcher:
            while True:
                for seq, event in await watcher.batch():
                    self._add(seq, event)
                self._wake()

    def close(self) -> None:
        """End the streams of all clients: the conversation was deleted, or the server stops."""
        self.is_over = True
        if self._ping is not None:
            self._ping.cancel()
        if self.task is not None:
            self.task.cancel()
        self._wake()

    def _add(self, seq: int, event: Event) -> None:
        is_entry = type(event) in _DURABLE
        if is_entry:
            data = entry_event(Entry(seq, self._clock.now(), event), self.conversation.id)  # type: ignore[arg-type]
        else:
            data = live_event(event)
        self._items.append(_Item(data, seq))
        self._size += len(data)
        if is_entry:
            self.seq = seq
            self._live = self._first + len(self._items)
        while self._items and (len(self._items) > ITEMS_MAX or self._size > BYTES_MAX):
            self._size -= len(self._items.popleft().data)
            self._first += 1
            self._live = max(self._live, self._first)

    def _wake(self, is_new: bool = True) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(is_new)

    def _ping_later(self) -> None:
        self._ping = asyncio.get_running_loop().call_later(PING_S, self._ping_all)

    def _ping_all(self) -> None:
        self._ping_later()
        self._wake(is_new=False)

    async def stream(self, after: int, is_allowed: Callable[[], Any]) -> AsyncGenerator[bytes]:
        """Yield the entries after position `after`, then everything that happens. `is_allowed` is awaited every few
        seconds, also while much happens; the stream ends when it returns False."""
        yield FIRST
        loop = asyncio.get_running_loop()
        sent, checked = after, loop.time()
        next_item = -1
        while not self.is_over:
            if loop.time() - checked > PING_S:
                if not await is_allowed():
                    return
                checked = loop.time()
            if next_item < self._first:  # at the start, or this client fell behind
                if next_item >= 0:
                    yield live_event(Lagged(sent))
                until, next_item = self.seq, self._live
                for entry in await self.conversation.entries(min(sent, until)):
                    if entry.seq <= until:
                        yield entry_event(entry, self.conversation.id)
                sent = until
                continue
            if next_item < self._first + len(self._items):
                next_item, data, sent = self._after(next_item)
                yield data
            elif not await self._wait():
                checked = float("-inf")
                yield PING

    def _after(self, number: int) -> tuple[int, bytes, int]:
        """Return the items from `number` on as bytes, with the number after them and the position of the last entry.
        Nearly everyone who watches wants the same ones."""
        until = self._first + len(self._items)
        if self._joined[:2] != (number, until):
            pending = [self._items[index] for index in range(number - self._first, len(self._items))]
            self._joined = (number, until, b"".join([item.data for item in pending]), pending[-1].seq)
        return self._joined[1:]

    async def _wait(self) -> bool:
        """Wait for something new; False if it is time for a ping."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter


class Feeds:
    """The feeds of the conversations that are being watched."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, Feed] = {}
        self._reading: set[asyncio.Task[list[tuple[int, Event]]]] = set()
        self.group: asyncio.TaskGroup | None = None

    @property
    def clients(self) -> int:
        return sum(feed.clients for feed in self._open.values())

    async def stream(
        self, conversation: Conversation, after: int, is_allowed: Callable[[], Any]
    ) -> AsyncGenerator[bytes]:
        feed = self._open.get(conversation.id) or await self._begin(conversation)
        feed.clients += 1
        try:
            async with contextlib.aclosing(feed.stream(after, is_allowed)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            feed.clients -= 1
            if feed.clients == 0:
                self.close(conversation.id)

    async def _begin(self, conversation: Conversation) -> Feed:
        watcher = await conversation.watch()
        if (feed := self._open.get(conversation.id)) is not None:  # another client was faster
            watcher.close()
            return feed
        assert self.group is not None
        feed = self._open[conversation.id] = Feed(conversation, self._clock)
        feed.begin(watcher.seq)
        feed.task = self.group.create_task(feed.run(watcher))
        return feed

    async def batches(self, watcher: Watcher, is_allowed: Callable[[], Any]) -> AsyncGenerator[list[tuple[int, Event]]]:
        """Yield what a watcher sees, for streams that are not the same for everyone; an empty list when it is time for
        a ping. Ends as `Feed.stream` does."""
        assert self.group is not None
        loop = asyncio.get_running_loop()
        reading, checked = self._read(watcher), loop.time()
        try:
            while True:
                await asyncio.wait({reading}, timeout=PING_S)
                if loop.time() - checked >= PING_S:
                    if not await is_allowed():
                        return
                    checked = loop.time()
                if not reading.done():
                    yield []
                    continue
                if reading.cancelled():  # the server stops
                    return
                seen = reading.result()
                reading = self._read(watcher)
                yield seen
        finally:
            reading.cancel()
            watcher.close()

    def _read(self, watcher: Watcher) -> asyncio.Task[list[tuple[int, Event]]]:
        assert self.group is not None
        # A task of its own: a read that a timeout cancels could lose what it was about to return.
        reading = self.group.create_task(watcher.batch())
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return reading

    def close(self, conversation: str) -> None:
        if (feed := self._open.pop(conversation, None)) is not None:
            feed.close()

    def close_all(self) -> None:
        for id in list(self._open):
            self.close(id)
        for reading in self._reading:
            reading.cancel()


# --- events as bytes --------------------------------------------------------------------------------------------------


def entry_event(entry: Entry, conversation: str) -> bytes:
    shown = msgspec.structs.replace(entry, event=without_data(entry.event, conversation))
    return b"id: %d\nevent: entry\ndata: %b\n\n" % (entry.seq, encode(shown))


def live_event(event: Event) -> bytes:
    return b"event: live\ndata: %b\n\n" % encode(without_data(event, ""))


def without_data(event: Any, conversation: str) -> Any:
    """Replace the bytes of images and files with the address from which the page loads them."""
    match event:
        case Nested(event=inner):
            return msgspec.structs.replace(event, event=without_data(inner, ""))
        case MediaDelta():
            return msgspec.structs.replace(event, data=b"")
        case PartFinished(part=part):
            return msgspec.structs.replace(event, part=_part(part, conversation))
        case _:
            changes = {
                name: _value(value, conversation)
                for name in ("message", "messages", "result")
                if (value := getattr(event, name, None)) is not None
            }
            return msgspec.structs.replace(event, **changes) if changes else event


def _value(value: Any, conversation: str) -> Any:
    if isinstance(value, Message):
        return _with_parts(value, conversation, value.id)
    if isinstance(value, ToolResult):
        return _with_parts(value, conversation, value.call_id)
    if isinstance(value, tuple):
        return tuple(_value(one, conversation) for one in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def _with_parts(value: Any, conversation: str, id: str) -> Any:
    if not any(isinstance(part, Media | ToolResult) for part in value.parts):
        return value
    parts = tuple(_part(part, conversation, id, index) for index, part in enumerate(value.parts))
    return msgspec.structs.replace(value, parts=parts)


def _part(part: Part, conversation: str, id: str = "", index: int = 0) -> Part:
    if isinstance(part, ToolResult):
        return _with_parts(part, conversation, part.call_id)
    if not isinstance(part, Media) or not part.data:
        return part
    url = f"/api/conversations/{conversation}/media/{id}/{index}" if conversation and id else ""
    return msgspec.structs.replace(part, data=b"", url=url)
