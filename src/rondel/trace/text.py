"""The texts of a trace: a line for each node, its details, and how times, tokens and costs are written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from ..text.citations import label_of
from ..values import Usage

if TYPE_CHECKING:
    from .node import TraceNode

CUT_OFF = "cut off"  # the outcome of a turn that neither finished nor waits: it is running, or it crashed
NO_RESULT = "no result"  # the outcome of a call that ran and found nothing: a soft failure
DISCARDED = "discarded"  # the outcome of a round whose reply was discarded
UNDONE = "undone"  # the outcome of a turn that a person undid: the conversation continues without it
PLUGIN_FAILED, WARNING, LIMIT, ERROR = "plugin failed", "warning", "limit reached", "error"
NOTICE = "notice"  # what was said to people who waited for a round: a retry, another engine
WRONG = frozenset(("failed", "limited", CUT_OFF, NO_RESULT, PLUGIN_FAILED, WARNING, LIMIT, ERROR))
"""Outcomes and names of notes that count as problems."""
LINE_CHARS_MAX = 120
DEEPER = ("call", "job")  # the kinds of node that are one level below their parent


_SHOWN = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)  # control characters by their pictures, and those that change the direction of a line by their names

RESUMED = "resumed its reply"
OWN_WORDS = {
    ("words", "words"): "carried out the directives of its prompt",
    ("words", ""): RESUMED,
    ("template", "words"): "carried out the directives of its template",
    ("template", ""): "filled in its template",
    ("function", "function"): "ran its function",
    ("function", "words"): "carried out the directives of its prompt",
    ("function", "output"): "carried out the directives in its function's result",
    ("function", ""): "answered with its function's result",
    ("job", "step"): "ran the next step of the job",
    ("job", ""): "answered with the result of the job's last step",
}
"""What a round without a model did, by the name of its engine and by what it called: the author's directives
(`words`), the agent's function, the directives in its `output`, a step of a job, or nothing."""


def shown(text: str) -> str:
    """Return a text that is safe for a page and a terminal: control characters are shown and have no effect."""
    text = text.replace("\r\n", "\n").translate(_SHOWN)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def arguments_text(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(dict(arguments), enc_hook=str).decode()


def tokens_text(usage: Usage) -> str:
    """Return `120 in (80 cached), 40 out`, or an empty text if no tokens were counted."""
    if not (usage.tokens_in or usage.tokens_out):
        return ""
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    about = "about " if usage.estimated else ""
    return f"{about}{usage.tokens_in:,} in{cached}, {usage.tokens_out:,} out"


def money_text(cost: Decimal | None, unpriced: int = 0) -> str:
    """Return `$0.0123`: at least two significant digits, because a round often costs less than a cent."""
    if cost is None:
        return ""
    digits = 2 if cost == 0 or cost >= 1 else max(2, 1 - cost.adjusted())
    return f"{'at least ' if unpriced else ''}${cost:,.{digits}f}"


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def facts_text(node: TraceNode) -> str:
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
    return f"asked {engines_text(node)}" if node.ran else "asked no model: the prompt was blank"


def engines_text(node: TraceNode) -> str:
    """Return the engine of a round, and what answered if it is another engine or a model of another name."""
    text = f"{node.name}, answered by {node.answered_by}" if node.answered_by else node.name
    return text if text.endswith(node.model) else f"{text} ({node.model})"


def note_text(node: TraceNode) -> str:
    return node.output or (arguments_text(node.arguments) if node.arguments else "")


def one_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    text = " ".join(text[: chars_max * 8].split())  # a result may have megabytes
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def details(node: TraceNode) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each detail that a node's line leaves out, in the order in which they happened."""
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
        ("sources", "\n".join(f"[{s.number}] {label_of(s)} {s.address}".rstrip() for s in node.sources)),
        ("error", node.error),
        ("reason", node.reason),
        ("facts", arguments_text(node.facts) if node.facts else ""),
        ("ran", "" if node.ran else "no"),
    )
    return ((name, text) for name, text in named if text.strip())
