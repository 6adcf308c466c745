"""Two accounts at one provider are told apart, wherever a request's engine is named."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from .raw import post_of
from .served import Served
from .speech import DIALECTS, error, played, says
from .upstream import WAIT_S, Upstream

CONFIG = """
[gateway.fallback]
default = ["two"]
[gateway.routes]
default = "one"
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_headers_and_the_log_name_the_account(dialect: str, upstream: Upstream, tmp_path: Path) -> None:
    """Trust 25: `x-rondel-model` is the engine of the configuration that answered, and not its provider."""
    config = CONFIG + "".join(
        f'[engines.{name}]\nprovider = "openai"\nbase_url = "{upstream.url("openai-chat")}"\ndialect = "openai-chat"\n'
        f'model = "same-{dialect}"\nkey = "k-{name}"\nretry = {{attempts = 1}}\n'
        for name in ("one", "two")
    )
    model = upstream.plays(
        played("openai-chat", says("One"), True),
        played("openai-chat", says("Two"), True),
        error("openai-chat", 500, "api_error", "failed"),
        played("openai-chat", says("Two again"), True),
        name=f"same-{dialect}",
    )
    with Served(tmp_path, config) as served, httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
        told = [web.post(**post_of(dialect, asked)).headers["x-rondel-model"] for asked in ("one", "two", "any")]
    assert told == [f"one:{model}", f"two:{model}", f"two:{model}"]
    lines = (tmp_path / "state" / "rondel" / "logs").glob("*.jsonl")
    logged = [json.loads(line) for path in lines for line in path.read_text().splitlines()]
    assert [line["engine"] for line in logged if line.get("engine")] == told
