"""Detects requests for web search and for thinking from the top level of a body."""

from __future__ import annotations

from typing import Any, cast

from ..relay.request import Request

_THINKING = frozenset(("thinking", "reasoning", "reasoning_effort", "enable_thinking"))


def searches_the_web(request: Request) -> bool:
    if "web_search_options" in request.fields:
        return True
    if not request.tools_hold(b'"web_search'):
        return False
    return any(str(_table(tool).get("type", "")).startswith("web_search") for tool in _items(request.field("tools")))


def asks_to_think(request: Request) -> bool:
    fields = request.fields
    if _THINKING.isdisjoint(fields):
        return False
    thinking = _table(request.field("thinking")) if "thinking" in fields else {}
    if thinking and thinking.get("type") != "disabled":
        return True
    reasoning = _table(request.field("reasoning")) if "reasoning" in fields else {}
    if any(reasoning.get(key) for key in ("enabled", "max_tokens")):
        return True
    effort = reasoning.get("effort") or (request.field("reasoning_effort") if "reasoning_effort" in fields else None)
    return effort not in (None, "", "none") or request.field("enable_thinking") is True


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
