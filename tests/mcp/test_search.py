"""Many tools: the model gets a tool that finds them, whatever model it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec
import pytest

from rondel import Agent, App
from rondel.contracts.embedder import Embedded
from rondel.errors import EngineUnreachable
from rondel.events import Event, UsageRecorded
from rondel.machine.tokens import estimate_tokens
from rondel.mcp import meaning
from rondel.mcp.search import NAME, Catalog
from rondel.stores.memory import MemoryStore
from rondel.testing import WordEmbedder, call, say
from rondel.tool import Tool

from .helpers import agent_with, model_of, raw, results, tell, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers of these tests are POSIX programs")


async def test_with_300_tools_the_model_searches_and_finds() -> None:
    """What it found stays offered in later turns, and the other tools cost nothing."""
    steps = [
        call(NAME, query="archive an invoice", limit=3),
        call("mcp-raw-archive_invoice_0", id="7"),
        say("ok"),
        say("later"),
    ]
    agent = agent_with(raw("raw", "", 300), steps=steps, window=32_000)
    async with App(agent, store=MemoryStore()) as app:
        await tell(app)
        await tell(app, "and now?")
    first, second, _, later = ([spec.name for spec in prompt.tools] for prompt in model_of(agent).prompts)
    assert first == [NAME]
    assert second[0] == NAME
    assert "mcp-raw-archive_invoice_0" in second
    assert len(second) == 4
    assert later == second
    assert results(agent)[1] == "archive_invoice_0 was called"
    tokens = estimate_tokens(msgspec.json.encode(model_of(agent).prompts[0].tools).decode())
    assert tokens < 0.1 * 32_000


async def test_with_few_tools_all_are_offered() -> None:
    agent = agent_with(raw("raw", "", 20), steps=[say("ok")])
    async with App(agent) as app:
        await tell(app)
    names = [spec.name for spec in model_of(agent).prompts[0].tools]
    assert len(names) == 32
    assert NAME not in names


async def test_a_search_that_finds_nothing_says_so() -> None:
    agent = agent_with(raw("raw", "", 300), steps=[call(NAME, query="zzz qqq"), say("ok")], window=32_000)
    async with App(agent) as app:
        await tell(app)
    assert "None of the 312 tools fits." in results(agent)[0]


async def _nothing(arguments: object, context: object) -> str:
    return ""


def test_tools_are_found_by_name_description_and_arguments() -> None:
    def made(name: str, description: str, **arguments: str) -> Tool:
        properties = {key: {"description": text} for key, text in arguments.items()}
        return Tool(name=name, run=_nothing, description=description, schema={"properties": properties})

    tools = [
        made("mcp-mail-sendMessage", "Deliver an e-mail.", recipient="who gets it"),
        made("mcp-git-create_branch", "Make a new branch.", base="the commit to start from"),
        made("mcp-shop-refund", "Give money back to a customer.", order="the order's number"),
    ]
    catalog = Catalog({tool.name: tool for tool in tools})
    assert catalog.search("send a message", 1) == ["mcp-mail-sendMessage"]
    assert catalog.search("start a branch from a commit", 1) == ["mcp-git-create_branch"]
    assert catalog.search("give a customer the money back", 1) == ["mcp-shop-refund"]
    assert catalog.search("recipient", 1) == ["mcp-mail-sendMessage"]
    assert catalog.search("mcp-shop-refund", 5) == ["mcp-shop-refund"]


# --- by meaning -------------------------------------------------------------------------------------------------------

SAME = {"bills": "invoice", "file": "archive", "away": "archive"}
"""What the embedder of these tests knows: words that mean the same."""


class Meaning(WordEmbedder):
    """Knows a few synonyms. `gate` holds its answers back, and `failures` are raised first."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__(1_024)
        self.gate, self.failures, self.calls = asyncio.Event(), list(failures), 0
        self.gate.set()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.calls += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().embed([" ".join(SAME.get(word, word) for word in text.split()) for text in texts])


def kinds(events: list[Event]) -> list[str]:
    """What the charges of a turn were for."""
    return [event.charge.scope.kind for event in events if isinstance(event, UsageRecorded)]


def searching(*queries: str) -> Agent:
    steps = [call(NAME, id=str(number), query=query, limit=3) for number, query in enumerate(queries)]
    return agent_with(raw("raw", "", 300), steps=[*steps, say("ok")], window=32_000)


async def test_a_tool_is_found_by_its_meaning_without_a_common_word() -> None:
    """Its vector is made once, and charged to the turn as an embedding."""
    agent, embedder = searching("away bills", "bills"), Meaning()
    async with App(agent, embedder=embedder) as app:
        events = await tell(app)
    first, second = results(agent)
    assert "mcp-raw-archive_invoice_" in first.splitlines()[1]
    assert "invoice" in second
    assert len(embedder.texts) == 312 + 2
    assert kinds(events).count("embedding") == embedder.calls == 5 + 2


async def test_without_an_embedder_only_words_find_tools() -> None:
    agent = searching("away bills", "archive an invoice")
    async with App(agent) as app:
        await tell(app)
    first, second = results(agent)
    assert "None of the 312 tools fits." in first
    assert "mcp-raw-archive_invoice_" in second


async def test_an_embedder_that_fails_leaves_the_words_and_is_asked_again() -> None:
    agent, embedder = searching("archive an invoice", "away bills"), Meaning(EngineUnreachable("nobody is there"))
    async with App(agent, embedder=embedder) as app:
        await tell(app)
    first, second = results(agent)
    assert "mcp-raw-archive_invoice_" in first
    assert "mcp-raw-archive_invoice_" in second


async def test_a_slow_embedder_delays_no_search_for_long_and_works_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meaning, "WAIT_S", 0.05)
    agent, embedder = searching("archive an invoice"), Meaning()
    embedder.gate.clear()
    async with App(agent, embedder=embedder) as app:
        events = await tell(app)
        assert "mcp-raw-archive_invoice_" in results(agent)[0]
        embedder.gate.set()
        await until(lambda: len(embedder.texts) == 312)
        monkeypatch.setattr(meaning, "WAIT_S", 60.0)
        model_of(agent).add(call(NAME, id="later", query="away bills"), say("found"))
        await tell(app)
    assert "mcp-raw-archive_invoice_" in results(agent)[-1]
    assert len(embedder.texts) == 312 + 1
    assert "embedding" not in kinds(events)  # the turn was over
