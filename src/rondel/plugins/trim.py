"""Leaves the oldest messages out of a prompt that would not fit the model's window. The transcript keeps everything.

Tokens are estimated from characters. Knows no tokenizer and no model: the window is a fact of the engine, or given.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..events import Trimmed
from ..growing import Growing
from ..plugin import Key, Plugin
from ..prompt import Prompt
from ..tokens import Estimate, estimate_tokens, message_tokens, tools_tokens
from ..turn import Turn
from ..values import Message, ToolResult


class _Memory:
    """What one turn's prompts have in common: a message costs the same in every round."""

    __slots__ = ("costs", "reported")

    def __init__(self) -> None:
        self.costs: dict[int, tuple[Message, int]] = {}
        self.reported = 0


_MEMORY = Key("trim.memory", _Memory)


class Trim(Plugin):
    """Keeps the newest messages within `share` of the window, in order, and reports how many it left out.

    The newest message and the newest user message always stay, and a call is never parted from its results.
    """

    name = "trim"

    def __init__(self, share: float = 0.7, window_tokens: int | None = None, estimate: Estimate | None = None) -> None:
        self._share = share
        self._window_tokens = window_tokens
        self._estimate = estimate or estimate_tokens
        self._totals = Growing(0, self._add_costs)

    def _add_costs(self, total: int, messages: Sequence[Message]) -> int:
        return total + sum([message_tokens(message, self._estimate) for message in messages])

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        window_tokens = self._window_tokens or turn.engine.facts.window_tokens
        if window_tokens is None:
            return prompt
        history = prompt.history
        budget = int(window_tokens * self._share) - self._fixed_cost(prompt)
        if self._totals.of(history) <= budget:
            return prompt
        memory = turn.state[_MEMORY]
        costs = [self._cost(message, memory) for message in history]
        kept = newest_within(history, costs, budget)
        dropped = len(history) - len(kept)
        if not dropped:
            return prompt
        if dropped != memory.reported:
            memory.reported = dropped
            tokens = sum(costs) - sum(costs[place] for place in kept)
            await turn.append(Trimmed(dropped, tokens, window_tokens))
        return prompt.with_history(history[place] for place in kept)

    def _cost(self, message: Message, memory: _Memory) -> int:
        known = memory.costs.get(id(message))
        if known is None or known[0] is not message:
            known = memory.costs[id(message)] = (message, message_tokens(message, self._estimate))
        return known[1]

    def _fixed_cost(self, prompt: Prompt) -> int:
        """What the instructions and the tools take, whatever is left out."""
        instructions = sum(message_tokens(message, self._estimate) for message in prompt.instructions)
        return instructions + tools_tokens(prompt.tools, self._estimate)


def newest_within(history: Sequence[Message], costs: Sequence[int], budget: int) -> list[int]:
    """The places of the messages that stay: whole groups from the newest back, until one does not fit."""
    places = range(len(history) - 1, -1, -1)
    asked = next((place for place in places if history[place].role == "user"), -1)
    left = budget - (costs[asked] if asked >= 0 else 0)
    end = len(history)
    while end > 0:
        start = _group_start(history, end)
        left -= sum(costs[place] for place in range(start, end) if place != asked)
        if left < 0 and end < len(history):
            break
        end = start
    return [*((asked,) if 0 <= asked < end else ()), *range(end, len(history))]


def _group_start(history: Sequence[Message], end: int) -> int:
    """Where the group that ends here begins: a message with calls only makes sense with those that hold its results."""
    start = end - 1
    while start > 0 and any(isinstance(part, ToolResult) for part in history[start].parts):
        start -= 1
    return start
