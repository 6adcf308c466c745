"""Finds calls in text, in linear time for any text.

Calls are found anywhere, also inside code fences, where models put them. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...values import Value
from .patterns import DEFAULT_PATTERNS, Pattern, closes_itself, name_in, object_in

CLOSINGS_TRIED_MAX = 8  # how many ends of a call are tried, since parameters may contain the closing text

PARALLEL_TAG = re.compile(r"<(/?)parallel_tool_calls\s*+>", re.IGNORECASE)
_BRACE = re.compile(r"\s*+\{")

_Span: TypeAlias = tuple[int, int]


class FoundCall(Value, frozen=True):
    start: int
    end: int
    name: str
    arguments: dict[str, Any]
    parallel: bool = False


def find_calls(text: str, patterns: Iterable[Pattern] = DEFAULT_PATTERNS) -> list[FoundCall]:
    """Return the calls in order. Of overlapping calls the outermost counts; a call without an end is ignored."""
    found = [call for pattern in patterns for call in _Finder(pattern, text).find()]
    calls: list[FoundCall] = []
    for call in sorted(found, key=lambda call: (call.start, -call.end)):
        if not calls or call.start >= calls[-1].end:
            calls.append(call)
    regions = _parallel_regions(text, calls)
    return [msgspec.structs.replace(call, parallel=True) if is_inside(call.start, regions) else call for call in calls]


def _parallel_regions(text: str, calls: Sequence[FoundCall]) -> list[_Span]:
    """Return the regions between tags for parallel calls. Tags inside a call's parameters are text."""
    spans = [(call.start, call.end) for call in calls]
    regions: list[_Span] = []
    begin: int | None = None
    for tag in PARALLEL_TAG.finditer(text):
        if is_inside(tag.start(), spans):
            continue
        if not tag[1]:
            begin = tag.end() if begin is None else begin
        elif begin is not None:
            regions.append((begin, tag.start()))
            begin = None
    return regions


def is_inside(index: int, spans: Sequence[_Span]) -> bool:
    before = bisect_right(spans, index, key=lambda span: span[0]) - 1
    return before >= 0 and index < spans[before][1]


class _Finder:
    """Finds the calls of one pattern in linear time."""

    def __init__(self, pattern: Pattern, text: str) -> None:
        self.pattern, self.text = pattern, text
        self.chars_to_try = 4 * len(text)
        """How many characters failed attempts may still read, which keeps the time linear."""

    def find(self) -> Iterator[FoundCall]:
        openings = list(self.pattern.opening.finditer(self.text))
        if self.pattern.closing is None:
            for match in openings:
                if read := self.pattern.read(name_in(match), match.groupdict().get("body") or ""):
                    yield FoundCall(match.start(), match.end(), *read)
            return
        closings = list(self.pattern.closing.finditer(self.text)) if openings else []
        partners = {} if self.pattern.body_is_json else _partners(openings, closings)
        starts = [closing.start() for closing in closings]
        done = 0
        for opening in openings:
            if opening.start() < done:
                continue
            first = bisect_left(starts, opening.end())
            call = self._call_from(opening, closings[first : first + CLOSINGS_TRIED_MAX], partners)
            if call is not None:
                done = call.end
                yield call

    def _call_from(
        self, opening: re.Match[str], closings: Sequence[re.Match[str]], partners: Mapping[int, re.Match[str]]
    ) -> FoundCall | None:
        name = name_in(opening)
        if not name and not self.pattern.body_is_json:
            return None
        if closes_itself(opening):
            return FoundCall(opening.start(), opening.end(), name, {})
        closing = self._closing_of_json(opening.end(), closings) or partners.get(opening.start())
        if closing is None:
            return None
        read = self.pattern.read(name, self.text[opening.end() : closing.start()])
        return FoundCall(opening.start(), closing.end(), *read) if read else None

    def _closing_of_json(self, start: int, closings: Sequence[re.Match[str]]) -> re.Match[str] | None:
        """Return the first closing that makes the body a complete object; earlier ones are inside its strings."""
        if not _BRACE.match(self.text, start):
            return None
        for closing in closings:
            self.chars_to_try -= closing.start() - start
            if self.chars_to_try < 0:
                return None
            if object_in(self.text[start : closing.start()].strip()) is not None:
                return closing
        return None


def _partners(openings: Sequence[re.Match[str]], closings: Sequence[re.Match[str]]) -> dict[int, re.Match[str]]:
    """Match openings and closings like brackets. A leftover opening has no closing."""
    partners: dict[int, re.Match[str]] = {}
    unclosed: list[re.Match[str]] = []
    pending = iter(openings)
    opening = next(pending, None)
    for closing in closings:
        while opening is not None and opening.start() < closing.start():
            if not closes_itself(opening):
                unclosed.append(opening)
            opening = next(pending, None)
        if unclosed:
            partners[unclosed.pop().start()] = closing
    return partners
