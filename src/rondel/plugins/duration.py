"""Lets the results of tools expire: after a number of rounds they are no longer sent to models. The transcript keeps
them.

A call and its result expire together. A round is one reply of an engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ..errors import RondelError
from ..machine.prefix_cache import PrefixCache
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Prompt
from ..values import Foreign, Media, Message, Part, Text, ToolCall, ToolResult, Value


class Duration(Plugin):
    """Sends the results of tools for a number of rounds: no number is always, 0 is never.

    Args:
        results: for how many rounds the results of all tools are sent
        tools: the same for single tools, by name
        errors: the same for results that are errors, whatever the tool; by default they last as long as the others
    """

    name = "duration"
    moves_prefix = True

    def __init__(
        self, *, results: int | None = None, tools: Mapping[str, int | None] | None = None, errors: int | None = None
    ) -> None:
        self._results, self._tools, self._errors = results, dict(tools or {}), errors
        for what, rounds in (("results", results), ("errors", errors), *self._tools.items()):
            if rounds is not None and rounds < 0:
                raise RondelError(f"{what!r} cannot last {rounds!r} rounds; give 0 or more, or nothing for always")
        self._own_ages = PrefixCache(_ResultAges(), _counted)
        self._foreign_ages = PrefixCache(_ResultAges(), _counted)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        history = prompt.history
        ages = self._own_ages.of(tuple(turn.transcript.messages), turn.transcript.size)
        expired = self._expired(history, ages)
        if not expired:
            return prompt
        messages = (_without(message, expired[n]) if n in expired else message for n, message in enumerate(history))
        return prompt.with_history([message for message in messages if message is not None])

    def _expired(self, history: Sequence[Message], ages: _ResultAges) -> dict[int, set[int]]:
        """Return the calls and results that are not sent, as indexes of parts by the index of their message. Models may
        reuse ids, so a result belongs to the newest call with its id that has no result yet."""
        expired: defaultdict[int, set[int]] = defaultdict(set)
        unanswered: dict[str, tuple[int, int]] = {}
        for n, message in enumerate(history):
            for m, part in enumerate(message.parts):
                if type(part) is ToolCall:
                    if (orphan := unanswered.get(part.id)) is not None:
                        expired[orphan[0]].add(orphan[1])
                    unanswered[part.id] = n, m
                elif type(part) is ToolResult:
                    call = unanswered.pop(part.call_id, None)
                    if call is None:
                        expired[n].add(m)
                    elif not self._lasts(part, ages, history):
                        expired[n].add(m)
                        expired[call[0]].add(call[1])
        for n, m in unanswered.values():
            expired[n].add(m)
        return expired

    def _lasts(self, result: ToolResult, ages: _ResultAges, history: Sequence[Message]) -> bool:
        rounds = self._tools.get(result.name, self._results)
        if result.is_error and self._errors is not None:
            rounds = self._errors
        if rounds is None:
            return True
        # The transcript knows about rounds that another plugin removed from the prompt. Messages of a foreign prompt
        # are in no transcript, so its own rounds count.
        age = ages.age(result)
        return (self._foreign_ages.of(tuple(history)).age(result) or 0 if age is None else age) < rounds


class _ResultAges(Value, frozen=True):
    """How many rounds have passed since each result. Results are identified by object identity: messages are rebuilt,
    their parts are not."""

    rounds: int = 0
    after_final: bool = False
    round_of: dict[int, int] = {}

    def age(self, result: ToolResult) -> int | None:
        round = self.round_of.get(id(result))
        return None if round is None else self.rounds - round


def _counted(ages: _ResultAges, messages: tuple[Message, ...]) -> _ResultAges:
    rounds, after_final, round_of = ages.rounds, ages.after_final, ages.round_of.copy()
    for message in messages:
        if message.role == "assistant":
            # The text of a finish tool is in the transcript as the agent's reply, but no engine was called for it.
            rounds += not after_final
            after_final = False
            continue
        for part in message.parts:
            if type(part) is ToolResult:
                round_of[id(part)] = rounds
                after_final = after_final or part.final
    return _ResultAges(rounds, after_final, round_of)


def _without(message: Message, expired: set[int]) -> Message | None:
    """Return the message without these parts; None if nothing is left. Thoughts that led to a call are removed with
    it."""
    parts: tuple[Part, ...] = tuple(part for n, part in enumerate(message.parts) if n not in expired)
    if not any(map(_says_something, parts)):
        return None
    return msgspec.structs.replace(message, parts=parts)


def _says_something(part: Part) -> bool:
    if isinstance(part, Text):
        return bool(part.text.strip())
    return isinstance(part, (ToolCall, ToolResult, Media, Foreign))
