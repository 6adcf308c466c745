"""How an agent's prompt is made, as a value: what its author wrote, each plugin's step, and what a model would get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal

from ..machine.resolved import ResolvedAgent
from ..machine.tokens import TokenBreakdown, breakdown
from ..prompt import Prompt
from ..values import Message, ToolSpec, Value
from .provenance import Change, Piece, PreviewStep, SentMessage, changes, pieces, sent_messages


class StepView(Value, frozen=True):
    """One step, and what it changed. `notes` are what plugins reported."""

    step: Literal["plugin", "finalize", "flatten", "complete"]
    progress: float
    plugin: str
    entry: str
    changes: tuple[Change, ...]
    tokens: int
    messages: int
    notes: tuple[str, ...] = ()


class Assembly(Value, frozen=True):
    """What the author wrote, each step, and what the model gets."""

    agent: str
    engine: str
    written: tuple[Piece, ...]
    written_tools: tuple[ToolSpec, ...]
    steps: tuple[StepView, ...]
    messages: tuple[SentMessage, ...]
    tools: tuple[ToolSpec, ...]
    tokens: TokenBreakdown


async def assembly_of(
    agent: str,
    resolved: ResolvedAgent,
    history: Sequence[Message],
    steps: AsyncIterator[PreviewStep],
    notes: Callable[[], tuple[str, ...]] = tuple,
) -> Assembly:
    """Collect the steps of `App.preview`. `notes` returns what plugins reported since it was last called."""
    written = latest = Prompt(resolved.nodes, resolved.specs, resolved.options).with_history(tuple(history))
    views: list[StepView] = []
    async for step in steps:
        changed, tokens = changes(latest, step.prompt), breakdown(step.prompt).total
        count = len(step.messages)
        views.append(StepView(step.step, step.progress, step.plugin, step.source, changed, tokens, count, notes()))
        latest = step.prompt
    return Assembly(
        agent,
        resolved.engine.name,
        tuple(pieces(written)),
        written.tools,
        tuple(views),
        sent_messages(latest),
        latest.tools,
        breakdown(latest, resolved.engine.facts.window_tokens),
    )
