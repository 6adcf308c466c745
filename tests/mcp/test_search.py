"""Many tools: the model gets a tool that finds them, whatever model it is."""

from __future__ import annotations

import sys

import msgspec
import pytest

from rondel import App
from rondel.machine.tokens import estimate_tokens
from rondel.mcp.search import NAME, Catalog
from rondel.stores.memory import MemoryStore
from rondel.testing import call, say
from rondel.tool import Tool

from .helpers import agent_with, model_of, raw, results, tell

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
