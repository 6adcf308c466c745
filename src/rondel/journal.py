"""The open end of one conversation: appends to the store, keeps the transcript current, and tells the watchers.

`emit` never waits; a watcher that falls behind is told so and reads on from the store. Knows no agent and no plugin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from .clock import Clock
from .events import CallHeld, Event, Kept, Lagged, TurnFinished
from .store import Store
from .transcript import Transcript

WATCHER_EVENTS_MAX = 4_096
WAKE_S = 0.005
"""A watcher is woken at most this often: tokens come faster than anybody reads, and each wake-up costs as much as
several of them. What ends a wait (a turn at rest, a question) wakes it at once."""
READS_MAX = 10
"""How often a watcher that catches up reads while more and more lands; what is left then it sees as it comes."""

URGENT = (TurnFinished, CallHeld)


class Listener(Protocol):
    def put(self, event: Event, seq: int) -> None:
        """An event happened; `seq` is its place in the journal, 0 for a live one. Must not wait."""
        ...


class Journal:
    def __init__(self, conversation: str, store: Store, clock: Clock) -> None:
        self.conversation = conversation
        self.transcript = Transcript()
        self.seq = 0
        self.broken = False
        self._store = store
        self._clock = clock
        self._watchers: list[Listener] = []
        self._on_their_way: dict[int, Kept] = {}
        self._told = 0
        self._awaited = 0

    @classmethod
    async def open(cls, conversation: str, store: Store, clock: Clock) -> Journal:
        journal = cls(conversation, store, clock)
        for entry in await store.read(conversation):
            journal.transcript.apply(entry.event)
            journal.seq = journal._told = entry.seq
        return journal

    async def append(self, *events: Kept, wait: bool = True) -> None:
        """Returns when the events would survive a crash; with `wait=False` at once, see store.py.

        They are applied and queued for the store before the first wait: a task that is cancelled while it waits leaves
        the transcript as it will be on disk. A store that fails breaks this journal; the next use reads it anew.
        """
        seq = self.seq + 1
        for event in events:
            self.seq += 1
            self.transcript.apply(event)
            self._on_their_way[self.seq] = event
        if not wait and self._awaited == 0:
            self._tell(seq + len(events))
        self._awaited += wait
        try:
            await self._store.append(self.conversation, seq, events, at=self._clock.now(), wait=wait)
        except Exception:
            self.broken = True
            raise
        finally:
            self._awaited -= wait
        if wait:  # all that was appended before is on disk with it; nobody hears of it earlier
            self._tell(self.seq + 1 if self._awaited == 0 else seq + len(events))
            for landed in [place for place in self._on_their_way if place < seq + len(events)]:
                del self._on_their_way[landed]

    def _tell(self, until: int) -> None:
        """Emit what was appended and not told yet, in order, up to a place."""
        if not self._watchers:
            self._told = max(self._told, until - 1)
            return
        while self._told + 1 < until and (event := self._on_their_way.get(self._told + 1)) is not None:
            self._told += 1
            self.emit(event, self._told)

    async def since(self, seq: int) -> list[tuple[int, Kept]]:
        """What happened behind an entry: what the store has, and what is on its way there.

        What lands while the store is read is in neither: it is read once more then.
        """
        happened: list[tuple[int, Kept]] = []
        last = seq
        for _ in range(READS_MAX):
            for entry in await self._store.read(self.conversation, last):
                happened.append((entry.seq, entry.event))
                last = entry.seq
            while (event := self._on_their_way.get(last + 1)) is not None:
                last += 1
                happened.append((last, event))
            if last >= self.seq:
                break
        return happened

    def emit(self, event: Event, seq: int = 0) -> None:
        for watcher in self._watchers:
            watcher.put(event, seq)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def take_watchers(self, other: Journal) -> None:
        """This journal stands in for a broken one: whoever watched that watches this."""
        self._watchers, other._watchers = other._watchers, []
        for watcher in self._watchers:
            if isinstance(watcher, Watcher):
                watcher.move_to(self)

    def watch(self) -> Watcher:
        """Everything from now on. Close it, or use it in a `with`."""
        watcher = Watcher(self)
        self._watchers.append(watcher)
        return watcher

    def listen(self, listener: Listener) -> Listening:
        """Call `listener.put` for every event while this is open."""
        return Listening(self, listener)

    def hear(self, listener: Listener) -> None:
        """Call `listener.put` for every event from now on."""
        self._watchers.append(listener)

    def unwatch(self, watcher: Listener) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)


class Unkept(Journal):
    """A journal that no store keeps: whoever asked for the turn has the conversation."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.transcript = Transcript()
        self.seq = 0
        self.broken = False
        self._watchers = []

    async def append(self, *events: Kept, wait: bool = True) -> None:
        for event in events:
            self.seq += 1
            self.transcript.apply(event)
            self.emit(event, self.seq)

    async def since(self, seq: int) -> list[tuple[int, Kept]]:
        return []


class Listening:
    """`with journal.listen(listener):` – the time in which it is told."""

    __slots__ = ("_journal", "_listener")

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal, self._listener = journal, listener

    def __enter__(self) -> None:
        self._journal.hear(self._listener)

    def __exit__(self, *_: object) -> None:
        self._journal.unwatch(self._listener)


class Watcher:
    """An iterator over a conversation's events. `seq` is the entry seen last: a cursor to come back with."""

    __slots__ = ("_journal", "_lagged", "_queue", "_timer", "_waiter", "_woken_at", "seq")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: deque[tuple[int, Event]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken_at = 0.0
        self._lagged = False
        self.seq = journal.seq

    def put(self, event: Event, seq: int) -> None:
        if self._lagged:
            return
        self._queue.append((seq, event))
        if len(self._queue) > WATCHER_EVENTS_MAX:
            self._queue.clear()
            self._lagged = True
        if self._waiter is not None and self._timer is None:
            loop = self._waiter.get_loop()
            wait_s = self._woken_at + WAKE_S - loop.time()
            if wait_s <= 0 or isinstance(event, URGENT):
                self._wake()
            else:
                self._timer = loop.call_later(wait_s, self._wake)
        elif self._timer is not None and isinstance(event, URGENT):
            self._wake()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._woken_at = self._waiter.get_loop().time()
            self._waiter.set_result(None)
        self._waiter = None

    async def batch(self) -> list[Event]:
        """Wait until something happened; everything that did since the last time."""
        while not self._queue:
            if self._lagged:
                return await self._catch_up()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events: list[Event] = []
        for seq, event in self._queue:
            if seq:
                if seq <= self.seq:
                    continue  # the journal had it already when this watcher caught up
                self.seq = seq
            events.append(event)
        self._queue.clear()
        return events

    async def _catch_up(self) -> list[Event]:
        """What the journal kept. What happens while it is read is put into the queue again."""
        self._lagged = False
        events: list[Event] = [Lagged(self.seq)]
        for seq, event in await self._journal.since(self.seq):
            self.seq = seq
            events.append(event)
        return events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            for event in await self.batch():
                yield event

    def move_to(self, journal: Journal) -> None:
        self._journal = journal

    def close(self) -> None:
        self._journal.unwatch(self)
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
