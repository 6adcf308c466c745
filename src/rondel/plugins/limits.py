"""Enforces the limits of a turn and of the agents that work for it. Required. The outcome names the limit."""

from __future__ import annotations

import msgspec

from ..errors import LimitReached
from ..machine.repetition import NOTE
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Prompt
from ..text.template import is_authors, is_directive
from ..tool import error_of
from ..values import Text, ToolCall, ToolResult

_COUNTED = {
    "auto_replies": "plugins answered {} times instead of the user",
    "continuations": "the turn continued by itself {} times",
    "handoffs": "control passed between agents {} times",
}
WARNED_BEFORE = 2  # how many repetitions before the limit the model gets its first warning


class LimitsGuard(Plugin):
    """Ends a turn that reaches a limit, with the limit's name."""

    name = "limits"
    required = True

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        limits, transcript = turn.limits, turn.transcript
        _check_tree(turn)
        _check_repetition(turn)
        if transcript.turn_rounds >= limits.rounds and not turn.without_model:
            rounds = "only round" if limits.rounds == 1 else f"{limits.rounds} rounds"
            said = f"the turn used its {rounds}; raise limits.rounds or ask for less"
            raise LimitReached("limits.rounds", said)
        for name, said in _COUNTED.items():
            if getattr(transcript, name) > (most := getattr(limits, name)):
                raise LimitReached(f"limits.{name}", f"{said.format(most)}; raise limits.{name} for more")
        return prompt

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        limits, most = turn.limits, turn.budget.limits.tree_calls
        if turn.budget.calls > most:
            raise _used_up(turn, "tree_calls", f"{most:,}", "calls")
        if turn.transcript.calls[call.id].index >= limits.calls and not is_authors(call):
            return error_of(call, f"not run: a round may have {limits.calls} calls (limits.calls); make fewer at once")
        if turn.level >= limits.tool_levels and not is_directive(call):  # directives count as levels of agents instead
            path = " -> ".join((*turn.path, turn.agent.name, call.name))
            said = f"calls are nested {turn.level} levels deep (limits.tool_levels={limits.tool_levels}): {path}"
            return error_of(call, f"not run: {said}\n{turn.calls_above}")
        return call

    async def on_tool_result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        most = turn.limits.repeated_calls
        if not most or result.final or is_directive(call) or _is_repeatable(turn, call.name):
            return result
        times = turn.transcript.repetition.after(call, result, turn.transcript.rounds)
        if times < max(most - WARNED_BEFORE, 2):
            return result
        note = Text(
            f"\n\n[This call has given this result {times} times, and nothing else has changed. Do something else, or "
            f"say what is missing. After {most} times the turn ends.]",
            opaque={NOTE: True},
        )
        return msgspec.structs.replace(result, parts=(*result.parts, note))


def _is_repeatable(turn: Turn, name: str) -> bool:
    tool = turn.tools.get(name)
    return tool is not None and tool.repeatable


def _check_repetition(turn: Turn) -> None:
    most = turn.limits.repeated_calls
    for name, times in turn.transcript.repetition.counts.items() if most else ():
        if times >= most and not _is_repeatable(turn, name):
            raise LimitReached(
                "limits.repeated_calls",
                f"{name!r} was called {times} times with the same arguments and gave the same result each time; ask in "
                "another way, or raise limits.repeated_calls",
            )


def _check_tree(turn: Turn) -> None:
    # All turns that work for one share a budget; the next one that asks a model finds it used up.
    if turn.without_model:
        return
    budget, limits = turn.budget, turn.budget.limits
    if budget.rounds >= limits.tree_rounds:
        raise _used_up(turn, "tree_rounds", f"{limits.tree_rounds:,}", "rounds")
    if budget.tokens >= limits.tree_tokens:
        raise _used_up(turn, "tree_tokens", f"{limits.tree_tokens:,}", "tokens")
    if turn.now() - budget.began_at >= limits.tree_s:
        raise _used_up(turn, "tree_s", f"{limits.tree_s:,g}", "seconds")


def _used_up(turn: Turn, name: str, most: str, unit: str) -> LimitReached:
    # Names the outermost agent, whose limits count.
    first = turn.path[0] if turn.path else turn.agent.name
    whom = f"agent {first!r} and those that work for it used their {most} {unit}"
    return LimitReached(f"limits.{name}", f"{whom}; raise limits.{name} of {first!r} or ask for less")
