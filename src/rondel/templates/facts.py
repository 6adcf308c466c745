"""What agents learn: their declared facts, extracted from their output, and available as `agent.fact`.

The newest value counts; the one before it is `agent.fact.old`. Only its own agent sees a local fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..agent import Agent, Fact
from ..errors import ToolError
from ..events import Learned
from ..text.inputs import coerce

if TYPE_CHECKING:
    from ..machine.transcript import Transcript

OLD = ".old"
VALUE_CHARS_MAX = 10_000  # the length of a fact's text; the rest is cut off


def fields_of(facts: Mapping[str, Fact]) -> dict[str, dict[str, Any]]:
    return {
        name: {"type": fact.type, **({"description": fact.description} if fact.description else {})}
        for name, fact in facts.items()
    }


def learned(agent: Agent, values: Mapping[str, Any]) -> tuple[Learned, ...]:
    """Return the declared facts among some values, without those that are empty or have another type."""
    found: list[Learned] = []
    for name, fact in agent.facts.items():
        value = values.get(name)
        try:
            value = value if value is None else coerce(name, value, {"type": fact.type})
        except ToolError:
            continue
        if value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip()):
            continue
        if isinstance(value, str):
            value = value.strip()[:VALUE_CHARS_MAX]
        found.append(Learned(f"{agent.name}.{name}", value, fact.scope == "local", fact.tags))
    return tuple(found)


def recall(transcript: Transcript, name: str, *, agent: str) -> Any:
    """Return the value of `agent.fact` (or `fact`, for the agent's own), or of `agent.fact.old`. `agent` is the one
    that asks. None if the fact is unknown, or local to another agent."""
    for full in (name, f"{agent}.{name}"):
        if (fact := _seen(transcript, full, agent)) is not None:
            return fact.value
        if full.endswith(OLD) and _seen(transcript, full.removesuffix(OLD), agent) is not None:
            return transcript.old_facts.get(full.removesuffix(OLD))
    return None


def recalled_text(transcript: Transcript, name: str, default: str = "", *, agent: str) -> str:
    value = recall(transcript, name, agent=agent)
    if value is None or value == "":
        return default
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def tagged(transcript: Transcript, tag: str, *, agent: str) -> dict[str, Any]:
    """Return the facts with a tag that this agent may see, by name."""
    return {
        name: fact.value
        for name, fact in transcript.facts.items()
        if tag in fact.tags and _seen(transcript, name, agent) is not None
    }


def _seen(transcript: Transcript, name: str, agent: str) -> Learned | None:
    fact = transcript.facts.get(name)
    return None if fact is None or (fact.local and name.rpartition(".")[0] != agent) else fact
