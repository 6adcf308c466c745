"""What agents learn: their declared facts, read out of what they said, and found again as `agent.fact`.

A fact is kept in the conversation that people see (`FactsLearned`); its newest value counts, and the one before it is
`agent.fact.old`. A local fact is seen by its own agent only. Values are data: nothing in them is ever expanded.
Knows no model and no template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .agent import Agent, Fact
from .errors import ToolError
from .events import Learned
from .inputs import coerce

if TYPE_CHECKING:
    from .transcript import Transcript

OLD = ".old"
VALUE_CHARS_MAX = 10_000
"""Of a fact's text; what is longer is a document and no fact."""


def fields_of(facts: Mapping[str, Fact]) -> dict[str, dict[str, Any]]:
    """The facts as properties of a JSON schema."""
    return {
        name: {"type": fact.type, **({"description": fact.description} if fact.description else {})}
        for name, fact in facts.items()
    }


def structured(output: str) -> dict[str, Any] | None:
    """What an agent said, where that is a JSON object: nobody need read it then."""
    if not output.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(output)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def learned(agent: Agent, values: Mapping[str, Any]) -> tuple[Learned, ...]:
    """The declared facts among some values. What is nothing, blank or not of its type is left out."""
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
    """What is known as `agent.fact` (or, of this agent's own, as `fact`), or was before as `agent.fact.old`.

    `agent` is who asks. None when nothing is known, or when it is local to another agent.
    """
    for full in (name, f"{agent}.{name}"):
        if (fact := _seen(transcript, full, agent)) is not None:
            return fact.value
        if full.endswith(OLD) and _seen(transcript, full.removesuffix(OLD), agent) is not None:
            return transcript.old_facts.get(full.removesuffix(OLD))
    return None


def recalled_text(transcript: Transcript, name: str, default: str = "", *, agent: str) -> str:
    """The same as a text: what stands in the place of a `.Fact`."""
    value = recall(transcript, name, agent=agent)
    if value is None or value == "":
        return default
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def tagged(transcript: Transcript, tag: str, *, agent: str) -> dict[str, Any]:
    """Everything that this agent may see under a tag, by name."""
    return {
        name: fact.value
        for name, fact in transcript.facts.items()
        if tag in fact.tags and _seen(transcript, name, agent) is not None
    }


def _seen(transcript: Transcript, name: str, agent: str) -> Learned | None:
    fact = transcript.facts.get(name)
    return None if fact is None or (fact.local and name.rpartition(".")[0] != agent) else fact
