"""The store that everybody has: one file, one thread that writes, one that reads.

Appends that wait are committed together. Nothing is opened before the first use, and the event loop never waits for the
disk. Knows SQL and threads only through its neighbours.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar, get_args

import msgspec

from ...errors import StoreError, nearest
from ...events import Entry, Kept
from ...job import Job
from ...store import ConversationInfo
from .file import Durability, damaged, fault_of, open_file
from .lane import Lane, Request
from .writer import INFO_COLUMNS, Append, Call, FinishJob, Write, Writer, info_of

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
FINISH_DELAY_S = 0.05
"""How long a finished job may wait to be forgotten together with something else."""
CHUNK_ENTRIES = 512
"""Entries that are read with one statement: the interpreter's lock is held for about a millisecond at a time."""

_encode = msgspec.json.Encoder().encode
_decode_entries = msgspec.json.Decoder(list[Entry]).decode
_kinds: dict[type, str] = {kind: kind.__struct_config__.tag for kind in get_args(Kept)}


class Read(Request):
    __slots__ = ("call",)

    def __init__(self, call: Callable[[sqlite3.Connection], object]) -> None:
        super().__init__()
        self.call = call


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
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._writer = Writer(self.path, durability=durability, busy_timeout_s=busy_timeout_s)
        self._writing: Lane[Write] = Lane("rondel-store-writer", self._writer.serve, self._writer.close)
        self._reading: Lane[Read] = Lane("rondel-store-reader", self._serve_reads, self._close_reader)
        self._reader: sqlite3.Connection | None = None
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
        return await self._read(lambda reader: self._read_entries(reader, conversation, after))

    async def conversations(self, *, limit: int = 50, before: float | None = None) -> list[ConversationInfo]:
        until = float("inf") if before is None else before

        def query(reader: sqlite3.Connection) -> list[ConversationInfo]:
            rows = reader.execute(
                f"select {INFO_COLUMNS} from conversations where instr(id, '/') = 0 and updated_at < ? "
                "order by updated_at desc, id desc limit ?",
                (until, max(limit, 0)),
            )
            return [info_of(row) for row in rows]

        return await self._read(query)

    async def info(self, conversation: str) -> ConversationInfo | None:
        def query(reader: sqlite3.Connection) -> ConversationInfo | None:
            found = reader.execute(f"select {INFO_COLUMNS} from conversations where id = ?", (conversation,)).fetchone()
            return info_of(found) if found else None

        return await self._read(query)

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

    async def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        self._use()
        return await self._reading.ask(Read(call))

    def _forget_finished(self) -> None:
        self._forgetting = None
        self._writing.wake()

    # --- the reading thread's side --------------------------------------------------------------------------------

    def _serve_reads(self, group: list[Read]) -> None:
        for request in group:
            try:
                if self._reader is None:
                    # Opened like the writer's: a read never waits for a write, not even for the first one.
                    self._reader = open_file(
                        self.path, durability=self._durability, busy_timeout_s=self._busy_timeout_s
                    )
                    self._reader.execute("pragma query_only = on")
                request.result = request.call(self._reader)
            except Exception as error:
                request.error = fault_of(error, self.path)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read_entries(self, reader: sqlite3.Connection, conversation: str, after: int) -> list[Entry]:
        """Many entries as one value per statement: a row at a time would ask for the interpreter's lock at each row."""
        entries: list[Entry] = []
        reader.execute("begin")
        try:
            while True:
                body: bytes | None = reader.execute(
                    "select cast(group_concat(body, ',') as blob) from "
                    "(select body from entries where conversation = ? and seq > ? order by seq limit ?)",
                    (conversation, after, CHUNK_ENTRIES),
                ).fetchone()[0]
                chunk = self._decode(conversation, after, body or b"")
                entries += chunk
                if len(chunk) < CHUNK_ENTRIES:
                    return entries
                after = chunk[-1].seq
        finally:
            reader.execute("rollback")

    def _decode(self, conversation: str, after: int, bodies: bytes) -> list[Entry]:
        try:
            return _decode_entries(b"[" + bodies + b"]")
        except msgspec.MsgspecError as error:
            raise damaged(self.path, f"conversation {conversation!r} behind entry {after!r}: {error}") from error
