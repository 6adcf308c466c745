"""The database file: how it is made, opened, brought to the newest version, and what its faults mean to a person.

Knows nothing of threads and of what the tables are used for.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ...errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreTooNew
from . import claims, ledger, scopes

Durability: TypeAlias = Literal["normal", "full"]

APPLICATION_ID = 0x526F6E64
"""`Rond`, in the file's header: a database of another program is never written into."""

BUSY_PAUSE_S = 0.005

LEDGER = ("charges", "scopes", "days", "totals", "dimensions", "mark", "claims", "reservations")

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
        # Rows in the order in which they come, an index for the key: what many conversations append together fills one
        # page, where a table clustered by conversation writes (and splits) one for each.
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
    (),  # these two were never released: the next step makes the ledger's tables anew
    (),
    (
        *(f"drop table if exists {name}" for name in LEDGER),
        *scopes.SCHEMA,
        *ledger.SCHEMA,
        *claims.SCHEMA,
    ),
)
"""Step n brings a file from version n to version n + 1, in one transaction. Steps are added, never changed."""


def open_file(
    path: Path,
    *,
    durability: Durability,
    busy_timeout_s: float,
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> sqlite3.Connection:
    """A connection that writes, to a file of the newest version; a file that it makes is its owner's only."""
    _make(path)
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
    try:
        _check_origin(connection, path)
        # Of a new file only. A commit writes whole pages, four at least: smaller ones make a small append cheaper.
        connection.execute("pragma page_size = 2048")
        _keep_a_log(connection, busy_timeout_s)
        connection.execute(f"pragma synchronous = {'full' if durability == 'full' else 'normal'}")
        connection.execute("pragma foreign_keys = on")
        _migrate(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def open_eagerly(path: Path) -> sqlite3.Connection:
    """A second connection to a file that is open: it waits for nobody and syncs nothing, and any thread may use it."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    connection.execute("pragma synchronous = normal")
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute("pragma foreign_keys = on")
    return connection


def _make(path: Path) -> None:
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, so no database can be kept there: give the path of a file in it")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(
            f"the database {path} cannot be opened for writing ({error.strerror}): "
            "check the permissions of the file and its folder, or give another path"
        ) from error


def _check_origin(connection: sqlite3.Connection, path: Path) -> None:
    # In one statement: another process may be filling a new file right now.
    application_id, tables = connection.execute(
        "select application_id, (select count(*) from sqlite_master) from pragma_application_id"
    ).fetchone()
    if tables and application_id != APPLICATION_ID:
        raise StoreError(f"{path} is the database of another program, it was left alone: give another path")


def _keep_a_log(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Write-ahead logging. SQLite does not wait when two processes switch a new file to it at once, so this does."""
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
            # Another process may have been quicker, between the question and the lock.
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
    """What an error of SQLite means, in one sentence that says what to do. Any other error stays as it is."""
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
                "check the permissions of the file and its folder, or give another path"
            )
        case _:
            return StoreError(f"the database {path} could not do what was asked ({error}): run `rondel doctor`")


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
