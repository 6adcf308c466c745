"""The log of each conversation and its summary, in their tables. Knows no event loop and no thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import TypeAlias

import msgspec

from ...contracts.store import ConversationInfo, Live
from ...events import Entry
from ...values import Usage
from . import live
from .queue import CLAIMED

LogRow: TypeAlias = tuple[str, int, str]  # the conversation, the last entry in the row, and the entries as JSON
End: TypeAlias = tuple[int, int]  # the positions of the last entry and the last live event
InfoRow: TypeAlias = tuple[str, str, str, str, int, int, str, float, float, str]
Listed: TypeAlias = tuple[str, int]  # the index of the lists of conversations: the person and the hour

INFO_COLUMNS = "id, agent, title, state, seq, messages, usage, created_at, updated_at, person"
CHUNK_ROWS = 128  # rows that one statement reads: the interpreter lock is held for about a millisecond at a time

_encode = msgspec.json.Encoder().encode
_decode_usage = msgspec.json.Decoder(Usage).decode


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes whenever another connection has written."""
    return connection.execute("pragma data_version").fetchone()[0]


def ends(
    connection: sqlite3.Connection, conversations: Sequence[str], version: int
) -> tuple[int, dict[str, End] | None]:
    """Return the data version, and the last entry and live event of some conversations; only the version if it has not
    changed."""
    if (found := data_version(connection)) == version:
        return found, None
    rows = connection.execute(
        "select value, coalesce((select seq from conversations where id = value), 0), "
        "coalesce((select max(position) from live_events where conversation = value), 0) from json_each(?)",
        (_encode(conversations).decode(),),
    )
    return found, {id: (seq, position) for id, seq, position in rows}


def entries(connection: sqlite3.Connection, conversation: str, after: int) -> list[Entry]:
    connection.execute("begin")
    try:
        return entries_after(connection, conversation, after)
    finally:
        connection.execute("rollback")


def since(
    connection: sqlite3.Connection, conversation: str, after: int, position: int, worker: str
) -> tuple[list[Entry | Live], int]:
    """Return the entries after one, and the live events of other workers after a position, in order; and the new
    position.

    Both come from one snapshot, so an entry is never read before the live events that preceded it.
    """
    connection.execute("begin")
    try:
        found: list[Entry | Live] = [*entries_after(connection, conversation, after)]
        events, position = live.read(connection, conversation, position, worker, after)
    finally:
        connection.execute("rollback")
    # The sort is stable: an entry comes before the events after it.
    return sorted([*found, *events], key=lambda one: one.seq), position


def entries_after(connection: sqlite3.Connection, conversation: str, after: int, rows_max: float = inf) -> list[Entry]:
    """Return the entries after a position, or those of the next `rows_max` rows. Read in a transaction.

    Many rows are read as one value: row by row, SQLite would release the interpreter lock for each, and wait for a busy
    event loop to return it.
    """
    found: list[Entry] = []
    size = CHUNK_ROWS
    while rows_max > 0:
        try:
            rows, text = _joined(connection, conversation, after, min(size, rows_max))
        except sqlite3.DataError:
            # Too large for one value of SQLite, for example many images.
            if size == 1:
                raise
            size = max(size // 8, 1)
            continue
        try:
            chunk = _decoder().decode(b"[" + text + b"]")
        except msgspec.MsgspecError as error:  # `fault_of` makes it a damaged file
            raise msgspec.DecodeError(f"conversation {conversation!r} after entry {after!r}: {error}") from error
        found += chunk if not chunk or chunk[0].seq > after else [entry for entry in chunk if entry.seq > after]
        if rows < size:
            break
        rows_max -= rows
        after = chunk[-1].seq
    return found


@cache
def _decoder() -> msgspec.json.Decoder[list[Entry]]:
    """Create the decoder at the first read, because that takes time, and a gateway that only relays bytes reads
    nothing."""
    return msgspec.json.Decoder(list[Entry])


def _joined(connection: sqlite3.Connection, conversation: str, after: int, limit: float) -> tuple[int, bytes]:
    """Return how many rows have entries after a position, at most `limit`, and their entries: the first row may also
    have earlier ones."""
    rows, text = connection.execute(
        "select count(*), cast(group_concat(entries, ',') as blob) from "
        "(select entries from log where conversation = ? and seq > ? order by seq limit ?)",
        (conversation, after, limit),
    ).fetchone()
    return rows, text or b""


# --- summaries --------------------------------------------------------------------------------------------------------


def conversations(
    connection: sqlite3.Connection,
    limit: int,
    before: float,
    id: str,
    is_dead: Callable[[str], bool],
    person: str | None = None,
) -> list[ConversationInfo]:
    whose, values = ("person = ? and ", (person,)) if person is not None else ("", ())
    rows = connection.execute(
        f"select {INFO_COLUMNS} from conversations where {whose}instr(id, '/') = 0 and hour <= ? "
        "and (updated_at, id) < (?, ?) order by hour desc, updated_at desc, id desc limit ?",
        (*values, before if before == inf else _hour(before), before, id, limit),
    ).fetchall()
    return [_with_state(connection, info_of(row), is_dead) for row in rows]


def info(connection: sqlite3.Connection, conversation: str, is_dead: Callable[[str], bool]) -> ConversationInfo | None:
    found = stored_info(connection, conversation)
    return _with_state(connection, found, is_dead) if found.seq else None


def stored_info(connection: sqlite3.Connection, conversation: str) -> ConversationInfo:
    """Return the summary as it was written, or an empty one."""
    row = connection.execute(f"select {INFO_COLUMNS} from conversations where id = ?", (conversation,)).fetchone()
    return info_of(row) if row else ConversationInfo(conversation)


def _with_state(
    connection: sqlite3.Connection, info: ConversationInfo, is_dead: Callable[[str], bool]
) -> ConversationInfo:
    """Return the summary with its state: a turn without an end is running only if a living worker has a claim on it."""
    if info.state == "working":
        claimed = connection.execute(
            "select worker from jobs where key = ? and state > 0 and state = ?", (info.id, CLAIMED)
        ).fetchall()
        if all(is_dead(id) for (id,) in claimed):
            return msgspec.structs.replace(info, state="interrupted")
    return info


def info_of(row: InfoRow) -> ConversationInfo:
    id, agent, title, state, seq, messages, usage, created_at, updated_at, person = row
    return ConversationInfo(
        id, agent, title, state, seq, messages, _decode_usage(usage), created_at, updated_at, person
    )


def listed(info: ConversationInfo) -> Listed:
    return info.person, _hour(info.updated_at)


def _hour(at: float) -> int:
    return int(at / 3600)


def row_of(info: ConversationInfo) -> tuple[object, ...]:
    """Return the values of `INFO_COLUMNS`, and those of the index of the lists."""
    usage = _encode(info.usage).decode()
    times = (info.created_at, info.updated_at)
    return (info.id, info.agent, info.title, info.state, info.seq, info.messages, usage, *times, *listed(info))
