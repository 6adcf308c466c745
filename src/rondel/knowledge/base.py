"""A knowledge base: keeps the store equal to the files, and searches it.

A sync compares each file's signature in the file system with the stored one, reads files that differ, embeds the chunks
that have no vector yet, and then makes all changes in one transaction. Vectors are stored at once, under the embedded
text, so nothing is embedded again after a file moved or a sync was interrupted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TypeAlias

import msgspec

from ..calling.threads import in_thread
from ..contracts.clock import Clock, SystemClock
from ..contracts.embedder import Embedder
from ..contracts.knowledge import (
    Changes,
    Chunk,
    Filter,
    Hit,
    KnowledgeStore,
    StoredChunk,
    StoredDocument,
    chunk_key,
    embedded_text,
)
from ..contracts.source import Passage
from ..engine import Engine
from ..errors import EngineError, RondelError
from ..fetching import FetchError
from ..fetching.http import PageFetcher
from ..values import Value
from .ranking import NEAR_MIN, fused
from .rerank import reranked
from .scan import ReadFile, Scan, exists, made, pattern_of, read_file, scan, tags_of
from .settings import KnowledgeSettings

log = logging.getLogger("rondel.knowledge")

BATCH = 64  # chunks that are embedded together and stored with one commit
DEPTH = 50  # how many chunks each kind of search finds at least, before both are merged
RERANKED = 20  # how many passages a model puts in order
REFRESHED_FILES_MAX = 200  # a search reads no more files than this; `rondel knowledge sync` reads any number
REFRESHED_CHUNKS_MAX = 32  # a search embeds no more chunks than this
_MORE = 10_000

Progress: TypeAlias = Callable[[str, int, int], object]
"""Gets the kind of work (`read`, `embed`), how much of it is done, and the total."""


class SyncReport(Value, frozen=True):
    """What a sync did, or would do: the paths of files, and the sentences about those that could not be read."""

    base: str
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: dict[str, str] = {}
    """The old path of each file that moved, by the new one."""
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    skipped: int = 0  # files of a kind that no reader supports
    problems: dict[str, str] = {}
    chunks: int = 0
    embedded: int = 0
    tokens: int = 0

    @property
    def summary(self) -> str:
        """What was done, as a sentence without a full stop: `2 added, 5 unchanged; 9 chunks embedded`."""
        counts = {"added": self.added, "changed": self.changed, "moved": self.moved, "removed": self.removed}
        done = ", ".join(f"{len(paths):,} {what}" for what, paths in counts.items() if paths) or "nothing changed"
        more = f"; {self.embedded:,} chunks embedded" if self.embedded else ""
        return f"{done}, {self.unchanged:,} unchanged{more}"


class KnowledgeBase:
    def __init__(
        self,
        name: str,
        settings: KnowledgeSettings,
        store: KnowledgeStore,
        *,
        project: str = "",
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        fetcher: PageFetcher | None = None,
    ) -> None:
        """Without an embedder, only words are searched."""
        self.name, self.settings, self.project = name, settings, project
        self.key = f"{name}@{project}"  # bases of several projects share a store
        self.embedder = embedder
        self._store, self._clock = store, clock or SystemClock()
        self._fetcher = fetcher or PageFetcher()
        self._tags = {tag: pattern_of(patterns) for tag, patterns in settings.tags.items()}
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()  # a search in the meantime must find what is being read
        self._told: set[str] = set()

    # --- sync ---------------------------------------------------------------------------------------------------------

    async def sync(
        self,
        *,
        embedder: Embedder | None = None,
        progress: Progress | None = None,
        rebuild: bool = False,
        dry_run: bool = False,
    ) -> SyncReport:
        """Make the store equal to the files. `embedder` replaces the base's own, for example by a charged one. With
        `rebuild`, everything is read and embedded again. Waits while another process syncs this base."""
        async with self._store.lock(self.key):
            if rebuild and not dry_run:
                await self._store.remove(self.key)
            return await _Sync(self, self._store, embedder or self.embedder, progress).run(dry_run=dry_run)

    async def _refresh(self, embedder: Embedder | None) -> None:
        """Sync the changes since the last look if they are few; a search must not wait long."""
        async with self._refreshing:
            now = self._clock.now()
            if not self.settings.refresh_s or now - self._refreshed_at < self.settings.refresh_s:
                return
            self._refreshed_at = now
            async with self._store.lock(self.key, wait=False) as held:
                if held:  # else another process is syncing
                    try:
                        await _Sync(self, self._store, embedder, None).run(quick=True)
                    except (RondelError, OSError) as error:
                        self.warn(f"the knowledge base {self.name!r} could not be refreshed: {error}")

    def warn(self, message: str) -> None:
        if message not in self._told and len(self._told) < _MORE:
            self._told.add(message)
            log.warning(message)

    def tags_of(self, path: str) -> tuple[str, ...]:
        return tags_of(path, self._tags)

    async def fetch(self, url: str) -> bytes:
        return await self._fetcher.page(url)

    def now(self) -> float:
        return self._clock.now()

    # --- search -------------------------------------------------------------------------------------------------------

    async def search(
        self,
        query: str,
        limit: int,
        *,
        filter: Filter | None = None,
        embedder: Embedder | None = None,
        rerank: Engine | None = None,
    ) -> list[Passage]:
        """Return the passages that fit best by their words and by their meaning, best first."""
        embedder = embedder or self.embedder
        await self._refresh(embedder)
        filter, depth = filter or Filter(), max(DEPTH, 2 * limit)
        words = await self._store.find_words(self.key, query, depth, filter)
        near = await self._nearest(query, depth, filter, embedder)
        wanted = max(limit, RERANKED) if rerank is not None else limit
        found = await self._passages(fused([hit.chunk for hit in words], [hit.chunk for hit in near]), wanted)
        if rerank is not None and len(found) > 1:
            found = await reranked(rerank, query, found)
        return found[:limit]

    async def _nearest(self, query: str, depth: int, filter: Filter, embedder: Embedder | None) -> list[Hit]:
        if embedder is None or not query.strip():
            return []
        try:
            (vector,) = (await embedder.embed([query])).vectors
            found = await self._store.find_vectors(self.key, vector, depth, filter)
            return [hit for hit in found if hit.score >= NEAR_MIN]
        except EngineError as error:
            self.warn(f"the knowledge base {self.name!r} is searched by words only: {error}")
            return []

    async def _passages(self, ranked: Sequence[tuple[int, float]], limit: int) -> list[Passage]:
        found: list[Passage] = []
        scores = dict(ranked)
        for start in range(0, len(ranked), 2 * limit):
            for stored in await self._store.chunks(self.key, [chunk for chunk, _ in ranked[start : start + 2 * limit]]):
                # A deleted file is not found, even before the next sync.
                if exists(stored.path, self.project):
                    found.append(passage_of(stored, scores[stored.id]))
                if len(found) == limit:
                    return found
        return found


def passage_of(stored: StoredChunk, score: float = 0.0) -> Passage:
    chunk, title = stored.chunk, stored.title or stored.path.rpartition("/")[2]
    return Passage(chunk.text, title, stored.path, score, chunk.headings, chunk.line, chunk.page, stored.tags)


class _Sync:
    """One run of a sync, while the base is locked."""

    def __init__(
        self, base: KnowledgeBase, store: KnowledgeStore, embedder: Embedder | None, progress: Progress | None
    ) -> None:
        self._base, self._store, self._embedder = base, store, embedder
        self._progress: Progress = progress or (lambda what, done, total: None)
        self._embedded = self._tokens = 0

    async def run(self, *, dry_run: bool = False, quick: bool = False) -> SyncReport:
        base = self._base
        found = await in_thread(scan, base.settings, base.project)
        state = await self._store.state(base.key)
        self._check_embedder(state.embedder)
        known = state.signatures
        new = [path for path in found.files if path not in known]
        differ = [path for path, signature in found.files.items() if known.get(path, signature) != signature]
        urls = () if quick else base.settings.urls
        gone = [
            path
            for path in known
            if path not in found.files and path not in found.problems and path not in base.settings.urls
        ]
        if quick and len(new) + len(differ) > REFRESHED_FILES_MAX:
            base.warn(
                f"{len(new) + len(differ):,} files of the knowledge base {base.name!r} are new or changed; "
                f"run `rondel knowledge sync {base.name}` to read them"
            )
            new, differ = [], []
        old = {row.path: row for row in await self._store.documents(base.key, [*differ, *gone, *urls, *found.problems])}
        changes, report = await self._planned(found, new, differ, gone, old)
        changes, report = await self._with_pages(changes, report, urls, old)
        problems = tuple(
            (StoredDocument(path, problem=problem), ())
            for path, problem in found.problems.items()
            if path not in old or old[path].problem != problem
        )
        changes = msgspec.structs.replace(changes, put=(*changes.put, *problems), collect=state.interrupted)
        report = msgspec.structs.replace(
            report, skipped=found.skipped, problems={**report.problems, **found.problems}, chunks=_count(changes)
        )
        if dry_run:
            return report
        try:
            await self._embed_chunks(changes, REFRESHED_CHUNKS_MAX if quick else None)
        except EngineError as error:
            if not quick:
                raise
            # A search finds new files by their words, at least; the next sync embeds them.
            base.warn(f"new documents of the knowledge base {base.name!r} are searched by words only: {error}")
            self._embedder = None
        if changes.put or changes.moved or changes.touched or changes.removed or state.interrupted or not quick:
            await self._store.apply(base.key, changes, at=base.now())
        await self._embed_rest(REFRESHED_CHUNKS_MAX if quick else None)
        return msgspec.structs.replace(report, embedded=self._embedded, tokens=self._tokens)

    def _check_embedder(self, stored: str) -> None:
        if stored and self._embedder is not None and stored != self._embedder.name:
            name = self._base.name
            raise RondelError(
                f"the vectors of the knowledge base {name!r} are from {stored!r}, and its embedder is now "
                f"{self._embedder.name!r}: run `rondel knowledge sync {name} --rebuild` to embed all of it again"
            )

    # --- what to change -----------------------------------------------------------------------------------------------

    async def _planned(
        self,
        found: Scan,
        new: list[str],
        differ: list[str],
        gone: list[str],
        old: dict[str, StoredDocument],
    ) -> tuple[Changes, SyncReport]:
        base = self._base
        put: list[tuple[StoredDocument, tuple[Chunk, ...]]] = []
        touched: list[StoredDocument] = []
        moved: dict[str, StoredDocument] = {}
        added: list[str] = []
        changed: list[str] = []
        problems: dict[str, str] = {}
        left = {old[path].hash: path for path in gone if path in old and old[path].hash and not old[path].problem}
        for number, path in enumerate((*differ, *new), 1):
            self._progress("read", number, len(differ) + len(new))
            before = old.get(path)
            known_hash = before.hash if before is not None and not before.problem else ""
            read: ReadFile = await in_thread(read_file, path, found, base.settings, known_hash)
            document = msgspec.structs.replace(read.document, tags=base.tags_of(path))
            if document.problem:
                problems[path] = document.problem
            if before is not None and known_hash and document.hash == known_hash:
                touched.append(document)
            elif before is None and not document.problem and (source := left.pop(document.hash, None)) is not None:
                moved[source] = document
            else:
                put.append((document, read.chunks))
                if not document.problem:
                    (changed if before is not None else added).append(path)
        removed = tuple(path for path in gone if path not in moved)
        # Another file may have been at a file's new path: the old one is removed first, and moves are made after that.
        changes = Changes(tuple(put), moved, tuple(touched), removed)
        report = SyncReport(
            base.name,
            tuple(added),
            tuple(changed),
            {document.path: source for source, document in moved.items()},
            removed,
            unchanged=len(found.files) - len(new) - len(differ) + len(touched),
            problems=problems,
        )
        return changes, report

    async def _with_pages(
        self, changes: Changes, report: SyncReport, urls: Iterable[str], old: dict[str, StoredDocument]
    ) -> tuple[Changes, SyncReport]:
        """Add the web pages. One that cannot be fetched keeps the content that it had."""
        base, put, added, changed = self._base, list(changes.put), list(report.added), list(report.changed)
        problems, unchanged = dict(report.problems), report.unchanged
        for url in urls:
            before = old.get(url)
            try:
                data = await base.fetch(url)
            except FetchError as error:
                problems[url] = str(error)
                if before is None:
                    put.append((StoredDocument(url, problem=str(error)), ()))
                continue
            hash = sha256(data).hexdigest()
            if before is not None and before.hash == hash:
                unchanged += 1
                continue
            read: ReadFile = await in_thread(made, _page_name(url, data), data, hash, base.settings)
            document = msgspec.structs.replace(read.document, path=url, tags=base.tags_of(url))
            put.append((document, read.chunks))
            if document.problem:
                problems[url] = document.problem
            else:
                (added if before is None else changed).append(url)
        changes = msgspec.structs.replace(changes, put=tuple(put))
        return changes, msgspec.structs.replace(
            report, added=tuple(added), changed=tuple(changed), problems=problems, unchanged=unchanged
        )

    # --- vectors ------------------------------------------------------------------------------------------------------

    async def _embed_chunks(self, changes: Changes, chunks_max: int | None) -> None:
        """Embed the new chunks before they can be found, so that a search sees them with their vectors."""
        if self._embedder is None:
            return
        texts = {
            chunk_key(text): text
            for document, chunks in changes.put
            for text in (embedded_text(document.title, chunk) for chunk in chunks)
        }
        known = await self._store.known_vectors(self._base.key, texts.keys()) if texts else set[bytes]()
        missing = [(key, text) for key, text in texts.items() if key not in known]
        await self._embed(missing if chunks_max is None else missing[:chunks_max])

    async def _embed_rest(self, chunks_max: int | None) -> None:
        """Embed chunks that were stored without a vector: by a search that could not wait, or before there was an
        embedder."""
        if self._embedder is None:
            return
        left = _MORE if chunks_max is None else chunks_max - self._embedded
        while left > 0 and (stored := await self._store.without_vectors(self._base.key, min(left, _MORE))):
            texts = [embedded_text(one.title, one.chunk) for one in stored]
            await self._embed([(chunk_key(text), text) for text in dict.fromkeys(texts)])
            if chunks_max is not None:
                return

    async def _embed(self, missing: Sequence[tuple[bytes, str]]) -> None:
        embedder, base = self._embedder, self._base
        assert embedder is not None, "there is an embedder"
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            self._progress("embed", start, len(missing))
            embedded = await embedder.embed([text for _, text in batch])
            await self._check_dimensions(len(embedded.vectors[0]))
            keys = [key for key, _ in batch]
            await self._store.put_vectors(base.key, list(zip(keys, embedded.vectors, strict=True)))
            self._embedded += len(batch)
            self._tokens += embedded.usage.tokens_in
        if missing:
            self._progress("embed", len(missing), len(missing))

    async def _check_dimensions(self, dimensions: int) -> None:
        if self._embedded:
            return
        embedder, name = self._embedder, self._base.name
        assert embedder is not None, "there is an embedder"
        state = await self._store.state(self._base.key)
        if state.dimensions and state.dimensions != dimensions:
            raise RondelError(
                f"the vectors of the knowledge base {name!r} have {state.dimensions} numbers, and those of "
                f"{embedder.name!r} now have {dimensions}: run `rondel knowledge sync {name} --rebuild` to embed all "
                "of it again"
            )
        if not state.dimensions:
            await self._store.set_embedder(self._base.key, embedder.name, dimensions)


def _count(changes: Changes) -> int:
    return sum(len(chunks) for _, chunks in changes.put)


def _page_name(url: str, data: bytes) -> str:
    """Return a file's name for a web page, by which its reader is chosen."""
    path = url.partition("?")[0].partition("#")[0].lower()
    with suppress(ValueError):
        if data.startswith(b"%PDF-"):
            return "page.pdf"
        if path.endswith((".md", ".txt", ".csv", ".json", ".docx")):
            return f"page{path[path.rindex('.') :]}"
    return "page.html"
