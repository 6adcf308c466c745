"""One step of a trace and the steps inside it. Frozen; knows no entries that it was made from, and no price list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from ..values import Usage, Value
from . import text

NodeKind: TypeAlias = Literal["conversation", "turn", "round", "call", "job", "note"]

Price: TypeAlias = Callable[[str, str, Usage, float], Decimal | None]
"""What an engine was paid, in US dollars: its name, the model that answered, the tokens, and when. None where nobody
knows."""


class TraceNode(Value, frozen=True):
    """One step. `name` is the agent of a turn, the engine of a round, the tool of a call, a job's own name, the kind
    of a note.

    Tokens and money are those of everything inside, but for a round: its own are what its engine was asked for, and
    the agents that worked for its calls are counted by the calls.
    """

    kind: NodeKind
    name: str
    id: str = ""
    at: float = 0.0
    """When it began, in seconds since the epoch; 0 where nobody knows."""
    ended_at: float | None = None
    seconds: float | None = None
    """How long it was at work. A turn that waited for a person was not."""
    first_token_s: float | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    """US dollars, as far as prices are known."""
    unpriced: int = 0
    """How often an engine was asked whose price nobody knows: then `cost` is not all of it."""
    agent: str = ""
    model: str = ""
    by: str = ""
    """Who asked: the author of the message that a turn began with."""
    input: str = ""
    inputs: dict[str, Any] = {}
    prompt: str = ""
    """The agent's own instructions, as its author wrote them."""
    sent: str = ""
    """The instructions with what their directives gave, where that is known."""
    arguments: dict[str, Any] = {}
    thinking: str = ""
    output: str = ""
    error: str = ""
    error_type: str = ""
    """The name of the error's class, of a turn that failed."""
    reason: str = ""
    ran: bool = True
    did: str = ""
    """What a round did that asked no model, in words: an agent spoke its own."""
    outcome: str = ""
    question: str = ""
    answer: str = ""
    facts: dict[str, Any] = {}
    children: tuple[TraceNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, TraceNode]]:
        """Every node with its depth. Calls, jobs and the turns inside them go deeper; rounds and notes do not."""
        pending = [(depth, self)]
        while pending:
            depth, node = pending.pop()
            yield depth, node
            pending += [(depth + (child.kind in text.DEEPER), child) for child in reversed(node.children)]

    @property
    def asked(self) -> bool:
        """Whether a model was asked: a round of an agent's own words asks none, and one with a blank prompt."""
        return self.kind == "round" and self.ran and not self.did

    @property
    def went_wrong(self) -> bool:
        return bool(self.error) or self.outcome in text.WRONG or (self.kind == "note" and self.name in text.WRONG)

    def lines(self) -> list[str]:
        """One line for each thing that was done."""
        return [line for depth, node in self.walk() if (line := text.line_of(node, depth))]

    def to_json(self) -> bytes:
        """A tree of plain values; a node never refers to another, so there is no cycle."""
        return msgspec.json.encode(self, enc_hook=str)
