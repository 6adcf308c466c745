"""The open journal of one conversation: appends to the log, keeps the transcript current, and informs watchers.

`emit` never waits; a watcher that falls behind gets `Lagged` and continues from the log. Knows no agent and no plugin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from ..contracts.clock import Clock
from ..contracts.store import Log, Subscription
from ..errors import StoreError
from ..events import CallHeld, DurableEvent, Entry, Event, Lagged, TurnFinished
from ..values import MediaDelta, PartDelta, PartFinished
from .transcript import Transcript

log = logging.getLogger("rondel.journal")

WATCHER_EVENTS_MAX = 4_096
WAKE_S = 0.005
"""The least time between two wake-ups of a watcher: tokens come faster than people read, and a wake-up costs as much as
several tokens. The end of a turn and a question wake it at once."""
RETRY_S = 1.0  # how long watchers wait after a failure of the store before they read again
READS_MAX = 10  # how often a watcher that catches up reads the log again because more was appended meanwhile

URGENT = frozenset({TurnFinished, CallHeld})
PIECES = frozenset({PartDelta, MediaDelta, PartFinished})
"""What streams after a part of a reply has begun: nearly all events of a turn."""


class Listener(Protocol):
    def put(self, event: Event, seq: int) -> None:
        """Take an event; `seq` is its position in the log, 0 for a live event. Must not wait."""


class Journal:
    def __init__(self, conversation: str, store: Log, clock: Clock) -> None:
        self.conversation = conversation
        self.transcript = Transcript()
        self.seq = 0
        self.broken = False
        self._store = store
        self._clock = clock
        self._watchers: list[Listener] = []
        self._streamed_to: list[Listener] = []  # those listeners that want the pieces of replies
        self._on_their_way: list[DurableEvent] = []  # the newest events, up to `seq`, until the log has them
        self._landed = 0  # the position of the last event that is known to be in the log
        self._told = 0  # the position of the last event that watchers were shown
        self._awaited = 0
        # Watchers that also follow other processes share one subscription.
        self._followers: tuple[Watcher, ...] = ()
        self._subscription: Subscription | None = None
        self.is_behind = self._is_failing = False

    @classmethod
    async def open(cls, conversation: str, store: Log, clock: Clock) -> Journal:
        journal = cls(conversation, store, clock)
        for entry in await store.read(conversation):
            journal.transcript.apply(entry.event)
            journal.seq = journal._landed = journal._told = entry.seq
        return journal

    async def append(self, *events: DurableEvent, wait: bool = True) -> None:
        """Append events and return when they would survive a crash; with `wait=False` at once, see contracts/store.py.

        They are applied and queued for the log before the first wait: a task that is cancelled while it waits leaves
        the transcript as it will be on disk. An append that fails breaks this journal; the app opens a new one.
        """
        first, last = self.seq + 1, self.seq + len(events)
        self.seq = last
        for event in events:
            self.transcript.apply(event)
        self._on_their_way += events
        if not wait and self._awaited == 0:
            self._tell(last)
        self._awaited += wait
        try:
            await self._store.append(self.conversation, first, events, at=self._clock.now(), wait=wait)
        except Exception:
            self.broken = True
            raise
        finally:
            self._awaited -= wait
        if wait:  # everything that was appended earlier is on disk, too
            self._tell(self.seq if self._awaited == 0 else last)
            if last > self._landed:
                del self._on_their_way[: last - self._landed]
                self._landed = last

    async def read_on(self, last: int) -> bool:
        """Apply and emit what other processes have appended, up to entry `last`. Return False if this journal has more
        entries than the log: the conversation was deleted, and must be opened again."""
        if self._on_their_way:
            return True  # these appends land, or fail because another process was first
        if last > self.seq:
            if self._subscription is not None:
                await self.pull()
            else:
                self._take(await self._store.read(self.conversation, self.seq))
        return last >= self.seq or bool(self._on_their_way)

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            # Two tasks may have read the same entries.
            if entry.seq == self.seq + 1 and not self._on_their_way:
                self.seq = self._landed = self._told = entry.seq
                self.transcript.apply(entry.event)
                self._show(entry.event, entry.seq)

    def _tell(self, last: int) -> None:
        """Show the events up to this position that watchers were not shown yet."""
        told, landed = self._told, self._landed
        self._told = max(told, last)
        for watcher in self._watchers:
            for seq, event in enumerate(self._on_their_way[told - landed : self._told - landed], told + 1):
                watcher.put(event, seq)

    async def since(self, seq: int) -> list[tuple[int, DurableEvent]]:
        """Return the events after position `seq`: those in the log, and those on their way to it that watchers were
        shown.

        An event that lands during the read is in neither, so the log is read again.
        """
        happened: list[tuple[int, DurableEvent]] = []
        last = seq
        for _ in range(READS_MAX):
            for entry in await self._store.read(self.conversation, last):
                happened.append((entry.seq, entry.event))
                last = entry.seq
            if last >= self._landed:
                told = self._on_their_way[last - self._landed : self._told - self._landed]
                happened.extend(enumerate(told, last + 1))
                break
        return happened

    def emit(self, event: Event) -> None:
        """Show a live event to every watcher that wants it, also to those of other processes."""
        for watcher in self._streamed_to if type(event) in PIECES else self._watchers:
            watcher.put(event, 0)
        if self.conversation in self._store.subscribed:
            self._store.publish(self.conversation, self._told, event)

    def repeat(self, event: Event, seq: int = 0) -> None:
        """Show an event to the watchers here that have not seen it. `seq` is its position if it is in the log."""
        for watcher in self._watchers:
            if not (isinstance(watcher, Watcher) and watcher.has_seen(seq)):
                watcher.put(event, 0)

    def _show(self, event: Event, seq: int) -> None:
        for watcher in self._watchers:
            watcher.put(event, seq)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def take_watchers(self, other: Journal) -> None:
        self._watchers, other._watchers = other._watchers, []
        self._streamed_to, other._streamed_to = other._streamed_to, []
        for watcher in self._watchers:
            if isinstance(watcher, Watcher):
                watcher.move_to(self)

    def watch(self, after: int | None = None, *, follow: bool = False, pieces: bool = True) -> Watcher:
        """Watch the events after position `after`, or from now on. Close it, or use it in a `with`.

        With `follow`, it also sees the events of other processes, for which the store then looks regularly. Without
        `pieces`, it only sees where each part of a reply begins; `Conversation.reply_so_far` has the rest.
        """
        watcher = Watcher(self, after, follow=follow)
        self._watchers.append(watcher)
        if pieces:
            self._streamed_to.append(watcher)
        return watcher

    # --- other processes ----------------------------------------------------------------------------------------------

    def follow(self, watcher: Watcher) -> None:
        self._followers += (watcher,)
        if self._subscription is None:
            self._subscription = self._store.subscribe(self.conversation, self._on_change)
            self.is_behind = True

    def unfollow(self, watcher: Watcher) -> None:
        self._followers = tuple([one for one in self._followers if one is not watcher])
        if not self._followers and self._subscription is not None:
            self._subscription.close()
            self._subscription = None
            self.is_behind = False

    def _on_change(self) -> None:
        if self._on_their_way:
            return  # our own append
        self.is_behind = True
        for watcher in self._followers:
            watcher.wake()

    async def pull(self) -> None:
        """Apply and emit what other processes have written since the last time."""
        self.is_behind = False
        if self._subscription is None:
            return
        try:
            news = await self._subscription.read(self.seq)
        except StoreError as error:
            if not self._is_failing:
                log.warning("conversation %s cannot be followed: %s", self.conversation, error)
            self._is_failing = True
            asyncio.get_running_loop().call_later(RETRY_S, self._on_change)
            raise
        except asyncio.CancelledError:  # the watcher that was reading for all of them was closed
            self._on_change()
            raise
        self._is_failing = False
        for found in news:
            if isinstance(found, Entry):
                self._take((found,))
            elif found.seq == self.seq:  # else its round has ended, and the entry with the whole reply was shown
                for event in found.events:
                    self._show(event, 0)

    @contextmanager
    def listen(self, listener: Listener) -> Generator[None]:
        self.hear(listener)
        try:
            yield
        finally:
            self.unwatch(listener)

    def hear(self, listener: Listener) -> None:
        self._watchers.append(listener)
        self._streamed_to.append(listener)

    def unwatch(self, watcher: Listener) -> None:
        for watchers in (self._watchers, self._streamed_to):
            if watcher in watchers:
                watchers.remove(watcher)


class EphemeralJournal(Journal):
    """A journal that is not stored: the caller who asked for the turn keeps the conversation."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.transcript = Transcript()
        self.seq = 0
        self.broken = False
        self._watchers = []
        self._streamed_to = []

    async def append(self, *events: DurableEvent, wait: bool = True) -> None:
        for event in events:
            self.seq += 1
            self.transcript.apply(event)
            self._show(event, self.seq)

    def emit(self, event: Event) -> None:
        for watcher in self._watchers:
            watcher.put(event, 0)

    async def since(self, seq: int) -> list[tuple[int, DurableEvent]]:
        return []


class Watcher:
    """A bounded queue of one journal's events: iterate over it for `(seq, event)`.

    `seq` is the position of the last entry shown, so a watcher that comes back with `watch(after=seq)` misses no entry
    and sees none twice. A live event has the position of the entry before it.
    """

    def __init__(self, journal: Journal, after: int | None = None, *, follow: bool = False) -> None:
        self._journal = journal
        self._queue: list[Event] = []
        self._seqs: dict[int, int] = {}  # the positions of the entries among them, by their index in the queue
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken_at = 0.0
        self.seq = self._first = journal.seq if after is None else max(0, min(after, journal.seq))
        # Entries up to here are not shown when they are put: the caller knows them, or they were read from the log.
        self._known = 0 if after is None else self.seq
        # Until the log was read: entries were appended before, or the queue was full.
        self._skips = self.seq < journal.seq
        self._lagged = False
        self._follows = follow
        if follow:
            journal.follow(self)

    def put(self, event: Event, seq: int) -> None:
        if self._skips and (seq or type(event) is not TurnFinished):
            return
        queue = self._queue
        if seq:
            if seq <= self._known:
                return
            self._seqs[len(queue)] = seq
        queue.append(event)
        if len(queue) > WATCHER_EVENTS_MAX:
            # The end of a turn that failed before it began is not in the log, so it stays.
            ends = [one for index, one in enumerate(queue) if type(one) is TurnFinished and index not in self._seqs]
            self._queue, self._seqs = list[Event](ends), {}
            self._skips = self._lagged = True
        if self._waiter is None:
            return
        if type(event) in URGENT:
            self.wake()
        elif self._timer is None:
            loop = self._waiter.get_loop()
            wait_s = self._woken_at + WAKE_S - loop.time()
            if wait_s <= 0:
                self.wake()
            else:
                self._timer = loop.call_later(wait_s, self.wake)

    def has_seen(self, seq: int) -> bool:
        """Return whether this watcher has shown the entry at this position, or has it in its queue."""
        return self._first < seq <= max(self.seq, *self._seqs.values(), 0)

    def _queued(self) -> list[tuple[int, Event]]:
        """Return the queued events with their positions, 0 for a live one."""
        return [(self._seqs.get(index, 0), event) for index, event in enumerate(self._queue)]

    def _replace_queued(self, queued: Sequence[tuple[int, Event]]) -> None:
        self._queue = [event for _, event in queued]
        self._seqs = {index: seq for index, (seq, _) in enumerate(queued) if seq}

    def wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._woken_at = self._waiter.get_loop().time()
            self._waiter.set_result(None)
        self._waiter = None

    async def batch(self) -> list[tuple[int, Event]]:
        """Wait until something happens; return everything since the last call."""
        seqs, events = await self._drain()
        batch: list[tuple[int, Event]] = []
        for index, event in enumerate(events):
            self.seq = seqs.get(index, self.seq)
            batch.append((self.seq, event))
        return batch

    async def events(self) -> list[Event]:
        """Wait until something happens; return everything since the last call, without positions."""
        seqs, events = await self._drain()
        self.seq = max(self.seq, *seqs.values(), 0)
        return events

    async def _drain(self) -> tuple[dict[int, int], list[Event]]:
        while True:
            if self._skips:
                await self._catch_up()
            elif self._follows and self._journal.is_behind:
                with suppress(StoreError):  # logged, and read again later
                    await self._journal.pull()
            if self._queue:
                drained = self._seqs, self._queue
                self._seqs, self._queue = {}, []
                return drained
            if not (self._skips or (self._follows and self._journal.is_behind)):
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    async def _catch_up(self) -> None:
        lagged, self._lagged, self._skips = self._lagged, False, False
        journal = self._journal
        try:
            missed = await journal.since(self.seq)
        except BaseException:  # it is read again the next time
            self._lagged, self._skips = lagged, True
            raise
        last = missed[-1][0] if missed else self.seq
        if missed and journal is self._journal:
            self._known = max(self._known, last)  # what the log had may not be told yet
        # What was appended during the read is both in the log and in the queue.
        queued = [(seq, event) for seq, event in self._queued() if not seq or seq > last]
        self._replace_queued([*([(0, Lagged(self.seq))] if lagged else ()), *missed, *queued])

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event]]:
        while True:
            for event in await self.batch():
                yield event

    def move_to(self, journal: Journal) -> None:
        if self._follows:
            self._journal.unfollow(self)
            journal.follow(self)
        self._journal = journal
        # The log may have more than this watcher has seen; or less, if an append failed or it was deleted.
        self._replace_queued([(seq, event) for seq, event in self._queued() if seq <= journal.seq])
        self.seq, self._first = min(self.seq, journal.seq), min(self._first, journal.seq)
        self._known = min(self._known, journal.seq)
        self._skips = self.seq < journal.seq
        self.wake()

    def close(self) -> None:
        self._journal.unwatch(self)
        if self._follows:
            self._journal.unfollow(self)
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
