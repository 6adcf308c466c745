"""The store that everybody has: one file, one thread that writes, one that reads.

Appends that wait are committed together. Nothing is opened before the first use, and the event loop never waits for the
disk. Knows SQL and threads only through its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TypeVar, get_args

import msgspec

from ...errors import StoreError, nearest
from ...events import Entry, Kept
from ...job import Job
from ...store import ConversationInfo
from .file import Durability
from .lane import Lane
from .reader import Read, Reader
from .writer import Append, Call, FinishJob, Write, Writer

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
FINISH_DELAY_S = 0.05
"""How long a finished job may wait to be forgotten together with something else."""

_encode = msgspec.json.Encoder().encode
_kinds: dict[type, str] = {kind: kind.__struct_config__.tag for kind in get_args(Kept)}


class SqliteStore:
    """A store in the file `path`, for one event loop; made, with its folder, when it is first used.

    What was appended survives the death of the process; with `durability="full"`, that of the machine too.
    """

    def __init__(
        self, path: str | Path, *, durability: Durability = "normal", busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        if durability not in get_args(Durability):
            raise StoreError(f"durability {durability!r} is unknown{nearest(durability, get_args(Durability))}")
        self.path = Path(path).absolute()
        writer = Writer(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        reader = Reader(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        self._writing: Lane[Write] = Lane("rondel-store-writer", writer.serve, writer.close)
        self._reading: Lane[Read] = Lane("rondel-store-reader", reader.serve, reader.close)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._forgetting: asyncio.TimerHandle | None = None

    async def append(self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float) -> None:
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
        await self._writing.ask(Append(conversation, entries, rows))

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        return await self._read(lambda reader: reader.entries(conversation, after))

    async def conversations(self, *, limit: int = 50, before: float | None = None) -> list[ConversationInfo]:
        until = inf if before is None else before
        return await self._read(lambda reader: reader.conversations(max(limit, 0), until))

    async def info(self, conversation: str) -> ConversationInfo | None:
        return await self._read(lambda reader: reader.info(conversation))

    async def delete(self, conversation: str) -> bool:
        return await self._write(lambda writer: writer.delete(conversation))

    async def put_job(self, job: Job) -> bool:
        try:
            payload = _encode(job.payload).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"the payload of job {job.id!r} cannot be written as JSON ({error}): put only plain values into it"
            ) from error
        return await self._write(lambda writer: writer.put_job(job, payload))

    def finish_job(self, id: str) -> None:
        if self._closed:
            # The job is found again after a restart, and its handler knows.
            return
        loop = self._use()
        self._writing.post(FinishJob(id))
        if self._forgetting is None:
            self._forgetting = loop.call_later(FINISH_DELAY_S, self._forget_finished)

    async def orphaned_jobs(self) -> list[Job]:
        return await self._write(lambda writer: writer.orphaned_jobs())

    async def aclose(self) -> None:
        """Write what waits, then let go of the file. A second time does nothing."""
        if self._closed:
            return
        if self._loop is None:
            self._closed = True
            return
        self._use()
        self._closed = True
        if self._forgetting is not None:
            self._forgetting.cancel()
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

    def _use(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise StoreError(f"the store {self.path} is closed: make a new one to use it again")
        if loop is not self._loop:
            if self._loop is not None:
                raise StoreError(f"the store {self.path} belongs to another event loop: make one store for each loop")
            self._loop = loop
            self._writing.start(loop)
            self._reading.start(loop)
        return loop

    async def _write(self, call: Callable[[Writer], T]) -> T:
        self._use()
        return await self._writing.ask(Call(call))

    async def _read(self, call: Callable[[Reader], T]) -> T:
        self._use()
        return await self._reading.ask(Read(call))

    def _forget_finished(self) -> None:
        self._forgetting = None
        self._writing.wake()
