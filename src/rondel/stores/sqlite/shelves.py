"""Small values by their key, in their table. Knows no event loop and no thread."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

SWEEP_EVERY = 64
SWEEP_ROWS_MAX = 4 * SWEEP_EVERY
"""Rows that one sweep takes away: more than can have come since the last one, and never so many that it is felt."""


ShelfRow: TypeAlias = tuple[str, str, bytes, float | None]
"""shelf, key, value, until"""


def put(connection: sqlite3.Connection, row: ShelfRow, now: float) -> None:
    place: int = connection.execute(
        "insert into shelves (shelf, key, value, until) values (?, ?, ?, ?) "
        "on conflict (shelf, key) do update set value = excluded.value, until = excluded.until returning rowid",
        row,
    ).fetchone()[0]
    if place % SWEEP_EVERY == 0:
        connection.execute(
            "delete from shelves where rowid in (select rowid from shelves where until <= ? limit ?)",
            (now, SWEEP_ROWS_MAX),
        )


def get(connection: sqlite3.Connection, shelf: str, key: str, now: float) -> bytes | None:
    row = connection.execute(
        "select value from shelves where shelf = ? and key = ? and (until is null or until > ?)", (shelf, key, now)
    ).fetchone()
    return row[0] if row else None


def remove(connection: sqlite3.Connection, shelf: str, key: str, now: float) -> bool:
    there = get(connection, shelf, key, now) is not None
    connection.execute("delete from shelves where shelf = ? and key = ?", (shelf, key))
    return there


def keys(connection: sqlite3.Connection, shelf: str, prefix: str, after: str, limit: int, now: float) -> list[str]:
    rows = connection.execute(
        "select key from shelves where shelf = ? and key >= ? and key > ? and (until is null or until > ?) "
        "order by key limit ?",
        (shelf, prefix, after, now, max(limit, 0)),
    )
    found: list[str] = []
    for (key,) in rows:
        if not key.startswith(prefix):
            break  # in order, so no more of them follow
        found.append(key)
    return found
