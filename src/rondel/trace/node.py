"""One step of a trace and the steps inside it. Frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from ..values import Citation, Usage, Value
from . import text

NodeKind: TypeAlias = Literal["conversation", "turn", "round", "call", "job", "note"]

Price: TypeAlias = Callable[[str, str, Usage, float], Decimal | None]
"""Returns the cost in US dollars from the engine's name, the model that answered, the tokens and the time; None if the
price is unknown."""


class TraceNode(Value, frozen=True):
    """One step. `name` is the agent of a turn, the engine of a round, the tool of a call, the name of a job, or the
    kind of a note. Tokens and cost include everything inside, except in a round: a round has those of its own engine
    call, and the agents that worked for its calls count with the calls."""

    kind: NodeKind
    name: str
    id: str = ""
    at: float = 0.0  # when it started, in seconds since the epoch; 0 if unknown
    ended_at: float | None = None
    seconds: float | None = None  # how long it worked, without the time it waited for a person
    first_token_s: float | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None  # US dollars, as far as prices are known
    unpriced: int = 0  # how many engine calls have an unknown price; `cost` does not include them
    agent: str = ""
    model: str = ""
    answered_by: str = ""  # the engine that answered a round, if it is not the one that was asked
    by: str = ""  # the author of the message that started a turn
    input: str = ""
    inputs: dict[str, Any] = {}
    prompt: str = ""  # the agent's own instructions, as its author wrote them
    sent: str = ""  # the instructions with the results of their directives, if known
    arguments: dict[str, Any] = {}
    thinking: str = ""
    output: str = ""
    error: str = ""
    error_type: str = ""  # the name of the error's class, if a turn failed
    reason: str = ""
    ran: bool = True
    did: str = ""  # what a round did that asked no model, in words
    outcome: str = ""
    question: str = ""
    answer: str = ""
    facts: dict[str, Any] = {}
    sources: tuple[Citation, ...] = ()  # what a round's answer cites
    children: tuple[TraceNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, TraceNode]]:
        """Yield every node with its depth. Calls, jobs and the turns inside them are deeper; rounds and notes are
        not."""
        pending = [(depth, self)]
        while pending:
            depth, node = pending.pop()
            yield depth, node
            pending += [(depth + (child.kind in text.DEEPER), child) for child in reversed(node.children)]

    @property
    def asked(self) -> bool:
        """Whether a model was asked, which rounds of directives or with a blank prompt do not do."""
        return self.kind == "round" and self.ran and not self.did

    @property
    def went_wrong(self) -> bool:
        return bool(self.error) or self.outcome in text.WRONG or (self.kind == "note" and self.name in text.WRONG)

    def lines(self) -> list[str]:
        return [line for depth, node in self.walk() if (line := text.line_of(node, depth))]

    def to_json(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)
