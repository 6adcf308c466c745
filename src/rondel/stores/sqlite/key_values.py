"""The key-value store, in its table. Knows no event loop and no thread."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from .executor import Executor

SWEEP_EVERY = 64
SWEEP_ROWS_MAX = 4 * SWEEP_EVERY
"""How many rows one sweep deletes: more than can have been added since the last one, and few enough to be fast."""


KeyValueRow: TypeAlias = tuple[str, str, bytes | None, float | None]  # namespace, key, value, until


def put(connection: Executor, row: KeyValueRow, now: float) -> None:
    put = connection.execute(
        "insert into key_values (namespace, key, value, until) values (?, ?, ?, ?) "
        "on conflict (namespace, key) do update set value = excluded.value, until = excluded.until",
        row,
    )
    if (put.lastrowid or 0) % SWEEP_EVERY == 0:  # the id of the last inserted row, if this one was updated
        connection.execute(
            "delete from key_values where rowid in (select rowid from key_values where until <= ? limit ?)",
            (now, SWEEP_ROWS_MAX),
        )


def get(connection: sqlite3.Connection, namespace: str, key: str, now: float) -> bytes | None:
    row = connection.execute(
        "select value from key_values where namespace = ? and key = ? and (until is null or until > ?)",
        (namespace, key, now),
    ).fetchone()
    return row[0] if row else None


def remove(connection: sqlite3.Connection, namespace: str, key: str, now: float) -> bool:
    there = get(connection, namespace, key, now) is not None
    delete(connection, namespace, key)
    return there


def delete(connection: Executor, namespace: str, key: str) -> None:
    connection.execute("delete from key_values where namespace = ? and key = ?", (namespace, key))


def keys(connection: sqlite3.Connection, namespace: str, prefix: str, after: str, limit: int, now: float) -> list[str]:
    rows = connection.execute(
        "select key from key_values where namespace = ? and key >= ? and key > ? and (until is null or until > ?) "
        "order by key limit ?",
        (namespace, prefix, after, now, max(limit, 0)),
    )
    found: list[str] = []
    for (key,) in rows:
        if not key.startswith(prefix):
            break  # in order, so no further ones follow
        found.append(key)
    return found
