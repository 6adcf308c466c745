"""What a transcript keeps of a sentence that waits for its directives, and the deltas that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from ...template import MARK
from ...transcript import CarriedOut
from ...values import (
    Delta,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
    ToolResult,
)

Stage: TypeAlias = Literal["words", "function", "output"]
"""Whose directives a round carries out: the author's, the function that is the agent, or those in what was said."""


def mark(stage: Stage, key: tuple[str, ...]) -> dict[str, Any]:
    return {MARK: {stage: key}}


def stage_of(done: CarriedOut) -> str:
    return next(iter(done.message.calls[0].opaque[MARK]))


def _kept(done: CarriedOut) -> dict[str, str]:
    """What was kept of a text that was interrupted."""
    for part in done.message.parts:
        if isinstance(part, Text) and MARK in part.opaque:
            return part.opaque[MARK]
    return {}


def said_of(done: CarriedOut) -> str:
    return _kept(done).get("said", "")


def text_of(done: CarriedOut) -> str:
    """The whole text, as it was before its directives were carried out."""
    return _kept(done).get("text", "")


def results(done: CarriedOut) -> Iterable[tuple[tuple[str, ...], str]]:
    for call, result in zip(done.message.calls, done.results, strict=True):
        ((_, key),) = call.opaque[MARK].items()
        yield tuple(key), _inserted(key, result)


def _inserted(key: Sequence[str], result: ToolResult) -> str:
    """What stands in a directive's place."""
    if not result.is_error:
        return result.text
    return f"[error calling {key[1] if key[0] in ('Get', 'Start') else 'the user'}: {result.text}]"


def spoken(text: str, offers: Sequence[str] = ()) -> Text:
    """A text that is all there is to say; it may suggest agents to whoever asked for it."""
    return Text(text, opaque={MARK: {"offers": offers}} if offers else {})


def say(text: Text, *, said: str = "", media: Sequence[Part] = ()) -> Iterable[Delta]:
    """A whole text. It starts with what an earlier round of the turn has said of it, and the rest follows."""
    said = said if text.text.startswith(said) else ""
    yield ReplyStarted()
    yield PartStarted(0, Text(said, opaque={MARK: {"said": said}} if said else {}))
    if rest := text.text.removeprefix(said):
        yield PartDelta(0, rest)
    yield PartFinished(0, text)
    for index, part in enumerate(media, 1):
        yield PartStarted(index, part)
        yield PartFinished(index, part)
    yield ReplyFinished()


def interrupt(said: str, text: str, calls: Sequence[ToolCall], *, shown: bool = False) -> Iterable[Delta]:
    """The beginning of a text, and the calls that it waits for. What is kept of it is how it goes on."""
    yield ReplyStarted()
    if shown:
        yield PartStarted(0, Text(""))
        if said:
            yield PartDelta(0, said)
        yield PartFinished(0, Text("", opaque={MARK: {"said": said} | ({"text": text} if text else {})}))
    for index, call in enumerate(calls, 1 if shown else 0):
        yield PartStarted(index, call)
        yield PartFinished(index, call)
    yield ReplyFinished("calls")
