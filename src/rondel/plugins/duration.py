"""Lets the results of tools expire: after so many rounds they are no longer sent to models. The transcript keeps them.

A result goes with its call and a call with its result, so that no model ever sees one without the other. A round is one
reply of an engine; the messages between two rounds do not count. Knows no tool and no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..errors import RondelError
from ..growing import Growing
from ..plugin import Plugin
from ..prompt import Prompt
from ..turn import Turn
from ..values import Foreign, Media, Message, Part, Text, ToolCall, ToolResult, Value


class Duration(Plugin):
    """For how many rounds a result is sent: none is always, 0 is never.

    `results` is for all tools, `tools` for single ones by name, `errors` for results that are errors, whatever the
    tool; without `errors` they last as long as the others.
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
        self._births = Growing(_Births(), _counted)
        self._foreign = Growing(_Births(), _counted)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        history = prompt.history
        leaving = self._leaving(history, self._births.of(tuple(turn.transcript.messages)))
        if not leaving:
            return prompt
        return prompt.with_history(
            [
                message
                for place, whole in enumerate(history)
                if (message := _without(whole, leaving[place]) if place in leaving else whole)
            ]
        )

    def _leaving(self, history: Sequence[Message], births: _Births) -> dict[int, int]:
        """The calls and results that are not sent: by the place of their message, a bit for the place of each in it.

        Ids repeat when a model repeats itself, so a result belongs to the newest call of its id that has none yet.
        """
        leaving: dict[int, int] = {}
        unanswered: dict[str, tuple[int, int]] = {}
        for place, message in enumerate(history):
            at = 1
            for part in message.parts:
                if type(part) is ToolCall:
                    if (orphan := unanswered.get(part.id)) is not None:
                        leaving[orphan[0]] = leaving.get(orphan[0], 0) | orphan[1]
                    unanswered[part.id] = place, at
                elif type(part) is ToolResult:
                    call = unanswered.pop(part.call_id, None)
                    if call is None or not self._lasts(part, births, history):
                        leaving[place] = leaving.get(place, 0) | at
                        if call is not None:
                            leaving[call[0]] = leaving.get(call[0], 0) | call[1]
                at <<= 1
        for place, at in unanswered.values():
            leaving[place] = leaving.get(place, 0) | at
        return leaving

    def _lasts(self, result: ToolResult, births: _Births, history: Sequence[Message]) -> bool:
        rounds = self._tools.get(result.name, self._results)
        if result.is_error and self._errors is not None:
            rounds = self._errors
        if rounds is None:
            return True
        # The transcript knows of rounds that another plugin took out of the prompt; what came with a foreign prompt is
        # in no transcript, and its rounds are those of the prompt.
        age = births.age(result)
        return (self._foreign.of(tuple(history)).age(result) or 0 if age is None else age) < rounds


class _Births(Value, frozen=True):
    """The round after which each result came, by the result's identity: messages are rebuilt, their parts are not."""

    rounds: int = 0
    after_final: bool = False
    of: dict[int, int] = {}

    def age(self, result: ToolResult) -> int | None:
        """In how many rounds it was sent already."""
        born = self.of.get(id(result))
        return None if born is None else self.rounds - born


def _counted(births: _Births, messages: tuple[Message, ...]) -> _Births:
    rounds, after_final, of = births.rounds, births.after_final, births.of.copy()
    for message in messages:
        if message.role == "assistant":
            # What a finish tool said stands in the transcript as the agent's words; no engine was asked for them.
            rounds += not after_final
            after_final = False
            continue
        for part in message.parts:
            if type(part) is ToolResult:
                of[id(part)] = rounds
                after_final = after_final or part.final
    return _Births(rounds, after_final, of)


def _without(message: Message, places: int) -> Message | None:
    """The message without these parts; none when it says nothing more. Thoughts that led to a call go with it."""
    parts: tuple[Part, ...] = tuple([part for at, part in enumerate(message.parts) if not places >> at & 1])
    if not any(map(_says_something, parts)):
        return None
    return msgspec.structs.replace(message, parts=parts)


def _says_something(part: Part) -> bool:
    if isinstance(part, Text):
        return bool(part.text.strip())
    return isinstance(part, (ToolCall, ToolResult, Media, Foreign))
