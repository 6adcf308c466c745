"""Lets the results of tools expire: after so many rounds they are no longer sent to models. The transcript keeps them.

A result goes with its call and a call with its result, so that no model ever sees one without the other. A round is one
reply of an engine; the messages between two rounds do not count. Knows no tool and no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..errors import RondelError
from ..plugin import Plugin
from ..prompt import Prompt
from ..turn import Turn
from ..values import Foreign, Media, Message, Part, Text, ToolCall, ToolResult


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

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        history = prompt.history
        # The transcript knows of rounds that another plugin took out of the prompt; a foreign prompt knows only itself.
        ages = _ages(history) | _ages(turn.transcript.messages)
        leaving = self._leaving(history, ages)
        if not leaving:
            return prompt
        return prompt.with_history(
            message
            for place, whole in enumerate(history)
            if (message := _without(whole, leaving[place]) if place in leaving else whole)
        )

    def _leaving(self, history: Sequence[Message], ages: Mapping[int, int]) -> dict[int, set[int]]:
        """The calls and results that are not sent: by the place of their message, their places in it.

        Ids repeat when a model repeats itself, so a result belongs to the newest call of its id that has none yet.
        """
        leaving: dict[int, set[int]] = {}
        unanswered: dict[str, tuple[int, int]] = {}
        for place, message in enumerate(history):
            for at, part in enumerate(message.parts):
                if type(part) is ToolCall:
                    if (orphan := unanswered.get(part.id)) is not None:
                        leaving.setdefault(orphan[0], set()).add(orphan[1])
                    unanswered[part.id] = place, at
                elif type(part) is ToolResult:
                    call = unanswered.pop(part.call_id, None)
                    if call is not None and self._lasts(part, ages[id(part)]):
                        continue
                    leaving.setdefault(place, set()).add(at)
                    if call is not None:
                        leaving.setdefault(call[0], set()).add(call[1])
        for place, at in unanswered.values():
            leaving.setdefault(place, set()).add(at)
        return leaving

    def _lasts(self, result: ToolResult, age: int) -> bool:
        rounds = self._tools.get(result.name, self._results)
        if result.is_error and self._errors is not None:
            rounds = self._errors
        return rounds is None or age < rounds


def _ages(messages: Sequence[Message]) -> dict[int, int]:
    """In how many rounds each result was sent already, by its identity: messages are rebuilt, their parts are not."""
    born: dict[int, int] = {}
    rounds, after_final = 0, False
    for message in messages:
        if message.role == "assistant":
            # What a finish tool said stands in the transcript as the agent's words; no engine was asked for them.
            rounds += not after_final
            after_final = False
            continue
        for part in message.parts:
            if type(part) is ToolResult:
                born[id(part)] = rounds
                after_final = after_final or part.final
    return {result: rounds - birth for result, birth in born.items()}


def _without(message: Message, places: set[int]) -> Message | None:
    """The message without these parts; none when it says nothing more. Thoughts that led to a call go with it."""
    parts: tuple[Part, ...] = tuple(part for at, part in enumerate(message.parts) if at not in places)
    if not any(_says_something(part) for part in parts):
        return None
    return msgspec.structs.replace(message, parts=parts)


def _says_something(part: Part) -> bool:
    if isinstance(part, Text):
        return bool(part.text.strip())
    return isinstance(part, (ToolCall, ToolResult, Media, Foreign))
