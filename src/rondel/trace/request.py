"""The request of a round in its dialect: as its author wrote the prompt, and as plugins made it.

A prompt is not stored. It is assembled again from the entries before the round, as it would be made now: what a plugin
looks up, such as the time or a document, may differ from what was sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ..dialects import DIALECTS
from ..errors import RondelError
from ..events import DurableEvent, Entry, MessageAdded, RoundFinished, TurnStarted
from ..machine.resolved import ResolvedAgent
from ..machine.transcript import Transcript
from ..prompt import Prompt
from ..values import Message, Value
from .assembly import Assembly, assembly_of
from .provenance import PreviewStep

DEFAULT_DIALECT = "openai-chat"  # for engines without a wire format, such as embedded models


class RoundRequest(Value, frozen=True):
    """`before` is the body without plugins, `after` with them. `is_own` says whether the engine speaks this dialect."""

    engine: str
    dialect: str
    is_own: bool
    before: dict[str, Any]
    after: dict[str, Any]
    assembly: Assembly


def before_turn(entries: Sequence[Entry], turn: str) -> tuple[DurableEvent, ...]:
    """Return the events before a turn began."""
    for at, entry in enumerate(entries):
        if isinstance(entry.event, TurnStarted) and entry.event.turn == turn:
            return tuple(one.event for one in entries[:at])
    raise RondelError(f"there is no turn {turn[:40]!r} in this conversation")


def before_round(entries: Sequence[Entry], turn: str, round: int) -> tuple[str, tuple[DurableEvent, ...]]:
    """Return the agent that answered in a round, from 1, of a turn, and the events before its answer."""
    begun, count, agent = len(before_turn(entries, turn)), 0, ""
    for at, entry in enumerate(entries[begun:], begun):
        if isinstance(entry.event, TurnStarted):
            if entry.event.turn != turn:
                break
            agent = entry.event.agent
        if isinstance(entry.event, RoundFinished):
            count += 1
            if count == round:
                return entry.event.agent or agent, tuple(one.event for one in entries[:at])
    raise RondelError(f"the turn {turn[:40]!r} has no round {round}")


async def request_of(
    agent: str, resolved: ResolvedAgent, before: Sequence[DurableEvent], steps: AsyncIterator[PreviewStep]
) -> RoundRequest:
    """Collect the steps of `App.preview` after the events before a round."""
    history = tuple(Transcript(before).history())
    written = latest = Prompt(resolved.nodes, resolved.specs, resolved.options).with_history(history)

    async def seen() -> AsyncIterator[PreviewStep]:
        nonlocal latest
        async for step in steps:
            latest = step.prompt
            yield step

    assembly = await assembly_of(agent, resolved, history, seen())
    engine = resolved.engine
    name = engine.dialect if engine.dialect in DIALECTS else DEFAULT_DIALECT
    dialect, model = DIALECTS[name](), engine.name.partition(":")[2] or engine.name
    return RoundRequest(
        engine.name,
        name,
        engine.dialect == name,
        dict(dialect.write_prompt(written, model=model)),
        dict(dialect.write_prompt(latest, model=model)),
        assembly,
    )


def first_message(entries: Sequence[Entry], turn: str) -> Message | None:
    """Return the message of a person that a turn answers."""
    after = [entry.event for entry in entries][len(before_turn(entries, turn)) + 1 :]
    found = (one.message for one in after if isinstance(one, MessageAdded) and one.message.role == "user")
    return next(found, None)
