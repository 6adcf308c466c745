"""Asks a person before a call runs, where the tool, the agent or its author says so. Required: it fails closed.

Deny patterns come first, in every mode, then allow patterns, then the mode. Each call is judged on its own parameters.
It must stand before any plugin that changes or holds calls. Knows no surface: a question is all it makes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

import msgspec

from ..plugin import Plugin
from ..question import ALWAYS, NO, YES, Answer, Hold, Question
from ..tool import Approval, error_of
from ..turn import Turn
from ..values import ToolCall, ToolResult

log = logging.getLogger("rondel.approval")

SHOWN_CHARS_MAX = 500
"""How much of the arguments a person is shown."""

_YES = frozenset((YES, "y", "true", "ok", "allow"))
_NO = re.compile(r"(?:no|n|nope|false|deny|denied)\b[\s,.;:!-]*", re.IGNORECASE)


class ApprovalGate(Plugin):
    """`tools` says more than a tool says of itself; `default` is for tools about which nobody says anything.

    The deny patterns of `default` hold for every tool.
    """

    name = "approval"
    required = True

    def __init__(self, tools: Mapping[str, Approval] | None = None, default: Approval | None = None) -> None:
        self._tools = dict(tools or {})
        self._default = default
        self._compiled: dict[str, re.Pattern[str] | None] = {}

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        tool = turn.tools.get(call.name)
        if tool is None or call.broken:
            return call  # nothing would run
        policy = self._tools.get(call.name) or tool.approval or self._default
        if policy is None:
            return call
        written = _written(call)
        if (pattern := self._match((*policy.deny, *self._denied_everywhere), written)) is not None:
            return error_of(call, f"denied by the approval policy: the call matches the pattern {pattern!r}")
        if self._match(policy.allow, written) is not None or policy.mode == "auto":
            return call
        if call.name in turn.transcript.always_allowed:
            return call
        answer = turn.answer_to(call.id, _question_id(call))
        if answer is None:
            return Hold(_question(turn, call, policy))
        if _is_yes(answer):
            return call
        return error_of(call, _denial(answer, policy))

    @property
    def _denied_everywhere(self) -> tuple[str, ...]:
        return self._default.deny if self._default is not None else ()

    def _match(self, patterns: Iterable[str], written: str) -> str | None:
        for pattern in patterns:
            if pattern not in self._compiled:
                self._compiled[pattern] = _compile(pattern)
            compiled = self._compiled[pattern]
            if compiled is not None and compiled.search(written):
                return pattern
        return None


def _compile(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        log.warning("the approval pattern %r is no regular expression and is ignored: %s", pattern, error)
        return None


def _written(call: ToolCall) -> str:
    """The call as canonical JSON: what patterns are matched against."""
    name, parameters = msgspec.json.encode(call.name), msgspec.json.encode(call.arguments, order="deterministic")
    return f'{{"tool":{name.decode()},"parameters":{parameters.decode()}}}'


def _question_id(call: ToolCall) -> str:
    return f"approve:{call.id}"


def _question(turn: Turn, call: ToolCall, policy: Approval) -> Question:
    shown = _printable(msgspec.json.encode(call.arguments).decode())
    if len(shown) > SHOWN_CHARS_MAX:
        shown = f"{shown[:SHOWN_CHARS_MAX]}… ({len(shown) - SHOWN_CHARS_MAX:,} more characters)"
    return Question(
        _question_id(call),
        kind="approve",
        text=f"May {call.name} run with {shown}?" if call.arguments else f"May {call.name} run?",
        options=(YES, NO, ALWAYS),
        free_text=False,
        call_id=call.id,
        deadline=turn.now() + policy.timeout_s if policy.timeout_s > 0 else None,
        default=NO,
    )


def _printable(text: str) -> str:
    """No character that could hide or turn around what a person reads."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _is_yes(answer: Answer) -> bool:
    return answer.by not in ("deadline", "stop") and answer.text.strip().rstrip(".!").casefold() in _YES


def _denial(answer: Answer, policy: Approval) -> str:
    if answer.by == "deadline":
        return f"denied: nobody answered within {policy.timeout_s:g} s"
    if answer.by == "stop":
        return "denied: the turn was stopped"
    said = _NO.sub("", answer.text.strip(), count=1) if _NO.match(answer.text.strip()) else answer.text.strip()
    denial = f"denied by {answer.by or 'the user'}"
    return f"{denial}, who said: {said}" if said else denial
