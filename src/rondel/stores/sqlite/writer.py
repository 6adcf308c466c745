"""Commits a group of requests in one transaction: a small one on the loop's own thread if nothing can make it wait,
because a thread costs two to four times as much; all others on the writer thread.

One statement inserts many rows: each statement releases the interpreter lock and must get it back from a busy event
loop, so a group costs as much as its number of statements. Knows no event loop.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from math import inf
from operator import attrgetter

from ...charge import ALL
from ...contracts.ledger import Account, Balance, Refusal
from ...contracts.runtime import Claim, Job
from ...contracts.store import ConversationInfo, not_next, works_elsewhere
from ...errors import StoreBusy, StoreError
from . import key_values, ledger, live, worker
from .backlog import Backlog
from .executor import Executor
from .file import DatabaseFile
from .log import INFO_COLUMNS, LogRow, listed, row_of, stored_info
from .queue import Queue
from .requests import AT_ONCE_BYTES_MAX, Append, Call, Charged, FinishJob, Put, Reserve, Write
from .reservations import Reservations
from .scopes import Scopes
from .worker import Worker

logger = logging.getLogger("rondel.store")

ROWS_MAX = 64  # rows per statement; sizes are powers of two, so that few statements are ever prepared
ROW_CHARS_MAX = 256 * 1024  # characters of a row of the log, unless a single append has more
KNOWN_MAX = 4_096  # summaries of conversations that are cached
RECONCILE_S = 60.0
AT_ONCE_COMMITS_MAX = 1_000
"""Commits on the loop's thread between two checkpoints, which the writer thread makes because they end in an fsync."""

_size_of: Callable[[Write], float] = attrgetter("size")


class _TakesLongError(Exception):
    """Raised on the loop's thread: the group is rolled back, and the writer thread serves it."""


class SqliteWriter:
    """Only one thread at a time may be in here: `StoreThread` has the lock."""

    def __init__(
        self,
        file: DatabaseFile,
        retry_later: Callable[[], None],
        set_subscribed: Callable[[frozenset[str]], None],
    ) -> None:
        """`retry_later` is called, on any thread, when something could not be written and must be tried again soon;
        `set_subscribed` with the conversations that other workers want live events of, when that may have changed."""
        self._file, self._path = file, file.path
        self._retry_later, self._set_subscribed = retry_later, set_subscribed
        self.backlog = Backlog(file.path)
        # One connection for both threads: with two, each would see the other's commits as another process's.
        self._connection: sqlite3.Connection | None = None
        self._may_wait = False
        self._commits_at_once = 0
        self._log_moved_at = 0
        self.looks = 0  # how many commits have checked whether another connection has written
        self.others = 0  # how many of them found that one has
        self._worker: Worker | None = None
        self._data_version: int | None = None
        self._known: dict[str, ConversationInfo] = {}
        # What the open transaction has collected and not yet written.
        self._appended: dict[str, list[Append]] = {}
        self._finished: list[str] = []
        self._values: dict[tuple[str, str], Put] = {}
        # Finished jobs that could not be deleted yet: while they are stored, they block their keys for other workers.
        self._unforgotten: list[FinishJob] = []
        self._charged: list[Charged] = []
        self._unrolled = 0
        self._reconciled_at = -inf
        self._scopes = Scopes()
        self._reservations = Reservations(self._scopes, self._roll_up)
        self.queue = Queue(lambda: self.worker_id, self._is_dead)
        self._unreported: dict[str, Exception] = {}  # why appends failed that no caller waited for, by conversation
        self._reported: list[str] = []

    def serve(self, group: list[Write]) -> None:
        """Commit a group, and what could not be written before; late charges are added to the group as done."""
        with self._waiting():
            late = self._write_backlog() if self.backlog.is_due else []
            # First, so that a job that is put again under its old id is not deleted.
            unforgotten, self._unforgotten = self._unforgotten, []
            self._serve([*unforgotten, *group])
            if self._connection is not None and self._commits_at_once >= AT_ONCE_COMMITS_MAX:
                self._checkpoint(self._connection)
        if self._connection is not None and (moved_at := self._file.log_moved_at()) != self._log_moved_at:
            self._log_moved_at = moved_at
            self._begin_log(self._connection)
        if self.backlog.requests or self._unforgotten:
            self._retry_later()
        group += late

    @contextmanager
    def _waiting(self) -> Generator[None]:
        """Allow waiting for locks inside the block, which runs on the writer thread; also on a new connection."""
        self._may_wait = True
        if self._connection is not None:
            self._file.set_waiting(self._connection, allowed=True)
        try:
            yield
        finally:
            self._may_wait = False
            if self._connection is not None:
                self._file.set_waiting(self._connection, allowed=False)

    def _serve(self, group: list[Write]) -> None:
        """Commit all of a group; if that fails, each request on its own, so that only the faulty one fails."""
        try:
            connection = self._open()
        except Exception as error:
            return self._fail(group, self._file.fault_of(error))
        try:
            self._commit(connection, group)
        except Exception as error:
            self._roll_back(connection)
            fault = self._file.fault_of(error)
            # If the disk fails, it fails for all charges: a thousand attempts would only take longer.
            failed = isinstance(fault, StoreError)
            charged: list[Write] = [one for one in group if failed and isinstance(one, Charged)]
            parts = [[one] for one in group if one not in charged] + [charged] * bool(charged)
            if len(parts) == 1 or isinstance(fault, StoreBusy):
                return self._fail(group, fault)
            for part in parts:
                for request in part:
                    request.error = None
                self._serve(part)

    def serve_at_once(self, group: list[Write]) -> bool:
        """Commit a group without waiting for anything. Return False, with nothing done, if that is not possible."""
        connection = self._connection
        if (
            connection is None
            or self._file.durability != "normal"  # each commit waits for the disk
            or self.backlog.requests
            or self._unforgotten
            or self._commits_at_once >= AT_ONCE_COMMITS_MAX
            or self._unrolled >= ledger.ROLL_UP_EVERY
            or sum(map(_size_of, group)) > AT_ONCE_BYTES_MAX
        ):
            return False
        try:
            self._commit(connection, group)
        except BaseException as error:
            self._roll_back(connection)
            if not isinstance(error, Exception):
                raise
            for request in group:  # the writer thread tries again and reports it
                request.error = request.result = None
            return False
        self._commits_at_once += 1
        return True

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move the write-ahead log into the database.

        A failure does not concern the group that was just committed, and the next checkpoint repeats the work.
        """
        self._commits_at_once = 0
        try:
            connection.execute("pragma wal_checkpoint(passive)").fetchone()
        except sqlite3.Error as error:
            logger.warning("the log of %s could not be moved into the database yet: %s", self._path, error)

    def _begin_log(self, connection: sqlite3.Connection) -> None:
        """Make the first commit after the log was moved into the database, here or by a large commit: it syncs the new
        log. If that fails, another process is making it, or the disk is full."""
        with suppress(sqlite3.Error):
            version: int = connection.execute("pragma user_version").fetchone()[0]
            connection.execute(f"pragma user_version = {version}")

    def _fail(self, group: Sequence[Write], fault: Exception) -> None:
        for request in group:
            # A copy for each: an exception that is raised in two places has a wrong traceback.
            request.error = type(fault)(*fault.args) if isinstance(fault, StoreError) else fault
            if isinstance(request, Append):
                if request.awaited:
                    self._unreported.pop(request.conversation, None)
                else:
                    self._unreported.setdefault(request.conversation, request.error)
            elif isinstance(request, FinishJob):
                if not request.late:
                    logger.warning("job %r has finished but cannot be deleted yet: %s", request.id, fault)
                request.late, request.error = True, None
                self._unforgotten.append(request)
            elif isinstance(request, Charged):
                self._keep_late(request, fault)
            elif isinstance(request, Put) or (isinstance(request, Call) and not request.awaited):
                logger.warning("a write in the background failed: %s", fault)

    def _keep_late(self, request: Charged, fault: Exception) -> None:
        """Keep a charge for later that no caller waits for. One that can never be written is lost."""
        charge = request.charge
        if request.origin == ledger.GIVEN:
            return  # its caller gets the error
        if isinstance(fault, StoreError):
            self.backlog.add(request, fault)
        else:
            logger.warning("the charge of the call %r could not be written: %s", charge and charge.id, fault)
            self.backlog.lose(request, fault)

    def _write_backlog(self) -> list[Write]:
        """Write the backlog, many charges in a transaction, until that fails. Return what was written."""
        done: list[Write] = []
        size: int | None = None
        while chunk := self.backlog.first()[:size]:
            try:
                connection = self._open()
                try:
                    self._commit(connection, list(chunk))
                except Exception:
                    self._roll_back(connection)
                    raise
            except Exception as error:
                fault = self._file.fault_of(error)
                if isinstance(fault, StoreError):
                    self.backlog.failed(fault)
                    break
                if len(chunk) == 1:
                    self.backlog.drop_first(fault)
                size = 1  # one of them cannot be written: find it
                continue
            self.backlog.written(len(chunk))
            done += chunk
        return done

    def close(self) -> None:
        try:
            with self._waiting():
                self._write_backlog()
            if self._connection is not None:
                self._file.close(self._connection)
        except sqlite3.Error as error:
            logger.warning("%s", self._file.fault_of(error))
        finally:
            if self._worker is not None:
                self._worker.close()
            self.backlog.give_up()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.open(any_thread=True)
        return self._connection

    def _commit(self, connection: sqlite3.Connection, group: list[Write]) -> None:
        cursor = connection.cursor()  # for all statements: making one takes as long as a small statement
        cursor.execute("begin immediate")
        version: int = cursor.execute("pragma data_version").fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._drop_stale(connection)
        self.looks += 1
        # If the log was moved into the database before this transaction began, the commit begins a new log and syncs
        # it. Other processes move it, too; one that has never written does not, and looking at the file costs 4 %.
        if self._may_wait:
            self._log_moved_at = self._file.log_moved_at()
        elif self.others > 1 and self._file.log_moved_at() != self._log_moved_at:
            raise _TakesLongError
        for request in group:
            # Types are compared: isinstance takes several times as long for a struct of another type.
            if type(request) is Append:
                self._admit(connection, request)
            elif type(request) is FinishJob:
                self._finished.append(request.id)
            elif type(request) is Charged:
                self._charged.append(request)
            elif type(request) is Reserve:
                request.result = self._reserve(cursor, request)
            elif type(request) is Put:
                self._values[request.row[:2]] = request
            elif type(request) is Call:
                if self._values:
                    self._put_values(cursor)
                request.result = request.call(connection)
        self._flush(cursor)
        self._file.check()
        cursor.execute("commit")
        while self._reported:
            self._unreported.pop(self._reported.pop(), None)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._appended.clear()
        self._finished.clear()
        self._values.clear()
        self._charged.clear()
        self._reported.clear()
        self._known.clear()
        self._scopes.forget()
        self._reservations.invalidate()
        self.queue.forget_others()
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            # This connection can no longer be used; the next group opens the file again.
            self._file.close(connection)
            self._connection = self._data_version = None

    # --- entries --------------------------------------------------------------------------------------------------

    def _drop_stale(self, connection: sqlite3.Connection) -> None:
        """Drop cached state, because another connection has written."""
        self.others += 1
        self._known.clear()
        self._reservations.invalidate()
        self.queue.forget_others()
        self._set_subscribed(live.subscribed(connection, self.queue.is_alive_elsewhere))

    def _admit(self, connection: sqlite3.Connection, request: Append) -> None:
        """Check the fence: an append whose position is not the next one fails alone."""
        id = request.conversation
        appended = self._appended.get(id)
        if appended is None:
            known = self._known.get(id)
            if known is None:
                # Checked only if another connection has written since the last time: a claim is a write, too.
                if "/" not in id and not self.queue.may_write(connection, id):
                    return self._refuse(request, works_elsewhere(id))
                known = self._known[id] = stored_info(connection, id)
            appended, last = [], known.seq
        else:
            last = appended[-1].entries[-1].seq
        seq = request.entries[0].seq
        if seq != last + 1:
            return self._refuse(request, not_next(id, last, seq))
        appended.append(request)
        self._appended[id] = appended

    def _refuse(self, request: Append, error: Exception) -> None:
        """Keep the error of a posted append, for which no caller waits: the next awaited append raises it."""
        id = request.conversation
        request.error = self._unreported.get(id) or error
        if request.awaited:
            self._reported.append(id)  # if the transaction is committed; otherwise it is tried again
        else:
            self._unreported.setdefault(id, request.error)

    def _flush(self, connection: Executor) -> None:
        """Write what was collected."""
        if self._appended:
            self._write_entries(connection)
        if self._finished:
            self._forget_jobs(connection)
        if self._values:
            self._put_values(connection)
        if self._charged:
            self._keep_charges(connection)

    def _write_entries(self, connection: Executor) -> None:
        """Write summaries first, because entries refer to them. The new summaries count as known at once: a rollback
        forgets all of them."""
        appended, self._appended = self._appended, {}
        infos: list[tuple[object, ...]] = []
        rows: list[LogRow] = []
        relisted: list[tuple[str, int, str]] = []
        for id, requests in appended.items():
            before = self._known.pop(id)  # and added again, as the most recently used one
            info = self._known[id] = before.after(*[entry for request in requests for entry in request.entries])
            infos.append(row_of(info))
            rows += _log_rows(id, requests)
            if before.seq and (now := listed(info)) != listed(before):
                relisted.append((*now, id))
        _insert(connection, _upsert_infos, infos)
        for row in relisted:  # rare: only then are their indexes written
            connection.execute("update conversations set person = ?, hour = ? where id = ?", row)
        _insert(connection, _insert_log_rows, rows)
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _put_values(self, connection: Executor) -> None:
        """Write the last value of each key. New rows come first and take the space of removed ones: the other order
        would free a page and allocate it again."""
        puts, self._values = self._values, {}
        for put in puts.values():
            if put.row[2] is not None:
                key_values.put(connection, put.row, put.now)
        for (namespace, key), put in puts.items():
            if put.row[2] is None:
                key_values.delete(connection, namespace, key)

    def delete(self, connection: sqlite3.Connection, conversation: str) -> bool:
        self._flush(connection)
        # `0` is the character after `/`: every id that starts with `conversation/` is between the two.
        deleted = connection.execute(
            "delete from conversations where id = ?1 or (id > ?1 || '/' and id < ?1 || '0')", (conversation,)
        ).rowcount
        self.queue.forget_conversation(connection, conversation)
        self._known.clear()
        return deleted > 0

    # --- jobs -----------------------------------------------------------------------------------------------------

    def put_job(self, connection: sqlite3.Connection, job: Job, payload: str) -> tuple[bool, int | None]:
        """Return whether the job was put; if it is claimed, also the last entry of the conversation of its key."""
        if self._finished:
            self._forget_jobs(connection)
        if job.key in self._appended:
            self._flush(connection)
        claim = self.queue.put(connection, job, payload)
        if claim != "granted":
            return claim is not None, None
        info = self._known.get(job.key)
        if info is None:
            info = self._known[job.key] = stored_info(connection, job.key)
        return True, info.seq

    def claim_job(self, connection: sqlite3.Connection, id: str, *, patient: bool) -> tuple[Claim, str, int]:
        """Return the state of the claim, the key of the job, and the last entry of the conversation that it names."""
        if self._finished:
            self._forget_jobs(connection)
        self._flush(connection)
        return self.queue.claim(connection, id, patient=patient)

    def orphaned_jobs(self, connection: sqlite3.Connection, key: str) -> list[Job]:
        self._flush(connection)
        jobs = self.queue.take_orphans(connection, key)
        worker.tidy(self._path)
        return jobs

    def _forget_jobs(self, connection: Executor) -> None:
        if self._worker is not None:
            self.queue.forget(connection, self._finished)
        self._finished.clear()

    # --- charges --------------------------------------------------------------------------------------------------

    def _reserve(self, connection: Executor, request: Reserve) -> Refusal | None:
        self._bring_forward(connection, request.now)
        worker = self.worker_id
        refusal = self._reservations.reserve(connection, request.reserved, request.caps, worker)
        if refusal is not None and (refusal.balance.reserved_tokens or refusal.balance.reserved_nanousd):
            # A worker that has died since may have reserved some of it, which now counts as spent.
            self._reconcile(connection, request.now)
            refusal = self._reservations.reserve(connection, request.reserved, request.caps, worker)
        self._unrolled += refusal is None
        return refusal

    def balances(self, connection: Executor, accounts: Sequence[Account], now: float) -> list[Balance]:
        self._bring_forward(connection, now)
        return [self._reservations.balance(connection, account) for account in accounts]

    def roll_up(self, connection: Executor, dimension: str, now: float) -> None:
        self._bring_forward(connection, now)
        self._roll_up(connection, dimension)

    def _roll_up(self, connection: Executor, dimension: str = ALL) -> None:
        if not self._may_wait:
            raise _TakesLongError
        self._unrolled = 0
        ledger.roll_up(connection, dimension)

    def _bring_forward(self, connection: Executor, now: float) -> None:
        """Write the charges, and look for dead workers at the first use and then once a minute, because workers rarely
        die."""
        if self._charged:
            self._keep_charges(connection)
        if abs(now - self._reconciled_at) >= RECONCILE_S:
            self._reconcile(connection, now)

    def _reconcile(self, connection: Executor, now: float) -> None:
        self._reconciled_at = now
        self._reservations.count_lost(connection, now, self._is_dead)
        self._unrolled = ledger.unrolled(connection)  # other processes, or many short ones, may have charged, too

    def _keep_charges(self, connection: Executor) -> None:
        if self._unrolled >= ledger.ROLL_UP_EVERY:
            self._roll_up(connection)
        charged, self._charged = self._charged, []
        rows: list[ledger.ChargeRow] = []
        for request in charged:
            charge, reserved = request.charge, request.reserved
            if reserved is not None:
                self._reservations.settle(connection, reserved.charge, charge)
            elif charge is not None:
                scope = self._scopes.number_of(connection, charge.scope)
                rows.append(row := ledger.row_of(charge, scope, request.origin))
                self._reservations.charged(charge, row)
        if rows:
            _insert(connection, ledger.insert_charges, rows)
            self._unrolled += len(rows)
        for request in charged:
            if request.accounts:
                request.result = [self._reservations.balance(connection, account) for account in request.accounts]

    @property
    def worker_id(self) -> str:
        if self._worker is None:
            self._worker = Worker.of(self._path)
        return self._worker.id

    def _is_dead(self, id: str) -> bool:
        return id != self.worker_id and worker.is_dead(self._path, id)


def _insert(connection: Executor, statement: Callable[[int], str], rows: Sequence[Iterable[object]]) -> None:
    start, left = 0, len(rows)
    if left == 1:
        connection.execute(statement(1), rows[0])  # type: ignore[arg-type]
        return
    while left:
        size = min(ROWS_MAX, 1 << (left.bit_length() - 1))
        connection.execute(statement(size), tuple(chain.from_iterable(rows[start : start + size])))  # type: ignore[arg-type]
        start, left = start + size, left - size


def _log_rows(conversation: str, appended: Sequence[Append]) -> list[LogRow]:
    """Return what a transaction appends to a conversation as one row, or as several if that would be large. A row per
    entry would take twice as long to write."""
    rows: list[LogRow] = []
    texts, size = list[str](), 0
    for request in appended:
        if texts and size + request.size > ROW_CHARS_MAX:
            rows.append((conversation, request.entries[0].seq - 1, ",".join(texts)))
            texts, size = [], 0
        texts.append(request.text)
        size += request.size
    return [*rows, (conversation, appended[-1].entries[-1].seq, ",".join(texts))]


@cache
def _insert_log_rows(rows: int) -> str:
    return "insert into log (conversation, seq, entries) values " + ", ".join(["(?, ?, ?)"] * rows)


@cache
def _upsert_infos(rows: int) -> str:
    names = [*INFO_COLUMNS.split(", "), "hour"]
    values = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * rows)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in ("id", "person", "hour"))
    return f"insert into conversations ({', '.join(names)}) values {values} on conflict (id) do update set {updates}"
