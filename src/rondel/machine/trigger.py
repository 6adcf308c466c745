"""When a plugin acts: words in a text, an exact substring, a chance, or a question to a model. Shared by all plugins.

    trigger: {search: "refund, money back", chance: 0.1}
    trigger: {model: {user: "Is this about money? <<input>>"}}

The plugin decides which text it is: the user's message, or the reply. Knows no plugin and no provider.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from random import Random

import msgspec

from ..engine import ask
from ..errors import RondelError
from ..plugin import Key
from ..prompt import Prompt
from ..values import Options, Value, system, user
from .turn import Turn

INPUT = "<<input>>"  # in an author's text, replaced by the text to judge


def with_input(written: str, text: str) -> str:
    """Insert a text into an author's text. It is data: nothing in it is replaced again."""
    return text.join(written.split(INPUT))


class ModelQuestion(Value, frozen=True):
    """A question that a model answers with yes or no. `<<input>>` in `user` is replaced by the text."""

    user: str
    system: str = "Answer with yes or no, and nothing else."
    engine: str = ""  # the name of the engine; empty for the agent's own
    timeout_s: float = 30.0

    def prompt(self, text: str) -> Prompt:
        asked = user(with_input(self.user, text))
        said = (system(self.system),) if self.system else ()
        return Prompt.of(*said, asked, options=Options(temperature=0.1, tokens_max=10))


class Trigger(msgspec.Struct, frozen=True):
    """Holds if any of its conditions does, or if it has none."""

    search: str | tuple[str, ...] = ()
    """Words, as a list or separated by commas; one of them is in the text, in upper or lower case."""
    filter: str = ""  # A substring that must be in the text exactly
    chance: float | None = None  # from 0 (never) to 1 (always)
    model: ModelQuestion | None = None
    random: Callable[[], float] | None = None
    """Returns numbers from 0 to 1. Without it they are derived from the turn and the text, so that a turn that is
    resumed after a crash draws the same number again."""

    def __post_init__(self) -> None:
        words = self.search.split(",") if isinstance(self.search, str) else self.search
        kept = tuple(word.strip().casefold() for word in words if word.strip())
        if self.search and not kept:
            raise RondelError(f"a trigger's `search` is {self.search!r}, which has no word; add one, or leave it out")
        msgspec.structs.force_setattr(self, "search", kept)
        if self.chance is not None and not 0.0 <= self.chance <= 1.0:
            raise RondelError(f"a trigger's `chance` must be from 0 to 1, not {self.chance!r}")

    async def holds(self, turn: Turn, text: str, *, by: str = "trigger") -> bool:
        """Return whether the trigger holds for this text. `by` is the plugin that asks; warnings name it."""
        if not (self.search or self.filter or self.model) and self.chance is None:
            return True
        folded = text.casefold() if self.search else ""
        if any(word in folded for word in self.search):
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


# --- a question to a model --------------------------------------------------------------------------------------------

_ANSWERS: Key[dict[tuple[ModelQuestion, str], bool]] = Key("trigger.answers", dict)


async def _answer(turn: Turn, question: ModelQuestion, text: str, by: str) -> bool:
    """Ask each question once per turn and text: a turn has many rounds, and calls cost money."""
    known = turn.state[_ANSWERS]
    if (question, text) not in known:
        known[question, text] = await _ask(turn, question, text, by)
    return known[question, text]


async def _ask(turn: Turn, question: ModelQuestion, text: str, by: str) -> bool:
    if turn.previewing:
        await turn.warn(by, "its trigger asks a model, which a preview does not do; it counts as not triggered")
        return False
    try:
        async with asyncio.timeout(question.timeout_s):
            said = (await ask(turn.engine_named(question.engine, kind="question"), question.prompt(text))).text
    except Exception as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        await turn.warn(by, f"the model of its trigger could not be asked, so it is not triggered: {why}")
        return False
    if (answer := yes_or_no(said)) is None:
        await turn.warn(by, f"the model of its trigger said neither yes nor no, so it is not triggered: {said[:80]!r}")
    return answer or False


_VERDICT = re.compile(
    r"(?P<no>\b(?:no|nope|not|never|n|false|0|none|nein|non|não|нет)\b|不|否|没|沒|无|無|いいえ|아니)"
    r"|(?P<yes>\b(?:yes|yep|yeah|y|true|1|sure|ok|okay|ja|oui|si|sí|sim|да)\b|是|需要|满足|应该|同意|はい|예|네)",
    re.IGNORECASE,
)
"""Words of scripts without spaces also match in the middle of a run of letters: 不是 has no before yes."""


def yes_or_no(said: str) -> bool | None:
    """Return what an answer means, decided by its first word that says yes or no. None if there is none."""
    found = _VERDICT.search(said.replace("_", " "))
    return None if found is None else found["yes"] is not None
