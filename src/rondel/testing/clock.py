"""A clock that tests move."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


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
