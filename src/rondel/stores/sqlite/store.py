"""The store that everybody has: one file, one thread that writes, one that reads.

Appends that wait are committed together. Nothing is opened before the first use, and the event loop never waits for the
disk. Knows SQL and threads only through its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, get_args

import msgspec

from ...charge import Charge
from ...clock import Clock, SystemClock
from ...errors import StoreError, nearest
from ...events import Entry, Kept
from ...job import Job
from ...store import KEYS_MAX, ConversationInfo, check_place, is_place
from . import shelves
from .books import SqliteBooks
from .file import Durability
from .lane import Lane
from .reader import Read, Reader
from .requests import Append, Call, Charged, Charges, FinishJob, Write
from .writer import AT_ONCE_BYTES_MAX, Writer

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
FINISH_DELAY_S = 0.05
"""How long a finished job may wait to be forgotten together with something else."""
APPEND_DELAY_S = 0.01
"""How long an append that nobody waits for may wait to be written together with something else."""
CHARGES_WAIT_S = 0.05
"""How long a charge may: that many calls cost one commit. It is all that `kill -9` can lose of them."""
CHARGES_WAIT_MAX = 256
"""Charges that wait at most: more are written at once."""

_encode = msgspec.json.Encoder().encode
_kinds: dict[type, str] = {kind: kind.__struct_config__.tag for kind in get_args(Kept)}


class SqliteStore:
    """A store in the file `path`, for one event loop; made, with its folder, when it is first used.

    What was appended survives the death of the process; with `durability="full"`, that of the machine too.
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
        self.path = Path(path).absolute()
        self._clock = clock or SystemClock()
        writer = Writer(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        reader = Reader(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        self._writing: Lane[Write] = Lane("rondel-store-writer", writer.serve, writer.close, writer.serve_at_once)
        self._reading: Lane[Read] = Lane("rondel-store-reader", reader.serve, reader.close)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._flushing: asyncio.TimerHandle | None = None
        self._posted: dict[str, Append] = {}
        self._charges: list[Charge] = []
        self.books = SqliteBooks(self, self._clock)

    async def append(
        self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float, wait: bool = True
    ) -> None:
        """Queued before the first wait. An append whose caller is cancelled is written all the same."""
        self._use()
        if not events:
            raise StoreError(f"nothing to append to conversation {conversation!r}: give at least one event")
        entries = [Entry(seq + offset, at, event) for offset, event in enumerate(events)]
        try:
            rows = [
                (conversation, entry.seq, at, _kinds[type(entry.event)], _encode(entry).decode()) for entry in entries
            ]
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"an event for conversation {conversation!r} cannot be written as JSON ({error}): "
                "put only plain values into it"
            ) from error
        if wait:
            self._posted.pop(conversation, None)
            self._post_charges()
            await self._writing.ask(Append(conversation, entries, rows))
        else:
            request = self._posted[conversation] = Append(conversation, entries, rows, awaited=False)
            self._writing.post(request)
            self._write_within(APPEND_DELAY_S)

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        posted = self._posted.pop(conversation, None)
        if posted is not None and not posted.settled:
            await self.ask(Call(lambda writer: None, small=True))  # what is on its way is read, too
        return await self.reading(lambda reader: reader.entries(conversation, after))

    async def conversations(self, *, limit: int = 50, before: ConversationInfo | None = None) -> list[ConversationInfo]:
        cursor = (inf, "") if before is None else (before.updated_at, before.id)
        return await self.reading(lambda reader: reader.conversations(max(limit, 0), *cursor))

    async def info(self, conversation: str) -> ConversationInfo | None:
        return await self.reading(lambda reader: reader.info(conversation))

    async def delete(self, conversation: str) -> bool:
        return await self.call(lambda writer: writer.delete(conversation), small=False)

    async def put_job(self, job: Job) -> bool:
        try:
            payload = _encode(job.payload).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"the payload of job {job.id!r} cannot be written as JSON ({error}): put only plain values into it"
            ) from error
        return await self.call(lambda writer: writer.put_job(job, payload))

    def finish_job(self, id: str) -> None:
        if self._closed:
            # The job is found again after a restart, and its handler knows.
            return
        self._use()
        self._writing.post(FinishJob(id))
        self._write_within(FINISH_DELAY_S)

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        return await self.call(lambda writer: writer.orphaned_jobs(key), small=False)

    async def put(self, shelf: str, key: str, value: bytes, *, until: float | None = None) -> None:
        check_place(shelf, key)
        row = (shelf, key, value, until)
        now, small = self._clock.now(), len(value) <= AT_ONCE_BYTES_MAX
        await self.call(lambda writer: shelves.put(writer.in_use(), row, now), small=small)

    async def get(self, shelf: str, key: str) -> bytes | None:
        if not is_place(shelf, key):
            return None
        now = self._clock.now()
        return await self.reading(lambda reader: shelves.get(reader.open(), shelf, key, now))

    async def remove(self, shelf: str, key: str) -> bool:
        if not is_place(shelf, key):
            return False
        now = self._clock.now()
        return await self.call(lambda writer: shelves.remove(writer.in_use(), shelf, key, now))

    async def keys(self, shelf: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        if not is_place(shelf, f"{prefix}{after}."):
            return []
        now = self._clock.now()
        return await self.reading(lambda reader: shelves.keys(reader.open(), shelf, prefix, after, limit, now))

    async def aclose(self) -> None:
        """Write what waits, then let go of the file. A second time does nothing."""
        if self._closed:
            return
        if self._loop is None:
            self._closed = True
            return
        self._use()
        self._closed = True
        self._post_charges()
        if self._flushing is not None:
            self._flushing.cancel()
        # The writer last: whoever closes a database last tidies up beside it.
        await self._reading.aclose()
        await self._writing.aclose()

    async def __aenter__(self) -> SqliteStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- the loop's side ------------------------------------------------------------------------------------------

    def _use(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise StoreError(f"the store {self.path} is closed: make a new one to use it again")
        if loop is not self._loop:
            if self._loop is not None:
                raise StoreError(f"the store {self.path} belongs to another event loop: make one store for each loop")
            self._loop = loop
            self._writing.start(loop)
            self._reading.start(loop)

    def charge(self, charge: Charge) -> None:
        """Have a charge written soon, with all that come meanwhile or with the next thing that is asked."""
        if not self._charges:
            self._use()
            self._write_within(CHARGES_WAIT_S)
        self._charges.append(charge)
        if len(self._charges) >= CHARGES_WAIT_MAX:
            self._post_charges()
            self._writing.wake()

    def post(self, request: Charged) -> None:
        """Have something written as soon as a charge is."""
        self._use()
        self._post_charges()
        self._writing.post(request)
        self._write_within(CHARGES_WAIT_S)

    async def ask(self, request: Write) -> Any:
        self._use()
        self._post_charges()
        return await self._writing.ask(request)

    def call(self, call: Callable[[Writer], T], *, small: bool = True) -> Awaitable[T]:
        """Do something in a transaction. What is not small, or may wait, is the writer thread's."""
        return self.ask(Call(call, small=small))

    async def reading(self, call: Callable[[Reader], T]) -> T:
        self._use()
        return await self._reading.ask(Read(call))

    def _write_within(self, delay_s: float) -> None:
        """Have written what was posted, at the latest then; an append that is waited for takes it along."""
        assert self._loop is not None, "a store is in use before anything is posted"
        due = self._loop.time() + delay_s
        if self._flushing is not None:
            if self._flushing.when() <= due:
                return
            self._flushing.cancel()
        self._flushing = self._loop.call_at(due, self._flush)

    def _post_charges(self) -> None:
        if self._charges:
            self._writing.post(Charges(self._charges))
            self._charges = []

    def _flush(self) -> None:
        self._flushing = None
        self._post_charges()
        if self._writing.has_posted:
            self._writing.wake()
