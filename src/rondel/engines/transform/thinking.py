"""Transforms of thinking: whether a model thinks, and thinking for models without any of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from ...machine.rewriting import rewrite_runs
from ...prompt import Prompt
from ...values import (
    Delta,
    MediaDelta,
    Message,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    Text,
    Thinking,
)
from .base import CHAT, Editor, Transform

REPLAYED_MAX = 10  # how many of the newest thoughts are sent back to a model
OPEN, CLOSE = "<reasoning_content>", "</reasoning_content>"
INSTRUCTION = (
    f"Think before each answer. Begin every reply with your thoughts between {OPEN} and {CLOSE}, step by step; "
    "only then answer or call a tool. The user does not see your thoughts, so the answer must make sense without them."
)


class Reasoning(Transform, frozen=True):
    """Turns thinking on or off: `enable = false` also removes thoughts that the model writes anyway; `effort` is used
    if the caller sets none. Chat servers get the switches that they know: `enable_thinking` and `thinking`."""

    name = "reasoning"
    enable: bool = True
    effort: Literal["minimal", "low", "medium", "high"] | None = None

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        options = prompt.options
        level, budget = options.thinking, options.thinking_tokens_max
        if not self.enable:
            level, budget = "off", None
        elif level is None and budget is None:
            level = self.effort
        if level is None and budget is None:
            return prompt
        if dialect != CHAT:
            return prompt.replace(options=msgspec.structs.replace(options, thinking=level, thinking_tokens_max=budget))
        on = level != "off"
        switch = {"type": "enabled", **({"budget_tokens": budget} if budget else {})} if on else {"type": "disabled"}
        kept = {**prompt.opaque.get(CHAT, {}), "enable_thinking": on, "thinking": switch}
        kept.pop("reasoning_effort", None)
        options = msgspec.structs.replace(options, thinking=None, thinking_tokens_max=None)
        return prompt.replace(options=options, opaque={**prompt.opaque, CHAT: kept})

    def editor(self, prompt: Prompt) -> Editor | None:
        return None if self.enable else _WithoutThinking()


class _WithoutThinking:
    def __init__(self) -> None:
        self._left_out: set[int] = set()

    def __call__(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted) and isinstance(delta.part, Thinking):
            self._left_out.add(delta.index)
        if isinstance(delta, (PartStarted, PartDelta, PartFinished)) and delta.index in self._left_out:
            return ()
        return (delta,)


class ForceReasoning(Transform, frozen=True):
    """Tells a model without thinking to write its thoughts first, and turns that text into thinking."""

    name = "forcereasoning"

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        options = msgspec.structs.replace(prompt.options, thinking=None, thinking_tokens_max=None)
        parts = (part for message in prompt.messages for part in message.parts)
        thoughts = sum(isinstance(part, Thinking) and bool(part.text) for part in parts)
        written = _WrittenThoughts(thoughts - REPLAYED_MAX)
        edited = rewrite_runs(prompt.replace(options=options), lambda run: tuple(map(written, run)))
        return edited.instruct(INSTRUCTION, id="forcereasoning")

    def editor(self, prompt: Prompt) -> Editor:
        return _TaggedThinking()


class _WrittenThoughts:
    """Turn thoughts back into the text that the model wrote, without the oldest and the unreadable ones."""

    def __init__(self, left_out: int) -> None:
        self._left_out = left_out

    def __call__(self, message: Message) -> Message:
        if not any(isinstance(part, Thinking) for part in message.parts):
            return message
        return msgspec.structs.replace(message, parts=tuple(self._written(message.parts)))

    def _written(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            if not isinstance(part, Thinking):
                yield part
            elif part.text:
                self._left_out -= 1
                if self._left_out < 0:
                    yield Text(f"{OPEN}{part.text}{CLOSE}\n")


class _TaggedThinking:
    """Splits texts that begin with thoughts in tags into thinking and text, and renumbers the parts."""

    def __init__(self) -> None:
        self._count = 0
        self._indexes: dict[int, int] = {}
        self._texts: dict[int, _TaggedText] = {}

    def __call__(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted):
            return self._start(delta)
        if isinstance(delta, PartDelta):
            if (text := self._texts.get(delta.index)) is not None:
                return text.feed(delta.text)
            return (msgspec.structs.replace(delta, index=self._indexes[delta.index]),)
        if isinstance(delta, MediaDelta):
            return (msgspec.structs.replace(delta, index=self._indexes[delta.index]),)
        if isinstance(delta, PartFinished):
            if (text := self._texts.pop(delta.index, None)) is not None:
                assert isinstance(delta.part, Text)
                return text.finish(delta.part)
            return (msgspec.structs.replace(delta, index=self._indexes[delta.index]),)
        if isinstance(delta, ReplyFinished):
            return [*(d for text in self._texts.values() for d in text.finish(None)), delta]
        return (delta,)

    def _start(self, delta: PartStarted) -> Iterable[Delta]:
        if isinstance(delta.part, Text):
            text = self._texts[delta.index] = _TaggedText(self._next)
            return text.feed(delta.part.text)
        self._indexes[delta.index] = self._next()
        return (msgspec.structs.replace(delta, index=self._indexes[delta.index]),)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


class _TaggedText:
    """One text in pieces that may end inside a tag: first thoughts, if it begins with them, then the answer."""

    def __init__(self, number: Callable[[], int]) -> None:
        self._number, self._pending = number, ""
        self._stage: Literal["start", "thinking", "text"] = "start"
        self._index: int | None = None
        self._thoughts: list[str] = []

    def feed(self, piece: str) -> list[Delta]:
        self._pending += piece
        deltas: list[Delta] = []
        if self._stage == "start":
            seen = self._pending.lstrip()
            if OPEN.startswith(seen):
                return deltas  # nothing yet, or the beginning of a tag
            self._stage = "thinking" if seen.startswith(OPEN) else "text"
            self._pending = seen.removeprefix(OPEN) if self._stage == "thinking" else self._pending
        if self._stage == "thinking":
            deltas += self._think()
        if self._stage == "text" and (self._index is not None or self._pending.strip()):
            deltas += self._said(
                self._pending if self._index is not None or not self._thoughts else self._pending.lstrip()
            )
            self._pending = ""
        return deltas

    def finish(self, part: Text | None) -> list[Delta]:
        """End the text. The part is the whole text; None if the reply was cut off earlier."""
        deltas: list[Delta] = []
        if self._stage == "start" and self._pending:
            self._stage = "text"
            deltas += self._said(self._pending)
        if self._stage == "thinking":
            deltas += [*self._more_thoughts(self._pending), *self._end_of_thoughts()]
        if part is not None and self._index is not None:
            deltas.append(PartFinished(self._index, msgspec.structs.replace(part, text=self._answer(part.text))))
        return deltas

    def _think(self) -> list[Delta]:
        thought, closed, rest = self._pending.partition(CLOSE)
        if closed:
            self._pending, self._stage = rest, "text"
            return [*self._more_thoughts(thought), *self._end_of_thoughts()]
        held = _overlap(thought, CLOSE)
        self._pending = thought[len(thought) - held :]
        return self._more_thoughts(thought[: len(thought) - held])

    def _more_thoughts(self, piece: str) -> list[Delta]:
        deltas: list[Delta] = []
        if self._index is None:
            self._index = self._number()
            deltas.append(PartStarted(self._index, Thinking()))
        if piece:
            self._thoughts.append(piece)
            deltas.append(PartDelta(self._index, piece))
        return deltas

    def _end_of_thoughts(self) -> list[Delta]:
        assert self._index is not None
        index, self._index = self._index, None
        return [PartFinished(index, Thinking("".join(self._thoughts)))]

    def _said(self, piece: str) -> list[Delta]:
        deltas: list[Delta] = []
        if self._index is None:
            self._index = self._number()
            deltas.append(PartStarted(self._index, Text("")))
        return [*deltas, PartDelta(self._index, piece)]

    @staticmethod
    def _answer(text: str) -> str:
        if not text.lstrip().startswith(OPEN):
            return text
        return text.partition(CLOSE)[2].lstrip()


def _overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    return next((n for n in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-n:])), 0)
