"""K05: web search: off until it is turned on, the provider's own where the engine has one, else a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.scripted_http import ScriptedServer, answer
from tests.helpers import of, scripted

from rondel import Agent, App, Plugin
from rondel.contracts.endpoint import Endpoint, facts_of
from rondel.dialects import DIALECTS
from rondel.engines.http import HttpEngine
from rondel.errors import ConfigError, RondelError
from rondel.events import CallFinished, Event, RoundFinished, Warned
from rondel.knowledge.settings import WebSearchSettings
from rondel.knowledge.web import ServiceSearch
from rondel.knowledge.web.tool import web_search
from rondel.plugins.web_search import WebSearchPlugin
from rondel.project.config import load
from rondel.testing import Scripted, call
from rondel.values import Citation, ModelFacts, Reply, Text, ToolResult

RESULTS = [{"url": "https://example.com/a", "title": "A page", "content": "Kettles boil."}]
ANSWERS = {
    "searxng": {"results": RESULTS},
    "tavily": {"results": RESULTS},
    "brave": {"web": {"results": [{**RESULTS[0], "description": "Kettles boil.", "extra_snippets": ["Hot."]}]}},
}


def service(server: ScriptedServer, provider: Any = "searxng", **settings: Any) -> ServiceSearch:
    return ServiceSearch(WebSearchSettings(provider, server.url, "secret-key-9", **settings))


async def events_of(app: App, text: str = "hi") -> list[Event]:
    view = await app.conversation().send(text)
    return [event async for event in view]


@pytest.mark.parametrize("provider", ANSWERS)
async def test_each_service_is_asked_in_its_own_way(provider: str) -> None:
    async with ScriptedServer([answer(json.dumps(ANSWERS[provider]))]) as server:
        (found,) = await service(server, provider).search("how do kettles boil", 3)
    assert (found.where, found.title, found.text.splitlines()[0]) == (
        "https://example.com/a",
        "A page",
        "Kettles boil.",
    )
    asked = server.requests[0]
    if provider == "tavily":
        assert (asked.target, asked.body) == ("/search", {"query": "how do kettles boil", "max_results": 3})
        assert asked.headers["authorization"] == "Bearer secret-key-9"
    elif provider == "brave":
        assert asked.target == "/web/search?q=how+do+kettles+boil&count=3"
        assert asked.headers["x-subscription-token"] == "secret-key-9"
    else:
        assert asked.target == "/search?q=how+do+kettles+boil&format=json"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (answer("<html>JSON is off</html>", content_type="text/html"), "answered with a web page instead of JSON"),
        (answer("[1, 2]"), "not a list of results"),
        (answer("{"), "not a list of results"),
        (answer("[" * 100_000 + "]" * 100_000), "not a list of results"),
        (answer('{"results": [{"title": "x"}]}'), "not a list of results"),
        (answer("no", 401), r"refused the key \(status 401\)"),
        (answer("secret-key-9", 500), "answered with status 500"),
        (answer(b'"' + b"x" * 6_000_000 + b'"'), "sent more than 5 MB"),
    ],
)
async def test_a_service_that_answers_nonsense_is_one_sentence(body: bytes, said: str) -> None:
    async with ScriptedServer([body]) as server:
        with pytest.raises(RondelError, match=said) as caught:
            await service(server).search("x", 3)
    assert "secret-key-9" not in str(caught.value)


async def test_results_without_a_web_address_are_left_out() -> None:
    results = [{"url": "javascript:alert(1)", "title": "x"}, {"url": "file:///etc/passwd"}, *RESULTS]
    async with ScriptedServer([answer(json.dumps({"results": results}))]) as server:
        assert [found.where for found in await service(server).search("x", 5)] == ["https://example.com/a"]


async def test_what_the_tool_found_is_cited() -> None:
    agent, engine = scripted(call("web_search", query="kettles"), "They boil [1].", tools=[web_search])
    async with (
        ScriptedServer([answer(json.dumps(ANSWERS["searxng"]))]) as server,
        App(agent, web_search=service(server)) as app,
    ):
        events = await events_of(app)
    (result,) = engine.prompts[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert "[1]\n> A page (https://example.com/a)\n> Kettles boil." in result.text
    (part,) = of(RoundFinished, events)[-1].message.parts
    assert isinstance(part, Text)
    assert [(c.number, c.url) for c in part.citations] == [(1, "https://example.com/a")]


async def test_without_a_service_the_tool_says_how_to_get_one() -> None:
    agent, _ = scripted(call("web_search", query="kettles"), "Sorry.", tools=[web_search])
    async with App(agent) as app:
        (finished,) = of(CallFinished, await events_of(app))
    assert "web search is not configured: set `provider` in [web_search]" in finished.result.text


# --- the provider's own -----------------------------------------------------------------------------------------------

SAID = {
    "anthropic": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {
                "type": "text",
                "text": "They boil.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://example.com/a",
                        "title": "A page",
                        "cited_text": "Kettles boil.",
                        "encrypted_index": "x",
                    }
                ],
            }
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "openai-responses": {
        "id": "r",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {
                        "type": "output_text",
                        "text": "They boil.",
                        "annotations": [
                            {
                                "type": "url_citation",
                                "url": "https://example.com/a",
                                "title": "A page",
                                "start_index": 0,
                                "end_index": 9,
                            }
                        ],
                    }
                ],
            }
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    },
}


class Seen(Plugin):
    """Keeps the citations that a reply's hook sees."""

    holds_stream = False

    def __init__(self) -> None:
        self.citations: list[Citation] = []

    async def on_reply(self, turn: Any, reply: Reply) -> Reply:
        self.citations += [c for part in reply.message.parts if isinstance(part, Text) for c in part.citations]
        return reply


@pytest.mark.parametrize("dialect", SAID)
@pytest.mark.parametrize("on", [True, False])
async def test_one_setting_turns_the_providers_own_search_on(dialect: str, on: bool) -> None:
    """K05: per agent, off by default; reply hooks see the citations."""
    seen = Seen()
    async with ScriptedServer([answer(json.dumps(SAID[dialect]))]) as server:
        endpoint = Endpoint("anthropic" if dialect == "anthropic" else "openai", server.url, dialect, key="k")
        engine = HttpEngine(endpoint, DIALECTS[dialect](), "model", ModelFacts(web_search=True))
        agent = Agent("a", "You help.", engine=engine, plugins=[*([WebSearchPlugin()] if on else []), seen])
        async with App(agent) as app:
            await events_of(app)
    tools = server.requests[0].body.get("tools", [])
    types = {"anthropic": "web_search_20250305", "openai-responses": "web_search"}
    assert [tool["type"] for tool in tools] == ([types[dialect]] if on else [])
    assert [(c.url, c.title) for c in seen.citations] == [("https://example.com/a", "A page")]


async def test_an_engine_without_a_search_of_its_own_gets_the_service() -> None:
    engine = Scripted("done")
    async with ScriptedServer() as server:
        agent = Agent("a", engine=engine, plugins=[WebSearchPlugin()])
        async with App(agent, web_search=service(server)) as app:
            await events_of(app)
    assert [(tool.name, bool(tool.schema)) for tool in engine.prompts[0].tools] == [("web_search", True)]


async def test_without_either_a_warning_is_recorded() -> None:
    async with App(Agent("a", engine=Scripted("done"), plugins=[WebSearchPlugin()])) as app:
        (warned,) = of(Warned, await events_of(app))
    assert "has no web search of its own, and [web_search] names no provider" in warned.message


def test_which_providers_search_is_a_fact() -> None:
    assert facts_of("anthropic", "claude-sonnet-5-5").web_search
    assert facts_of("openai", "gpt-6").web_search
    assert not facts_of("ollama", "qwen").web_search


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[web_search]\nkey = "x"', "names no provider"),
        ('[web_search]\nprovider = "searxng"', "needs the address of its server"),
        ('[web_search]\nprovider = "brave"', "brave needs a key"),
        ('[web_search]\nprovider = "google"', "google"),
        ('[web_search]\nprovider = "searxng"\nurl = "nowhere"', "'nowhere' is not a web address"),
    ],
)
def test_a_mistake_in_the_settings_is_one_sentence(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "rondel.toml").write_text(table)
    (tmp_path / "rondel.toml").chmod(0o600)
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, {})


def test_the_key_is_not_in_a_repr() -> None:
    assert "secret" not in repr(WebSearchSettings("brave", key="secret"))
