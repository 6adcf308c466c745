"""The wire formats that Rondel speaks. Importing this package imports none of them; each is loaded when it is first
used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from ..contracts.dialect import Dialect


def _make(module: str, name: str) -> Dialect:
    return getattr(import_module(f".{module}", __name__), name)()


DIALECTS: dict[str, Callable[[], Dialect]] = {
    "openai-chat": partial(_make, "openai_chat", "OpenAIChat"),
    "openai-responses": partial(_make, "openai_responses", "OpenAIResponses"),
    "anthropic": partial(_make, "anthropic", "Anthropic"),
}
