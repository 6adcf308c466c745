"""A trace as text: lines, Markdown, and the words for times, tokens and arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..values import Usage

if TYPE_CHECKING:
    from .node import TraceNode


def arguments_text(arguments: Mapping[str, Any], chars_max: int | None = None) -> str:
    """Arguments as JSON on one line, cut where they are long."""
    text = msgspec.json.encode(dict(arguments), enc_hook=str).decode()
    return text if chars_max is None or len(text) <= chars_max else text[: chars_max - 1] + "…"


def tokens_text(usage: Usage) -> str:
    """`120 in (80 cached), 40 out`, or nothing when nobody counted."""
    if not (usage.tokens_in or usage.tokens_out):
        return ""
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    about = "about " if usage.estimated else ""
    return f"{about}{usage.tokens_in:,} in{cached}, {usage.tokens_out:,} out"


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def facts_text(node: TraceNode) -> str:
    """Time and tokens, as far as they are known."""
    return ", ".join(part for part in (seconds_text(node.seconds), tokens_text(node.usage)) if part)


def line_of(node: TraceNode, depth: int) -> str:
    at = f"Depth {depth}: "
    match node.kind:
        case "turn":
            error = f", failed: {node.error}" if node.error else ""
            return f"{at}agent {node.name} was asked {_one_line(node.input)!r}: {node.outcome}{error}"
        case "round":
            asked = f"{at}asked {node.name}" + (f" ({facts})" if (facts := facts_text(node)) else "")
            return asked if node.ran else f"{at}asked nobody: the prompt was blank"
        case "call":
            answer = f", held for {node.question!r}, answered {node.answer or '(not yet)'}" if node.question else ""
            failed = f", failed: {_one_line(node.error)}" if node.error else ""
            return f"{at}called tool {node.name} with args {arguments_text(node.arguments)}{answer}{failed}"
        case "note":
            return f"{at}{node.name}: {_one_line(node.output)}"
        case "conversation":
            return ""


def _one_line(text: str, chars_max: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def short_markdown(root: TraceNode) -> list[str]:
    lines = [f"# Trace of {root.name or 'a conversation'}", ""]
    for depth, node in root.walk():
        indent = "  " * (depth + (node.kind != "turn"))
        if node.kind == "turn":
            lines.append(f"{indent}- **{node.name}** ({_status(node)}): {_one_line(node.input)}")
        elif node.kind == "call":
            lines.append(f"{indent}- `{node.name}` {_code(arguments_text(node.arguments, 200))} ({_status(node)})")
        elif node.kind == "note":
            lines.append(f"{indent}- {node.name}: {_one_line(node.output)}")
        elif node.kind == "round" and node.output:
            lines.append(f"{indent}- said: {_one_line(node.output)}")
    return lines


def _status(node: TraceNode) -> str:
    return ", ".join(part for part in (node.outcome, facts_text(node), _one_line(node.error)) if part)


def long_markdown(root: TraceNode) -> list[str]:
    lines = [f"# Trace of {root.name or 'a conversation'}", ""]
    for depth, node in root.walk():
        if node.kind == "conversation":
            continue
        level = "#" * min(6, depth + (2 if node.kind == "turn" else 3))
        title = {"turn": f"Agent {node.name}", "round": f"Asked {node.name}", "call": f"Called {node.name}"}
        lines += [f"{level} {title.get(node.kind, node.name.capitalize())}", ""]
        if status := _status(node):
            lines += [f"*{status}*", ""]
        for label, text in _fields(node):
            lines += [f"{label}:", "", *_fenced(text), ""]
    return lines


def _fields(node: TraceNode) -> Iterator[tuple[str, str]]:
    named = (
        ("Instructions", node.prompt),
        ("Input", node.input),
        ("Inputs", arguments_text(node.inputs) if node.inputs else ""),
        ("Arguments", arguments_text(node.arguments) if node.kind == "call" else ""),
        ("Thinking", node.thinking),
        ("Question", node.question),
        ("Answer", node.answer),
        ("Output", node.output if node.kind != "turn" else ""),
        ("Error", node.error),
    )
    return ((label, text) for label, text in named if text)


def _code(text: str) -> str:
    ticks = "`" * (_longest_run(text) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _fenced(text: str) -> list[str]:
    """A code block whose fence is longer than any in the text: what it holds cannot end it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return [f"{fence}text", *text.splitlines(), fence]


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
