"""Renders a trace as a self-contained HTML page, which can be read without its script.

The serializer escapes all texts; a content security policy allows only this style and this script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree

from ..values import Usage
from .drafts import totals
from .node import TraceNode
from .text import (
    arguments_text,
    details,
    engines_text,
    facts_text,
    money_text,
    note_text,
    one_line,
    round_text,
    seconds_text,
    shown,
)

Element = ElementTree.Element

OPEN_NODES_MAX = 400  # a trace with at most this many steps is open; in a longer one only the last turn is
TEXT_CHARS_MAX = 50_000  # how many characters of one text are shown; JSON has all of them
INLINE_CHARS_MAX = 90  # a line that is not longer is shown without folding
PAUSE_SHARE = 0.04  # the longest pause that is drawn, as a share of the total working time
BAR_MIN = 4  # the smallest width of a bar, of 500

_KINDS = {"turn": "agent", "round": "asked", "call": "called", "job": "job", "note": ""}


def page(root: TraceNode) -> str:
    title = f"Agent trace: {one_line(root.agent or root.name or 'a conversation', 80)}"
    html = Element("html", lang="en")
    _head(html, title)
    body = _add(html, "body")
    _overview(_add(body, "header"), root, title)
    _tree(_add(body, "main"), root)
    _add(body, "script", _asset("page.js"))
    return "<!doctype html>\n" + ElementTree.tostring(html, encoding="unicode", method="html") + "\n"


# --- elements ---------------------------------------------------------------------------------------------------------


def _add(parent: Element, tag: str, text: str = "", css: str = "", **attributes: str) -> Element:
    given = {name.replace("_", "-"): value for name, value in attributes.items()}
    element = ElementTree.SubElement(parent, tag, ({"class": css} if css else {}) | given)
    if text:
        element.text = text if tag in ("style", "script") else shown(text)
    return element


@cache
def _asset(name: str) -> str:
    return files("rondel.trace").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _head(html: Element, title: str) -> None:
    head = _add(html, "head")
    _add(head, "meta", charset="utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(_asset('page.css'))}; script-src {_hash(_asset('page.js'))}; "
        "base-uri 'none'; form-action 'none'"
    )
    _add(head, "meta", http_equiv="Content-Security-Policy", content=policy)
    _add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _add(head, "meta", name="color-scheme", content="light dark")
    _add(head, "meta", name="referrer", content="no-referrer")
    _add(head, "title", title)
    _add(head, "style", _asset("page.css"))


# --- what it was, all in all ------------------------------------------------------------------------------------------


def _overview(header: Element, root: TraceNode, title: str) -> None:
    _add(header, "h1", title, dir="auto")
    line = _add(header, "p", css="sub")
    _add(line, "code", root.name or "a conversation")
    if root.at:
        _time(line, root.at)
    if root.outcome:
        _add(line, "span", root.outcome, css=_outcome_class(root))
    nodes = [node for _, node in root.walk()]
    wrong = sum(node.went_wrong for node in nodes)
    numbers = _add(header, "dl", css="totals")
    for name, value in _totals(root, nodes, wrong):
        pair = _add(numbers, "div", css="bad" if name == "problems" and wrong else "")
        _add(pair, "dt", name)
        _add(pair, "dd", value)
    _by_model(header, [node for node in nodes if node.asked])
    tools = _add(header, "p", css="tools", hidden="")
    for action, label in (("open", "Open all"), ("close", "Close all"), ("wrong", f"Next problem ({wrong})")):
        if action != "wrong" or wrong:
            _add(tools, "button", label, type="button", data_action=action)


def _totals(root: TraceNode, nodes: list[TraceNode], wrong: int) -> Iterable[tuple[str, str]]:
    usage, about = root.usage, "about " if root.usage.estimated else ""
    count = {kind: sum(node.kind == kind for node in nodes) for kind in ("call", "job")}
    yield "turns", f"{sum(node.kind == 'turn' for node in root.children):,}"
    yield "agents", f"{len({node.name for node in nodes if node.kind == 'turn'}):,}"
    yield "model calls", f"{sum(node.asked for node in nodes):,}"
    yield "tool calls", f"{count['call']:,}"
    if count["job"]:
        yield "jobs", f"{count['job']:,}"
    yield "problems", f"{wrong:,}"
    yield "at work", seconds_text(root.seconds)
    yield "tokens in", f"{about}{usage.tokens_in:,}"
    yield "of them cached", f"{usage.tokens_cached:,}"
    yield "tokens out", f"{about}{usage.tokens_out:,}"
    yield "cost", money_text(root.cost, root.unpriced) or "not known"


def _by_model(header: Element, rounds: list[TraceNode]) -> None:
    groups: dict[tuple[str, str], list[TraceNode]] = {}
    for node in rounds:
        groups.setdefault((node.agent, node.model or node.name), []).append(node)
    if not groups:
        return
    box = _add(header, "details", css="by-model")
    _add(box, "summary", "By agent and model")
    table = _add(_add(box, "div", css="scroll"), "table")
    row = _add(_add(table, "thead"), "tr")
    for name in ("agent", "model", "calls", "time", "in", "cached", "out", "cost"):
        _add(row, "th", name, scope="col")
    body = _add(table, "tbody")
    for (agent, model), nodes in groups.items():
        sums = totals(nodes)
        usage: Usage = sums["usage"]
        seconds = seconds_text(sum(node.seconds or 0.0 for node in nodes))
        tokens = (f"{n:,}" for n in (usage.tokens_in, usage.tokens_cached, usage.tokens_out))
        row = _add(body, "tr")
        _add(row, "th", agent, scope="row")
        cells = (model, f"{len(nodes):,}", seconds, *tokens, money_text(sums["cost"], sums["unpriced"]))
        for cell in cells:
            _add(row, "td", cell)


def _time(parent: Element, at: float) -> None:
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return
    _add(parent, "time", f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=moment.isoformat())


# --- the tree ---------------------------------------------------------------------------------------------------------


def _tree(main: Element, root: TraceNode) -> None:
    if not root.children:
        _add(main, "p", "Nothing has happened in this conversation yet.")
        return
    everything = sum(1 for _ in root.walk()) <= OPEN_NODES_MAX
    top = _add(main, "ol", css="tree" if everything else "tree long")
    for child in root.children:
        scale = Scale(span for _, node in child.walk() if (span := interval(node)))
        small = sum(1 for _ in child.walk()) <= OPEN_NODES_MAX
        last = child is root.children[-1]
        _branch(top, child, scale, opened=everything or (last and small), shown_open=everything or last)


def _branch(top: Element, node: TraceNode, scale: Scale, *, opened: bool, shown_open: bool) -> None:
    """Add a node and everything below it. `opened` says whether the nodes below are open, too."""
    pending = [(top, node, shown_open)]
    while pending:
        parent, node, is_open = pending.pop()
        item = _item(parent, node, scale, is_open=is_open)
        if node.children:
            inner = _add(item, "ol")
            pending += [(inner, child, opened) for child in reversed(node.children)]


def _item(parent: Element, node: TraceNode, scale: Scale, *, is_open: bool) -> Element:
    item = _add(parent, "li", css=f"{node.kind} wrong" if node.went_wrong else node.kind)
    said = _about(node)
    fields = [(name, text) for name, text in details(node) if text != said or not _is_short(text)]
    if not fields and not node.children:
        _label(_add(item, "div", css="line"), node, scale)
        return item
    box = _add(item, "details", **({"open": ""} if is_open else {}))
    _label(_add(box, "summary", css="line"), node, scale)
    if node.at and node.kind == "turn":
        _time(_add(box, "p", css="when"), node.at)
    for name, text in fields:
        _field(box, name, text)
    return box


def _label(line: Element, node: TraceNode, scale: Scale) -> None:
    if (kind := _KINDS.get(node.kind, node.kind)) and (node.kind != "round" or node.asked):
        _add(line, "span", kind, css="kind")
    name = node.name
    if node.kind == "round":
        name = engines_text(node) if node.asked else round_text(node)
    _add(line, "bdi", one_line(name), css="name")
    if preview := one_line(_about(node), 160):
        _add(line, "bdi", preview, css="about")
    _bar(line, node, scale)
    if facts := facts_text(node):
        _add(line, "span", facts, css="facts")
    if node.outcome and (node.kind != "round" or node.outcome not in ("end", "calls")):
        _add(line, "span", node.outcome, css=_outcome_class(node))


def _about(node: TraceNode) -> str:
    if node.kind == "call":
        return arguments_text(node.arguments) if node.arguments else ""
    said = {"turn": node.input, "round": node.output}
    return note_text(node) if node.kind == "note" else said.get(node.kind, "")


def _is_short(text: str) -> bool:
    return len(text) <= INLINE_CHARS_MAX and not re.search(r"[\r\n]", text)


def _outcome_class(node: TraceNode) -> str:
    known = {"done": "good", "failed": "bad", "waiting": "open"}
    return "outcome " + known.get(node.outcome, "bad" if node.went_wrong else "odd")


def _bar(line: Element, node: TraceNode, scale: Scale) -> None:
    """Draw when a step worked within its turn; a turn shows its steps."""
    steps = [inner for step in node.children for inner in (step, *step.children)] if node.kind == "turn" else [node]
    spans = [(step.kind, span) for step in steps if (span := interval(step))]
    if not spans:
        return
    picture = _add(line, "svg", css="bar", viewBox="0 0 500 10", preserveAspectRatio="none", aria_hidden="true")
    bars = {
        (kind, round(500 * scale.position(start)), round(500 * scale.position(end))): None
        for kind, (start, end) in spans
    }
    for kind, left, right in bars:  # of ten thousand steps, most have the same bar
        left = min(left, 500 - BAR_MIN)
        _add(picture, "rect", css=kind, x=str(left), y="0", width=str(max(BAR_MIN, right - left)), height="10")


def _field(box: Element, name: str, text: str) -> None:
    text, left = text[:TEXT_CHARS_MAX].strip("\n"), len(text) - TEXT_CHARS_MAX
    if _is_short(text):
        line = _add(box, "p", css=f"field {name}")
        _add(line, "span", name, css="label")
        _add(line, "bdi", text, css="text")
        return
    folded = _add(box, "details", css=f"field {name}")
    summary = _add(folded, "summary")
    _add(summary, "span", name, css="label")
    _add(summary, "bdi", one_line(text), css="text")
    _add(folded, "pre", text, dir="auto", tabindex="0", aria_label=name, role="region")
    if left > 0:
        _add(folded, "p", f"{left:,} more characters are left out here; rondel trace --json has them.", css="cut")


# --- a time line on which long pauses between steps are drawn short ---------------------------------------------------


def interval(node: TraceNode) -> tuple[float, float] | None:
    """Return when a node worked, without the time that a call waited for a person."""
    if node.ended_at is None or node.seconds is None or node.kind in ("conversation", "turn"):
        return None
    return node.ended_at - max(0.0, node.seconds), node.ended_at


class Scale:
    """Maps times to positions between 0 and 1."""

    def __init__(self, intervals: Iterable[tuple[float, float]]) -> None:
        busy = _merged(sorted(intervals))
        work_s = sum(end - start for start, end in busy)
        pause_s = work_s * PAUSE_SHARE
        self._moments: list[float] = []
        self._positions: list[float] = []
        position = 0.0
        for (start, end), (after, _) in pairwise((*busy, (float("inf"), 0.0))):
            self._moments += [start, end]
            self._positions += [position, position + end - start]
            position += end - start + (min(pause_s, after - end) if after != float("inf") else 0.0)
        self._whole = self._positions[-1] if self._positions else 0.0

    def position(self, at: float) -> float:
        """Return the position of a time; times outside are at the edge."""
        if not self._whole or at <= self._moments[0]:
            return 0.0
        if at >= self._moments[-1]:
            return 1.0
        index = bisect_right(self._moments, at) - 1
        start, end = self._moments[index : index + 2]
        share = (at - start) / (end - start) if end > start else 0.0
        return (self._positions[index] + share * (self._positions[index + 1] - self._positions[index])) / self._whole


def _merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in intervals:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
