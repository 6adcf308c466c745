"""The contract of a source: every source passes these tests unchanged. A new one is a row in SOURCES."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from rondel import Agent, App
from rondel.contracts.source import Source
from rondel.knowledge.base import KnowledgeBase
from rondel.knowledge.folder import FolderSource
from rondel.knowledge.settings import KnowledgeSettings, WebSearchSettings
from rondel.knowledge.web import ServiceSearch
from rondel.mcp.source import McpSource
from rondel.stores.sqlite.knowledge import SqliteKnowledge
from rondel.testing import Scripted
from tests.engines.scripted_http import Request, ScriptedServer, Step, answer
from tests.mcp.helpers import plugin_of, raw

TRAIN = "The train leaves at nine."


def _write(folder: Path) -> None:
    (folder / "trip.md").write_text(f"# Trip\n\n{TRAIN}\n")
    (folder / "more.md").write_text("# Other trains\n\nA slow train leaves every day and stops at every station.\n")
    (folder / "garden.md").write_text("# Garden\n\nRoses need water.\n")


@asynccontextmanager
async def in_folder(folder: Path) -> AsyncIterator[Source]:
    _write(folder)
    yield FolderSource(folder)


@asynccontextmanager
async def in_knowledge(folder: Path) -> AsyncIterator[Source]:
    _write(folder)
    async with aclosing(SqliteKnowledge(folder / "knowledge.db")) as store:
        yield KnowledgeBase("trips", KnowledgeSettings(folders=(str(folder),)), store, project=str(folder))


@asynccontextmanager
async def on_the_web(folder: Path) -> AsyncIterator[Source]:
    def play(request: Request) -> list[Step]:
        found = {"url": "https://example.com/trip", "title": "Trip", "content": TRAIN}
        return [answer(json.dumps({"results": [found] * 3 if "train" in request.target else []}))]

    async with ScriptedServer(*[play] * 10) as server:
        yield ServiceSearch(WebSearchSettings("searxng", server.url))


@asynccontextmanager
async def in_resources(folder: Path) -> AsyncIterator[Source]:
    async with App(Agent("helper", engine=Scripted(), plugins=[plugin_of(raw())])):
        yield McpSource("raw")


SOURCES = [in_folder, in_knowledge, on_the_web, in_resources]
Open = Callable[[Path], AbstractAsyncContextManager[Source]]


@pytest.mark.parametrize("open_source", SOURCES)
async def test_the_passages_that_fit_best_come_first_and_no_more_than_asked_for(
    open_source: Open, tmp_path: Path
) -> None:
    async with open_source(tmp_path) as source:
        assert isinstance(source, Source)
        assert source.name
        found = await source.search("When does the train leave?", 5)
        assert TRAIN in found[0].text
        assert all(passage.where for passage in found)
        assert [passage.score for passage in found] == sorted((passage.score for passage in found), reverse=True)
        assert len(await source.search("train", 1)) == 1


@pytest.mark.parametrize("open_source", SOURCES)
@pytest.mark.parametrize("query", ["zygote", "?!", "", 'near("', "x" * 10_000])
async def test_nothing_is_found_where_nothing_fits(open_source: Open, tmp_path: Path, query: str) -> None:
    async with open_source(tmp_path) as source:
        assert list(await source.search(query, 3)) == []


@pytest.mark.parametrize("open_source", SOURCES)
async def test_turns_may_search_at_the_same_time(open_source: Open, tmp_path: Path) -> None:
    async with open_source(tmp_path) as source, asyncio.TaskGroup() as group:
        searches = [group.create_task(source.search("train", 1)) for _ in range(8)]
    assert all("train" in search.result()[0].text for search in searches)
