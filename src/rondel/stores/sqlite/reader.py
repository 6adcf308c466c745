"""What the reading thread does, on a connection of its own: a read never waits for a write.

Many entries come as one value: a row at a time would let go of the interpreter's lock at each row, and wait for a busy
event loop to give it back. Knows no event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from ...events import Entry
from ...store import ConversationInfo
from .file import Durability, damaged, fault_of, open_file
from .lane import Request
from .rows import INFO_COLUMNS, info_of

CHUNK_ENTRIES = 512
"""Entries that are read with one statement: the interpreter's lock is held for about a millisecond at a time."""


class Read(Request):
    __slots__ = ("call",)

    def __init__(self, call: Callable[[Reader], object]) -> None:
        super().__init__()
        self.call = call


class Reader:
    """Everything here runs on one thread."""

    def __init__(self, path: Path, *, durability: Durability, busy_timeout_s: float) -> None:
        self._path = path
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None

    def serve(self, group: list[Read]) -> None:
        for request in group:
            try:
                request.result = request.call(self)
            except Exception as error:
                request.error = fault_of(error, self._path)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Like the writer's, so that the first read does not wait for a write that makes the file.
            self._connection = open_file(self._path, durability=self._durability, busy_timeout_s=self._busy_timeout_s)
            self._connection.execute("pragma query_only = on")
        return self._connection

    def entries(self, conversation: str, after: int) -> list[Entry]:
        connection = self.open()
        entries: list[Entry] = []
        connection.execute("begin")
        try:
            size = CHUNK_ENTRIES
            while True:
                try:
                    bodies = joined_bodies(connection, conversation, after, size)
                except sqlite3.DataError:
                    # More than SQLite can hold as one value: many pictures, say.
                    if size == 1:
                        raise
                    size = max(size // 8, 1)
                    continue
                chunk = self._decode(conversation, after, bodies)
                entries += chunk
                if len(chunk) < size:
                    return entries
                after = chunk[-1].seq
        finally:
            connection.execute("rollback")

    def conversations(self, limit: int, before: float, id: str) -> list[ConversationInfo]:
        rows = self.open().execute(
            f"select {INFO_COLUMNS} from conversations where instr(id, '/') = 0 and (updated_at, id) < (?, ?) "
            "order by updated_at desc, id desc limit ?",
            (before, id, limit),
        )
        return [info_of(row) for row in rows]

    def info(self, conversation: str) -> ConversationInfo | None:
        query = f"select {INFO_COLUMNS} from conversations where id = ?"
        row = self.open().execute(query, (conversation,)).fetchone()
        return info_of(row) if row else None

    def _decode(self, conversation: str, after: int, bodies: bytes) -> list[Entry]:
        try:
            return _entries_decoder().decode(b"[" + bodies + b"]")
        except msgspec.MsgspecError as error:
            raise damaged(self._path, f"conversation {conversation!r} behind entry {after!r}: {error}") from error


@cache
def _entries_decoder() -> msgspec.json.Decoder[list[Entry]]:
    """Made with the first read: it knows all kinds of entries, and a gateway that passes bytes on reads none."""
    return msgspec.json.Decoder(list[Entry])


def joined_bodies(connection: sqlite3.Connection, conversation: str, after: int, limit: int) -> bytes:
    bodies: bytes | None = connection.execute(
        "select cast(group_concat(body, ',') as blob) from "
        "(select body from entries where conversation = ? and seq > ? order by seq limit ?)",
        (conversation, after, limit),
    ).fetchone()[0]
    return bodies or b""
