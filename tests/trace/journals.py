"""Journals written by hand, for what is awkward to make happen: a clock that counts, and entries in order."""

from __future__ import annotations

from rondel.events import (
    CallFinished,
    DurableEvent,
    Entry,
    MessageAdded,
    Outcome,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from rondel.values import Text, ToolCall, ToolResult, Usage, assistant, user

BEGAN = 1_700_000_000.0


def journal(*events: DurableEvent, began: float = BEGAN, step_s: float = 1.0) -> list[Entry]:
    """One entry each second."""
    return [Entry(seq, began + seq * step_s, event) for seq, event in enumerate(events, 1)]


def turn(
    *events: DurableEvent, id: str = "t1", agent: str = "helper", text: str = "hello", instructions: str = ""
) -> list[DurableEvent]:
    """Events between the beginning and the end of a turn."""
    begin = (TurnStarted(id, agent, instructions), MessageAdded(user(text)))
    return [*begin, *events, TurnFinished(id, Outcome.DONE, seconds=1.0)]


def said(text: str, *calls: ToolCall, tokens: int = 0, engine: str = "x:model", seconds: float = 0.5) -> RoundFinished:
    message = assistant(*((text,) if text else ()), *calls)
    return RoundFinished(message, usage=Usage(tokens, tokens), engine=engine, agent="helper", seconds=seconds)


def called(id: str, name: str, text: str, *, error: bool = False, seconds: float = 0.25) -> list[DurableEvent]:
    result = ToolResult(id, (Text(text),), name, is_error=error)
    return [CallFinished(result, seconds)]


def long_conversation(entries: int) -> list[Entry]:
    """Turns of ten calls each, until there are so many entries."""
    events: list[DurableEvent] = []
    while len(events) < entries:
        number = len(events)
        steps: list[DurableEvent] = []
        for index in range(10):
            id = f"c{number}_{index}"
            steps += [said("on it", ToolCall(id, "add", {"a": index}), tokens=10), *called(id, "add", "three\n" * 9)]
        events += turn(*steps, said("done"), id=f"t{number}", text=f"number {number}")
    return journal(*events[:entries])
