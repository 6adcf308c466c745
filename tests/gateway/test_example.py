"""The example project of the gateway: it loads, routes as it says, and its agent injects what a client lacks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rondel.app.app import App
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.project.config import load
from rondel.testing import load_scripts
from tests.docs.runner import forget_modules

FOLDER = Path(__file__).parent.parent.parent / "examples" / "gateway"


async def test_the_agent_of_the_example_inject_a_tool_that_the_client_never_sees():
    forget_modules(FOLDER)
    config = load(FOLDER, {"HOME": str(FOLDER), "ANTHROPIC_API_KEY": "none"})
    model = load_scripts(FOLDER / "script.yaml")["big"]
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "What is T-17 about?"}],
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = App(engine=model)
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
    async with app, Gateway(app, Setup(app, config, make_engine=lambda _: model)) as gateway:
        await gateway(scope, incoming.get, send)
        (record,) = gateway.records.newest
        assert (record.rule, record.agents, record.rounds) == ("default", ("tickets",), 2)
    answer = json.loads(b"".join(message.get("body", b"") for message in sent))
    assert [block["type"] for block in answer["content"]] == ["text"]
    assert "wanted by Friday" in answer["content"][0]["text"]
    assert [spec.name for spec in model.prompts[0].tools] == ["find_ticket"]
    assert "last year's prices" in model.prompts[1].messages[-1].parts[0].text
    model.check_done()
    forget_modules(FOLDER)


def test_the_file_for_a_team_has_keys_budgets_and_a_limit_for_all():
    env = {"HOME": str(FOLDER), "RONDEL_CONFIG": str(FOLDER / "team.toml"), "ADA_KEY": "a" * 48, "NIGHT_KEY": "b" * 48}
    config = load(FOLDER, env)
    assert list(config.gateway.keys) == ["ada", "night"]
    assert config.gateway.keys["night"].models == ("small",)
    assert config.exposed == ()
    assert len(config.ledger.limits) == 1
