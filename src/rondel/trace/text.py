"""The words of a trace: a line for each node, its details, and how times, tokens and money are written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from ..values import Usage

if TYPE_CHECKING:
    from .node import TraceNode

CUT_OFF = "cut off"
"""The outcome of a turn that neither finished nor waits: it is at work now, or a crash ended it."""
NO_RESULT = "no result"
"""The outcome of a call that ran and found nothing: a soft failure."""
THROWN_AWAY = "thrown away"
"""The outcome of a round whose reply nobody kept."""
PLUGIN_FAILED, WARNING, LIMIT, ERROR = "plugin failed", "warning", "limit reached", "error"
WRONG = frozenset(("failed", CUT_OFF, NO_RESULT, PLUGIN_FAILED, WARNING, LIMIT, ERROR))
"""Outcomes, and names of notes, that a person who looks for trouble wants to find."""
LINE_CHARS_MAX = 120
DEEPER = ("call", "job")
"""The kinds of node that stand a level below what they are in."""


_SHOWN = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
"""Control characters by their pictures, and those that turn the direction of a line by their names."""

WENT_ON = "went on with what it had begun to say"
OWN_WORDS = {
    ("words", "words"): "carried out the directives of its prompt",
    ("words", ""): WENT_ON,
    ("template", "words"): "carried out the directives of its template",
    ("template", ""): "filled in its template",
    ("function", "function"): "ran its function",
    ("function", "words"): "carried out the directives of its prompt",
    ("function", "output"): "carried out the directives in what its function gave",
    ("function", ""): "said what its function gave",
    ("job", "step"): "took the next step of the job",
    ("job", ""): "said what the last step of the job gave",
}
"""What was done in rounds that asked no model, by the name that they bear as an engine, and by what was called in them:
the author's directives (`words`), the agent's function, the directives in its `output`, a step of a job, or nothing."""


def shown(text: str) -> str:
    """A text as a page and a terminal can carry it: what would command them is seen and does nothing."""
    text = text.replace("\r\n", "\n").translate(_SHOWN)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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


def money_text(cost: Decimal | None, unpriced: int = 0) -> str:
    """`$0.0123`; two digits more than would be zero, because a round often costs less than a cent."""
    if cost is None:
        return ""
    places = 2 if cost == 0 or cost >= 1 else max(2, 1 - cost.adjusted())
    return f"{'at least ' if unpriced else ''}${cost:,.{places}f}"


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def facts_text(node: TraceNode) -> str:
    """Time, tokens and money, as far as they are known."""
    known = (seconds_text(node.seconds), tokens_text(node.usage), money_text(node.cost, node.unpriced))
    return ", ".join(part for part in known if part)


def line_of(node: TraceNode, depth: int) -> str:
    at = f"Depth {depth}: "
    match node.kind:
        case "turn":
            error = f", failed: {one_line(node.error)}" if node.error else ""
            return f"{at}agent {node.name} was asked {one_line(node.input)!r}: {node.outcome}{error}"
        case "round":
            facts = f" ({facts})" if (facts := facts_text(node)) else ""
            return f"{at}{round_text(node)}{facts if node.ran else ''}"
        case "call":
            answer = f", held for {node.question!r}, answered {node.answer or '(not yet)'}" if node.question else ""
            failed = f", failed: {one_line(node.error)}" if node.error else ""
            failed = f", {NO_RESULT}" if node.outcome == NO_RESULT else failed
            return f"{at}called tool {node.name} with args {arguments_text(node.arguments)}{answer}{failed}"
        case "job":
            failed = f", failed: {one_line(node.error)}" if node.error else ""
            return f"{at}job {node.name} in the background: {node.outcome}{failed}"
        case "note":
            return f"{at}{node.name}: {one_line(note_text(node))}"
        case "conversation":
            return ""


def round_text(node: TraceNode) -> str:
    if node.did:
        return node.did
    return f"asked {answered_by(node)}" if node.ran else "asked nobody: the prompt was blank"


def answered_by(node: TraceNode) -> str:
    """The engine of a round, and the model that answered where it is another one than was asked for."""
    other = node.model and not node.name.endswith(node.model)
    return f"{node.name} ({node.model})" if other else node.name


def note_text(node: TraceNode) -> str:
    return node.output or (arguments_text(node.arguments) if node.arguments else "")


def one_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    text = " ".join(text[: chars_max * 8].split())  # a result may have megabytes
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def details(node: TraceNode) -> Iterator[tuple[str, str]]:
    """What is known of a node beside its line, by name, in the order in which it came about."""
    named = (
        ("instructions", node.prompt),
        ("as sent", node.sent),
        ("input", node.input),
        ("inputs", arguments_text(node.inputs) if node.inputs and node.inputs != {"input": node.input} else ""),
        ("arguments", arguments_text(node.arguments) if node.arguments else ""),
        ("thinking", node.thinking),
        ("question", node.question),
        ("answer", node.answer),
        ("output", node.output),
        ("error", node.error),
        ("reason", node.reason),
        ("facts", arguments_text(node.facts) if node.facts else ""),
        ("ran", "" if node.ran else "no"),
    )
    return ((name, text) for name, text in named if text.strip())
