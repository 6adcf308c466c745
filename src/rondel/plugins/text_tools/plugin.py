"""The plugin: describes tools in the prompt, and turns calls in a reply's text into calls.

It comes after the plugins that add tools or trim: it is the last to see the prompt and the first to see the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from ...errors import RondelError, nearest
from ...machine.turn import Turn
from ...plugin import Key, Plugin
from ...prompt import Node, Position, Prompt, position_of
from ...text.lenient import parse_parameters
from ...values import Part, Reply, Text, ToolCall
from .finding import PARALLEL_TAG, FoundCall, find_calls, is_inside
from .patterns import DEFAULT_PATTERNS, Pattern, ReadBody
from .words import RESULT_TAG, in_words, tool_list, tools_text

_OFFERED = Key("text_tools.offered", bool)


class TextTools(Plugin):
    """Describes tools in the prompt and finds calls in text, for a model without tool calling.

    Args:
        patterns: how calls look in text; in code only
        always: also for models with tool calling
        target: the node at which the list of tools is put; a model with tool calling then reads it there, too
        position: `before`, `after` or `child` of the target
    """

    name = "text_tools"

    def __init__(
        self,
        patterns: Iterable[Pattern] = DEFAULT_PATTERNS,
        *,
        always: bool = False,
        target: str = "",
        position: str = "child",
    ) -> None:
        self._patterns = {pattern.name: pattern for pattern in patterns}
        self._always = always
        self._target = target
        self._position: Position = position_of(position)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The forms in which calls are found in a text."""
        return tuple(self._patterns.values())

    def add_pattern(self, name: str, opening: str, closing: str = "", *, read: ReadBody | None = None) -> None:
        """Add a form, or replace the one of the same name. Case is ignored, and `.` also matches line breaks. `opening`
        has a group `name`. With a `closing`, the body is the text between the two; without, it is the group `body` of
        `opening`, if there is one."""
        flags = re.IGNORECASE | re.DOTALL
        try:
            opens, closes = re.compile(opening, flags), re.compile(closing, flags) if closing else None
        except re.error as error:
            raise RondelError(f"pattern {name!r} is not a regular expression: {error}") from error
        if "name" not in opens.groupindex and read is None:
            raise RondelError(f"pattern {name!r} does not name the tool: add a group (?P<name>…)")
        read = read or (lambda tool, body: (tool, parse_parameters(body)))
        self._patterns[name] = Pattern(name, opens, closes, read)

    def remove_pattern(self, name: str) -> None:
        """Remove a form."""
        if name not in self._patterns:
            raise RondelError(f"no pattern is named {name!r}{nearest(name, list(self._patterns))}")
        del self._patterns[name]

    def applies(self, turn: Turn) -> bool:
        if self._is_native(turn) and not self._target:
            return False
        return bool(turn.tools) or any(message.role == "tool" for message in turn.transcript.messages)

    def _is_native(self, turn: Turn) -> bool:
        return turn.engine.facts.tools and not self._always

    async def _with_list(self, turn: Turn, prompt: Prompt, text: str) -> Prompt:
        """Put the list of tools at its target. Without that target, a model that has no other list gets it at the
        end."""
        if self._target:
            source = ("plugins", self.entry or self.name)
            edited = prompt.insert(Node("tools", text=f"\n\n{text}\n\n", source=source), self._position, self._target)
            if edited is not prompt:
                return edited
            told = f"there is no node {self._target!r} in the prompt for the list of tools; give the id of one"
            await turn.warn(self.entry or self.name, told)
        return prompt if self._is_native(turn) else prompt.instruct(text, id="tools")

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        if self._is_native(turn):
            turn.state[_OFFERED] = False
            return await self._with_list(turn, prompt, tool_list(prompt.tools)) if prompt.tools else prompt
        choice = prompt.options.tool_choice
        offered = prompt.tools if choice != "none" else ()
        turn.state[_OFFERED] = bool(offered)
        history = prompt.history
        words = tuple(in_words(history))
        if words != history:
            prompt = prompt.with_history(words)
        if offered:
            prompt = await self._with_list(turn, prompt, tools_text(offered, choice))
        stop = prompt.options.stop
        if offered and RESULT_TAG not in stop and len(stop) < 4:  # providers allow four
            stop = (*stop, RESULT_TAG)
        options = msgspec.structs.replace(prompt.options, tool_choice=None, parallel_calls=None, stop=stop)
        return prompt.replace(tools=(), options=options)

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if not turn.state[_OFFERED]:
            return reply
        parts: list[Part] = []
        for part in reply.message.parts:
            calls = find_calls(part.text, self._patterns.values()) if isinstance(part, Text) else []
            parts.extend(_split(cast(Text, part).text, calls, turn) if calls else (part,))
        if len(parts) == len(reply.message.parts) and not any(isinstance(part, ToolCall) for part in parts):
            return reply
        message = msgspec.structs.replace(reply.message, parts=tuple(parts))
        return msgspec.structs.replace(reply, message=message, stop="calls")


def _split(text: str, calls: Sequence[FoundCall], turn: Turn) -> Iterator[Part]:
    """Split a text into its calls and the text between them. A result that the model invented is left out, with
    everything after it."""
    end = _invented_from(text, calls)
    at = 0
    for call in calls:
        if call.start >= end:
            break
        if said := PARALLEL_TAG.sub("", text[at : call.start]).strip():
            yield Text(said)
        yield ToolCall(turn.new_id("call"), call.name, call.arguments, parallel=call.parallel)
        at = call.end
    if said := PARALLEL_TAG.sub("", text[at:end]).strip():
        yield Text(said)


def _invented_from(text: str, calls: Sequence[FoundCall]) -> int:
    spans = [(call.start, call.end) for call in calls]
    at = text.find(RESULT_TAG, calls[0].end)
    while at >= 0 and is_inside(at, spans):
        at = text.find(RESULT_TAG, at + 1)
    return at if at >= 0 else len(text)
