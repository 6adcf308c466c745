"""Live events for watchers in other processes, in their tables. Knows no event loop and no thread.

A row is written only while a worker elsewhere subscribes to the conversation, and deleted a few seconds later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache

import msgspec

from ...contracts.store import Live
from ...events import Event

SCHEMA = (
    # `position` is never reused, although rows are deleted: readers remember the last one that they saw.
    """
    create table live_events (
        position     integer primary key autoincrement,
        worker       text not null,
        conversation text not null,
        seq          integer not null,
        at           real not null,
        body         text not null    -- JSON
    )
    """,
    "create index live_events_by_conversation on live_events (conversation, position)",
    """
    create table subscribers (
        conversation text not null,
        worker       text not null,
        primary key (conversation, worker)
    ) without rowid
    """,
)

KEEP_S = 5.0  # how long a row is kept for watchers, which look every 50 ms


def subscribe(connection: sqlite3.Connection, worker: str, conversation: str) -> int:
    """Ask other workers for the live events of a conversation. Return the position after which they come."""
    connection.execute("insert or ignore into subscribers (conversation, worker) values (?, ?)", (conversation, worker))
    return connection.execute("select coalesce(max(position), 0) from live_events").fetchone()[0]


def unsubscribe(connection: sqlite3.Connection, worker: str, conversation: str) -> None:
    connection.execute("delete from subscribers where conversation = ? and worker = ?", (conversation, worker))


def subscribed(connection: sqlite3.Connection, is_alive_elsewhere: Callable[[str], bool]) -> frozenset[str]:
    rows = connection.execute("select conversation, worker from subscribers").fetchall()
    living = {
        worker for worker in {worker for _, worker in rows} if is_alive_elsewhere(worker)
    }  # opens a file for each
    return frozenset(conversation for conversation, worker in rows if worker in living)


def write(connection: sqlite3.Connection, worker: str, conversation: str, live: Live, now: float) -> None:
    connection.execute(
        "insert into live_events (worker, conversation, seq, at, body) values (?, ?, ?, ?, ?)",
        (worker, conversation, live.seq, now, msgspec.json.encode(live.events).decode()),
    )


def expire(connection: sqlite3.Connection, worker: str, now: float) -> None:
    # If the clock was set back, rows must not stay for hours.
    connection.execute("delete from live_events where worker = ?1 and abs(?2 - at) >= ?3", (worker, now, KEEP_S))


def read(
    connection: sqlite3.Connection, conversation: str, position: int, worker: str, after: int
) -> tuple[list[Live], int]:
    """Return the live events of other workers behind a position that happened after an entry; and the new position."""
    rows = connection.execute(
        "select position, worker, seq, body from live_events where conversation = ? and position > ? order by position",
        (conversation, position),
    ).fetchall()
    found = [Live(seq, _decoder().decode(body)) for _, sender, seq, body in rows if sender != worker and seq >= after]
    return found, rows[-1][0] if rows else position


def forget(connection: sqlite3.Connection, worker: str) -> None:
    connection.execute("delete from live_events where worker = ?", (worker,))
    connection.execute("delete from subscribers where worker = ?", (worker,))


@cache
def _decoder() -> msgspec.json.Decoder[tuple[Event, ...]]:
    return msgspec.json.Decoder(tuple[Event, ...])
