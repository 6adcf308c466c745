"""Every limit has a name and a default, and reaching one is an outcome that names it. Data only."""

from __future__ import annotations

from .values import Value


class Limits(Value, frozen=True):
    rounds: int = 40
    """Engine calls a turn."""
    calls: int = 16
    """Tool calls a round; the others are answered with an error."""
    tool_levels: int = 5
    """Tools that call tools."""
    agent_levels: int = 6
    """Agents that work for agents."""
    auto_replies: int = 5
    """Messages that plugins write in the user's place, for each message of a person."""
    continuations: int = 3
    """Rounds that plugins ask for without a tool call, for each message of a person."""
    handoffs: int = 8
    """Times that control passes from one agent to another in a turn."""
    result_chars: int = 32_000
    """Characters of a tool's result; the rest is cut, and the cut is stated."""
    call_s: float = 30.0
    """Seconds for a tool that does not say its own."""
    batch_s: float = 120.0
    """Seconds for all the calls of a round together."""
    agent_s: float = 120.0
    """Seconds for an agent that works for another one; time in which it waits for a person does not count."""
    tree_rounds: int = 400
    """Engine calls of a turn and of all agents that work for it, together."""
    tree_calls: int = 4_000
    """Calls of a turn and of all agents that work for it."""
    tree_tokens: int = 10_000_000
    """Tokens, in and out, of a turn and of all agents that work for it."""
    tree_s: float = 14_400.0
    """Seconds that a turn is at work, with all agents that work for it."""
