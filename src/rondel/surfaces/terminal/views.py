"""Draws what commands return, for a terminal. Values in, things that rich prints out."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from ...contracts.command import Choices, Clip, Document, Draft, Outline, Output, Table
from ...text.printable import clean
from .listing import Listing, cut

_STYLES = {
    "done": "green",
    "waiting": "yellow",
    "failed": "red",
    "stopped": "yellow",
    "limited": "yellow",
    "cancelled": "yellow",
    "working": "cyan",
    "running": "cyan",
    "interrupted": "yellow",
}
"""The colours of states, by their first word."""
_STATES = ("state", "status")
_NAMES = {"root": "bold", "turn": "bold cyan", "round": "dim", "call": "bold", "job": "bold", "note": "yellow"}


def render(output: Output) -> RenderableType:
    match output:
        case Table():
            return _listing(output)
        case Choices():
            made = Listing()
            for option in output.options:
                made.add_row("›" if option.is_current else "", clean(option.name), clean(option.description))
            lines = (Text(clean(text)) for text in (output.text, output.hint))
            before, after = ([line] if line else [] for line in lines)
            return Group(*before, made, *after)
        case Outline():
            tree = Tree(_label(output), guide_style="dim")
            _add_children(tree, output)
            return Group(tree)
        case Clip() | Document() | Draft():  # without a screen there is only the text
            return Text(clean(output.text))
        case _:
            return Text(clean(output))


def state_text(state: str) -> Text:
    return Text(state, _STYLES.get(state.partition(" ")[0], ""))


def _listing(table: Table) -> Listing:
    made = Listing(*table.headings, growing=table.flexible)
    states = [index for index, heading in enumerate(table.headings) if heading in _STATES]
    for row in table.rows:
        cells = [state_text(cell) if index in states else Text(cell) for index, cell in enumerate(row)]
        if not table.wraps:
            cells[-table.flexible :] = [cut(cell) for cell in row[-table.flexible :]]
        made.add_row(*cells)
    return made


def _add_children(tree: Tree, node: Outline) -> None:
    for child in node.children:
        _add_children(tree.add(_label(child)), child)


def _label(node: Outline) -> Text:
    if node.kind == "detail":
        return Text.assemble((f"{node.name}: ", "dim"), node.text)
    label = Text("job " if node.kind == "job" else "", "dim")
    label.append(f"{node.name}:" if node.kind == "note" else node.name, _NAMES[node.kind])
    label.append(f" {node.text}" if node.text or node.kind in ("turn", "call") else "")
    label.append(f" [{node.facts}]" if node.facts else "", "dim")
    if node.status:
        label.append(" ").append_text(state_text(node.status))
    return label
