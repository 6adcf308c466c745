"""Every limit, with its name and default. A turn that reaches one ends with an outcome that names it. Data only."""

from __future__ import annotations

from .values import Value


class ReplyBound(Value, frozen=True):
    """How long one reply may become. `name` is the setting that limits it."""

    name: str
    tokens: int
    bytes: int


class Limits(Value, frozen=True):
    """The limits of an agent's turn. Most of them end it with the outcome `limited`; those of calls are errors that the
    model reads."""

    rounds: int = 40
    """Engine calls per turn."""
    calls: int = 16
    """Tool calls per round; the others are answered with an error."""
    tool_levels: int = 5
    """How deep tools may call tools."""
    agent_levels: int = 6
    """How deep agents may work for agents."""
    repeated_calls: int = 5
    """How often a model may repeat a call with the same arguments and result while nothing else happens; it is warned
    two repetitions before the limit. 0 means no limit."""
    auto_replies: int = 5
    """Messages that plugins write for the user, per message of a person."""
    continuations: int = 3
    """Rounds that plugins request without a tool call, per message of a person."""
    handoffs: int = 8
    """Hand-offs from one agent to another per turn."""
    reply_tokens: int = 400_000
    """Tokens of one reply, by estimate. A longer reply is cut off; no honest model writes that much."""
    reply_bytes: int = 64 * 1024 * 1024
    """Bytes of a reply's other content: images, and data that only the provider understands."""
    result_chars: int = 32_000
    """Characters of a tool's result; the rest is cut off, with a note."""
    call_s: float = 30.0
    """Seconds for a tool that sets no time-out of its own."""
    batch_s: float = 120.0
    """Seconds for all calls of a round together."""
    agent_s: float = 120.0
    """Seconds for an agent that works for another one, not counting the time it waits for a person."""
    tree_rounds: int = 400
    """Engine calls of a turn and all agents that work for it."""
    tree_calls: int = 4_000
    """Tool calls of a turn and all agents that work for it."""
    tree_tokens: int = 10_000_000
    """Tokens, in and out, of a turn and all agents that work for it."""
    tree_s: float = 14_400.0
    """Seconds that a turn and all agents that work for it are running."""

    @property
    def reply_bound(self) -> ReplyBound:
        """How long one reply may be."""
        return ReplyBound("limits.reply_tokens", self.reply_tokens, self.reply_bytes)
