"""The limits of a turn. A required plugin: nothing runs away, and reaching a limit is an outcome that names it."""

from __future__ import annotations

from ..errors import LimitReached
from ..plugin import Plugin
from ..prompt import Prompt
from ..tool import error_of
from ..turn import Turn
from ..values import ToolCall, ToolResult


class LimitsGuard(Plugin):
    name = "limits"
    required = True

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        limits, transcript = turn.limits, turn.transcript
        if transcript.turn_rounds >= limits.rounds:
            raise LimitReached(
                "limits.rounds", f"the turn used its {limits.rounds} rounds; raise limits.rounds or ask for less"
            )
        if transcript.auto_replies > limits.auto_replies:
            raise LimitReached(
                "limits.auto_replies",
                f"plugins answered {limits.auto_replies} times in the user's place; raise limits.auto_replies for more",
            )
        if transcript.continuations > limits.continuations:
            raise LimitReached(
                "limits.continuations",
                f"the turn went on by itself {limits.continuations} times; raise limits.continuations for more",
            )
        if transcript.handoffs > limits.handoffs:
            raise LimitReached(
                "limits.handoffs",
                f"control passed between agents {limits.handoffs} times; raise limits.handoffs for more",
            )
        return prompt

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        limits = turn.limits
        if list(turn.transcript.calls).index(call.id) >= limits.calls:
            return error_of(call, f"not run: a round may have {limits.calls} calls (limits.calls); make fewer at once")
        if turn.level >= limits.tool_levels:
            path = " -> ".join((*turn.path, turn.agent.name, call.name))
            return error_of(
                call,
                f"not run: calls are nested {turn.level} levels deep (limits.tool_levels={limits.tool_levels}): {path}",
            )
        return call
