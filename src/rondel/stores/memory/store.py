"""A store in memory, as strict as the one on disk: the same fence, the same errors, values that could be written.

Nothing outlives the process. The number of conversations is bounded: the one that has been idle longest is dropped
first. Knows no file and no thread; no call here ever suspends.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from ...contracts.clock import Clock, SystemClock
from ...contracts.runtime import Claim, Job, Signal
from ...contracts.store import (
    KEYS_MAX,
    ConversationInfo,
    Found,
    Live,
    check_key,
    no_events,
    not_json,
    not_next,
    searched_text,
    tail,
    works_elsewhere,
)
from ...errors import StoreError
from ...events import DurableEvent, Entry, Event, Lagged, Outcome, TurnStarted, TurnsUndone
from .ledger_store import MemoryLedgerStore
from .queue import Queue, Worker, wait_for_others

LIVE_EVENTS_MAX = 4_096  # live events that wait for one watcher; more are dropped, and it gets `Lagged`


class MemorySubscription:
    def __init__(
        self,
        all: Subscriptions,
        conversation: str,
        read: Callable[[str, int], Awaitable[list[Entry]]],
        worker: Worker,
        on_change: Callable[[], None],
    ) -> None:
        self._all, self._conversation, self._read = all, conversation, read
        self.worker, self.on_change = worker, on_change
        self._live: list[tuple[int, Event]] = []
        all.setdefault(conversation, []).append(self)

    def put(self, seq: int, event: Event) -> None:
        if len(self._live) >= LIVE_EVENTS_MAX:
            self._live, event = [], Lagged(seq)
        self._live.append((seq, event))
        self.on_change()

    async def read(self, after: int) -> list[Entry | Live]:
        live, self._live = self._live, []
        found: list[Entry | Live] = list(await self._read(self._conversation, after))
        found += [Live(seq, (event,)) for seq, event in live if seq >= after]
        # The sort is stable: entry 3 comes before the events after it, and those keep their order.
        return sorted(found, key=lambda one: one.seq)

    def close(self) -> None:
        subscriptions = self._all.get(self._conversation, [])
        if self in subscriptions:
            subscriptions.remove(self)
            if not subscriptions:
                del self._all[self._conversation]


Subscriptions: TypeAlias = dict[str, list[MemorySubscription]]


EXCERPT_CHARS_MAX = 200
SWEEP_EVERY = 64  # expired values are removed once in this many puts

CONVERSATIONS_MAX = 10_000
"""How many idle conversations are kept. Those that are running, open in an app or waiting for a person do not count."""

log = logging.getLogger("rondel.store")
_encode = msgspec.json.Encoder().encode


class MemoryStore:
    """One worker's view of the content. `beside` opens another one, as a second process opens the same file.

    `conversations_max` is how many conversations it keeps; None keeps all of them.
    """

    def __init__(self, *, clock: Clock | None = None, conversations_max: int | None = CONVERSATIONS_MAX) -> None:
        self._clock = clock or SystemClock()
        self._key_values: dict[tuple[str, str], tuple[bytes, float | None]] = {}
        self._puts = 0
        self.conversations_max = conversations_max
        self._in_use: list[Callable[[str], bool]] = []
        self._warned = False
        # Each conversation that people see with its children; the one that was written to last is at the end.
        self._conversations: OrderedDict[str, list[str]] = OrderedDict()
        self._entries: dict[str, list[Entry]] = {}
        self._infos: dict[str, ConversationInfo] = {}
        self._queue = Queue()
        self._worker = Worker()
        self.subscribed: Subscriptions = {}  # those of this worker, too
        self.ledger_store = MemoryLedgerStore(self._clock)

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        self._check_open()
        if not events:
            raise no_events(conversation)
        if self._queue.holder(conversation, self._worker) is not None:
            raise works_elsewhere(conversation)
        entries = self._entries.get(conversation)
        last = len(entries) if entries else 0
        if seq != last + 1:
            raise not_next(conversation, last, seq)
        try:
            _encode(events)
        except (TypeError, ValueError, RecursionError) as error:
            raise not_json(f"an event for conversation {conversation!r}", error) from error
        if entries is None:
            entries = self._entries[conversation] = []
            self._begun(conversation)
        else:
            self._conversations.move_to_end(conversation.partition("/")[0])
        for event in events:
            entries.append(Entry(seq, at, event))
            seq += 1
        for subscription in tuple(self.subscribed.get(conversation, ())):
            subscription.on_change()

    # --- dropping idle conversations ------------------------------------------------------------------------------

    def keep_open(self, in_use: Callable[[str], bool]) -> None:
        self._in_use.append(in_use)

    def _begun(self, conversation: str) -> None:
        top = conversation.partition("/")[0]
        children = self._conversations.setdefault(top, [])
        self._conversations.move_to_end(top)
        if top != conversation:
            children.append(conversation)
        most = self.conversations_max
        if most is not None and len(self._conversations) > most + most // 16:  # several at once: each pass has a cost
            self._forget_oldest(len(self._conversations) - most, keep=top)

    def _forget_oldest(self, count: int, keep: str) -> None:
        """Forget idle conversations, oldest first. Those that are skipped count as used now."""
        tops = (key.partition("/")[0] for key in self._queue.pending_keys)
        busy = {
            key for top in tops for key in (top, top.partition("#")[0])
        }  # a question's deadline has its id behind #
        for id in [id for id, _ in zip(self._conversations, range(count * 2), strict=False)]:
            if id == keep or id in busy or any(in_use(id) for in_use in self._in_use) or not self._rests(id):
                self._conversations.move_to_end(id)
                continue
            if not self._warned:
                self._warned = True
                log.warning(
                    "the memory store keeps %s conversations and forgets the oldest; raise conversations_max, or use a "
                    "SqliteStore, to keep more",
                    f"{self.conversations_max:,}",
                )
            self._remove(id)
            count -= 1
            if not count:
                return

    def _rests(self, id: str) -> bool:
        return id not in self._entries or self._info(id).state not in ("working", Outcome.WAITING)

    def _remove(self, id: str) -> bool:
        known = [one for one in (id, *self._conversations.pop(id, ())) if self._entries.pop(one, None) is not None]
        for one in known:
            self._infos.pop(one, None)
        return bool(known)

    # --- watching -------------------------------------------------------------------------------------------------

    def tail(self, conversation: str, after: int = 0) -> AsyncGenerator[Entry, None]:
        return tail(self, conversation, after)

    def subscribe(self, conversation: str, on_change: Callable[[], None]) -> MemorySubscription:
        self._check_open()
        return MemorySubscription(self.subscribed, conversation, self.read, self._worker, on_change)

    def publish(self, conversation: str, seq: int, event: Event) -> None:
        for subscription in self.subscribed.get(conversation, ()):
            if subscription.worker is not self._worker:
                subscription.put(seq, event)

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        self._check_open()
        return self._entries.get(conversation, [])[max(after, 0) :]

    async def last_seq(self, conversation: str) -> int:
        self._check_open()
        return len(self._entries.get(conversation, ()))

    async def conversations(
        self, *, limit: int = 50, before: ConversationInfo | None = None, person: str | None = None
    ) -> list[ConversationInfo]:
        self._check_open()
        infos = [self._shown(id) for id in self._entries if "/" not in id]
        infos = [info for info in infos if person is None or info.person == person]
        shown = [i for i in infos if before is None or (i.updated_at, i.id) < (before.updated_at, before.id)]
        shown.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return shown[: max(limit, 0)]

    async def info(self, conversation: str) -> ConversationInfo | None:
        self._check_open()
        return self._shown(conversation) if conversation in self._entries else None

    async def search(self, words: str, *, limit: int = 20, person: str | None = None) -> list[Found]:
        wanted, found = _words(words), list[Found]()
        for info in await self.conversations(limit=len(self._entries), person=person) if wanted else ():
            if len(found) == limit:
                break
            for text in reversed(_said(self._entries[info.id])):
                said = _words(text)
                if all(any(word.startswith(start) for word in said) for start in wanted):
                    found.append(Found(info, text[:EXCERPT_CHARS_MAX]))
                    break
        return found

    async def delete(self, conversation: str) -> bool:
        self._check_open()
        self._queue.forget_conversation(conversation)
        if conversation in self._conversations:
            return self._remove(conversation)
        children = f"{conversation}/"
        doomed = [id for id in self._entries if id == conversation or id.startswith(children)]
        for id in doomed:
            del self._entries[id]
            self._infos.pop(id, None)
            self._conversations[id.partition("/")[0]].remove(id)
        return bool(doomed)

    async def put_job(self, job: Job) -> bool:
        self._check_open()
        try:
            _encode(job.payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise not_json(f"the payload of job {job.id!r}", error) from error
        return self._queue.put(job, self._worker)

    async def claim_job(self, id: str, *, patient: bool = True) -> Claim:
        self._check_open()
        return self._queue.claim(id, self._worker, patient=patient)

    async def is_claimed(self, key: str) -> bool:
        self._check_open()
        return self._queue.holder(key, self._worker) is not None

    def finish_job(self, id: str) -> None:
        self._queue.finish(id, self._worker)

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        self._check_open()
        return self._queue.take_orphans(key, self._worker)

    async def signal_job(self, signal: Signal) -> bool:
        self._check_open()
        return self._queue.send(signal, self._worker)

    async def wait_for_others(self) -> list[Signal]:
        self._check_open()
        return await wait_for_others(self._worker)

    async def put(self, namespace: str, key: str, value: bytes, *, until: float | None = None) -> None:
        self.put_soon(namespace, key, value, until=until)

    def put_soon(self, namespace: str, key: str, value: bytes | None, *, until: float | None = None) -> None:
        self._check_open()
        check_key(namespace, key)
        if value is None:
            self._key_values.pop((namespace, key), None)
            return
        self._puts += 1
        if self._puts % SWEEP_EVERY == 0:
            now = self._clock.now()
            for name in [name for name, (_, end) in self._key_values.items() if end is not None and end <= now]:
                del self._key_values[name]
        self._key_values[namespace, key] = (bytes(value), until)

    async def get(self, namespace: str, key: str) -> bytes | None:
        self._check_open()
        value, until = self._key_values.get((namespace, key), (None, None))
        return value if until is None or until > self._clock.now() else None

    async def remove(self, namespace: str, key: str) -> bool:
        there = await self.get(namespace, key) is not None
        self._key_values.pop((namespace, key), None)
        return there

    async def keys(self, namespace: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        self._check_open()
        now = self._clock.now()
        keys = [
            key
            for (name, key), (_, until) in self._key_values.items()
            if name == namespace and key.startswith(prefix) and key > after and (until is None or until > now)
        ]
        return sorted(keys)[: max(limit, 0)]

    async def aclose(self) -> None:
        self._worker.alive = False

    def beside(self) -> MemoryStore:
        """Return what a second process on the same content would have."""
        store = MemoryStore(clock=self._clock, conversations_max=self.conversations_max)
        store._entries, store._infos, store._queue = self._entries, self._infos, self._queue
        store._conversations, store._in_use = self._conversations, self._in_use
        store._key_values, store.ledger_store = self._key_values, self.ledger_store
        store.subscribed = self.subscribed
        return store

    def reopen(self) -> MemoryStore:
        """Return what a new process would find after this one died: the same content; the dead process can no longer
        write."""
        self._worker.alive = False
        store = self.beside()
        store._queue, store._key_values = self._queue.copy(), dict(self._key_values)
        store.subscribed, store._in_use = {}, []
        store.ledger_store = self.ledger_store.reopen()
        return store

    def _info(self, conversation: str) -> ConversationInfo:
        """Return the summary. It is brought up to date here, so that an append stays cheap."""
        entries = self._entries[conversation]
        info = self._infos.get(conversation) or ConversationInfo(conversation)
        for entry in entries[info.seq :]:
            info = info.after(entry)
        self._infos[conversation] = info
        return info

    def _shown(self, conversation: str) -> ConversationInfo:
        info = self._info(conversation)
        if info.state == "working" and not self._queue.is_running(conversation):
            return msgspec.structs.replace(info, state="interrupted")
        return info

    def _check_open(self) -> None:
        if not self._worker.alive:
            raise StoreError("this memory store is closed; create a new one")


def _words(text: str) -> list[str]:
    plain = "".join(one for one in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(one))
    return re.findall(r"\w+", plain)


def _said(entries: Sequence[Entry]) -> list[str]:
    """Return what was said and not undone."""
    said: list[str] = []
    starts: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.event, TurnStarted):
            starts.setdefault(entry.event.turn, len(said))
        elif isinstance(entry.event, TurnsUndone):
            del said[starts.get(entry.event.turn, len(said)) :]
        elif text := searched_text(entry.event):
            said.append(text)
    return said
