"""The limits of a turn and of the agents that work for it. A required plugin: nothing runs away, and reaching a limit
is an outcome that names it."""

from __future__ import annotations

from ..errors import LimitReached
from ..plugin import Plugin
from ..prompt import Prompt
from ..template import is_authors, is_directive
from ..tool import error_of
from ..turn import Turn
from ..values import ToolCall, ToolResult


class LimitsGuard(Plugin):
    name = "limits"
    required = True

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        limits, transcript = turn.limits, turn.transcript
        _check_tree(turn)
        if transcript.turn_rounds >= limits.rounds and not turn.asks_nobody:
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
        _check_tree_calls(turn)
        if turn.transcript.calls[call.id].place >= limits.calls and not is_authors(call):
            return error_of(call, f"not run: a round may have {limits.calls} calls (limits.calls); make fewer at once")
        if turn.level >= limits.tool_levels and not is_directive(call):  # those have the levels of agents
            path = " -> ".join((*turn.path, turn.agent.name, call.name))
            said = f"calls are nested {turn.level} levels deep (limits.tool_levels={limits.tool_levels}): {path}"
            return error_of(call, f"not run: {said}\n{turn.calls_above}")
        return call


def _check_tree(turn: Turn) -> None:
    """One budget is shared by all turns that work for one: whoever asks a model next finds it used up."""
    if turn.asks_nobody:
        return
    budget, limits = turn.budget, turn.budget.limits
    if budget.spent.rounds >= limits.tree_rounds:
        raise _used_up(turn, "tree_rounds", f"{limits.tree_rounds:,}", "rounds")
    if budget.spent.tokens >= limits.tree_tokens:
        raise _used_up(turn, "tree_tokens", f"{limits.tree_tokens:,}", "tokens")
    if turn.now() - budget.began_at >= limits.tree_s:
        raise _used_up(turn, "tree_s", f"{limits.tree_s:,g}", "seconds")


def _check_tree_calls(turn: Turn) -> None:
    most = turn.budget.limits.tree_calls
    if turn.budget.spent.calls > most:
        raise _used_up(turn, "tree_calls", f"{most:,}", "calls")


def _used_up(turn: Turn, name: str, most: str, unit: str) -> LimitReached:
    """The sentence says for whom the work was, when that is another agent than this one."""
    first = turn.path[0] if turn.path else turn.agent.name
    whom = f"agent {first!r} and those that work for it used their {most} {unit}"
    return LimitReached(f"limits.{name}", f"{whom}; raise limits.{name} of {first!r} or ask for less")
