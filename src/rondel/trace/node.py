"""One step of a trace and the steps inside it. Frozen; knows no entries that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from ..values import Usage, Value
from . import text

NodeKind: TypeAlias = Literal["conversation", "turn", "round", "call", "note"]


class TraceNode(Value, frozen=True):
    """One step. `name` is the agent of a turn, the engine of a round, the tool of a call, the kind of a note."""

    kind: NodeKind
    name: str
    id: str = ""
    at: float = 0.0
    seconds: float | None = None
    first_token_s: float | None = None
    usage: Usage = Usage()
    agent: str = ""
    model: str = ""
    input: str = ""
    inputs: dict[str, Any] = {}
    prompt: str = ""
    """The agent's own instructions."""
    arguments: dict[str, Any] = {}
    thinking: str = ""
    output: str = ""
    error: str = ""
    ran: bool = True
    outcome: str = ""
    question: str = ""
    answer: str = ""
    children: tuple[TraceNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, TraceNode]]:
        """Every node with its depth. Calls and the turns inside them go deeper; rounds and notes do not."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + (child.kind == "call"))

    def lines(self) -> list[str]:
        """One line for each thing that was done."""
        return [line for depth, node in self.walk() if (line := text.line_of(node, depth))]

    def to_json(self) -> bytes:
        """A tree of plain values; a node never refers to another, so there is no cycle."""
        return msgspec.json.encode(self)

    def markdown(self, *, short: bool = False) -> str:
        return "\n".join(text.short_markdown(self) if short else text.long_markdown(self)) + "\n"
