"""The contracts of knowledge bases: readers, which parse files, and the store that keeps and searches the chunks.

Knows no file format, no embedder and no database; see knowledge/readers/ and stores/.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import NamedTuple, Protocol, runtime_checkable

from ..engine import Engine
from ..errors import RondelError
from ..values import Value
from .embedder import Embedder, Vector
from .source import Passage

# --- documents --------------------------------------------------------------------------------------------------------


class Section(Value, frozen=True):
    """A piece of a document under its headings. `line` and `page` are where it begins, counted from 1, if they are
    known."""

    text: str
    headings: tuple[str, ...] = ()
    line: int | None = None
    page: int | None = None


class Document(Value, frozen=True):
    title: str = ""
    sections: tuple[Section, ...] = ()


class Unreadable(RondelError):
    """A reader cannot read a file. The message continues the sentence "the file ...": "is not text"."""


@runtime_checkable
class DocumentReader(Protocol):
    """Reads one kind of file. Installed readers are found by the entry points `rondel.readers`.

    It must treat files as hostile: it limits what it unpacks, and follows no reference to anything outside the data.
    """

    @property
    def suffixes(self) -> Sequence[str]:
        """The suffixes of its files, in lower case: `.md`."""
        ...

    def read(self, data: bytes, name: str) -> Document:
        """Return the document, or raise Unreadable. Runs in a thread."""
        ...


class Chunk(Value, frozen=True):
    """A part of a document, the unit that a search finds. `headings` are joined: `Guide > Refunds`."""

    text: str
    headings: str = ""
    line: int | None = None
    page: int | None = None


def embedded_text(title: str, chunk: Chunk) -> str:
    """Return the text of a chunk that is embedded: its own text below the document's title and its headings."""
    head = " > ".join(part for part in (title, chunk.headings) if part)
    return f"{head}\n{chunk.text}" if head else chunk.text


def chunk_key(text: str) -> bytes:
    """Return the key under which the vector of an embedded text is stored."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


# --- the store --------------------------------------------------------------------------------------------------------


class StoredDocument(Value, frozen=True):
    """A document of a base. `signature` is the file's signature in the file system when it was read; empty if that is
    unreliable. `problem` says why a file could not be read; it has no chunks then."""

    path: str
    signature: str = ""
    hash: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    problem: str = ""
    chunks: int = 0


class BaseInfo(Value, frozen=True):
    """What is stored for a base. `vectors` counts the chunks that have one."""

    key: str
    embedder: str = ""
    dimensions: int = 0
    documents: int = 0
    chunks: int = 0
    vectors: int = 0
    problems: int = 0
    synced_at: float = 0.0


class BaseState(Value, frozen=True):
    """What a sync must know about a base before it begins. `interrupted` says that the last sync did not finish."""

    embedder: str = ""
    dimensions: int = 0
    interrupted: bool = False
    signatures: dict[str, str] = {}
    """The signature of each document, by its path."""


class Changes(Value, frozen=True):
    """What a sync changes, all or nothing. `moved` maps the old path of a document to its new row, `touched` are rows
    whose content is unchanged. With `collect`, vectors that an interrupted sync left are removed, too."""

    put: tuple[tuple[StoredDocument, tuple[Chunk, ...]], ...] = ()
    moved: dict[str, StoredDocument] = {}
    touched: tuple[StoredDocument, ...] = ()
    removed: tuple[str, ...] = ()
    collect: bool = False


class Filter(Value, frozen=True):
    """Which documents are searched: those whose path matches one of the patterns (`*` also matches `/`), and that have
    all of the tags."""

    paths: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class Hit(NamedTuple):
    """The id of a chunk that was found, and its score by the search's own measure; higher is better."""

    chunk: int
    score: float


class StoredChunk(Value, frozen=True):
    id: int
    path: str
    title: str
    tags: tuple[str, ...]
    chunk: Chunk


class KnowledgeStore(Protocol):
    """Documents, their chunks and the chunks' vectors, by base. Everything can be rebuilt from the files.

    A base appears with its first change. Every method that is given an unknown base finds nothing.
    """

    def lock(self, base: str, *, wait: bool = True) -> AbstractAsyncContextManager[bool]:
        """Hold the exclusive right among all processes to change a base. Without `wait`, yield False if another one has
        it."""
        ...

    async def info(self, base: str) -> BaseInfo | None: ...

    async def bases(self) -> list[BaseInfo]: ...

    async def state(self, base: str) -> BaseState: ...

    async def documents(self, base: str, paths: Collection[str] | None = None) -> list[StoredDocument]:
        """Return the documents at these paths, or all of them."""
        ...

    async def apply(self, base: str, changes: Changes, *, at: float) -> None:
        """Make the changes in one transaction: a search sees all of them or none. Vectors that no chunk uses are
        removed."""
        ...

    async def remove(self, base: str) -> bool:
        """Remove a base with everything that belongs to it. Return False if it does not exist."""
        ...

    async def set_embedder(self, base: str, embedder: str, dimensions: int) -> None:
        """Set the embedder that the vectors of a base come from. Vectors of another one are removed."""
        ...

    async def known_vectors(self, base: str, keys: Collection[bytes]) -> set[bytes]:
        """Return those of the keys that have a vector."""
        ...

    async def put_vectors(self, base: str, vectors: Sequence[tuple[bytes, Vector]]) -> None:
        """Store vectors, also of chunks that are not stored yet, so that an interrupted sync keeps what it has
        embedded."""
        ...

    async def without_vectors(self, base: str, limit: int) -> list[StoredChunk]:
        """Return chunks that have no vector."""
        ...

    async def find_words(self, base: str, words: str, limit: int, filter: Filter) -> list[Hit]:
        """Return the chunks that have some of the words, ranked by BM25."""
        ...

    async def find_vectors(self, base: str, vector: Vector, limit: int, filter: Filter) -> list[Hit]:
        """Return the chunks whose vectors are nearest by cosine."""
        ...

    async def chunks(self, base: str, ids: Sequence[int]) -> list[StoredChunk]:
        """Return chunks by their ids, in that order; deleted ones are left out."""
        ...

    async def chunks_of(self, base: str, path: str) -> list[StoredChunk]: ...

    async def aclose(self) -> None: ...


# --- what turns ask ---------------------------------------------------------------------------------------------------


class KnowledgeBases(Protocol):
    """The knowledge bases that an app has."""

    @property
    def names(self) -> tuple[str, ...]: ...

    async def search(
        self,
        query: str,
        limit: int,
        *,
        bases: Sequence[str] = (),
        filter: Filter | None = None,
        charged: Callable[[Embedder], Embedder] | None = None,
        engine: Callable[[str], Engine] | None = None,
    ) -> list[Passage]:
        """Return the best passages of the named bases, or of all. `charged` wraps a base's embedder, `engine` returns
        the engine of a base that reranks. Raises RondelError for an unknown name."""
        ...


class NoKnowledge:
    """An app without knowledge bases."""

    names: tuple[str, ...] = ()

    async def search(self, query: str, limit: int, *, bases: Sequence[str] = (), **_: object) -> list[Passage]:
        named = f" {bases[0]!r}" if bases else ""
        raise RondelError(f"there is no knowledge base{named}; create a folder documents/, or add [knowledge.<name>]")
