"""The SQL of knowledge bases. Every function gets a connection; those that write are called in a transaction."""

from __future__ import annotations

import re
import sqlite3
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, pairwise

from ....contracts.embedder import Vector
from ....contracts.knowledge import (
    BaseInfo,
    BaseState,
    Changes,
    Chunk,
    Filter,
    Hit,
    StoredChunk,
    StoredDocument,
    chunk_key,
    embedded_text,
)

WORDS_MAX = 64  # how many words of a query are searched
SHORT = 3  # shorter words, such as "of the", form no phrase: they are everywhere, and cost the most to look up
BATCH = 500  # parameters of one statement

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        create table bases (
            id         integer primary key,
            key        text unique not null,
            embedder   text not null default '',
            dimensions integer not null default 0,
            version    integer not null default 0,
            embedding  integer not null default 0,  -- vectors were stored since the last change
            synced_at  real not null default 0
        )
        """,
        """
        create table documents (
            id        integer primary key,
            base      integer not null references bases (id) on delete cascade,
            path      text not null,
            signature text not null,
            hash      text not null,
            title     text not null,
            tags      text not null,       -- `,a,b,`
            problem   text not null,
            chunks    integer not null,
            unique (base, path)
        )
        """,
        # Ids are never reused: the matrix in memory knows chunks by their ids.
        """
        create table chunks (
            id       integer primary key autoincrement,
            base     integer not null,
            document integer not null references documents (id) on delete cascade,
            key      blob not null,        -- of its vector
            text     text not null,
            headings text not null,
            line     integer,
            page     integer
        )
        """,
        "create index chunks_by_document on chunks (document)",
        "create index chunks_by_key on chunks (base, key)",
        """
        create table vectors (
            base   integer not null references bases (id) on delete cascade,
            key    blob not null,
            vector blob not null,          -- 32-bit floats, little-endian
            unique (base, key)
        )
        """,
    ),
)

_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_WORD = re.compile(r"\w+")


def words_of(text: str) -> str:
    """Return a text for the index of words: scripts without spaces as pairs of neighbouring characters."""
    return text if text.isascii() else _SPACELESS.sub(lambda found: f" {' '.join(_pairs(found[0]))} ", text)


def _pairs(run: str) -> Iterable[str]:
    return (run,) if len(run) == 1 else (run[at : at + 2] for at in range(len(run) - 1))


# --- bases ------------------------------------------------------------------------------------------------------------


def base_id(connection: sqlite3.Connection, key: str) -> int | None:
    row = connection.execute("select id from bases where key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def make_base(connection: sqlite3.Connection, key: str) -> int:
    if (known := base_id(connection, key)) is not None:
        return known
    id = connection.execute("insert into bases (key) values (?) returning id", (key,)).fetchone()[0]
    # A table for each base, so that a word's rarity does not depend on other bases. The texts are in `chunks`.
    connection.execute(
        f"create virtual table words_{id} using fts5(text, headings, title, content='', "
        "tokenize='porter unicode61 remove_diacritics 2')"
    )
    return id


def remove_base(connection: sqlite3.Connection, key: str) -> bool:
    if (id := base_id(connection, key)) is None:
        return False
    connection.execute(f"drop table words_{id}")
    connection.execute("delete from bases where id = ?", (id,))
    return True


def infos(connection: sqlite3.Connection, key: str | None = None) -> list[BaseInfo]:
    rows = connection.execute(
        """
        select key, embedder, dimensions,
            (select count(*) from documents where base = bases.id and problem = ''),
            (select count(*) from chunks where base = bases.id),
            (select count(*) from chunks join vectors using (base, key) where base = bases.id),
            (select count(*) from documents where base = bases.id and problem != ''),
            synced_at
        from bases where ?1 is null or key = ?1 order by key
        """,
        (key,),
    )
    return [BaseInfo(*row) for row in rows]


def state(connection: sqlite3.Connection, key: str) -> tuple[int, int, int] | None:
    """Return a base's id, its version and the dimensions of its vectors."""
    return connection.execute("select id, version, dimensions from bases where key = ?", (key,)).fetchone()


def set_embedder(connection: sqlite3.Connection, key: str, embedder: str, dimensions: int) -> None:
    id = make_base(connection, key)
    known = connection.execute("select embedder, dimensions from bases where id = ?", (id,)).fetchone()
    if known != (embedder, dimensions):
        connection.execute("delete from vectors where base = ?", (id,))
        connection.execute(
            "update bases set embedder = ?, dimensions = ?, version = version + 1 where id = ?",
            (embedder, dimensions, id),
        )


# --- documents --------------------------------------------------------------------------------------------------------


def base_state(connection: sqlite3.Connection, key: str) -> BaseState:
    found = connection.execute("select id, embedder, dimensions, embedding from bases where key = ?", (key,)).fetchone()
    if found is None:
        return BaseState()
    id, embedder, dimensions, embedding = found
    signatures = dict(connection.execute("select path, signature from documents where base = ?", (id,)).fetchall())
    return BaseState(embedder, dimensions, bool(embedding), signatures)


def documents(connection: sqlite3.Connection, key: str, paths: Collection[str] | None) -> list[StoredDocument]:
    columns, base = "path, signature, hash, title, tags, problem, chunks", base_id(connection, key)
    if paths is None:
        rows = connection.execute(f"select {columns} from documents where base = ? order by path", (base,)).fetchall()
    else:
        rows = [
            row
            for path in paths
            for row in connection.execute(f"select {columns} from documents where base = ? and path = ?", (base, path))
        ]
    return [
        StoredDocument(path, signature, hash, title, _tags(tags), problem, chunks)
        for path, signature, hash, title, tags, problem, chunks in rows
    ]


def apply(connection: sqlite3.Connection, key: str, changes: Changes, at: float) -> None:
    base, spare = make_base(connection, key), set[bytes]()
    for path in changes.removed:
        spare |= _drop_chunks(connection, base, path)
        connection.execute("delete from documents where base = ? and path = ?", (base, path))
    for old in changes.moved:
        # First to a temporary name: two files may have swapped their names.
        connection.execute("update documents set path = ? where base = ? and path = ?", (f"\0{old}", base, old))
    for old, document in changes.moved.items():
        _update(connection, base, f"\0{old}", document)
        _rename_words(connection, base, old, document.path)
    for document in changes.touched:
        _update(connection, base, document.path, document)
    for document, chunks in changes.put:
        spare |= _drop_chunks(connection, base, document.path)
        _put(connection, base, document, chunks)
    if changes.collect:
        spare |= {key for (key,) in connection.execute("select key from vectors where base = ?", (base,))}
    connection.executemany(
        """
        delete from vectors where base = ?1 and key = ?2
            and not exists (select 1 from chunks where base = ?1 and key = ?2)
        """,
        [(base, key) for key in spare],
    )
    changed = bool(changes.put or changes.moved or changes.removed)
    connection.execute(
        "update bases set version = version + ?, embedding = 0, synced_at = ? where id = ?", (changed, at, base)
    )


def _update(connection: sqlite3.Connection, base: int, path: str, document: StoredDocument) -> None:
    connection.execute(
        "update documents set path = ?, signature = ?, hash = ?, tags = ?, problem = ? where base = ? and path = ?",
        (
            document.path,
            document.signature,
            document.hash,
            _joined(document.tags),
            document.problem,
            base,
            path,
        ),
    )


def _put(connection: sqlite3.Connection, base: int, document: StoredDocument, chunks: Sequence[Chunk]) -> None:
    (id,) = connection.execute(
        """
        insert into documents (base, path, signature, hash, title, tags, problem, chunks)
        values (?, ?, ?, ?, ?, ?, ?, ?)
        on conflict (base, path) do update set signature = excluded.signature, hash = excluded.hash,
            title = excluded.title, tags = excluded.tags, problem = excluded.problem, chunks = excluded.chunks
        returning id
        """,
        (
            base,
            document.path,
            document.signature,
            document.hash,
            document.title,
            _joined(document.tags),
            document.problem,
            len(chunks),
        ),
    ).fetchone()
    for chunk in chunks:
        (row,) = connection.execute(
            """
            insert into chunks (base, document, key, text, headings, line, page) values (?, ?, ?, ?, ?, ?, ?)
            returning id
            """,
            (
                base,
                id,
                chunk_key(embedded_text(document.title, chunk)),
                chunk.text,
                chunk.headings,
                chunk.line,
                chunk.page,
            ),
        ).fetchone()
        indexed = _words(row, chunk.text, chunk.headings, document.title, document.path)
        connection.execute(f"insert into words_{base} (rowid, text, headings, title) values (?, ?, ?, ?)", indexed)


def _drop_chunks(connection: sqlite3.Connection, base: int, path: str) -> set[bytes]:
    """Remove the chunks of a document, and return the keys of their vectors."""
    rows = _indexed(connection, base, path)
    for id, text, headings, title, _ in rows:
        connection.execute(_forget(base), _words(id, text, headings, title, path))
    connection.execute(
        "delete from chunks where document = (select id from documents where base = ? and path = ?)", (base, path)
    )
    return {key for *_, key in rows}


def _rename_words(connection: sqlite3.Connection, base: int, old: str, new: str) -> None:
    for id, text, headings, title, _ in _indexed(connection, base, new):
        connection.execute(_forget(base), _words(id, text, headings, title, old))
        indexed = _words(id, text, headings, title, new)
        connection.execute(f"insert into words_{base} (rowid, text, headings, title) values (?, ?, ?, ?)", indexed)


def _indexed(connection: sqlite3.Connection, base: int, path: str) -> list[tuple[int, str, str, str, bytes]]:
    return connection.execute(
        """
        select chunks.id, text, headings, title, key from chunks join documents on documents.id = document
        where documents.base = ? and path = ?
        """,
        (base, path),
    ).fetchall()


def _forget(base: int) -> str:
    # An index without content must be told what to delete.
    return f"insert into words_{base} (words_{base}, rowid, text, headings, title) values ('delete', ?, ?, ?, ?)"


def _words(id: int, text: str, headings: str, title: str, path: str) -> tuple[int, str, str, str]:
    """Return a row of the index. The words of a file's name are found like those of its title."""
    return id, words_of(text), words_of(headings), words_of(f"{title} {path}")


# --- vectors ----------------------------------------------------------------------------------------------------------


def known_vectors(connection: sqlite3.Connection, key: str, keys: Collection[bytes]) -> set[bytes]:
    base, known = base_id(connection, key), set[bytes]()
    for batch in _batches(keys):
        marks = ",".join("?" * len(batch))
        found = connection.execute(f"select key from vectors where base = ? and key in ({marks})", (base, *batch))
        known.update(row[0] for row in found)
    return known


def put_vectors(connection: sqlite3.Connection, key: str, vectors: Sequence[tuple[bytes, Vector]]) -> None:
    base = make_base(connection, key)
    connection.executemany(
        "insert or replace into vectors (base, key, vector) values (?, ?, ?)",
        [(base, at, _bytes(vector)) for at, vector in vectors],
    )
    connection.execute("update bases set version = version + 1, embedding = 1 where id = ?", (base,))


def without_vectors(connection: sqlite3.Connection, key: str, limit: int) -> list[StoredChunk]:
    rows = connection.execute(
        f"""
        select {_CHUNK} from chunks join documents on documents.id = chunks.document
        where chunks.base = (select id from bases where key = ?)
            and not exists (select 1 from vectors where vectors.base = chunks.base and vectors.key = chunks.key)
        limit ?
        """,
        (key, limit),
    )
    return list(_chunks(rows))


def vector_ids(connection: sqlite3.Connection, base: int) -> list[int]:
    rows = connection.execute(
        "select chunks.id from chunks join vectors using (base, key) where base = ? order by chunks.id", (base,)
    )
    return [id for (id,) in rows]


def vectors_of(connection: sqlite3.Connection, base: int, ids: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
    """Yield chunk, document and vector."""
    for batch in _batches(ids):
        marks = ",".join("?" * len(batch))
        yield from connection.execute(
            f"""
            select chunks.id, document, vector from chunks join vectors using (base, key)
            where base = ? and chunks.id in ({marks})
            """,
            (base, *batch),
        )


# --- search -----------------------------------------------------------------------------------------------------------

_WEIGHTS = "1.0, 1.0, 0.5"  # of text, headings and title: every chunk of a document has its title
_CHUNK = "chunks.id, path, title, tags, text, headings, line, page"


def query_of(words: str) -> str:
    """Return a query for any of the words of a person's text, and for adjacent words as phrases, so that chunks that
    contain these come first. None of the text is read as syntax."""
    found = _WORD.findall(words_of(words))[:WORDS_MAX]
    phrases = (f"{one} {next}" for one, next in pairwise(found) if len(one) > SHORT and len(next) > SHORT)
    return " OR ".join(f'"{term}"' for term in dict.fromkeys((*found, *phrases)))


def find_words(connection: sqlite3.Connection, key: str, words: str, limit: int, filter: Filter) -> list[Hit]:
    base, query = base_id(connection, key), query_of(words)
    if base is None or not query:
        return []
    condition, values = _condition(base, filter)
    among = f"and rowid in (select chunks.id from chunks where document in ({condition}))" if condition else ""
    rows = connection.execute(
        f"""
        select rowid, -bm25(words_{base}, {_WEIGHTS}) from words_{base} where words_{base} match ? {among}
        order by bm25(words_{base}, {_WEIGHTS}) limit ?
        """,
        (query, *values, limit),
    )
    return [Hit(*row) for row in rows]


def matching_documents(connection: sqlite3.Connection, base: int, filter: Filter) -> list[int] | None:
    """Return the documents that match a filter; None if it is empty."""
    condition, values = _condition(base, filter)
    return [id for (id,) in connection.execute(condition, values)] if condition else None


def _condition(base: int, filter: Filter) -> tuple[str, list[object]]:
    if not (filter.paths or filter.tags):
        return "", []
    conditions, values = ["base = ?"], list[object]((base,))
    if filter.paths:
        conditions.append(f"({' or '.join(['path glob ?'] * len(filter.paths))})")
        values += filter.paths
    for tag in filter.tags:
        conditions.append("instr(tags, ?)")
        values.append(f",{tag},")
    return f"select id from documents where {' and '.join(conditions)}", values


def chunks(connection: sqlite3.Connection, ids: Sequence[int]) -> list[StoredChunk]:
    found: dict[int, StoredChunk] = {}
    for batch in _batches(ids):
        marks = ",".join("?" * len(batch))
        rows = connection.execute(
            f"select {_CHUNK} from chunks join documents on documents.id = document where chunks.id in ({marks})",
            batch,
        )
        found |= {chunk.id: chunk for chunk in _chunks(rows)}
    return [found[id] for id in ids if id in found]


def chunks_of(connection: sqlite3.Connection, key: str, path: str) -> list[StoredChunk]:
    rows = connection.execute(
        f"""
        select {_CHUNK} from chunks join documents on documents.id = document
        where documents.base = (select id from bases where key = ?) and path = ? order by chunks.id
        """,
        (key, path),
    )
    return list(_chunks(rows))


def _chunks(rows: Iterable[tuple[int, str, str, str, str, str, int | None, int | None]]) -> Iterator[StoredChunk]:
    for id, path, title, tags, text, headings, line, page in rows:
        yield StoredChunk(id, path, title, _tags(tags), Chunk(text, headings, line, page))


def _tags(joined: str) -> tuple[str, ...]:
    return tuple(joined.strip(",").split(",")) if joined else ()


def _joined(tags: tuple[str, ...]) -> str:
    return f",{','.join(tags)}," if tags else ""


def _bytes(vector: Vector) -> bytes:
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return vector.tobytes()


def _batches(values: Collection[int] | Collection[bytes]) -> Iterator[list[int | bytes]]:
    left = iter(values)
    while batch := list(islice(left, BATCH)):
        yield list(batch)
