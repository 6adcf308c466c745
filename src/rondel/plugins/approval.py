"""Asks a person before a call runs, if the tool or the agent requires it. Required: it fails closed.

Deny rules apply first, in every mode, then allow rules, then the mode. An answer applies to exactly the arguments
shown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from ..agent import Agent
from ..machine.turn import Turn
from ..plugin import Plugin
from ..question import ALWAYS, NO, NOT_A_PERSON, QUOTE_BAR, YES, Answer, Hold, Question, is_yes
from ..text.printable import visible_line, visible_lines
from ..text.rules import allows, check_names, denies
from ..tool import Approval, Tool, error_of
from ..values import ToolCall, ToolResult

LINE_CHARS_MAX = 200  # arguments up to this length are shown on one line
READ_CHARS_PER_S = 25
SHELL = "shell"  # the tag of tools whose arguments are command lines

_NO = re.compile(r"(?:no|n|nope|false|deny|denied)\b[\s,.;:!-]*", re.IGNORECASE)


class ApprovalGate(Plugin):
    """Asks a person before a call runs, if its tool or a rule here requires it.

    Args:
        tools: a policy for each tool by name: `mode`, `allow`, `deny`; it adds to the tool's own policy
        default: the policy of tools that have none; its deny rules hold for all tools
    """

    name = "approval"
    required = True

    def __init__(self, tools: Mapping[str, Approval] | None = None, default: Approval | None = None) -> None:
        self._tools = dict(tools or {})
        self._default = default

    @property
    def named(self) -> frozenset[str]:
        """The tools for which it has rules."""
        return frozenset(self._tools)

    def check(self, agent: Agent) -> None:
        for tool in agent.tools:
            if isinstance(tool, Tool) and (policy := self._tools.get(tool.name)) is not None:
                check_names(policy.rules, tool.schema, tool.name)

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        tool = turn.tools.get(call.name)
        if tool is None or call.broken:
            return call  # a call that cannot run needs no approval
        policy = self._tools.get(call.name) or tool.approval or self._default
        if policy is None:
            return call
        everywhere = self._default.deny if self._default is not None else ()
        for rule in (*policy.deny, *everywhere):
            if denies(rule, call.arguments):
                written = repr(rule) if isinstance(rule, str) else msgspec.json.encode(rule).decode()
                return error_of(call, f"denied by the approval policy: the call matches the rule {written}")
        if policy.mode == "auto" or any(
            allows(rule, call.arguments, shell=SHELL in tool.tags) for rule in policy.allow
        ):
            return call
        return await self._ask(turn, tool, call, policy)

    async def _ask(self, turn: Turn, tool: Tool, call: ToolCall, policy: Approval) -> ToolCall | ToolResult | Hold:
        try:
            shown, covers = _shown(call), _digest(turn.agent.name, tool, call)
        except (TypeError, ValueError, RecursionError):
            return error_of(call, "not run: its arguments cannot be shown to the person who would have to allow it")
        if covers in turn.transcript.always_allowed or covers in (await turn.root()).transcript.always_allowed:
            return call
        if len(shown) > policy.chars_max:
            return error_of(
                call,
                f"not run: a person has to allow this call and read all of it, and its arguments take {len(shown):,} "
                f"characters; at most {policy.chars_max:,} can be allowed (chars_max): make them shorter",
            )
        id = f"approve:{call.id}:{covers[:16]}"
        answer = turn.answer_to(call.id, id)
        if answer is None:
            deadline = turn.now() + _patience_s(policy, shown) if policy.timeout_s > 0 else None
            again = f"do not ask again when {turn.agent.name} makes exactly this call in this conversation"
            text = f"{shown}\n({ALWAYS}: {again})"
            return Hold(Question(id, "approve", text, (YES, NO, ALWAYS), False, call.id, deadline, NO, covers=covers))
        if answer.by not in NOT_A_PERSON and is_yes(answer.text):
            return call
        return error_of(call, _denial(answer, _patience_s(policy, shown)))


def _shown(call: ToolCall) -> str:
    """Return the question with all arguments; invisible characters are named."""
    name, written = visible_line(call.name), msgspec.json.encode(call.arguments).decode()
    if not call.arguments:
        return f"Allow {name} to run?"
    if len(written) <= LINE_CHARS_MAX and r"\n" not in written:
        return f"Allow {name} to run with {visible_line(written)}?"
    lines = [f"Allow {name} to run with these arguments?"]
    for argument, value in call.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        # With the bar, no text can look like another argument or like the end of the question.
        lines += [f"{visible_line(argument)}:", *(f"{QUOTE_BAR}{line}" for line in visible_lines(text))]
    return "\n".join(lines)


def _digest(agent: str, tool: Tool, call: ToolCall) -> str:
    """Return a hash that identifies agent, tool and arguments, the same in every process."""
    origin = tool.origin or f"{tool.run.__module__}:{tool.run.__qualname__}"
    about = (agent, tool.name, origin, tool.description, tool.schema, call.arguments)
    return hashlib.sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()


def _patience_s(policy: Approval, shown: str) -> float:
    # A longer question takes longer to read.
    return policy.timeout_s + max(0, len(shown) - LINE_CHARS_MAX) // READ_CHARS_PER_S


def _denial(answer: Answer, patience_s: float) -> str:
    if answer.by == "deadline":
        return f"denied: no answer within {patience_s:g} s"
    if answer.by == "stop":
        return "denied: the turn was stopped"
    if answer.by == "edit":
        return "denied: the request was edited"
    said = _NO.sub("", answer.text.strip(), count=1) if _NO.match(answer.text.strip()) else answer.text.strip()
    denial = f"denied by {answer.by or 'the user'}"
    return f"{denial}, who said: {said}" if said else denial
