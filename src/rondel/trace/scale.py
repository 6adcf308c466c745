"""A time line on which long pauses between steps are drawn short. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from .node import TraceNode

PAUSE_SHARE = 0.04  # the longest pause that is drawn, as a share of the total working time


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
