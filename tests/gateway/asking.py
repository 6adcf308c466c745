"""The same request in each dialect, as a real one would arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from rondel.dialects import DIALECTS
from rondel.gateway.relay.request import GatewayRequest
from rondel.gateway.routing.router import Decision, Router
from rondel.project.settings import Config, EngineSettings, GatewaySettings, MainRouteSettings

ALL = tuple(DIALECTS)
SERVER = "http://127.0.0.1:9/v1"


def request(
    dialect: str,
    model: str = "claude-sonnet-5",
    *,
    headers: Mapping[str, str] | None = None,
    at: float = 0.0,
    **body: Any,
) -> GatewayRequest:
    """A request with this body; what a dialect demands is added."""
    if dialect == "openai-responses":
        body.setdefault("input", "Hi")
    else:
        body.setdefault("messages", [{"role": "user", "content": "Hi"}])
    if dialect == "anthropic":
        body.setdefault("max_tokens", 100)
    return GatewayRequest(
        "r-1", DIALECTS[dialect](), json.dumps({"model": model, **body}).encode(), headers or {}, at=at
    )


def says(dialect: str, text: str, **more: Any) -> GatewayRequest:
    """A request in which the user says this."""
    if dialect == "openai-responses":
        return request(dialect, input=text, **more)
    return request(dialect, messages=[{"role": "user", "content": text}], **more)


def thinking(dialect: str, **more: Any) -> GatewayRequest:
    fields: dict[str, dict[str, Any]] = {
        "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000},
        "openai-chat": {"reasoning_effort": "high"},
        "openai-responses": {"reasoning": {"effort": "high"}},
    }
    return request(dialect, **{**fields[dialect], **more})


def searching(dialect: str, **more: Any) -> GatewayRequest:
    fields: dict[str, dict[str, Any]] = {
        "anthropic": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "openai-chat": {"web_search_options": {}},
        "openai-responses": {"tools": [{"type": "web_search"}]},
    }
    return request(dialect, **{**fields[dialect], **more})


ENGINES = {
    "main": EngineSettings(base_url=SERVER, model="Main-1", models=("Main-1", "Main-2")),
    "other": EngineSettings(base_url=SERVER, model="other-1"),
    "eyes": EngineSettings(base_url=SERVER, model="seer"),
}


def config(*, gateway: GatewaySettings | None = None, **routes: Any) -> Config:
    settings = gateway or GatewaySettings(routes=MainRouteSettings(**{"default": "main", **routes}))
    return Config(engines=ENGINES, gateway=settings)


def decide(router: Router | Config, asked: GatewayRequest) -> Decision:
    made = router if isinstance(router, Router) else Router(router, env={})
    return asyncio.run(made.decide(asked))
