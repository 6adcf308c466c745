"""What a small model may do next in a turn: answer, or call a tool. Pure.

A small model does not know when to stop: it repeats calls, and calls another tool when it has the result. So the
grammar leaves out what it must not do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...values import Message, Text, ToolCall, ToolResult

CALLS_MAX = 6
ERRORS_MAX = 2

_SEVERAL = re.compile(
    r"\b(?:and|or|then|also|plus|after|before|both|each|every|all|first|finally|next|compare|und|oder|dann|danach|alle|et|puis|y|luego|e|poi)\b"
    r"|[;&\n]|\?.*\?|\.\s+\w",
    re.IGNORECASE | re.DOTALL,
)
"""Signs of a request of several steps. They only permit a further call; the model decides."""
REMINDER_CHARS_MAX = 400


class Steps(NamedTuple):
    """The last request, the calls since then, and which of them failed."""

    asked: str
    calls: tuple[tuple[str, bool], ...]

    @property
    def may_call(self) -> bool:
        """Whether another call may help: none was made, the last one failed, or several things were asked for."""
        if not self.calls:
            return True
        if len(self.calls) >= CALLS_MAX or sum(failed for _, failed in self.calls) >= ERRORS_MAX:
            return False
        return self.calls[-1][1] or _is_several(self.asked)

    def repeats(self, call: ToolCall) -> bool:
        key = _key(call.name, call.arguments)
        return any(key == made for made, _ in self.calls)


def steps_of(messages: Sequence[Message]) -> Steps:
    """Return the steps of the turn that these messages end with."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), 0)
    turn = messages[start:]
    results = (part for message in turn for part in message.parts if isinstance(part, ToolResult))
    failed = {result.call_id: result.is_error for result in results}
    calls = [call for message in turn for call in message.calls if call.id in failed]
    asked = turn[0].text if turn else ""
    return Steps(asked, tuple((_key(call.name, call.arguments), failed[call.id]) for call in calls))


def _is_several(asked: str) -> bool:
    return _SEVERAL.search(asked.strip().rstrip(".")) is not None


def with_reminders(messages: Iterable[Message]) -> list[Message]:
    """Repeat a request of several steps after each result, when a small model has forgotten the other half.

    This depends only on earlier messages, so that the prefix stays the same and stays cached."""
    made, asked = list[Message](), ""
    for message in messages:
        if message.role == "user":
            asked = message.text
        elif message.role == "tool" and asked and len(asked) <= REMINDER_CHARS_MAX and _is_several(asked):
            message = _with_note(message, f"\n[Asked: {asked}]")
        made.append(message)
    return made


def _with_note(message: Message, note: str) -> Message:
    *others, last = message.parts
    if not isinstance(last, ToolResult):
        return message
    noted = msgspec.structs.replace(last, parts=(*last.parts, Text(note)))
    return msgspec.structs.replace(message, parts=(*others, noted))


def _key(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} {msgspec.json.encode(arguments, order='sorted').decode()}"
