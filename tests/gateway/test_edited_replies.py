"""What plugins make of replies reaches the callers of a real gateway, and rounds are told apart in each dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .callers import Callers, question
from .raw import post_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, Answer, Call, Say, Spent, played, says
from .upstream import WAIT_S, Upstream

DOCS = Path(__file__).parents[2] / "docs"
CONFIG = """
[gateway]
plugins = ["dice:Dice", "lender:Lender", "mine:Caps", "mine:Looks"]
[gateway.routes]
default = "c"
[gateway.keys]
ann = {key = "ann-key-long-enough"}
bob = {key = "bob-key-long-enough"}
"""
MINE = """
from rondel import Plugin, tool


@tool(idempotent=True)
def throw() -> str:
    "Throw a die."
    return "4"


class Caps(Plugin):
    tools = (throw,)

    def applies(self, turn):
        return turn.caller is not None and turn.caller.person.id == "ann"

    async def on_prompt(self, turn, prompt):
        return prompt.instruct("Throw the die when chance decides.")

    async def on_reply(self, turn, reply):
        return reply.with_text(reply.text.upper())


class Looks(Plugin):
    holds_stream = False

    async def on_reply(self, turn, reply):
        return reply
"""
ANN, BOB = {"x-api-key": "ann-key-long-enough"}, {"x-api-key": "bob-key-long-enough"}
EVERYWHERE = [(dialect, streams) for dialect in DIALECTS for streams in (False, True)]
IDS = [f"{SHORT[dialect]}-{'streamed' if streams else 'whole'}" for dialect, streams in EVERYWHERE]


def documented(name: str) -> str:
    """A block of the page about the gateway's agents, as it stands there."""
    page = (DOCS / "gateway-agents.md").read_text(encoding="utf-8")
    found = re.search(rf"```python {re.escape(name)}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lender = Path(__file__).with_name("lender.py").read_text(encoding="utf-8")
    files = {"dice.py": documented("dice.py"), "lender.py": lender, "mine.py": MINE}
    with Served(tmp_path_factory.mktemp("edited"), CONFIG + engines(upstream), files=files) as served:
        yield served


@pytest.fixture(scope="module")
def web(served: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served.base_url, timeout=WAIT_S, headers=BOB) as web:
        yield web


def texts(dialect: str, streams: bool, got: httpx2.Response) -> list[str]:
    """The texts of an answer, each block or item by itself."""
    assert got.status_code == 200, got.text
    if streams:
        assert read_stream(dialect, got.content).ends == ("end",)
        return _streamed(dialect, got.text)
    answer = got.json()
    if dialect == "anthropic":
        return [block["text"] for block in answer["content"] if block["type"] == "text"]
    if dialect == "openai-chat":
        return [answer["choices"][0]["message"]["content"]]
    items = [item for item in answer["output"] if item["type"] == "message"]
    return ["".join(part["text"] for part in item["content"]) for item in items]


def _streamed(dialect: str, raw: str) -> list[str]:
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    if dialect == "openai-chat":
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        return ["".join(delta.get("content") or "" for delta in deltas)]
    field, kind = ("index", "text_delta") if dialect == "anthropic" else ("output_index", "")
    found: dict[int, str] = {}
    for event in events:
        delta: Any = event.get("delta")
        if dialect == "anthropic" and event["type"] == "content_block_delta" and delta["type"] == kind:
            found[event[field]] = found.get(event[field], "") + delta["text"]
        elif event["type"] == "response.output_text.delta":
            found[event[field]] = found.get(event[field], "") + delta
    return [found[place] for place in sorted(found)]


@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize(("dialect", "streams"), EVERYWHERE, ids=IDS)
def test_the_documented_plugin_works_as_it_is_written(
    dialect: str, streams: bool, model: str, upstream: Upstream, web: httpx2.Client
) -> None:
    """Trust 6: what `on_reply` gives is what the caller reads, whoever speaks which dialect."""
    name = upstream.plays(played(model, says("It will maybe rain."), True))
    asked = post_of(dialect, f"{SHORT[model]}:{name}", streams=streams, text="What does chance say?")
    assert texts(dialect, streams, web.post(**asked)) == ["It will surely rain."]


@pytest.mark.parametrize(("dialect", "streams"), EVERYWHERE, ids=IDS)
def test_the_rounds_of_an_answer_are_not_glued(dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client):
    """Trust 6: blocks in Messages, items in Responses, paragraphs in Chat; also when a plugin edits them."""
    rounds = (
        Answer((Say("Let me look."), Call("l1", "add", {"a": 1, "b": 1}))),
        Answer((Call("l2", "add", {"a": 2, "b": 2}),)),
        Answer((Say("It is 4."), Call("l3", "add", {"a": 2, "b": 2}))),
        Answer((Say("Done.\n"), Call("l4", "add", {"a": 2, "b": 2}))),
        Answer((Say("Bye."),)),
    )
    for key in (ANN, BOB):
        name = upstream.plays(*(played("openai-chat", answer, True) for answer in rounds))
        asked = post_of(dialect, f"c:{name}", streams=streams, text="Add.")
        expected = ["Let me look.", "It is 4.", "Done.\n", "Bye."]
        if dialect == "openai-chat":
            expected = ["Let me look.\n\nIt is 4.\n\nDone.\n\nBye."]
        if key is ANN:
            expected = [text.upper() for text in expected]
        assert texts(dialect, streams, web.post(**asked, headers=key)) == expected


@pytest.mark.parametrize(("dialect", "streams"), EVERYWHERE, ids=IDS)
def test_an_agent_of_somebody_else_is_called_in_all_its_parts(
    dialect: str, streams: bool, upstream: Upstream, served: Served
) -> None:
    """I10, Trust 6: name, tools, whether it takes part, the request's and the reply's handler, over HTTP, with the
    vendors' own clients."""
    for key, said in (("ann", "IT IS A FOUR"), ("bob", "it is a four")):
        answers = [says("it is a four", spent=Spent(1, 1, 0, 1))]
        if key == "ann":
            answers.insert(0, Answer((Call("t1", "throw", {}),), spent=Spent(1, 1, 0, 1)))
        name = upstream.plays(*(played("openai-chat", answer, True) for answer in answers))
        fields = question(dialect, "Shall I go?", system="You are a coding agent.")
        with Callers(served.base_url, f"{key}-key-long-enough") as callers:
            heard = callers.ask(dialect, f"c:{name}", fields, streams=streams)
        assert (heard.text, heard.calls) == (said, ())
        sent = [visit.body for visit in upstream.visits(name, len(answers))]
        tools = [tool["function"]["name"] for tool in sent[0].get("tools", ())]
        system = [message["content"] for message in sent[0]["messages"] if message["role"] in ("system", "developer")]
        assert system == ["You are a coding agent.", *(["Throw the die when chance decides."] if key == "ann" else [])]
        assert ("throw" in tools) == (key == "ann")
        assert len(sent) == 1 or sent[1]["messages"][-1]["content"] == "4"
