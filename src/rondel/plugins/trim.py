"""Leaves the oldest messages out of a prompt that does not fit the model's window. The transcript keeps everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..events import Trimmed
from ..machine.prefix_cache import PrefixCache
from ..machine.tokens import Estimate, estimate_tokens, message_tokens, tools_tokens
from ..machine.turn import Turn
from ..plugin import Key, Plugin
from ..prompt import Prompt
from ..values import Message, ToolResult

_COSTS = Key("trim.costs", dict[int, tuple[Message, int]])  # a message costs the same in every round
_REPORTED = Key("trim.reported", int)


class Trim(Plugin):
    """Keeps the newest messages within `share` of the window, in order, and reports how many it left out. The newest
    message and the newest user message always stay, and a call is never separated from its results.

    Args:
        share: the share of the window that messages may fill
        window_tokens: the size of the window; by default, what is known about the model
        estimate: a function that estimates tokens; in code only
    """

    name = "trim"

    def __init__(self, share: float = 0.7, window_tokens: int | None = None, estimate: Estimate | None = None) -> None:
        self._share, self._window_tokens, self._estimate = share, window_tokens, estimate or estimate_tokens
        self._totals = PrefixCache(0, lambda total, messages: total + self._tokens(messages))

    def _tokens(self, messages: Iterable[Message]) -> int:
        return sum([message_tokens(message, self._estimate) for message in messages])

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        window_tokens = self._window_tokens or turn.engine.facts.window_tokens
        if window_tokens is None:
            return prompt
        history = prompt.history
        fixed = self._tokens(prompt.instructions) + tools_tokens(prompt.tools, self._estimate)
        budget = int(window_tokens * self._share) - fixed
        if self._totals.of(history, turn.transcript.size) <= budget:
            return prompt
        known = turn.state[_COSTS]
        costs = [self._cost(message, known) for message in history]
        kept = newest_within(history, costs, budget)
        dropped = len(history) - len(kept)
        if not dropped:
            return prompt
        if dropped != turn.state[_REPORTED]:
            turn.state[_REPORTED] = dropped
            tokens = sum(costs) - sum(costs[index] for index in kept)
            await turn.append(Trimmed(dropped, tokens, window_tokens))
        return prompt.with_history(history[index] for index in kept)

    def _cost(self, message: Message, costs: dict[int, tuple[Message, int]]) -> int:
        known = costs.get(id(message))
        if known is None or known[0] is not message:
            known = costs[id(message)] = (message, message_tokens(message, self._estimate))
        return known[1]


def newest_within(history: Sequence[Message], costs: Sequence[int], budget: int) -> list[int]:
    """Return the indexes of the messages that stay: whole groups from the newest back, until one does not fit."""
    indexes = range(len(history) - 1, -1, -1)
    asked = next((index for index in indexes if history[index].role == "user"), -1)
    left = budget - (costs[asked] if asked >= 0 else 0)
    end = len(history)
    while end > 0:
        start = _group_start(history, end)
        left -= sum(costs[index] for index in range(start, end) if index != asked)
        if left < 0 and end < len(history):
            break
        end = start
    return [*((asked,) if 0 <= asked < end else ()), *range(end, len(history))]


def _group_start(history: Sequence[Message], end: int) -> int:
    """Return the start of the group that ends here: a message with calls and the messages with their results."""
    start = end - 1
    while start > 0 and any(isinstance(part, ToolResult) for part in history[start].parts):
        start -= 1
    return start
