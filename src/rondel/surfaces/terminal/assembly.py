"""Draws how a prompt is made, for a terminal of 80 columns or more: the tree, the steps, the messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...machine.tokens import TokenBreakdown
from ...prompt import HISTORY
from ...text.printable import clean, one_line
from ...trace.provenance import Change, Piece, SentMessage
from ...values import Media, ToolCall, ToolResult, ToolSpec, Value

TEXT_CHARS_MAX = 200
MESSAGE_CHARS_MAX = 4_000
_SIGNS = {"added": ("+", "green"), "changed": ("~", "yellow"), "removed": ("-", "red")}
_ROLES = {"system": "magenta", "user": "cyan", "assistant": "blue", "tool": "yellow"}


class StepView(Value, frozen=True):
    """One step, and what it changed. `notes` are what plugins reported."""

    step: Literal["plugin", "finalize", "flatten", "complete"]
    progress: float
    plugin: str
    entry: str
    changes: tuple[Change, ...]
    tokens: int
    messages: int
    notes: tuple[str, ...] = ()


class Assembly(Value, frozen=True):
    """What the author wrote, each step, and what the model gets."""

    agent: str
    engine: str
    written: tuple[Piece, ...]
    written_tools: tuple[ToolSpec, ...]
    steps: tuple[StepView, ...]
    messages: tuple[SentMessage, ...]
    tools: tuple[ToolSpec, ...]
    tokens: TokenBreakdown


def assembly_view(assembly: Assembly) -> RenderableType:
    return Group(
        _heading("The author's prompt"),
        _tree(assembly.written, assembly.written_tools),
        Text(),
        _heading("Changes by plugins, in order"),
        _steps(assembly.steps),
        Text(),
        _heading(f"What {assembly.engine} gets"),
        *_messages(assembly.messages),
        _tools(assembly.tools, assembly.tokens.tools),
        Text(),
        _total(assembly.tokens),
    )


def _heading(text: str) -> Table:
    made = _grid()
    made.add_row(Text(one_line(text, TEXT_CHARS_MAX), "bold"), Text("tokens", "dim"))
    return made


def _grid() -> Table:
    """Return a grid with a wide column that is cut to the terminal, and a narrow one for numbers."""
    made = Table.grid(expand=True, padding=(0, 1))
    made.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    made.add_column(no_wrap=True, justify="right", min_width=6)
    return made


# --- the tree ---------------------------------------------------------------------------------------------------------


def _tree(pieces: Sequence[Piece], tools: Sequence[ToolSpec]) -> Table:
    made = _grid()
    for piece in pieces:
        made.add_row(_piece(piece), _number(piece.tokens) if piece.enabled else Text("off", "dim"))
    if tools:
        made.add_row(Text.assemble(("  tools ", "dim"), one_line(", ".join(t.name for t in tools), TEXT_CHARS_MAX)), "")
    return made


def _piece(piece: Piece) -> Text:
    indent = "  " * (piece.depth + 1)
    name = Text(piece.id if piece.kind == "node" else "", "bold" if piece.enabled else "dim")
    if piece.role:
        name.append(" " if name else "")
        name.append(f"[{piece.role}]", _ROLES.get(piece.role, ""))
    caption = piece.caption or ("the conversation" if piece.id == HISTORY else "")
    if caption:
        name.append(f" ({one_line(caption, 40)})", "dim")
    text = Text(one_line(piece.text, TEXT_CHARS_MAX), "" if piece.enabled else "dim")
    return Text.assemble(indent, name, "  " if text else "", text)


def _number(tokens: int, *, signed: bool = False) -> Text:
    if not tokens:
        return Text("")
    return Text(f"{tokens:+,}" if signed else f"{tokens:,}")


# --- the steps --------------------------------------------------------------------------------------------------------


def _steps(steps: Sequence[StepView]) -> Table:
    made = _grid()
    for number, step in enumerate((s for s in steps if s.step == "plugin"), 1):
        busy = bool(step.changes or step.notes)
        entry = f" {step.entry}" if step.entry else ""
        name = Text.assemble(
            (f"{number:3} ", "dim"), (step.plugin, "bold" if busy else "dim"), entry, "" if busy else (" –", "dim")
        )
        made.add_row(name, "")
        for change in step.changes:
            made.add_row(_change(change), _number(change.tokens, signed=True))
        for note in step.notes:
            made.add_row(Text.assemble("      ", ("! ", "yellow"), one_line(note, TEXT_CHARS_MAX)), "")
    return made


def _change(change: Change) -> Text:
    sign, style = _SIGNS[change.what]
    kind = "" if change.kind == "node" else f"{change.kind} "
    position = f" {change.position}" if change.position else ""
    text = one_line(change.text, TEXT_CHARS_MAX)
    return Text.assemble(
        "      ", (f"{sign} ", style), (kind, "dim"), (one_line(change.id, 64), style), (position, "dim"), "  ", text
    )


# --- the messages -----------------------------------------------------------------------------------------------------


def _messages(messages: Sequence[SentMessage]) -> Iterator[RenderableType]:
    for number, item in enumerate(messages, 1):
        made = _grid()
        role = item.message.role
        label = Text.assemble((f"{number:3} ", "dim"), (role, f"bold {_ROLES.get(role, '')}"), "  ")
        label.append(" + ".join(_sources(item)), "dim")
        made.add_row(label, _number(item.tokens))
        yield made
        yield Padding(Text(_said(item)), (0, 7, 0, 4))


def _sources(item: SentMessage) -> list[str]:
    """Return where a message comes from, and what was inserted into it from elsewhere."""
    top = item.source
    pieces = (item.pieces[0], *(piece for piece in item.pieces[1:] if piece.source[: len(top)] != top))
    return list(dict.fromkeys(_path(piece) for piece in pieces))


def _path(piece: Piece) -> str:
    """Return the path to the source, without the parts that all paths share and without ids of single messages."""
    steps = [step for step in piece.source if step != "children"]
    if piece.kind == "message" and len(steps) > 2:
        steps = steps[:-1]
    return one_line(" › ".join(steps), 80)


def _said(item: SentMessage) -> str:
    others = [_in_words(part) for part in item.message.parts if isinstance(part, (Media, ToolCall, ToolResult))]
    text = clean(item.message.text).strip()
    if len(text) > MESSAGE_CHARS_MAX:
        text = f"{text[:MESSAGE_CHARS_MAX]}… ({len(text) - MESSAGE_CHARS_MAX:,} more characters)"
    return "\n".join(part for part in (text, *others) if part) or "(empty)"


def _in_words(part: Media | ToolCall | ToolResult) -> str:
    if isinstance(part, Media):
        return f"[{part.kind}: {one_line(part.name or part.url or part.mime, 60)}]"
    if isinstance(part, ToolCall):
        return f"[call: {one_line(part.name, 64)}]"
    return f"[result: {one_line(part.text, TEXT_CHARS_MAX)}]"


def _tools(tools: Sequence[ToolSpec], tokens: int) -> Table:
    made = _grid()
    if tools:
        names = ", ".join(one_line(tool.name, 64) for tool in tools)
        made.add_row(Text.assemble(("  + ", "dim"), ("tools", "bold"), "  ", names), _number(tokens))
    return made


def _total(tokens: TokenBreakdown) -> Text:
    spent = {
        "instructions": tokens.system,
        "user": tokens.user,
        "assistant": tokens.assistant,
        "results": tokens.results,
        "tools": tokens.tools,
    }
    parts = ", ".join(f"{name} {count:,}" for name, count in spent.items() if count)
    window = f" of {tokens.limit:,}" if tokens.limit else ""
    return Text.assemble((f"About {tokens.total:,} tokens", "bold"), window, (f": {parts}" if parts else "", "dim"))
