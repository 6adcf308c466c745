"""A key's budget, through the gateway: the caller is told in its own dialect, and when to come back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rondel import App
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.ledger.ledger import Ledger
from rondel.project.config import rules_of
from rondel.project.settings import BudgetSettings, Config, GatewaySettings, KeySettings
from rondel.stores.memory import MemoryStore
from rondel.testing import Echo, VirtualClock

HALF_PAST_NOON = 1_767_270_600.0  # 2026-01-01 12:30 UTC
CONFIG = Config(
    gateway=GatewaySettings(keys={"ada": KeySettings(key="sesame", budget=BudgetSettings(tokens=20, window="day"))})
)
WORDS = "one two three four five six seven eight nine ten eleven"
CHAT = {"messages": [{"role": "user", "content": WORDS}]}
BODIES = {"/v1/messages": {**CHAT, "max_tokens": 20}, "/v1/chat/completions": CHAT, "/v1/responses": {"input": WORDS}}


async def ask(
    gateway: Gateway, path: str, body: dict[str, Any], *more: tuple[bytes, bytes]
) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Ask without a server; `more` are headers."""
    said: list[Any] = []
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": msgspec.json.encode({"model": "m", **body})})

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer sesame"), *more]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
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
