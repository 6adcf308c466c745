"""The database file: how it is created, opened and migrated, and what its errors mean to a person.

Knows nothing of what the tables are used for.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ...errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreTooNew
from ...files.private import private_folder
from . import ledger, live, queue, scopes

Durability: TypeAlias = Literal["normal", "full"]
FileId: TypeAlias = tuple[int, int]  # device and inode

APPLICATION_ID = 0x526F6E64  # `Rond`, in the file's header: nothing is ever written into another program's database

BUSY_PAUSE_S = 0.005
CHECKPOINT_PAGES = 1_000  # pages of the log after which a connection that may wait moves them into the database
LOG_BYTES_MAX = 32 * 1024 * 1024
"""The size to which the log is cut when it restarts: it grows without bound while some program reads an old state."""
CHECK_EVERY_S = 0.001
_ANOTHER_PATH = "give another path (on the command line, set RONDEL_STORE)"

LEDGER = ("charges", "scopes", "days", "totals", "dimensions", "mark", "claims", "reservations")

_SCOPE_IN_BODY = ", ".join(
    f"coalesce(json_extract(body, '$.scope.{name}'), '{'[]' if name == 'roles' else ''}')"
    for name in scopes.COLUMNS.split(", ")
)
"""The values of a scope in a charge that is stored as JSON, which has no empty fields."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        create table conversations (
            id         text primary key not null,
            agent      text not null,
            title      text not null,
            state      text not null,
            seq        integer not null,
            messages   integer not null,
            usage      text not null,      -- JSON
            created_at real not null,
            updated_at real not null
        ) without rowid
        """,
        "create index conversations_by_time on conversations (updated_at, id) where instr(id, '/') = 0",
        """
        create table entries (
            conversation text not null references conversations (id) on delete cascade,
            seq          integer not null,
            at           real not null,
            kind         text not null,
            body         text not null,    -- the whole entry as JSON, so that many are read as one list
            primary key (conversation, seq)
        )
        """,
        # A new position is greater than every one that is left: that is all the order that pending jobs need.
        """
        create table jobs (
            position integer primary key,
            id       text unique not null,
            kind     text not null,
            key      text not null,
            at       real not null,
            payload  text not null,        -- JSON
            worker   text not null
        )
        """,
    ),
    (
        """
        create table shelves (
            shelf text not null,
            key   text not null,
            value blob not null,
            until real,
            primary key (shelf, key)
        )
        """,
        "create index shelves_by_end on shelves (until) where until is not null",
    ),
    (),  # these two were never released: the next step creates the ledger's tables again
    (),
    (
        *(f"drop table if exists {name}" for name in LEDGER),
        *scopes.SCHEMA,
        *ledger.SCHEMA,
        "create table claims (dimension, window, start, value)",
        "create table reservations (id text primary key not null, worker, until, body) without rowid",
    ),
    queue.SCHEMA,
    (
        "alter table shelves rename to key_values",
        "alter table key_values rename column shelf to namespace",
        "drop index shelves_by_end",
        "create index key_values_by_end on key_values (until) where until is not null",
        "alter table jobs add column slots integer not null default 1",
        *live.SCHEMA,
    ),
    (
        "alter table conversations add column person text not null default ''",
        "create index conversations_of_person on conversations (person, updated_at, id) where instr(id, '/') = 0",
    ),
    (
        "drop table claims",
        "alter table reservations rename to reserved",
        """
        create table reservations (
            id        text not null,
            dimension text not null,
            value     text not null,
            window    text not null,
            start     integer not null,
            tokens    integer not null,
            cost      integer not null,
            worker    text not null,
            until     real not null,
            body      text not null,    -- JSON
            primary key (id, dimension, value, window, start)
        ) without rowid
        """,
        """
        insert into reservations
        select
            reserved.id,
            json_extract(account.value, '$.dimension'),
            json_extract(account.value, '$.value'),
            json_extract(account.value, '$.window'),
            json_extract(account.value, '$.start'),
            coalesce(json_extract(body, '$.charge.usage.tokens_in'), 0)
                + coalesce(json_extract(body, '$.charge.usage.tokens_out'), 0),
            coalesce(json_extract(body, '$.charge.cost_nanousd'), 0),
            worker,
            until,
            json_extract(body, '$.charge')
        from reserved, json_each(body, '$.accounts') as account
        """,
        "drop table reserved",
    ),
    (
        *ledger.RESERVED_COLUMNS,
        f"insert into scopes ({scopes.COLUMNS}) select {_SCOPE_IN_BODY} from reservations where true "
        "on conflict do nothing",
        f"""
        insert into charges ({ledger.COLUMNS}, worker, until)
        select distinct
            id,
            json_extract(body, '$.at'),
            cast(json_extract(body, '$.at') / 86400 as integer),
            scopes.number,
            coalesce(json_extract(body, '$.usage.tokens_in'), 0),
            coalesce(json_extract(body, '$.usage.tokens_out'), 0),
            coalesce(json_extract(body, '$.usage.tokens_cached'), 0),
            coalesce(json_extract(body, '$.usage.tokens_cache_written'), 0),
            coalesce(json_extract(body, '$.usage.tokens_reasoning'), 0),
            json_extract(body, '$.cost_nanousd'),
            coalesce(json_extract(body, '$.price'), ''),
            coalesce(json_extract(body, '$.usage.estimated'), 0),
            coalesce(json_extract(body, '$.metadata'), '{{}}'),
            {ledger.CALL},
            worker,
            until
        from reservations join scopes on ({scopes.COLUMNS}) = ({_SCOPE_IN_BODY})
        """,
        "drop table reservations",
    ),
    (
        # Lists are sorted within an hour. An index of the time itself would be written with every turn, twice.
        "drop index conversations_by_time",
        "drop index conversations_of_person",
        "alter table conversations add column hour integer not null default 0",
        "update conversations set hour = cast(updated_at / 3600 as integer)",
        "create index conversations_by_hour on conversations (hour) where instr(id, '/') = 0",
        "create index conversations_of_person on conversations (person, hour) where instr(id, '/') = 0",
    ),
    (
        # A row for everything that a transaction appends to a conversation. Rows in the order in which they come, an
        # index for the key: what many conversations append together fills one page, where a table clustered by
        # conversation writes (and splits) one for each.
        """
        create table log (
            conversation text not null references conversations (id) on delete cascade,
            seq          integer not null,  -- of the last entry in the row
            entries      text not null,     -- JSON with commas between them, so that many rows are read as one list
            primary key (conversation, seq)
        )
        """,
        "insert into log select conversation, seq, body from entries order by rowid",
        "drop table entries",
    ),
)
"""Step n brings a file from version n to version n + 1, in one transaction. Steps are added, never changed."""


class DatabaseFile:
    """The file of one store, and how its connections are opened.

    Only SQLite ever opens it. On POSIX, closing any handle of a file releases all locks that the process holds on it,
    SQLite's included; another process would then think that it is the last one, and delete the log in use.
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability,
        busy_timeout_s: float,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
    ) -> None:
        self.path = path
        self.durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._migrations = migrations
        self._database, self._log = str(path), f"{path}-wal"
        # Which files this store has open, by device and inode. The log may change only when nothing is open.
        self._database_id: FileId | None = None
        self._log_id: FileId | None = None
        self._connections = 0
        self._counting = threading.Lock()
        self._checked_until = 0.0

    def open(self, *, any_thread: bool = False) -> sqlite3.Connection:
        """Return a writing connection to a file of the newest version; a new file is only for its owner.

        With `any_thread`, the caller must make sure that only one thread at a time uses it.
        """
        if self._database_id is None:
            _create(self.path)
        before = self._id_of(self._database)
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=not any_thread
        )
        try:
            _check_origin(connection, self.path)
            # Only for a new file. A commit writes whole pages, at least four: smaller ones make a small append cheaper.
            connection.execute("pragma page_size = 2048")
            _keep_a_log(connection, self._busy_timeout_s)
            connection.execute(f"pragma synchronous = {'full' if self.durability == 'full' else 'normal'}")
            connection.execute(f"pragma journal_size_limit = {LOG_BYTES_MAX}")
            connection.execute("pragma foreign_keys = on")
            _migrate(connection, self.path, self._migrations)
            self._opened(before)
        except BaseException:
            connection.close()
            raise
        return connection

    def set_waiting(self, connection: sqlite3.Connection, *, allowed: bool) -> None:
        """Let a connection wait for locks of other processes and for the disk, or for neither: a commit that moves the
        log into the database ends with an fsync. These pragmas only set values of the connection."""
        connection.execute(f"pragma busy_timeout = {int(self._busy_timeout_s * 1000) if allowed else 0}")
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES if allowed else 0}")

    def log_moved_at(self) -> int:
        """Return when any process last moved the log, or a part of it, into the database: nothing else writes there. In
        nanoseconds; 0 if the file is gone."""
        try:
            return os.stat(self._database).st_mtime_ns
        except OSError:
            return 0

    def close(self, connection: sqlite3.Connection) -> None:
        with self._counting:
            self._connections -= 1
            if self._connections == 0:
                self._log_id = None  # the last connection to close deletes it
        connection.close()

    def check(self, *, again: bool = False) -> None:
        """Raise StoreError if the files at these paths are no longer the open ones.

        What is written to a deleted file is lost with the process, so this is called before each commit. It only looks
        at the paths, at most once per millisecond, because commits follow each other faster than that.
        """
        now = time.monotonic()
        if now < self._checked_until and not again:
            return
        if self._id_of(self._database) != self._database_id:
            raise _replaced(self._database)
        if self._id_of(self._log) != self._log_id:
            raise _replaced(self._log)
        self._checked_until = now + CHECK_EVERY_S

    def fault_of(self, error: Exception) -> Exception:
        """Return an error that a person understands. A missing file explains every other error."""
        if isinstance(error, sqlite3.Error | StoreError) and self._database_id is not None:
            try:
                self.check(again=True)
            except StoreError as gone:
                return gone
        return fault_of(error, self.path)

    def _opened(self, before: FileId | None) -> None:
        """Remember which files were opened, or check that they are the same as those of the other connections."""
        database, log = self._id_of(self._database), self._id_of(self._log)
        with self._counting:
            if database is None or database != before or database != (self._database_id or database):
                raise _replaced(self._database)
            if log is None or log != (self._log_id or log):
                raise _replaced(self._log)
            self._database_id, self._log_id = database, log
            self._connections += 1

    @staticmethod
    def _id_of(path: str) -> FileId | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


_creating = threading.Lock()


def _create(path: Path) -> None:
    """Create the file, empty and private to its owner, unless it exists.

    The file is new, so this process cannot hold a lock on it yet. Other threads that open it wait here until it is
    closed.
    """
    try:
        private_folder(path.parent)
        with _creating:
            try:
                mode = os.stat(path).st_mode
            except FileNotFoundError:
                with suppress(FileExistsError):  # another process was faster
                    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                return
    except OSError as error:
        raise StoreError(
            f"the database {path} cannot be opened for writing ({error.strerror}): "
            f"check the permissions of the file and its folder, or {_ANOTHER_PATH}"
        ) from error
    if stat.S_ISDIR(mode):
        raise StoreError(f"{path} is a folder, not a database: give the path of a file in it")
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path} is not a regular file, so it cannot be a database: give another path")


def _replaced(path: str) -> StoreError:
    return StoreError(
        f"the file {path} was deleted, moved or replaced while it was in use, and nothing more was written: "
        "put it back, or restart this program to use the file that is there now"
    )


def _check_origin(connection: sqlite3.Connection, path: Path) -> None:
    # In one statement: another process may be filling a new file right now.
    application_id, tables = connection.execute(
        "select application_id, (select count(*) from sqlite_master) from pragma_application_id"
    ).fetchone()
    if tables and application_id != APPLICATION_ID:
        raise StoreError(f"{path} belongs to another program and was not changed; give another path")


def _keep_a_log(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Turn on write-ahead logging. SQLite does not wait when two processes switch a new file to it at once, so this
    does."""
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(BUSY_PAUSE_S)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> None:
    newest = len(migrations)
    while (version := _version(connection)) < newest:
        connection.execute("begin immediate")
        try:
            # Another process may have been faster, between the check and the lock.
            if _version(connection) == version:
                for statement in migrations[version]:
                    connection.execute(statement)
                connection.execute(f"pragma application_id = {APPLICATION_ID}")
                connection.execute(f"pragma user_version = {version + 1}")
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
    if version > newest:
        raise StoreTooNew(
            f"the database {path} has version {version!r} and this Rondel knows versions up to {newest!r}: "
            "update Rondel, or give another path"
        )


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("pragma user_version").fetchone()[0]


def fault_of(error: Exception, path: Path) -> Exception:
    """Translate an error of SQLite into one sentence that says what to do. Return any other error as it is."""
    if isinstance(error, msgspec.MsgspecError):
        return damaged(path, str(error))
    if not isinstance(error, sqlite3.Error):
        return error
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(f"another process holds the database {path} locked: close it, or wait and try again")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return damaged(path, str(error))
        case sqlite3.SQLITE_FULL:
            return _full(path, str(error))
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_WRITE or not _has_space(path):
            # A quota, a limit on the size of files, or no room for the file of shared memory.
            return _full(path, str(error))
        case sqlite3.SQLITE_TOOBIG:
            return StoreError(
                f"something is too large for one entry of the database {path} ({error}): keep it in a file of its own"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(
                f"the database {path} cannot be written ({error}): "
                f"check the permissions of the file and its folder, or {_ANOTHER_PATH}"
            )
        case _:
            return StoreError(f"the database {path} failed ({error}): run `rondel doctor`")


def damaged(path: Path, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"the database {path} is damaged ({reason}), and nothing in it was changed: move it and {path.name}-wal away "
        f"to begin with an empty one, or put a backup in its place at {path}"
    )


def _full(path: Path, reason: str) -> StoreFull:
    return StoreFull(
        f"no space is left to write the database {path} ({reason}), and nothing was half written: "
        "free some space and try again"
    )


def _has_space(path: Path) -> bool:
    from shutil import disk_usage

    return disk_usage(path.parent).free >= 1_000_000
