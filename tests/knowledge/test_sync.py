"""K01: the store is kept equal to the files: by content, in one transaction, and without embedding anything twice."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engines.scripted_http import ScriptedServer, answer

from rondel.contracts.embedder import Embedded
from rondel.errors import EngineUnreachable, RondelError
from rondel.fetching.http import PageFetcher
from rondel.knowledge.base import KnowledgeBase
from rondel.knowledge.settings import KnowledgeSettings
from rondel.stores.sqlite.knowledge import SqliteKnowledge
from rondel.testing import WordEmbedder

SETTINGS = KnowledgeSettings(folders=("docs",), refresh_s=0)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / "docs" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        old = time.time() - 60 + len(text) % 7
        os.utime(path, (old, old))


@asynccontextmanager
async def opened(
    folder: Path, embedder: Any = None, settings: KnowledgeSettings = SETTINGS
) -> AsyncGenerator[KnowledgeBase]:
    store = SqliteKnowledge(folder / "knowledge.db")
    try:
        yield KnowledgeBase("docs", settings, store, project=str(folder), embedder=embedder)
    finally:
        await store.aclose()


async def found(base: KnowledgeBase, query: str) -> list[str]:
    return [passage.where for passage in await base.search(query, 5)]


async def test_files_are_added_changed_moved_and_removed(tmp_path: Path) -> None:
    """K01: a changed file replaces the old one, a removed file is removed, nothing is sent when nothing changed."""
    write(
        tmp_path, a_md="# Refunds\n\nMoney back within 14 days.", b_txt="Opening hours: nine to five.", c_md="Gone soon"
    )
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as base:
        report = await base.sync()
        assert (sorted(report.added), report.embedded) == (["docs/a.md", "docs/b.txt", "docs/c.md"], 3)
        assert await found(base, "money back") == ["docs/a.md"]
        embedder.texts.clear()

        again = await base.sync()
        assert (again.unchanged, again.added, again.changed, again.embedded) == (3, (), (), 0)
        assert embedder.texts == []

        write(tmp_path, a_md="# Refunds\n\nMoney back within 30 days.")
        (tmp_path / "docs" / "b.txt").rename(tmp_path / "docs" / "hours.txt")
        (tmp_path / "docs" / "c.md").unlink()
        report = await base.sync()
        assert report.changed == ("docs/a.md",)
        assert report.moved == {"docs/hours.txt": "docs/b.txt"}
        assert report.removed == ("docs/c.md",)
        assert embedder.texts == ["Refunds\nMoney back within 30 days."]
        (passage,) = [p for p in await base.search("money", 5) if p.where == "docs/a.md"]
        assert "30 days" in passage.text
        assert "docs/hours.txt" in await found(base, "opening hours")
        assert "docs/c.md" not in await found(base, "gone soon")


async def test_an_edit_of_the_same_length_is_noticed_even_with_the_old_time(tmp_path: Path) -> None:
    """K01: the content counts, not the size."""
    write(tmp_path, a_md="The code is 1234.")
    path = tmp_path / "docs" / "a.md"
    async with opened(tmp_path) as base:
        await base.sync()
        before = path.stat()
        path.write_text("The code is 9876.")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await base.sync()).changed == ("docs/a.md",)
        (passage,) = await base.search("code", 1)
        assert "9876" in passage.text


async def test_a_touched_file_is_neither_changed_nor_embedded(tmp_path: Path) -> None:
    write(tmp_path, a_md="The same.")
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as base:
        await base.sync()
        os.utime(tmp_path / "docs" / "a.md")
        report = await base.sync()
        assert (report.changed, report.unchanged, len(embedder.texts)) == ((), 1, 1)


async def test_a_deleted_file_stops_answering_at_once(tmp_path: Path) -> None:
    """K01: even before the next sync."""
    write(tmp_path, a_md="The password is swordfish.", b_md="Swordfish is a fish.")
    async with opened(tmp_path, WordEmbedder()) as base:
        await base.sync()
        (tmp_path / "docs" / "a.md").unlink()
        assert await found(base, "swordfish") == ["docs/b.md"]


async def test_two_files_that_exchange_their_names_are_found_by_their_new_ones(tmp_path: Path) -> None:
    write(tmp_path, a_md="About apples.", b_md="About bananas.")
    embedder = WordEmbedder()
    docs = tmp_path / "docs"
    async with opened(tmp_path, embedder) as base:
        await base.sync()
        (docs / "a.md").rename(docs / "x.md")
        (docs / "b.md").rename(docs / "a.md")
        (docs / "x.md").rename(docs / "b.md")
        await base.sync()
        assert await found(base, "apples") == ["docs/b.md"]
        assert await found(base, "bananas") == ["docs/a.md"]
        assert len(embedder.texts) == 2 + 2  # the searches


async def test_a_moved_file_is_found_by_the_words_of_its_new_name(tmp_path: Path) -> None:
    write(tmp_path, alpha_md="Nothing in here says it.")
    async with opened(tmp_path) as base:
        await base.sync()
        (tmp_path / "docs" / "alpha.md").rename(tmp_path / "docs" / "omega.md")
        await base.sync()
        assert await found(base, "omega") == ["docs/omega.md"]
        assert await found(base, "alpha") == []


class Failing(WordEmbedder):
    """Fails after so many texts."""

    def __init__(self, texts_max: int) -> None:
        super().__init__()
        self.texts_max = texts_max

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if len(self.texts) >= self.texts_max:
            raise EngineUnreachable("the server is gone")
        return await super().embed(texts)


async def test_an_interrupted_sync_continues_where_it_was(tmp_path: Path) -> None:
    """K01: what was embedded is not embedded again, and a search sees nothing of half a sync."""
    write(tmp_path, **{f"f{number}_txt": f"Text number {number}." for number in range(200)})
    async with opened(tmp_path, Failing(100)) as base:
        with pytest.raises(EngineUnreachable):
            await base.sync()
        assert await found(base, "text number") == []
        assert (await base._store.documents(base.key)) == []  # type: ignore[reportPrivateUsage]
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as base:
        report = await base.sync()
        assert (len(report.added), len(embedder.texts)) == (200, 200 - 128)
        assert len(await found(base, "text number")) == 5


async def test_vectors_that_an_interrupted_sync_left_are_removed(tmp_path: Path) -> None:
    write(tmp_path, **{f"f{number}_txt": f"Text number {number}." for number in range(80)})
    async with opened(tmp_path, Failing(60)) as base:
        with pytest.raises(EngineUnreachable):
            await base.sync()
    for path in (tmp_path / "docs").iterdir():
        path.unlink()
    write(tmp_path, a_md="Only this.")
    async with opened(tmp_path, WordEmbedder()) as base:
        await base.sync()
    import sqlite3

    with sqlite3.connect(tmp_path / "knowledge.db") as connection:
        assert connection.execute("select count(*) from vectors").fetchone() == (1,)
    connection.close()


async def test_two_syncs_at_the_same_time_embed_everything_once(tmp_path: Path) -> None:
    """K01: two processes may sync; here two stores of one file, which lock each other out in the same way."""
    write(tmp_path, **{f"f{number}_txt": f"Text number {number}." for number in range(70)})
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as one, opened(tmp_path, embedder) as two:
        async with asyncio.TaskGroup() as group:
            reports = [group.create_task(base.sync()) for base in (one, two)]
        assert sorted(len(report.result().added) for report in reports) == [0, 70]
    assert len(embedder.texts) == 70


@pytest.mark.slow
async def test_a_sync_that_is_killed_leaves_a_whole_base_and_the_next_one_continues(tmp_path: Path) -> None:
    write(tmp_path, **{f"f{number}_txt": f"Text number {number}." for number in range(300)})
    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from rondel.knowledge.base import KnowledgeBase
        from rondel.knowledge.settings import KnowledgeSettings
        from rondel.stores.sqlite.knowledge import SqliteKnowledge
        from rondel.testing import WordEmbedder
        folder = sys.argv[1]
        class Deadly(WordEmbedder):
            async def embed(self, texts):
                if len(self.texts) > 100:
                    os.kill(os.getpid(), 9)
                return await super().embed(texts)
        async def main():
            settings = KnowledgeSettings(folders=("docs",))
            await KnowledgeBase("docs", settings, SqliteKnowledge(folder + "/knowledge.db"), project=folder,
                                embedder=Deadly()).sync()
        asyncio.run(main())
        """
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path))
    assert await process.wait() == -9
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as base:
        assert len((await base.sync()).added) == 300
    assert len(embedder.texts) == 300 - 128


async def test_another_embedder_is_refused_until_the_base_is_rebuilt(tmp_path: Path) -> None:
    """An embedding model whose dimension changed says so, and rebuilds on request."""
    write(tmp_path, a_md="One text.")
    async with opened(tmp_path, WordEmbedder(64)) as base:
        await base.sync()
    async with opened(tmp_path, WordEmbedder(32)) as base:
        assert (await base.sync()).embedded == 0  # nothing to embed, so nothing is wrong yet
        assert await found(base, "text") == ["docs/a.md"]  # by its words
        write(tmp_path, b_md="Another text.")
        with pytest.raises(RondelError, match=r"have 64 numbers, and those of 'test:words' now have 32.*--rebuild"):
            await base.sync()
    async with opened(tmp_path, WordEmbedder(32, name="test:other")) as base:
        with pytest.raises(RondelError, match=r"are from 'test:words'.*now 'test:other'.*--rebuild"):
            await base.sync()
        report = await base.sync(rebuild=True)
        assert (len(report.added), report.embedded) == (2, 2)
        assert set(await found(base, "text")) == {"docs/a.md", "docs/b.md"}


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, a_md="One text.")
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder) as base:
        report = await base.sync(dry_run=True)
        assert (report.added, report.chunks, embedder.texts) == (("docs/a.md",), 1, [])
        assert await found(base, "text") == []


async def test_a_search_reads_what_little_has_changed(tmp_path: Path) -> None:
    write(tmp_path, a_md="The first text.")
    settings = KnowledgeSettings(folders=("docs",), refresh_s=1e-9)
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder, settings) as base:
        assert await found(base, "first") == ["docs/a.md"]
        write(tmp_path, b_md="The second text.")
        assert await found(base, "second") == ["docs/b.md"]
        assert len(embedder.texts) == 4


async def test_what_a_search_stored_without_vectors_gets_them_with_the_next_sync(tmp_path: Path) -> None:
    write(tmp_path, **{f"f{number}_txt": f"Text number {number}." for number in range(50)})
    settings = KnowledgeSettings(folders=("docs",), refresh_s=1e9)
    embedder = WordEmbedder()
    async with opened(tmp_path, embedder, settings) as base:
        assert len(await found(base, "text")) == 5
        assert len(embedder.texts) == 32 + 1
        assert (await base.sync()).embedded == 50 - 32


async def test_an_embedder_that_is_down_leaves_the_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, a_md="The first text.")
    async with opened(tmp_path, Failing(1)) as base:
        await base.sync()
        assert await found(base, "first") == ["docs/a.md"]
    assert "searched by words only: the server is gone" in caplog.text


async def test_a_search_finds_new_files_by_their_words_while_the_embedder_is_down(tmp_path: Path) -> None:
    write(tmp_path, a_md="The first text.")
    settings = KnowledgeSettings(folders=("docs",), refresh_s=1e-9)
    async with opened(tmp_path, Failing(0), settings) as base:
        assert await found(base, "first") == ["docs/a.md"]
    async with opened(tmp_path, WordEmbedder(), settings) as base:
        assert (await base.sync()).embedded == 1


async def test_web_pages_of_a_base_are_fetched_kept_and_removed(tmp_path: Path) -> None:
    page = "<html><title>Fees</title><body><nav>Home</nav><h1>Fees</h1><p>A card costs {} euros.</p></body></html>"
    pages = [[answer(page.format(5))], [answer(page.format(5))], [answer("", 500)], [answer(page.format(7))]]
    async with ScriptedServer(*pages) as server:
        url = f"{server.url}/fees"
        settings = KnowledgeSettings(urls=(url,), refresh_s=0)
        store, fetcher = SqliteKnowledge(tmp_path / "knowledge.db"), PageFetcher(allowed=("127.0.0.0/8", "::1/128"))
        base = KnowledgeBase("docs", settings, store, project=str(tmp_path), fetcher=fetcher)
        assert (await base.sync()).added == (url,)
        assert [(found.where, found.title) for found in await base.search("card", 5)] == [(url, "Fees")]
        again = await base.sync()
        assert (again.unchanged, again.changed) == (1, ())
        failed = await base.sync()
        assert "its server answered 500" in failed.problems[url]
        assert "5 euros" in (await base.search("card", 1))[0].text  # what was fetched last stays
        assert (await base.sync()).changed == (url,)
        assert "7 euros" in (await base.search("card", 1))[0].text
        without = KnowledgeBase("docs", KnowledgeSettings(refresh_s=0), store, project=str(tmp_path))
        assert (await without.sync()).removed == (url,)
        private = KnowledgeBase("docs", settings, store, project=str(tmp_path))
        assert "only public addresses are allowed" in (await private.sync()).problems[url]
        await store.aclose()
