"""How a transcript records a text that waits for its directives, and the deltas that write it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from ...machine.transcript import CarriedOut
from ...text.template import MARK, Key, key_of
from ...values import Delta, Part, PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text, ToolCall

Stage: TypeAlias = Literal["words", "function", "output"]
"""Whose directives a round runs: the author's, those of the agent's function, or those in its output."""


def mark(stage: Stage, key: Key) -> dict[str, Any]:
    return {MARK: {stage: key}}


def stage_of(done: CarriedOut) -> str:
    return next(iter(done.message.calls[0].opaque[MARK]))


def _state(done: CarriedOut) -> dict[str, str]:
    for part in done.message.parts:
        if isinstance(part, Text) and MARK in part.opaque:
            return part.opaque[MARK]
    return {}


def said_of(done: CarriedOut) -> str:
    return _state(done).get("said", "")


def text_of(done: CarriedOut) -> str:
    return _state(done).get("text", "")


def results(done: CarriedOut) -> Iterable[tuple[Key, str]]:
    for call, result in zip(done.message.calls, done.results, strict=True):
        ((_, key),) = call.opaque[MARK].items()
        whom = key[1] if result.is_error and key[0] in ("Get", "Start") else "the user"
        yield key_of(key), f"[error calling {whom}: {result.text}]" if result.is_error else result.text


def spoken(text: str, offers: Sequence[str] = ()) -> Text:
    return Text(text, opaque={MARK: {"offers": offers}} if offers else {})


def say(text: Text, *, said: str = "", media: Sequence[Part] = ()) -> Iterable[Delta]:
    """Yield a complete text: first the part that an earlier round of the turn has shown, then the rest."""
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
    """Yield the beginning of a text and the calls that it waits for. The mark records how it continues. `shown` is
    False if an earlier round has shown the beginning."""
    yield ReplyStarted()
    has_text = shown or bool(said)
    if has_text:
        yield PartStarted(0, Text(""))
        if said and shown:
            yield PartDelta(0, said)
        yield PartFinished(0, Text("", opaque={MARK: {"said": said} | ({"text": text} if text else {})}))
    for index, call in enumerate(calls, int(has_text)):
        yield PartStarted(index, call)
        yield PartFinished(index, call)
    yield ReplyFinished("calls")
