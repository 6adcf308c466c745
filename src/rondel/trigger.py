"""When a plugin acts: words in a text, a piece of it, a chance, or a question to a model. One value for every plugin.

    trigger: {search: "refund, money back", chance: 0.1}
    trigger: {model: {user: "Is this about money? <<input>>"}}

Nothing is asked of a text but what stands here; what a text is (the user's message, the reply) its plugin decides.
Knows no plugin and no provider.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from random import Random
from typing import cast

import msgspec

from .errors import RondelError
from .plugin import Key
from .prompt import Prompt
from .turn import Turn
from .values import Delta, Options, ReplyBuilder, Value, system, user

INPUT = "<<input>>"
"""Where an author wants the text that something is about."""


def with_input(written: str, text: str) -> str:
    """What an author wrote, with the text in its place. The text is data: nothing in it is replaced again."""
    return text.join(written.split(INPUT))


class ModelQuestion(Value, frozen=True):
    """A question that a model answers with yes or no. `<<input>>` in `user` is the text that it is about."""

    user: str
    system: str = "Answer with yes or no, and nothing else."
    engine: str = ""
    """Another engine than the agent's own, by its name."""
    timeout_s: float = 30.0

    def prompt(self, text: str) -> Prompt:
        asked = user(with_input(self.user, text))
        said = (system(self.system),) if self.system else ()
        return Prompt.of(*said, asked, options=Options(temperature=0.1, tokens_max=10))


class Trigger(msgspec.Struct, frozen=True):
    """Holds when any of its conditions does, and always when it has none."""

    search: str | tuple[str, ...] = ()
    """Words, as a list or with commas between them: one of them is in the text, whatever its case."""
    filter: str = ""
    """A piece of text that is in the text exactly so."""
    chance: float | None = None
    """From 0, never, to 1, always."""
    model: ModelQuestion | None = None
    random: Callable[[], float] | None = None
    """Gives numbers from 0 to 1. Without it they come from the turn and the text: a turn that goes on after a crash,
    and a question that is asked once more, meet the same chance again."""

    def __post_init__(self) -> None:
        words = self.search.split(",") if isinstance(self.search, str) else self.search
        kept = tuple(word.strip().casefold() for word in words if word.strip())
        if self.search and not kept:
            raise RondelError(f"a trigger searches for {self.search!r}, which has no word; give one, or leave it out")
        msgspec.structs.force_setattr(self, "search", kept)
        if self.chance is not None and not 0.0 <= self.chance <= 1.0:
            raise RondelError(f"a trigger's chance is from 0 to 1, not {self.chance!r}")

    async def holds(self, turn: Turn, text: str, *, by: str = "trigger") -> bool:
        """Whether it does for this text. `by` is the plugin that asks; a warning names it."""
        if not (self.search or self.filter or self.model) and self.chance is None:
            return True
        if self.search and _has_any(text.casefold(), self.search):
            return True
        if self.filter and self.filter in text:
            return True
        if self.chance is not None and self._draw(turn, text, by) < self.chance:
            return True
        return self.model is not None and await _answer(turn, self.model, text, by)

    def _draw(self, turn: Turn, text: str, by: str) -> float:
        if self.random is not None:
            return self.random()
        said = turn.transcript
        return Random(repr((turn.id, said.auto_replies, said.continuations, by, text))).random()


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


# --- a question to a model --------------------------------------------------------------------------------------------

_ANSWERS: Key[dict[tuple[ModelQuestion, str], bool]] = Key("trigger.answers", dict)


async def _answer(turn: Turn, question: ModelQuestion, text: str, by: str) -> bool:
    """Each question is asked once in a turn for the same text: a turn has many rounds, and they cost money."""
    known = turn.state[_ANSWERS]
    if (question, text) not in known:
        known[question, text] = await _ask(turn, question, text, by)
    return known[question, text]


async def _ask(turn: Turn, question: ModelQuestion, text: str, by: str) -> bool:
    if turn.previewing:
        await turn.warn(by, "its trigger asks a model, and nobody is asked here: taken as not triggered")
        return False
    try:
        async with asyncio.timeout(question.timeout_s):
            said = await _said(turn, question, text)
    except Exception as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        await turn.warn(by, f"the model of its trigger could not be asked, so it is not triggered: {why}")
        return False
    if (answer := yes_or_no(said)) is None:
        await turn.warn(by, f"the model of its trigger said neither yes nor no, so it is not triggered: {said[:80]!r}")
    return answer or False


async def _said(turn: Turn, question: ModelQuestion, text: str) -> str:
    builder = ReplyBuilder()
    stream = turn.engine_named(question.engine, kind="question").stream(question.prompt(text))
    async with aclosing(cast(AsyncGenerator[Delta], stream)) as deltas:
        async for delta in deltas:
            builder.add(delta)
    return builder.reply().text


_VERDICT = re.compile(
    r"(?P<no>\b(?:no|nope|not|never|n|false|0|none|nein|non|não|нет)\b|不|否|没|沒|无|無|いいえ|아니)"
    r"|(?P<yes>\b(?:yes|yep|yeah|y|true|1|sure|ok|okay|ja|oui|si|sí|sim|да)\b|是|需要|满足|应该|同意|はい|예|네)",
    re.IGNORECASE,
)
"""Words of scripts without spaces count in the middle of a run of letters, too: 不是 says no before it says yes."""


def yes_or_no(said: str) -> bool | None:
    """What an answer means: the first word in it that says yes or no decides. None when none does."""
    found = _VERDICT.search(said.replace("_", " "))
    return None if found is None else found["yes"] is not None
