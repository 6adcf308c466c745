"""The store on disk: one file, one thread that writes, one that reads.

Appends are committed in groups. Nothing is opened before the first use, and the event loop never waits for the disk.
The SQL is in the modules beside this one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from ...contracts.clock import Clock, SystemClock
from ...contracts.ledger import Unwritten
from ...contracts.runtime import Claim, Job, Signal
from ...contracts.store import KEYS_MAX, ConversationInfo, Found, check_key, is_key, no_events, not_json, tail
from ...errors import StoreError, nearest
from ...events import DurableEvent, Entry, Event
from . import key_values, live, log, search, worker
from .backlog import RETRY_S
from .file import DatabaseFile, Durability
from .ledger_store import SqliteLedgerStore
from .queue import has_signal, last_seq
from .reader import SqliteReader
from .requests import ROW_BYTES, Append, Call, Charged, FinishJob, Put, Write
from .store_thread import StoreThread
from .subscriptions import LOOK_S, SqliteSubscription, Subscriptions
from .writer import SqliteWriter

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
FINISH_DELAY_S = 0.05  # how long a finished job may wait to be deleted together with something else
APPEND_DELAY_S = 0.01  # how long an append with `wait=False` may wait to be written together with something else
LOOKS_MAX = 5
"""How often `wait_for_others` looks before it returns although nothing was written: a worker that died wrote
nothing."""
CHARGES_WAIT_S = 0.05
"""How long a charge may wait, so that many calls cost one commit. `kill -9` can lose the charges of this time."""
CHARGES_WAIT_MAX = 256  # how many requests may wait; more are written at once

_encode = msgspec.json.Encoder().encode


class SqliteStore:
    """A store in the file `path`, for one event loop. The file and its folder are created when it is first used.

    Appended entries survive the death of the process; with `durability="full"`, also a power failure.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "normal",
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Clock | None = None,
    ) -> None:
        if durability not in get_args(Durability):
            raise StoreError(f"durability {durability!r} is unknown{nearest(durability, get_args(Durability))}")
        # Links are resolved, so that locks and files next to the database are the same for every name of it.
        self.path = Path(os.path.realpath(path))
        self._clock = clock or SystemClock()
        file = DatabaseFile(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        self.subscribed: frozenset[str] = frozenset()  # replaced and never changed, so any thread may set it
        self._writer, reader = SqliteWriter(file, self._retry_later, self._set_subscribed), SqliteReader(file)
        writer = self._writer
        self._writing: StoreThread[Write] = StoreThread(
            "rondel-store-writer", writer.serve, writer.close, writer.serve_at_once
        )
        self._reading: StoreThread[Call] = StoreThread("rondel-store-reader", reader.serve, reader.close)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._flushing: asyncio.TimerHandle | None = None
        self._flush_at = self._flush_delay_s = inf  # when the timer is due, and for how long it was last set
        self._retrying: asyncio.TimerHandle | None = None
        self._posted: dict[str, Append] = {}
        self._claims: dict[str, str] = {}  # the keys of the claimed jobs, by the jobs' ids
        self._held: dict[str, int] = {}  # how many jobs of each key are claimed
        self._seqs: dict[str, int] = {}
        """The last entry of each conversation whose key is claimed: only this worker writes there."""
        self._worker_id = ""
        self._version = self._others = 0
        self._subscriptions = Subscriptions(self, self._writer)
        self.ledger_store = SqliteLedgerStore(self, self._writer, self._clock)

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        """Queued before the first wait. An append is written even if its caller is cancelled."""
        self._use()
        if not events:
            raise no_events(conversation)
        entries = [Entry(number, at, event) for number, event in enumerate(events, seq)]
        try:
            text = _encode(entries)[1:-1].decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise not_json(f"an event for conversation {conversation!r}", error) from error
        if conversation in self._seqs:
            self._seqs[conversation] = entries[-1].seq
        if self._subscriptions.pending:
            self._subscriptions.flush()
        request = Append(conversation, entries, text, size=len(text), awaited=wait)
        if wait:
            try:
                await self._writing.ask(request)
            finally:
                self._forget_posted(conversation)
                self._subscriptions.changed(conversation)  # not earlier: a reader that is woken must find it
        else:
            self._posted[conversation] = request
            self._post(request, APPEND_DELAY_S)
            self._subscriptions.changed(conversation)

    async def written(self, conversation: str) -> None:
        """Wait until everything that was appended here with `wait=False` is on disk."""
        posted = self._posted.get(conversation)
        if posted is not None:
            if not posted.settled:
                await self.call(lambda _: None)
            self._forget_posted(conversation)

    def _forget_posted(self, conversation: str) -> None:
        posted = self._posted.get(conversation)
        if posted is not None and posted.settled:
            del self._posted[conversation]

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        await self.written(conversation)
        return await self.reading(lambda c: log.entries(c, conversation, after))

    def tail(self, conversation: str, after: int = 0) -> AsyncGenerator[Entry, None]:
        return tail(self, conversation, after)

    def subscribe(self, conversation: str, on_change: Callable[[], None]) -> SqliteSubscription:
        self._use()
        return self._subscriptions.add(conversation, on_change)

    def publish(self, conversation: str, seq: int, event: Event) -> None:
        if conversation in self.subscribed and not self._closed:
            self._subscriptions.publish(conversation, seq, event)

    async def last_seq(self, conversation: str) -> int:
        seq = self._seqs.get(conversation)
        return await self.reading(lambda c: last_seq(c, conversation)) if seq is None else seq

    async def conversations(
        self, *, limit: int = 50, before: ConversationInfo | None = None, person: str | None = None
    ) -> list[ConversationInfo]:
        cursor = (inf, "") if before is None else (before.updated_at, before.id)
        return await self.reading(lambda c: log.conversations(c, max(limit, 0), *cursor, self._is_dead, person))

    async def info(self, conversation: str) -> ConversationInfo | None:
        return await self.reading(lambda c: log.info(c, conversation, self._is_dead))

    async def search(self, words: str, *, limit: int = 20, person: str | None = None) -> list[Found]:
        while await self.call(search.index, small=False):
            pass
        found = await self.reading(lambda c: search.find(c, words, max(limit, 0), person))
        infos = [(await self.info(id), excerpt) for id, excerpt in found]
        return [Found(info, excerpt) for info, excerpt in infos if info is not None]

    async def delete(self, conversation: str) -> bool:
        self._seqs.pop(conversation, None)
        return await self.call(lambda c: self._writer.delete(c, conversation), small=False)

    async def put_job(self, job: Job) -> bool:
        try:
            payload = _encode(job.payload).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise not_json(f"the payload of job {job.id!r}", error) from error
        write = Call(lambda c: self._writer.put_job(c, job, payload), size=len(payload) + ROW_BYTES)
        put, seq = await self.ask(write)
        if seq is not None:
            self._granted(job.id, job.key, seq)
        return put

    async def claim_job(self, id: str, *, patient: bool = True) -> Claim:
        if id in self._claims:  # the usual case: it was granted when the job was put
            return "granted"
        claim, key, seq = await self.call(lambda c: self._writer.claim_job(c, id, patient=patient))
        if claim == "granted":
            self._granted(id, key, seq)
        return claim

    def _granted(self, id: str, key: str, seq: int) -> None:
        self._claims[id] = key
        self._held[key] = self._held.get(key, 0) + 1
        self._seqs.setdefault(key, seq)

    async def is_claimed(self, key: str) -> bool:
        return await self.call(lambda c: self._writer.queue.holder(c, key) is not None)

    def finish_job(self, id: str) -> None:
        if self._closed:
            # The job is found again after a restart; its handler recognizes work that is done.
            return
        self._post(FinishJob(id), FINISH_DELAY_S)
        if (key := self._claims.pop(id, None)) is not None:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self._seqs.pop(key, None)

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        return await self.call(lambda c: self._writer.orphaned_jobs(c, key), small=False)

    async def signal_job(self, signal: Signal) -> bool:
        return await self.call(lambda c: self._writer.queue.send(c, signal), small=False)  # it may have pictures

    async def wait_for_others(self) -> list[Signal]:
        """Look at a counter a few times, because SQLite sends no notifications. A commit looks at it, too, so a busy
        process need not: a wake-up of the reader's thread costs more than the look."""
        await self.worker_id()
        writer = self._writer
        for _ in range(LOOKS_MAX):
            looks = writer.looks
            await asyncio.sleep(LOOK_S)
            if writer.looks > looks and writer.others == self._others:
                continue
            others, version = writer.others, await self.reading(log.data_version)
            is_new = version != self._version
            if is_new:
                signalled, self.subscribed = await self.reading(self._news)
                if signalled:  # the version is not noted, so that a failure to take the signal does not lose it
                    return await self.call(lambda c: self._writer.queue.receive(c))
            self._version, self._others = version, others
            if is_new:
                break
        return []

    def _news(self, connection: sqlite3.Connection) -> tuple[bool, frozenset[str]]:
        """Return whether a signal waits for this worker, and which conversations other workers subscribe to."""
        own = self._worker_id
        subscribed = live.subscribed(connection, lambda id: id != own and not self._is_dead(id))
        return has_signal(connection, own), subscribed

    def _set_subscribed(self, conversations: frozenset[str]) -> None:
        self.subscribed = conversations

    def _is_dead(self, id: str) -> bool:
        return worker.is_dead(self.path, id)

    async def put(self, namespace: str, key: str, value: bytes, *, until: float | None = None) -> None:
        check_key(namespace, key)
        row = (namespace, key, value, until)
        now = self._clock.now()
        await self.ask(Call(lambda c: key_values.put(c, row, now), size=len(value) + ROW_BYTES))

    def put_soon(self, namespace: str, key: str, value: bytes | None, *, until: float | None = None) -> None:
        check_key(namespace, key)
        if not self._closed:
            row, size = (namespace, key, value, until), len(value or b"") + ROW_BYTES
            self._post(Put(row, self._clock.now(), size=size), FINISH_DELAY_S)

    async def get(self, namespace: str, key: str) -> bytes | None:
        if not is_key(namespace, key):
            return None
        now = self._clock.now()
        return await self.reading(lambda c: key_values.get(c, namespace, key, now))

    async def remove(self, namespace: str, key: str) -> bool:
        if not is_key(namespace, key):
            return False
        now = self._clock.now()
        return await self.call(lambda c: key_values.remove(c, namespace, key, now))

    async def keys(self, namespace: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        if not is_key(namespace, f"{prefix}{after}."):
            return []
        now = self._clock.now()
        return await self.reading(lambda c: key_values.keys(c, namespace, prefix, after, limit, now))

    def keep_open(self, in_use: Callable[[str], bool]) -> None:
        """Do nothing: nothing is ever dropped here."""

    async def aclose(self) -> None:
        """Write what is queued, then close the file. A second call does nothing."""
        if self._closed or self._loop is None:
            self._closed = True
            return
        self._use()
        self._subscriptions.close()
        self._closed = True
        if self._flushing is not None:
            self._flushing.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
        # The writer last: the last connection to close removes the files next to the database.
        await self._reading.aclose()
        await self._writing.aclose()

    async def __aenter__(self) -> SqliteStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- the loop's side ------------------------------------------------------------------------------------------

    def _use(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise StoreError(f"the store {self.path} is closed: create a new one to use it again")
        if loop is not self._loop:
            if self._loop is not None:
                raise StoreError(f"the store {self.path} belongs to another event loop: create one store for each loop")
            self._writing.start(loop)
            self._reading.start(loop)
            self._loop = loop  # last: after an interruption, the next use starts what is missing

    def post(self, request: Charged) -> None:
        """Write a charge soon, together with all that arrive in the meantime or with the next request."""
        if self._post(request, CHARGES_WAIT_S) >= CHARGES_WAIT_MAX:
            self._writing.wake()

    def _post(self, request: Write, delay_s: float) -> int:
        """Write something within this time, without waiting for it. Return how many requests wait."""
        self.write_within(delay_s)
        return self._writing.post(request)

    def ask(self, request: Write) -> Awaitable[Any]:
        """Send a request to the writer, and return its result."""
        self._use()
        return self._writing.ask(request)

    def call(self, call: Callable[[sqlite3.Connection], T], *, small: bool = True) -> Awaitable[T]:
        """Do something in a transaction. The writer thread does what is not small or may wait."""
        return self.ask(Call(call, size=ROW_BYTES if small else inf))

    def post_call(
        self, call: Callable[[sqlite3.Connection], object], delay_s: float = APPEND_DELAY_S, *, small: bool = True
    ) -> None:
        """Do something in a transaction soon, without waiting for it. A failure is logged."""
        if not self._closed:
            self._post(Call(call, size=ROW_BYTES if small else inf, awaited=False), delay_s)

    def read_later(self, request: Call, done: Callable[[Call], None]) -> None:
        """Serve a read without waiting for it, and call `done` with it."""
        assert self._loop is not None, "a store is in use before anything is read"
        request.waiter = self._loop.create_future()
        request.waiter.add_done_callback(lambda _: done(request))
        self._reading.post(request)
        self._reading.wake()

    async def worker_id(self) -> str:
        """Return the id of this process in the file."""
        self._worker_id = self._worker_id or await self.call(lambda _: self._writer.worker_id)
        return self._worker_id

    def has_claim(self, conversation: str) -> bool:
        """Return whether this process may append to a conversation."""
        return conversation in self._held

    def now(self) -> float:
        """Return the time of this store's clock."""
        return self._clock.now()

    async def reading(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a function reads from the database, on the reader's thread."""
        self._use()
        return await self._reading.ask(Call(call))

    def write_within(self, delay_s: float) -> None:
        """Write posted requests within `delay_s`, or with the next awaited append."""
        self._use()
        assert self._loop is not None, "a store that is in use has a loop"
        if delay_s >= self._flush_delay_s:
            return  # the timer is already set to this delay or a shorter one
        if self._flushing is not None:
            self._flushing.cancel()
        self._flush_delay_s, self._flush_at = delay_s, min(self._flush_at, self._loop.time() + delay_s)
        self._flushing = self._loop.call_at(self._flush_at, self._flush)

    @property
    def unwritten(self) -> Unwritten:
        """The charges that could not be written yet, or were lost."""
        return self._writer.backlog.state

    def _retry_later(self) -> None:
        """Make the writer try again what it could not write; called on any thread."""
        assert self._loop is not None, "a store is in use before anything is written"
        # A closed loop writes nothing more; closing the writer is the last attempt.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arm_retry)

    def _arm_retry(self) -> None:
        if self._retrying is None and not self._closed:
            assert self._loop is not None, "a store is in use before anything is written"
            self._retrying = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retrying = None
        if not self._closed:
            self._writing.post(Call(lambda _: None, size=inf))
            self._writing.wake()

    def _flush(self) -> None:
        assert self._loop is not None, "a store is in use before anything is posted"
        self._flushing, self._flush_at, self._flush_delay_s = None, inf, inf
        self._subscriptions.flush()
        if self._writing.posted:
            self._writing.wake()
