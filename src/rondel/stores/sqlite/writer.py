"""What the writing thread does: a whole group of requests in one transaction.

Rows are inserted many at a time with one statement: each statement lets go of the interpreter's lock and must get it
back from a busy event loop, so their number, not their size, is what a group costs. Knows no event loop.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import msgspec

from ...errors import StoreBusy, StoreConflict, StoreError
from ...events import Entry
from ...job import Job
from ...store import ConversationInfo
from . import worker
from .file import Durability, fault_of, open_file
from .lane import Request
from .rows import INFO_COLUMNS, JOB_COLUMNS, EntryRow, info_of, job_of, row_of
from .worker import Worker

logger = logging.getLogger("rondel.store")

ROWS_MAX = 64
"""Rows per statement; sizes are powers of two, so that few statements are ever prepared."""
KNOWN_MAX = 4_096
"""How many conversations' summaries are kept at hand."""

_encode = msgspec.json.Encoder().encode


class Append(Request):
    __slots__ = ("awaited", "conversation", "entries", "rows")

    def __init__(
        self, conversation: str, entries: Sequence[Entry], rows: Sequence[EntryRow], *, awaited: bool = True
    ) -> None:
        super().__init__()
        self.conversation, self.entries, self.rows, self.awaited = conversation, entries, rows, awaited


class FinishJob(Request):
    __slots__ = ("id",)

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id


class Call(Request):
    """Anything else: `call` runs inside the group's transaction, with its place in the order."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[Writer], object]) -> None:
        super().__init__()
        self.call = call


Write: TypeAlias = Append | FinishJob | Call


class Writer:
    """Everything here runs on one thread."""

    def __init__(self, path: Path, *, durability: Durability, busy_timeout_s: float) -> None:
        self._path = path
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._worker: Worker | None = None
        self._data_version = -1
        self._known: dict[str, ConversationInfo] = {}
        # What the open transaction has gathered and not yet written.
        self._changed: dict[str, ConversationInfo] = {}
        self._rows: list[EntryRow] = []
        self._finished: list[str] = []
        self._untold: dict[str, Exception] = {}

    def serve(self, group: list[Write]) -> None:
        """Commit all of a group; when that fails, each on its own, so that only the culprit fails."""
        try:
            connection = self._open()
        except Exception as error:
            return self._fail(group, fault_of(error, self._path))
        try:
            self._commit(connection, group)
        except Exception as error:
            self._roll_back(connection)
            fault = fault_of(error, self._path)
            if len(group) == 1 or isinstance(fault, StoreBusy):
                return self._fail(group, fault)
            for request in group:
                request.error = None
                self.serve([request])

    def _fail(self, group: Sequence[Write], fault: Exception) -> None:
        for request in group:
            # Each its own: an exception that is raised in two places has the traceback of neither.
            request.error = type(fault)(*fault.args) if isinstance(fault, StoreError) else fault
            if isinstance(request, Append):
                self._tell_later(request)
            elif isinstance(request, FinishJob):
                logger.warning("job %r could not be forgotten and may run again after a restart: %s", request.id, fault)

    def close(self) -> None:
        try:
            if self._connection is not None:
                self._connection.close()
        except sqlite3.Error as error:
            logger.warning("%s", fault_of(error, self._path))
        finally:
            if self._worker is not None:
                self._worker.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._path, durability=self._durability, busy_timeout_s=self._busy_timeout_s)
        return self._connection

    def _commit(self, connection: sqlite3.Connection, group: list[Write]) -> None:
        connection.execute("begin immediate")
        self._heed_others(connection)
        for request in group:
            if isinstance(request, Append):
                self._admit(connection, request)
            elif isinstance(request, FinishJob):
                self._finished.append(request.id)
            else:
                request.result = request.call(self)
        self._flush(connection)
        connection.execute("commit")
        self._remember()

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._changed.clear()
        self._rows.clear()
        self._finished.clear()
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            # A connection in this state is of no more use; the next group opens the file again.
            connection.close()
            self._connection = None

    # --- entries --------------------------------------------------------------------------------------------------

    def _heed_others(self, connection: sqlite3.Connection) -> None:
        """Forget the summaries when another process has written since."""
        version: int = connection.execute("pragma data_version").fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._known.clear()

    def _admit(self, connection: sqlite3.Connection, request: Append) -> None:
        """The fence: an append that is not the next one fails alone."""
        id = request.conversation
        info = self._changed.get(id) or self._known.get(id) or self._load(connection, id)
        seq = request.entries[0].seq
        if seq != info.seq + 1:
            request.error = self._untold.get(id) or StoreConflict(
                f"conversation {id!r} is at entry {info.seq!r}, so entry {seq!r} cannot follow: "
                "another worker appended first; read it again and go on from there"
            )
            self._tell_later(request)
            return
        self._changed[id] = info.after(*request.entries)
        self._rows.extend(request.rows)

    def _tell_later(self, request: Append) -> None:
        """Nobody waits for a posted append: why it failed is told to the next one that is waited for."""
        if request.error is None:
            return
        if request.awaited:
            self._untold.pop(request.conversation, None)
        else:
            self._untold.setdefault(request.conversation, request.error)

    def _load(self, connection: sqlite3.Connection, id: str) -> ConversationInfo:
        row = connection.execute(f"select {INFO_COLUMNS} from conversations where id = ?", (id,)).fetchone()
        return info_of(row) if row else ConversationInfo(id)

    def _flush(self, connection: sqlite3.Connection) -> None:
        """Write what was gathered: summaries first, because entries refer to them."""
        if self._changed:
            _insert(connection, _upsert_infos, [row_of(info) for info in self._changed.values()])
        if self._rows:
            _insert(connection, _insert_entries, self._rows)
            self._rows.clear()
        if self._finished:
            self._forget_jobs(connection)

    def _remember(self) -> None:
        for id, info in self._changed.items():
            self._known.pop(id, None)
            self._known[id] = info
        self._changed.clear()
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def delete(self, conversation: str) -> bool:
        connection = self._open()
        self._flush(connection)
        # `0` is the character behind `/`: everything that begins with `conversation/` is between the two.
        deleted = connection.execute(
            "delete from conversations where id = ?1 or (id > ?1 || '/' and id < ?1 || '0')", (conversation,)
        ).rowcount
        self._changed.clear()
        self._known.clear()
        return deleted > 0

    # --- jobs -----------------------------------------------------------------------------------------------------

    def put_job(self, job: Job, payload: str) -> bool:
        connection = self._open()
        if job.id in self._finished:
            self._forget_jobs(connection)
        put = connection.execute(
            f"insert into jobs ({JOB_COLUMNS}, worker) values (?, ?, ?, ?, ?, ?) on conflict (id) do nothing",
            (job.id, job.kind, job.key, job.at, payload, self._alive().id),
        )
        return put.rowcount == 1

    def orphaned_jobs(self) -> list[Job]:
        """The jobs that no other living worker holds. They are this worker's from now on."""
        connection = self._open()
        self._flush(connection)
        own = self._alive().id
        for (id,) in connection.execute("select distinct worker from jobs where worker <> ?", (own,)).fetchall():
            if worker.is_dead(self._path, id):
                connection.execute("update jobs set worker = ? where worker = ?", (own, id))
        worker.tidy(self._path)
        rows = connection.execute(f"select {JOB_COLUMNS} from jobs where worker = ? order by position", (own,))
        return [job_of(row) for row in rows]

    def _forget_jobs(self, connection: sqlite3.Connection) -> None:
        """Only what this worker holds: a job that another one has under the same id is not ours to forget."""
        if self._worker is not None:
            connection.execute(
                "delete from jobs where worker = ? and id in (select value from json_each(?))",
                (self._worker.id, _encode(self._finished).decode()),
            )
        self._finished.clear()

    def _alive(self) -> Worker:
        if self._worker is None:
            self._worker = Worker.of(self._path)
        return self._worker


def _insert(connection: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[Iterable[object]]) -> None:
    start, left = 0, len(rows)
    while left:
        size = min(ROWS_MAX, 1 << (left.bit_length() - 1))
        connection.execute(statement(size), tuple(chain.from_iterable(rows[start : start + size])))  # type: ignore[arg-type]
        start, left = start + size, left - size


@cache
def _insert_entries(rows: int) -> str:
    return "insert into entries (conversation, seq, at, kind, body) values " + ", ".join(["(?, ?, ?, ?, ?)"] * rows)


@cache
def _upsert_infos(rows: int) -> str:
    names = INFO_COLUMNS.split(", ")
    values = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * rows)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    return f"insert into conversations ({INFO_COLUMNS}) values {values} on conflict (id) do update set {updates}"
