"""Where a moment stands on a time line on which nobody waits: long pauses between steps are drawn short. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from .node import TraceNode

PAUSE_SHARE = 0.04
"""The longest pause that is drawn, as a share of all the time at work."""


def interval(node: TraceNode) -> tuple[float, float] | None:
    """When something was at work. A call that waited for a person was not, while it waited."""
    if node.ended_at is None or node.seconds is None or node.kind in ("conversation", "turn"):
        return None
    return node.ended_at - max(0.0, node.seconds), node.ended_at


class Scale:
    """From moments to places between 0 and 1."""

    def __init__(self, intervals: Iterable[tuple[float, float]]) -> None:
        busy = _merged(sorted(intervals))
        work_s = sum(end - start for start, end in busy)
        pause_s = work_s * PAUSE_SHARE
        self._moments: list[float] = []
        self._places: list[float] = []
        place = 0.0
        for (start, end), (after, _) in pairwise((*busy, (float("inf"), 0.0))):
            self._moments += [start, end]
            self._places += [place, place + end - start]
            place += end - start + (min(pause_s, after - end) if after != float("inf") else 0.0)
        self._whole = self._places[-1] if self._places else 0.0

    def place(self, at: float) -> float:
        """Where this moment stands; what lies outside stands at the edge."""
        if not self._whole or at <= self._moments[0]:
            return 0.0
        if at >= self._moments[-1]:
            return 1.0
        index = bisect_right(self._moments, at) - 1
        start, end = self._moments[index : index + 2]
        share = (at - start) / (end - start) if end > start else 0.0
        return (self._places[index] + share * (self._places[index + 1] - self._places[index])) / self._whole


def _merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals in order that do not touch."""
    merged: list[tuple[float, float]] = []
    for start, end in intervals:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
