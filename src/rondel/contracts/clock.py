"""Clocks that are passed in: the system's, and one that tests move.

`now` is in seconds since the epoch, so that stored times can be compared after a restart. Knows no job and no turn.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count
from typing import Protocol

SLEEP_S_MAX = 60.0  # the longest sleep in one piece: a laptop that slept or a clock that was set is noticed within it


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    async def sleep_until(self, at: float) -> None:
        """Return when `now()` is `at` or later; at once if it already is."""


class SystemClock:
    now = staticmethod(time.time)

    async def sleep_until(self, at: float) -> None:
        # Not one long sleep: nothing reports that the system's clock was set.
        while (left_s := at - time.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, SLEEP_S_MAX))


class VirtualClock:
    """A clock that only `advance` moves."""

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self._now = now
        self._numbers = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    @property
    def sleepers(self) -> int:
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    async def sleep_until(self, at: float) -> None:
        if at <= self._now:
            return
        sleeper = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at, next(self._numbers), sleeper))
        await sleeper

    def advance(self, seconds: float) -> None:
        """Move the clock and wake those who sleep until then, earliest first. They run at the next await."""
        if seconds < 0:
            raise ValueError(f"time cannot run backwards: advance({seconds!r}); give 0 or more")
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)
