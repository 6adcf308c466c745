"""What writing is: a whole group of requests in one transaction.

A small group is committed on the loop's own thread when nothing can make it wait: the file is open, nobody else writes,
and no fsync is due. Handing it to a thread and back costs two to four times as much. Everything else is the thread's:
opening, waiting for another process, large groups, checkpoints, and all of it with full durability.

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

import msgspec

from ...charge import ALL, Charge
from ...errors import StoreBusy, StoreConflict, StoreError
from ...events import Entry
from ...job import Job
from ...store import ConversationInfo
from . import ledger, worker
from .claims import Claims
from .file import Durability, fault_of, open_eagerly, open_file
from .requests import Append, Call, Charged, Charges, FinishJob, Write, apart
from .rows import INFO_COLUMNS, JOB_COLUMNS, EntryRow, info_of, job_of, row_of
from .scopes import Scopes
from .worker import Worker

logger = logging.getLogger("rondel.store")

ROWS_MAX = 64
"""Rows per statement; sizes are powers of two, so that few statements are ever prepared."""
KNOWN_MAX = 4_096
"""How many conversations' summaries are kept at hand."""
AT_ONCE_BYTES_MAX = 64 * 1024
CHARGES_AT_ONCE_MAX = 64
"""Charges in a group that is committed on the loop's thread: more would keep the loop for too long."""
AT_ONCE_COMMITS_MAX = 1_000
"""Commits on the loop's thread between two checkpoints, which are the thread's because they end in an fsync."""

_encode = msgspec.json.Encoder().encode


class Writer:
    """One thread at a time is in here: the lane sees to that."""

    def __init__(self, path: Path, *, durability: Durability, busy_timeout_s: float) -> None:
        self._path = path
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._patient: sqlite3.Connection | None = None
        self._eager: sqlite3.Connection | None = None
        self._eager_commits = 0
        self._worker: Worker | None = None
        self._data_versions: dict[sqlite3.Connection, int] = {}
        self._known: dict[str, ConversationInfo] = {}
        # What the open transaction has gathered and not yet written.
        self._changed: dict[str, list[Entry]] = {}
        self._infos: dict[str, ConversationInfo] = {}
        self._rows: list[EntryRow] = []
        self._finished: list[str] = []
        self._charged: list[Charged] = []
        self._charges: list[Charge] = []
        self._unrolled = 0
        self._scopes = Scopes()
        self.claims = Claims()
        self._untold: dict[str, Exception] = {}

    def serve(self, group: list[Write]) -> None:
        """Commit all of a group; when that fails, each on its own, so that only the culprit fails."""
        try:
            connection = self._open()
        except Exception as error:
            return self._fail(group, fault_of(error, self._path))
        try:
            self._commit(connection, group)
            if self._eager_commits >= AT_ONCE_COMMITS_MAX:
                self._checkpoint(connection)
        except Exception as error:
            self._roll_back(connection)
            fault = fault_of(error, self._path)
            parts = apart(group)
            if len(parts) == 1 or isinstance(fault, StoreBusy):
                return self._fail(group, fault)
            for request in parts:
                request.error = None
                self.serve([request])

    def serve_at_once(self, group: list[Write]) -> bool:
        """Commit a group without waiting for anything. False, and nothing done, when that cannot be."""
        connection = self._eager
        if connection is None or self._eager_commits >= AT_ONCE_COMMITS_MAX or not self._is_small(group):
            return False
        try:
            self._commit(connection, group)
        except Exception:  # whatever it is: the thread has the time to find out
            self._roll_back(connection)
            for request in group:
                request.error = request.result = None
            return False
        self._eager_commits += 1
        return True

    def _is_small(self, group: list[Write]) -> bool:
        size = charges = 0
        for request in group:
            if isinstance(request, Append):
                size += sum(len(row[4]) for row in request.rows)
            elif isinstance(request, Charges):
                charges += len(request.charges)
            elif isinstance(request, Charged):
                charges += 1
            elif isinstance(request, Call) and not request.small:
                return False
        return (
            size <= AT_ONCE_BYTES_MAX
            and charges <= CHARGES_AT_ONCE_MAX
            and self._unrolled + charges < ledger.ROLL_UP_EVERY
        )

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move the log into the database. The first commit after that syncs the log's new beginning: make one here."""
        self._eager_commits = 0
        connection.execute("pragma wal_checkpoint(passive)").fetchone()
        version: int = connection.execute("pragma user_version").fetchone()[0]
        connection.execute(f"pragma user_version = {version}")

    def _fail(self, group: Sequence[Write], fault: Exception) -> None:
        for request in group:
            # Each its own: an exception that is raised in two places has the traceback of neither.
            request.error = type(fault)(*fault.args) if isinstance(fault, StoreError) else fault
            if isinstance(request, Append):
                self._tell_later(request)
            elif isinstance(request, FinishJob):
                logger.warning("job %r could not be forgotten and may run again after a restart: %s", request.id, fault)
            elif isinstance(request, Charges | Charged):
                for charge in request.charges if isinstance(request, Charges) else [request.charge]:
                    if charge is not None:
                        logger.warning("what the call %r spent could not be written: %s", charge.id, fault)

    def close(self) -> None:
        try:
            for connection in (self._eager, self._patient):
                if connection is not None:
                    connection.close()
        except sqlite3.Error as error:
            logger.warning("%s", fault_of(error, self._path))
        finally:
            if self._worker is not None:
                self._worker.close()

    def _open(self) -> sqlite3.Connection:
        if self._patient is None:
            self._patient = open_file(self._path, durability=self._durability, busy_timeout_s=self._busy_timeout_s)
            if self._durability == "normal":
                self._eager = open_eagerly(self._path)
        return self._patient

    def _commit(self, connection: sqlite3.Connection, group: list[Write]) -> None:
        self._connection = connection
        connection.execute("begin immediate")
        heeded = False
        for request in group:
            if isinstance(request, Append):
                if not heeded:
                    heeded = True
                    self._heed_others(connection)
                self._admit(connection, request)
            elif isinstance(request, FinishJob):
                self._finished.append(request.id)
            elif isinstance(request, Charges):
                self._charges += request.charges
            elif isinstance(request, Charged):
                self._charged.append(request)
            else:
                request.result = request.call(self)
        self._flush(connection)
        connection.execute("commit")
        if self._infos:
            self._remember()

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._changed.clear()
        self._infos = {}
        self._rows.clear()
        self._finished.clear()
        self._charged.clear()
        self._charges.clear()
        self._scopes.forget()
        self.claims.forget()
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            # A connection in this state is of no more use; the next group opens the file again.
            for stale in (self._eager, self._patient):
                if stale is not None:
                    stale.close()
            self._eager = self._patient = None
            self._data_versions.clear()

    # --- entries --------------------------------------------------------------------------------------------------

    def _heed_others(self, connection: sqlite3.Connection) -> None:
        """Forget the summaries when somebody else has written since."""
        version: int = connection.execute("pragma data_version").fetchone()[0]
        if version != self._data_versions.get(connection):
            self._data_versions[connection] = version
            self._known.clear()

    def _admit(self, connection: sqlite3.Connection, request: Append) -> None:
        """The fence: an append that is not the next one fails alone."""
        id = request.conversation
        entries = self._changed.get(id)
        if entries is None:
            if id not in self._known:
                self._known[id] = self._load(connection, id)
            entries = []
        last = entries[-1].seq if entries else self._known[id].seq
        seq = request.entries[0].seq
        if seq != last + 1:
            request.error = self._untold.get(id) or StoreConflict(
                f"conversation {id!r} is at entry {last!r}, so entry {seq!r} cannot follow: "
                "another worker appended first; read it again and go on from there"
            )
            self._tell_later(request)
            return
        entries.extend(request.entries)
        self._changed[id] = entries
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
            self._infos = {id: self._known[id].after(*entries) for id, entries in self._changed.items()}
            _insert(connection, _upsert_infos, [row_of(info) for info in self._infos.values()])
        if self._rows:
            _insert(connection, _insert_entries, self._rows)
            self._rows.clear()
        if self._finished:
            self._forget_jobs(connection)
        if self._charges or self._charged:
            self._keep_charges(connection)
        self.claims.write(connection)

    def _remember(self) -> None:
        for id, info in self._infos.items():
            self._known.pop(id, None)
            self._known[id] = info
        self._infos = {}
        self._changed.clear()
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def delete(self, conversation: str) -> bool:
        connection = self.in_use()
        self._flush(connection)
        # `0` is the character behind `/`: everything that begins with `conversation/` is between the two.
        deleted = connection.execute(
            "delete from conversations where id = ?1 or (id > ?1 || '/' and id < ?1 || '0')", (conversation,)
        ).rowcount
        self._changed.clear()
        self._infos = {}
        self._known.clear()
        return deleted > 0

    # --- jobs -----------------------------------------------------------------------------------------------------

    def put_job(self, job: Job, payload: str) -> bool:
        connection = self.in_use()
        if job.id in self._finished:
            self._forget_jobs(connection)
        put = connection.execute(
            f"insert into jobs ({JOB_COLUMNS}, worker) values (?, ?, ?, ?, ?, ?) on conflict (id) do nothing",
            (job.id, job.kind, job.key, job.at, payload, self._alive().id),
        )
        return put.rowcount == 1

    def orphaned_jobs(self, key: str) -> list[Job]:
        """The jobs that no other living worker holds. They are this worker's from now on."""
        connection = self.in_use()
        self._flush(connection)
        own, wanted = self._alive().id, "(?1 = '' or key = ?1)"
        for (id,) in connection.execute("select distinct worker from jobs where worker <> ?", (own,)).fetchall():
            if worker.is_dead(self._path, id):
                connection.execute(f"update jobs set worker = ?2 where worker = ?3 and {wanted}", (key, own, id))
        worker.tidy(self._path)
        rows = connection.execute(
            f"select {JOB_COLUMNS} from jobs where worker = ?2 and {wanted} order by position", (key, own)
        )
        return [job_of(row) for row in rows]

    def _forget_jobs(self, connection: sqlite3.Connection) -> None:
        """Only what this worker holds: a job that another one has under the same id is not ours to forget."""
        if self._worker is not None:
            connection.execute(
                "delete from jobs where worker = ? and id in (select value from json_each(?))",
                (self._worker.id, _encode(self._finished).decode()),
            )
        self._finished.clear()

    # --- charges --------------------------------------------------------------------------------------------------

    def settled(self) -> sqlite3.Connection:
        """The connection, with every charge written that came before this request."""
        connection = self.in_use()
        if self._charges or self._charged:
            self._keep_charges(connection)
        return connection

    def roll_up(self, dimension: str = ALL) -> None:
        """Bring the sums forward, with those of this dimension."""
        self._unrolled = 0
        ledger.roll_up(self.settled(), dimension)

    def _keep_charges(self, connection: sqlite3.Connection) -> None:
        charges, self._charges = self._charges, []
        charged, self._charged = self._charged, []
        number_of = self._scopes.number_of
        rows = [ledger.row_of(charge, number_of(connection, charge.scope)) for charge in charges]
        for request in charged:
            charge, reserved = request.charge, request.reserved
            lost = reserved is not None and not self.claims.release(connection, reserved)
            if charge is not None and not lost:
                rows.append(ledger.row_of(charge, number_of(connection, charge.scope), request.origin))
        self._insert_charges(connection, rows)
        for request in charged:
            request.result = self.claims.balances(connection, request.accounts) if request.accounts else []
        if self._unrolled >= ledger.ROLL_UP_EVERY:
            self.roll_up()

    def reconcile(self, now: float) -> None:
        """Count as spent what the dead had claimed, and what was never settled."""
        connection = self.settled()
        lost = self.claims.take_lost(connection, now, self._is_dead)
        number_of = self._scopes.number_of
        rows = [ledger.row_of(charge, number_of(connection, charge.scope), ledger.GIVEN) for charge in lost]
        self._insert_charges(connection, rows)

    def _insert_charges(self, connection: sqlite3.Connection, rows: Sequence[ledger.ChargeRow]) -> None:
        if rows:
            _insert(connection, ledger.insert_charges, rows)
            self._unrolled += len(rows)

    @property
    def worker_id(self) -> str:
        return self._alive().id

    def _is_dead(self, id: str) -> bool:
        return id != self._alive().id and worker.is_dead(self._path, id)

    def in_use(self) -> sqlite3.Connection:
        assert self._connection is not None, "requests are served inside a transaction"
        return self._connection

    def _alive(self) -> Worker:
        if self._worker is None:
            self._worker = Worker.of(self._path)
        return self._worker


def _insert(connection: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[Iterable[object]]) -> None:
    start, left = 0, len(rows)
    if left == 1:
        connection.execute(statement(1), rows[0])  # type: ignore[arg-type]
        return
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
