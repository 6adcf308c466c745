"""The list of models in the caller's dialect."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ...contracts.dialect import Json
from ...values import ModelFacts, Value


class Listed(Value, frozen=True):
    """A model, by the name that callers use."""

    id: str
    owner: str = ""
    facts: ModelFacts = ModelFacts()
    title: str = ""
    price_in: Decimal | None = None  # US dollars per million tokens; None if unknown
    price_out: Decimal | None = None


def listing(models: Iterable[Listed], dialect: str, name: str = "") -> Json | None:
    """Return all models, or the one of this name; None if there is none."""
    write = _anthropic if dialect == "anthropic" else _openai
    if name:
        return next((write(model) for model in models if model.id == name), None)
    data = [write(model) for model in models]
    if dialect == "anthropic":
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return {"data": data, "has_more": False, "first_id": first, "last_id": last}
    return {"object": "list", "data": data}


_EPOCH = datetime.fromtimestamp(0, UTC).isoformat().replace("+00:00", "Z")
"""Both dialects require a creation time, which is unknown."""


def _anthropic(model: Listed) -> Json:
    raw = {"type": "model", "id": model.id, "display_name": model.title or model.id, "created_at": _EPOCH}
    return raw | _more(model)


def _openai(model: Listed) -> Json:
    return {"id": model.id, "object": "model", "created": 0, "owned_by": model.owner or "rondel"} | _more(model)


def _more(model: Listed) -> Json:
    """Facts about a model, under names that other gateways use, too."""
    facts = model.facts
    takes = {"image": facts.images, "file": facts.files, "audio": facts.voice or facts.transcription}
    abilities = {"tools": facts.tools, "thinking": facts.thinking, "structured_output": facts.output_schema}
    more: dict[str, Any] = {
        "context_length": facts.window_tokens,
        "max_output_tokens": facts.output_tokens_max,
        "input_modalities": ["text", *(name for name, has in takes.items() if has)],
        "abilities": [*(name for name, has in abilities.items() if has), *sorted(facts.features)],
    }
    if model.price_in is not None or model.price_out is not None:
        more["pricing"] = {
            "currency": "USD",
            "input_per_million": _number(model.price_in),
            "output_per_million": _number(model.price_out),
        }
    return {name: value for name, value in more.items() if value is not None}


def _number(price: Decimal | None) -> float | None:
    return None if price is None else float(price)
