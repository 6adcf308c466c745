"""Knowledge bases: what a sync of unchanged files and a search cost, and how good what is found is.

`sync` is compared with walking the folder and asking for each file's state, `search` with the product of a matrix and a
vector in numpy and the same words asked of SQLite's index. The quality is taken on the index of the Python
documentation (python_index.py). Constants were chosen by one half of its terms; the other half, reported as held out,
was in sight.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy

from bench.measure import Ratio, compare, cpu_of, shown
from bench.python_index import CACHE, Place, Term, documentation, pages_and_terms
from rondel.contracts.embedder import Embedded, Vector
from rondel.contracts.knowledge import Changes, Chunk, Filter, StoredDocument, chunk_key, embedded_text
from rondel.engines.local.minilm import LocalEmbedder
from rondel.engines.local.minilm.wordpiece import vocabulary
from rondel.engines.local.weights import pull
from rondel.knowledge import KnowledgeBase, KnowledgeSettings
from rondel.stores.sqlite.knowledge import SqliteKnowledge
from rondel.values import Usage

FILES, FEW_FILES, CHANGED = 10_000, 1_000, 300
CHUNKS, CHUNK_WORDS, PER_DOCUMENT, DIMENSIONS = 100_000, 60, 100, 384
QUERIES = 10
FOUND = 5


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        ratios = [*asyncio.run(_sync(Path(folder))), *asyncio.run(_search(Path(folder, "search")))]
    return [*ratios, *asyncio.run(_quality())]


# --- sync -------------------------------------------------------------------------------------------------------------


def _base(folder: Path) -> KnowledgeBase:
    store = SqliteKnowledge(folder / "knowledge.db")
    return KnowledgeBase("bench", KnowledgeSettings(folders=("docs",), refresh_s=0), store, project=str(folder))


def _written(folder: Path, files: int) -> Path:
    for number in range(files):
        path = folder / "docs" / f"{number % 100}" / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Number {number}\n\nThe text of number {number}.\n")
        os.utime(path, (1e9, 1e9))
    return folder


def _walked(folder: Path) -> None:
    for where, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(where, name))


async def _sync(folder: Path) -> list[Ratio]:
    many, few = (_base(_written(folder / f"{files}", files)) for files in (FILES, FEW_FILES))
    for base in (many, few):
        await base.sync()
    await asyncio.sleep(0.1)  # files that were written just now are read twice
    for base in (many, few):
        await base.sync()

    async def ours() -> None:
        assert (await many.sync()).unchanged == FILES

    async def theirs() -> None:
        _walked(Path(many.project, "docs"))

    unchanged = await compare(
        f"a sync of {FILES:,} unchanged files, against walking and stat-ing them", ours, theirs, limit=2
    )
    costs = [await _changes(base) / CHANGED for base in (many, few)]
    what = f"a changed file of {FILES:,}, against one of {FEW_FILES:,}, less what the unchanged ones cost"
    for base in (many, few):
        await base._store.aclose()  # type: ignore[reportPrivateUsage]
    return [unchanged, Ratio(what, costs[0] / costs[1], 1.5, shown(costs[0]), shown(costs[1]))]


async def _changes(base: KnowledgeBase) -> float:
    """What changed files add to a sync: the median of some."""

    async def sync() -> None:
        await base.sync()

    costs: list[float] = []
    for version in range(7):
        for path in sorted(Path(base.project, "docs").rglob("*.md"))[:CHANGED]:
            path.write_text(f"# {path.name}\n\nThe text of version {version}.\n")
        await asyncio.sleep(0.1)  # until their times say that they will not change unnoticed
        changed = await cpu_of(sync)
        costs.append(changed - await cpu_of(sync))
    return statistics.median(costs)


# --- search -----------------------------------------------------------------------------------------------------------


class _Random:
    """An embedder that costs nothing, since what models cost is not measured here."""

    name, dimensions = "bench:random", DIMENSIONS

    def __init__(self) -> None:
        self._numbers = numpy.random.default_rng(1)

    def vector(self) -> Vector:
        numbers = self._numbers.standard_normal(DIMENSIONS, dtype=numpy.float32)
        return array("f", (numbers / numpy.linalg.norm(numbers)).tobytes())

    async def embed(self, texts: Sequence[str]) -> Embedded:
        return Embedded([self.vector() for _ in texts], Usage(), self.name)


class _Words:
    """Texts whose words are as rare as those of a language: the n-th most frequent has a share of 1/n."""

    def __init__(self) -> None:
        self._words = [word for word in vocabulary() if word.isascii() and word.isalpha() and len(word) > 2]
        random.Random(1).shuffle(self._words)
        self._shares = list(numpy.cumsum([1 / n for n in range(1, len(self._words) + 1)]))
        self._random = random.Random(2)

    def text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._shares, k=words))


async def _filled(folder: Path, words: _Words, embedder: _Random) -> KnowledgeBase:
    """A base of many chunks, by way of its store: there are no files to read."""
    base = _base(folder)
    base.embedder = embedder
    store = base._store  # type: ignore[reportPrivateUsage]
    (folder / "docs").mkdir(parents=True)
    await store.set_embedder(base.key, embedder.name, DIMENSIONS)
    for start in range(0, CHUNKS, 10_000):
        put: list[tuple[StoredDocument, tuple[Chunk, ...]]] = []
        vectors: list[tuple[bytes, Vector]] = []
        for number in range(start // PER_DOCUMENT, (start + 10_000) // PER_DOCUMENT):
            chunks = tuple(Chunk(words.text(CHUNK_WORDS), words.text(3)) for _ in range(PER_DOCUMENT))
            document = StoredDocument(f"docs/{number}.md", title=words.text(3), chunks=PER_DOCUMENT)
            (folder / document.path).touch()
            put.append((document, chunks))
            vectors += [(chunk_key(embedded_text(document.title, chunk)), embedder.vector()) for chunk in chunks]
        await store.put_vectors(base.key, vectors)
        await store.apply(base.key, Changes(tuple(put)), at=1.0)
    return base


async def _search(folder: Path) -> list[Ratio]:
    words, embedder = _Words(), _Random()
    folder.mkdir()
    base = await _filled(folder, words, embedder)
    queries = [words.text(5) for _ in range(QUERIES)]
    matrix = numpy.stack([embedder._numbers.standard_normal(DIMENSIONS, dtype=numpy.float32)] * CHUNKS)  # type: ignore[reportPrivateUsage]
    bare = sqlite3.connect(folder / "knowledge.db")
    bare.execute("pragma cache_size = -20000")

    async def ours() -> None:
        for query in queries:
            assert len(await base.search(query, FOUND)) == FOUND

    async def theirs() -> None:
        for query in queries:
            (vector,) = (await embedder.embed([query])).vectors
            numpy.dot(matrix, numpy.frombuffer(vector, dtype=numpy.float32))
            match = " OR ".join(f'"{word}"' for word in query.split())
            bare.execute(
                "select rowid from words_1 where words_1 match ? order by rank limit ?", (match, FOUND)
            ).fetchall()

    what = f"a search over {CHUNKS:,} chunks, against the bare product and the bare query"
    speed = await compare(what, ours, theirs, limit=2, per=QUERIES)
    bare.close()
    await base._store.aclose()  # type: ignore[reportPrivateUsage]
    return [speed, _memory(folder)]


MEMORY = """
import asyncio, os, sys, numpy
from array import array
from rondel.contracts.knowledge import Filter
from rondel.knowledge import KnowledgeBase, KnowledgeSettings
from rondel.stores.sqlite.knowledge import SqliteKnowledge

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024

async def main():
    store = SqliteKnowledge(sys.argv[1] + "/knowledge.db")
    base = KnowledgeBase("bench", KnowledgeSettings(folders=("docs",), refresh_s=0), store, project=sys.argv[1])
    await base.search("nothing", 1)
    before = peak()
    await store.find_vectors(base.key, array("f", [1.0] * {dimensions}), 50, Filter())
    print(peak() - before)

asyncio.run(main())
"""


def _memory(folder: Path) -> Ratio:
    """The most that a search by vectors adds to a process, the matrix included."""
    code = MEMORY.replace("{dimensions}", str(DIMENSIONS))
    told = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True).stdout
    ours, matrix = float(told), CHUNKS * DIMENSIONS * 4
    return Ratio("its memory against the matrix", ours / matrix, 1.3, f"{ours / 1e6:.0f} MB", f"{matrix / 1e6:.0f} MB")


# --- quality ----------------------------------------------------------------------------------------------------------


async def _quality() -> list[Ratio]:
    root = documentation()
    if root is None:
        print("     quality is not measured: there is no apt, which has the package python3-doc")
        return []
    pages, terms = pages_and_terms(root)
    embedder, store = LocalEmbedder(), SqliteKnowledge(CACHE / "knowledge.db")
    async for _ in pull(embedder.weights):
        pass
    settings = KnowledgeSettings(files=tuple(pages), refresh_s=0)
    base = KnowledgeBase("python", settings, store, project=str(root), embedder=embedder)
    await base.sync()  # embeds only what has changed since the last run

    async def by_words(query: str) -> list[int]:
        return [hit.chunk for hit in await store.find_words(base.key, query, 50, Filter())]

    async def by_vectors(query: str) -> list[int]:
        (vector,) = (await embedder.embed([query])).vectors
        return [hit.chunk for hit in await store.find_vectors(base.key, vector, 50, Filter())]

    async def by_both(query: str) -> list[Place]:
        return [Place(found.where, found.line or 0, 0) for found in await base.search(query, 50)]

    async def places(search: Callable[[str], Awaitable[list[int]]], query: str) -> list[Place]:
        found = await store.chunks(base.key, await search(query))
        return [Place(chunk.path, chunk.chunk.line or 0, 0) for chunk in found]

    scores: dict[str, list[tuple[bool, float, float]]] = {"words": [], "vectors": [], "both": []}
    for term in terms:
        scores["words"].append(_score(term, await places(by_words, term.words)))
        scores["vectors"].append(_score(term, await places(by_vectors, term.words)))
        scores["both"].append(_score(term, await by_both(term.words)))
    await store.aclose()
    return [ratio for held_out in (False, True) for ratio in _ratios(scores, held_out)]


def _score(term: Term, found: list[Place]) -> tuple[bool, float, float]:
    """Whether the term is held out, its recall among the first five, and the reciprocal of the first right rank."""
    right = [{place for place in term.places if place.holds(at.page, at.first)} for at in found]
    recall = len(set[Place]().union(*right[:FOUND])) / len(term.places)
    return term.is_held_out, recall, next((1 / rank for rank, places in enumerate(right, 1) if places), 0.0)


def _ratios(scores: dict[str, list[tuple[bool, float, float]]], held_out: bool) -> list[Ratio]:
    ratios: list[Ratio] = []
    for column, measure in ((1, f"recall@{FOUND}"), (2, "MRR")):
        means = {
            name: statistics.fmean(row[column] for row in rows if row[0] is held_out) for name, rows in scores.items()
        }
        terms = sum(row[0] is held_out for row in scores["both"])
        for half in ("words", "vectors"):
            what = f"{measure} of {half} against both, {terms} {'held-out ' if held_out else ''}terms"
            ratios.append(Ratio(what, means[half] / means["both"], 0.999, f"{means[half]:.3f}", f"{means['both']:.3f}"))
    return ratios
