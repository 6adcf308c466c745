"""Full-text search over conversations, with SQLite's FTS5. Entries are indexed by the first search after them, so
search does not slow down appending. Knows no event loop and no thread."""

from __future__ import annotations

import sqlite3

from ...contracts.store import searched_text
from ...errors import StoreError
from ...events import TurnStarted, TurnsUndone
from .log import entries_after

BATCH_ROWS = 500  # rows of the log that one transaction indexes: other writers wait for a tenth of a second

_SCHEMA = (
    "create virtual table if not exists search using fts5 "
    "(text, conversation unindexed, seq unindexed, tokenize = 'unicode61 remove_diacritics 2')",
    # How far each conversation is indexed.
    "create table if not exists searched (conversation text primary key not null, seq integer not null) without rowid",
    "create trigger if not exists search_forgets after delete on conversations when instr(old.id, '/') = 0 begin "
    "delete from search where conversation = old.id; delete from searched where conversation = old.id; end",
)
_NEXT = """
    select id, coalesce(searched.seq, 0) from conversations left join searched on conversation = id
    where instr(id, '/') = 0 and conversations.seq > coalesce(searched.seq, 0) limit ?
"""


def index(connection: sqlite3.Connection) -> bool:
    """Index the next entries. Return whether more may be left."""
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
    except sqlite3.OperationalError as error:
        if "fts5" in str(error):
            raise StoreError("this Python's SQLite has no full-text search (FTS5); use another Python") from None
        raise
    left = BATCH_ROWS
    for conversation, seq in connection.execute(_NEXT, (BATCH_ROWS,)).fetchall():
        left -= _index_conversation(connection, conversation, seq, left)
        if left <= 0:
            return True
    return False


def _index_conversation(connection: sqlite3.Connection, conversation: str, after: int, limit: int) -> int:
    (last,) = connection.execute("select seq from conversations where id = ?", (conversation,)).fetchone()
    entries = entries_after(connection, conversation, after, limit)
    for entry in entries:
        if isinstance(entry.event, TurnsUndone):
            _forget(connection, conversation, entry.event.turn)
        elif text := searched_text(entry.event):
            connection.execute("insert into search values (?, ?, ?)", (text, conversation, entry.seq))
    done = entries[-1].seq if entries else last
    connection.execute("insert or replace into searched values (?, ?)", (conversation, done))
    return len(entries) + 1


def _forget(connection: sqlite3.Connection, conversation: str, turn: str) -> None:
    """Remove what was said since the beginning of a turn that was undone."""
    began = [
        entry.seq
        for entry in entries_after(connection, conversation, 0)
        if isinstance(entry.event, TurnStarted) and entry.event.turn == turn
    ]
    if began:
        connection.execute("delete from search where conversation = ? and seq >= ?", (conversation, began[0]))


def find(connection: sqlite3.Connection, words: str, limit: int, person: str | None = None) -> list[tuple[str, str]]:
    """Return the conversations in which one message has all of these words, with an excerpt, newest first."""
    query = " ".join(f'"{word}"*' for word in words.replace('"', " ").replace("\0", " ").split())
    if not query:
        return []
    found = connection.execute(
        "select conversation, max(search.rowid) from search join conversations on id = conversation "
        "where search match ?1 and (?3 is null or person = ?3) "
        "group by conversation order by updated_at desc, id desc limit ?2",
        (query, limit, person),
    ).fetchall()
    excerpt = "select snippet(search, 0, '', '', '…', 24) from search where search match ? and rowid = ?"
    return [(id, connection.execute(excerpt, (query, rowid)).fetchone()[0]) for id, rowid in found]
