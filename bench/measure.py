"""How a ratio is taken: CPU time of this process (all its threads), ours and theirs in turn, in many short rounds.

The speed of a machine changes within tenths of a second, and by half where others use the same core. So each round of
ours is compared with the one of theirs beside it, and the median of these ratios counts.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

ROUNDS = 40


class Ratio(NamedTuple):
    what: str
    ratio: float
    limit: float
    ours: str
    theirs: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.holds else "OVER"
        return f"{mark} {self.ratio:7.2f}x  (limit {self.limit:g}x)  {self.what}: {self.ours} against {self.theirs}"


async def cpu_of(work: Callable[[], Awaitable[None]], *, tidy: bool = True) -> float:
    if tidy:
        gc.collect()
    start = time.process_time()
    await work()
    return time.process_time() - start


async def compare(
    what: str,
    ours: Callable[[], Awaitable[None]],
    theirs: Callable[[], Awaitable[None]],
    *,
    limit: float,
    per: int = 1,
    rounds: int = ROUNDS,
) -> Ratio:
    """Ours against theirs, interleaved so that a slow moment of the machine hits both."""
    await ours()
    await theirs()
    pairs = [(await cpu_of(ours), await cpu_of(theirs)) for _ in range(rounds)]
    spent = [[cpu_s / per for cpu_s in side] for side in zip(*pairs, strict=True)]
    return compared(what, spent[0], spent[1], limit)


def compared(what: str, ours: Sequence[float], theirs: Sequence[float], limit: float) -> Ratio:
    """Compare the rounds of two sides that took turns."""
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return Ratio(what, ratio, limit, shown(statistics.median(ours)), shown(statistics.median(theirs)))


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"
