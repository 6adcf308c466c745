"""Renders a trace as Markdown: a card for each agent's turn, with a log of what it did.

Texts of people, models and tools are in code blocks and code spans, so that nothing in them is read as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ..text.attached import code_block
from ..values import Value
from .node import TraceNode
from .text import DEEPER, details, facts_text, line_of, one_line, shown

SOMEBODY = "a person"
_SPECIAL = re.compile(r"([\\`*_\[\]<>#!|~&])")


class Card(Value, frozen=True):
    """One turn of an agent. `level` counts agents from the outermost, `index` the turns of that level."""

    level: int
    index: int
    depth: int
    parent: str
    turn: TraceNode

    @property
    def number(self) -> str:
        return f"{self.level}.{self.index}"


def markdown(root: TraceNode, *, short: bool = False) -> str:
    agent = next((node.name for _, node in root.walk() if node.kind == "turn"), "")
    lines = [f"# Agent Trace: {_plain(agent or root.name or 'a conversation')}", ""]
    if status := _status(root):
        lines += [f"Conversation {_code(root.name)}: {status}" if root.name else status, ""]
    for card in cards(root):
        lines += [f"## {card.number}: {_plain(card.turn.name)} From: {_plain(card.parent)}", ""]
        lines += _short(card) if short else _long(card)
    return shown("\n".join(lines))


def cards(root: TraceNode) -> Iterator[Card]:
    """Yield every turn, the outermost first, each before those that worked for it."""
    counts: dict[int, int] = {}
    pending: list[tuple[int, int, str, TraceNode]] = [(1, 0, "", root)]
    while pending:
        level, depth, parent, node = pending.pop()
        if node.kind == "turn":
            counts[level] = counts.get(level, 0) + 1
            yield Card(level, counts[level], depth, parent or node.by or SOMEBODY, node)
            level, parent = level + 1, node.name
        inner = ((level, depth + (child.kind in DEEPER), parent, child) for child in reversed(node.children))
        pending += inner


def _short(card: Card) -> list[str]:
    turn = card.turn
    lines = [
        f"Level: {card.number}",
        f"Agent: {one_line(turn.name)}",
        f"From: {one_line(card.parent)}",
        f"Input: {one_line(turn.input)}",
        f"Output: {one_line(turn.output)}",
        f"Error: {one_line(turn.error)}" if turn.error else "no error",
        *([] if turn.ran else ["Ran: no"]),
        *(one_line(line_of(step, depth), 200) for depth, step in _steps(card) if step.kind != "round"),
    ]
    return [*code_block("\n".join(lines), "text").splitlines(), ""]


def _long(card: Card) -> list[str]:
    status = _status(card.turn)
    lines = [f"*{status}*", ""] if status else []
    shown = msgspec.structs.replace(card.turn, output="", error="", reason="", facts={})
    for name, text in details(shown):
        lines += _field(name, text)
    for depth, step in _steps(card):
        facts = f" ({facts})" if step.kind != "round" and (facts := facts_text(step)) else ""
        lines += [f"- {_code(line_of(step, depth))}{facts}", ""]
        for name, text in details(msgspec.structs.replace(step, arguments={})):
            lines += ["  " + line if line else "" for line in _field(name, text)]
    last = msgspec.structs.replace(card.turn, prompt="", sent="", input="", inputs={}, ran=True)
    for name, text in details(last):
        lines += _field(name, text)
    return lines if card.turn.error else [*lines, "No error.", ""]


def _steps(card: Card) -> Iterator[tuple[int, TraceNode]]:
    """Yield the agent's own rounds, calls and notes, without those inside its calls."""
    for step in card.turn.children:
        yield card.depth + (step.kind in DEEPER), step
        yield from ((card.depth + 1, call) for call in step.children if step.kind == "round")


def _status(node: TraceNode) -> str:
    return ", ".join(part for part in (node.outcome, facts_text(node)) if part)


def _field(name: str, text: str) -> list[str]:
    return [f"{name.capitalize()}:", "", *code_block(text, "text").splitlines(), ""]


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _code(text: str) -> str:
    text = " ".join(text.split())
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"
