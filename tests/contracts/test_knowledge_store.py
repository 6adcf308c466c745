"""The contract of a knowledge store: every store passes these tests unchanged. A new one is a row in `make`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from rondel.contracts.knowledge import (
    Changes,
    Chunk,
    Filter,
    KnowledgeStore,
    StoredDocument,
    chunk_key,
    embedded_text,
)
from rondel.stores.sqlite.knowledge import SqliteKnowledge

ALL = Filter()
Make = Callable[[], KnowledgeStore]


@pytest.fixture(params=["file", "temporary"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return lambda: SqliteKnowledge(tmp_path / "knowledge.db" if request.param == "file" else "")


def document(path: str, *texts: str, tags: tuple[str, ...] = ()) -> tuple[StoredDocument, tuple[Chunk, ...]]:
    return StoredDocument(path, "s1", "h1", path.upper(), tags), tuple(map(Chunk, texts))


def key(path: str, text: str) -> bytes:
    return chunk_key(embedded_text(path.upper(), Chunk(text)))


async def paths(store: KnowledgeStore, hits: list[tuple[int, float]], base: str = "b") -> list[str]:
    return [chunk.path for chunk in await store.chunks(base, [id for id, _ in hits])]


async def test_an_unknown_base_has_nothing(make: Make) -> None:
    async with aclosing(make()) as store:
        assert await store.info("b") is None
        assert (await store.bases(), await store.documents("b"), await store.chunks_of("b", "a.md")) == ([], [], [])
        assert await store.find_words("b", "hello", 3, ALL) == []
        assert await store.find_vectors("b", array("f", [1.0, 0.0]), 3, ALL) == []
        assert await store.remove("b") is False


async def test_changes_are_seen_together_and_bases_apart(make: Make) -> None:
    async with aclosing(make()) as store:
        one, two = document("a.md", "red kettles", "blue cups"), document("c.md", "green kettles")
        await store.apply("b", Changes(put=(one, two)), at=1.0)
        await store.apply("other", Changes(put=(document("x.md", "kettles"),)), at=1.0)
        info = await store.info("b")
        assert info is not None
        assert (info.documents, info.chunks, info.vectors, info.synced_at) == (2, 3, 0, 1.0)
        moved = StoredDocument("d.md", "s2", "h1", "D.MD")
        await store.apply("b", Changes(moved={"a.md": moved}, removed=("c.md",)), at=2.0)
        assert [found.path for found in await store.documents("b")] == ["d.md"]
        assert (await store.state("b")).signatures == {"d.md": "s2"}
        assert await paths(store, await store.find_words("b", "kettles", 5, ALL)) == ["d.md"]
        assert [chunk.chunk.text for chunk in await store.chunks_of("b", "d.md")] == ["red kettles", "blue cups"]
        assert await store.remove("b")
        assert [base.key for base in await store.bases()] == ["other"]
        assert await store.find_words("b", "kettles", 5, ALL) == []


async def test_words_are_found_by_how_well_they_fit_and_where(make: Make) -> None:
    async with aclosing(make()) as store:
        put = (
            document("docs/a.md", "kettles and kettles of tea"),
            document("docs/b.md", "one of many kettles, pots, cups and other things for a kitchen", tags=("home",)),
            document("c.md", "nothing here"),
        )
        await store.apply("b", Changes(put=put), at=1.0)
        hits = await store.find_words("b", "kettles", 5, ALL)
        assert await paths(store, hits) == ["docs/a.md", "docs/b.md"]
        assert hits[0].score > hits[1].score
        for filter in (Filter(paths=("docs/b*",)), Filter(tags=("home",))):
            assert await paths(store, await store.find_words("b", "kettles", 5, filter)) == ["docs/b.md"]
        for words in ("", '"', "near(", "NOT", "*", "x:y", "q\0z"):
            assert await store.find_words("b", words, 5, ALL) == []


async def test_vectors_belong_to_texts_and_to_one_embedder(make: Make) -> None:
    async with aclosing(make()) as store:
        await store.set_embedder("b", "test:words", 2)
        east, north = array("f", [1.0, 0.0]), array("f", [0.0, 1.0])
        # A vector may come before its chunk: an interrupted sync keeps what it has embedded.
        await store.put_vectors("b", [(key("a.md", "east"), east), (key("a.md", "north"), north)])
        assert await store.known_vectors("b", [key("a.md", "east"), b"?" * 16]) == {key("a.md", "east")}
        put = (document("a.md", "east", "north"), document("c.md", "south"))
        await store.apply("b", Changes(put=put), at=1.0)
        assert [chunk.chunk.text for chunk in await store.without_vectors("b", 9)] == ["south"]
        hits = await store.find_vectors("b", array("f", [0.8, 0.6]), 5, ALL)
        assert [chunk.chunk.text for chunk in await store.chunks("b", [hit.chunk for hit in hits])] == ["east", "north"]
        assert [round(hit.score, 2) for hit in hits] == [0.8, 0.6]
        await store.apply("b", Changes(removed=("a.md",)), at=2.0)
        assert await store.known_vectors("b", [key("a.md", "east")]) == set()
        await store.put_vectors("b", [(key("c.md", "south"), east)])
        await store.set_embedder("b", "test:other", 3)
        assert [chunk.chunk.text for chunk in await store.without_vectors("b", 9)] == ["south"]
        assert await store.find_vectors("b", east, 5, ALL) == []


async def test_one_at_a_time_may_change_a_base(make: Make) -> None:
    async with aclosing(make()) as store:
        async with store.lock("b") as held:
            assert held
            async with store.lock("b", wait=False) as second, store.lock("other", wait=False) as other:
                assert (second, other) == (False, True)
        async with store.lock("b", wait=False) as again:
            assert again
