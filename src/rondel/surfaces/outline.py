"""A trace as an outline, which a surface can show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..contracts.command import Outline
from ..text.printable import one_line
from ..trace import TraceNode, arguments_text, details, facts_text, note_text, round_text

OUTPUT_CHARS_MAX = 300
INPUT_CHARS_MAX = 100


def trace_outline(root: TraceNode, *, short: bool = False) -> Outline | str:
    if not root.children:
        return "Nothing happened in this conversation yet."
    children = tuple(_outline(turn, short=short) for turn in root.children)
    return Outline("root", one_line(root.name, 64), facts=facts_text(root), children=children)


def _outline(node: TraceNode, *, short: bool) -> Outline:
    name, text = one_line(node.name, 64), ""
    match node.kind:
        case "turn":
            text = one_line(node.input, INPUT_CHARS_MAX)
        case "round":
            name, text = round_text(node), ""
            if node.asked:
                name, _, text = name.partition(" ")
            text = one_line(text, 120)
        case "call":
            text = one_line(arguments_text(node.arguments), 160)
        case "note":
            text = one_line(note_text(node), OUTPUT_CHARS_MAX)
        case _:
            pass
    kind = node.kind if node.kind in ("turn", "round", "call", "job") else "note"
    status = "" if kind in ("round", "note") else node.outcome
    return Outline(kind, name, text, facts_text(node), status, tuple(_children(node, short=short)))


def _children(node: TraceNode, *, short: bool) -> Iterator[Outline]:
    if not short:
        for name, text in details(_without_label(node)):
            yield Outline("detail", name, one_line(text, OUTPUT_CHARS_MAX))
    for child in node.children:
        if short and child.kind == "round":
            yield from (_outline(call, short=True) for call in child.children)
        else:
            yield _outline(child, short=short)


def _without_label(node: TraceNode) -> TraceNode:
    """Return the node without what its label shows; a turn also without its output, which its last round shows."""
    shown: dict[str, dict[str, Any]] = {
        "turn": {"output": "", "input": "" if len(node.input) <= INPUT_CHARS_MAX else node.input},
        "call": {"arguments": {}},
        "note": {"output": "", "arguments": {}},
    }
    return msgspec.structs.replace(node, thinking="", **shown.get(node.kind, {}))
