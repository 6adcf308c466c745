"""The list of models: limits, abilities and prices, as far as they are known."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rondel import App
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.project.settings import Config, EngineSettings
from rondel.testing import Echo

CONFIG = Config(
    engines={
        "work": EngineSettings(provider="anthropic", models=("claude-sonnet-4-5",)),
        "own": EngineSettings(base_url="http://127.0.0.1:9/v1", model="nobody-knows"),
        "spoken": EngineSettings(provider="openai", models=("gpt-realtime-2", "whisper-1")),
    }
)


async def listed(headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    app = App()
    async with app, Gateway(app, Setup(app, CONFIG, make_engine=lambda _: Echo())) as gateway:
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "query_string": b""}
        await gateway({**scope, "headers": [(b"host", b"localhost"), *headers]}, receive, send)
    return msgspec.json.decode(b"".join(message.get("body", b"") for message in said))["data"]


@pytest.mark.parametrize("headers", [[], [(b"anthropic-version", b"2023-06-01")]], ids=["openai", "anthropic"])
def test_a_model_is_listed_with_its_limits_abilities_and_prices_and_without_what_nobody_knows(
    headers: list[tuple[bytes, bytes]],
):
    """A06: features (vision, voice, transcription)."""
    known, unknown, realtime, whisper = asyncio.run(listed(headers))
    assert (known["id"], known["context_length"], known["max_output_tokens"]) == (
        "work:claude-sonnet-4-5",
        200_000,
        64_000,
    )
    assert "image" in known["input_modalities"]
    assert known["abilities"] == ["tools", "thinking", "vision"]
    assert (realtime["abilities"], whisper["abilities"]) == (["tools", "vision", "voice"], ["transcription"])
    assert "audio" in realtime["input_modalities"]
    assert "audio" not in known["input_modalities"]
    assert known["pricing"] == {"currency": "USD", "input_per_million": 3.0, "output_per_million": 15.0}
    assert unknown["id"] == "own:nobody-knows"
    assert "pricing" not in unknown
    assert "context_length" not in unknown
