"""A key's budget, through the gateway: the caller is told in its own dialect, and when to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rondel import App
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.ledger.ledger import Ledger
from rondel.project.config import rules_of
from rondel.project.settings import BudgetSettings, Config, GatewaySettings, KeySettings
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Echo, VirtualClock
from rondel.values import Delta, PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text, Usage

HALF_PAST_NOON = 1_767_270_600.0  # 2026-01-01 12:30 UTC
CONFIG = Config(
    gateway=GatewaySettings(keys={"ada": KeySettings(key="sesame", budget=BudgetSettings(tokens=20, window="day"))})
)
WORDS = "one two three four five six seven eight nine ten eleven"
CHAT = {"messages": [{"role": "user", "content": WORDS}]}
BODIES = {"/v1/messages": {**CHAT, "max_tokens": 20}, "/v1/chat/completions": CHAT, "/v1/responses": {"input": WORDS}}


async def ask(
    gateway: Gateway, path: str, body: dict[str, Any], *more: tuple[bytes, bytes], method: str = "POST"
) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Ask without a server; `more` are headers."""
    said: list[Any] = []
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": msgspec.json.encode({"model": "m", **body})})

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer sesame"), *more]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    await gateway(scope, incoming.get, send)
    shown = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], shown, msgspec.json.decode(b"".join(message.get("body", b"") for message in said))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_a_spent_budget_is_a_429_with_a_reason_and_the_end_of_the_window(path: str, streams: bool):
    """L02: the limit of a key blocks, with a sentence for people."""
    clock = VirtualClock(HALF_PAST_NOON)
    store = MemoryStore(clock=clock)
    app = App(store=store, clock=clock, ledger=Ledger(store.ledger_store, rules=rules_of(CONFIG), clock=clock))
    setup = Setup(app, CONFIG, make_engine=lambda _: Echo(), default="echo")
    async with app, Gateway(app, setup) as gateway, asyncio.timeout(20):
        first, _, _ = await ask(gateway, path, BODIES[path])
        first, (status, headers, body) = first, await ask(gateway, path, {**BODIES[path], "stream": streams})
    assert (first, status) == (200, 429)
    assert headers["retry-after"] == str(11 * 3600 + 1800)
    assert body["error"]["message"] == "The day token limit of 20 for key ada has been reached."


LONG = "word " * 120
STOPS = {"/v1/messages": "max_tokens", "/v1/chat/completions": "length", "/v1/responses": "incomplete"}
TOKENS_MAX = {
    "/v1/messages": "max_tokens",
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/responses": "max_output_tokens",
}


class WordByWord:
    """An engine that streams `LONG`, and reports what it used."""

    name, facts = "scripted:words", Echo().facts

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        yield ReplyStarted("words")
        yield PartStarted(0, Text(""))
        for _ in range(120):
            yield PartDelta(0, "word ")
        yield PartFinished(0, Text(LONG))
        yield ReplyFinished(usage=Usage(14, 120))


def stop_and_text(path: str, body: dict[str, Any]) -> tuple[str, str]:
    if path == "/v1/messages":
        return body["stop_reason"], body["content"][0]["text"]
    if path == "/v1/responses":
        return body["status"], body["output"][0]["content"][0]["text"]
    return body["choices"][0]["finish_reason"], body["choices"][0]["message"]["content"]


@pytest.mark.parametrize("path", STOPS)
async def test_an_answer_that_reaches_the_budget_ends_as_a_length_stop_with_what_came(path: str):
    """Trust 16: what came was paid for, so the caller gets it; the next request is a 429 until the window ends."""
    clock = VirtualClock(HALF_PAST_NOON)
    store = MemoryStore(clock=clock)
    budget = BudgetSettings(tokens=190, window="day")
    config = Config(gateway=GatewaySettings(keys={"ada": KeySettings(key="sesame", budget=budget)}))
    app = App(store=store, clock=clock, ledger=Ledger(store.ledger_store, rules=rules_of(config), clock=clock))
    setup = Setup(app, config, make_engine=lambda _: WordByWord(), default="echo")
    body = {**BODIES[path], TOKENS_MAX[path]: 100}
    async with app, Gateway(app, setup) as gateway, asyncio.timeout(20):
        _, _, whole = await ask(gateway, path, body)
        cut_status, cut_headers, cut = await ask(gateway, path, body)
        logged = gateway.records.newest[-1].usage
        status, headers, refused = await ask(gateway, path, body)
    assert stop_and_text(path, whole)[1] == LONG
    stop, text = stop_and_text(path, cut)
    assert (cut_status, stop, 350 < len(text) < len(LONG)) == (200, STOPS[path], True)
    tokens_out = {name: count for name, count in cut["usage"].items() if name in ("output_tokens", "completion_tokens")}
    assert set(tokens_out.values()) == {logged.tokens_out}
    assert 90 < logged.tokens_out < 120
    assert cut_headers["x-rondel-warning"] == "The day token limit of 190 for key ada has been reached."
    assert (status, headers["retry-after"]) == (429, str(11 * 3600 + 1800))
    assert refused["error"]["message"] == "The day token limit of 190 for key ada has been reached."
