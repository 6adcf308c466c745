"""How a ratio is taken: CPU time of this process (all its threads), ours and theirs in turn, in many short rounds.

What else the machine does makes a round more expensive and never cheaper, and it hits the larger program harder, whose
data does not stay in the processor's caches. So the cheapest quarter of each side's rounds is compared.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

ROUNDS = 20


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
    a, b = (cheapest_quarter(side) / per for side in zip(*pairs, strict=True))
    return Ratio(what, a / b, limit, shown(a), shown(b))


def cheapest_quarter(spent: Sequence[float]) -> float:
    """What the cheapest quarter of the rounds cost at most."""
    return statistics.quantiles(spent, n=4)[0]


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"
