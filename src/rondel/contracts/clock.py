"""The clock that is passed in, and the system's.

`now` is in seconds since the epoch, so that stored times can be compared after a restart. Knows no job and no turn.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

SLEEP_S_MAX = 60.0  # the longest single sleep: a suspended laptop or a changed clock is noticed within this time


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    async def sleep_until(self, at: float) -> None:
        """Return when `now()` is `at` or later; at once if it already is."""


class SystemClock:
    now = staticmethod(time.time)

    async def sleep_until(self, at: float) -> None:
        # Not one long sleep: nothing reports that the system's clock was changed.
        while (left_s := at - time.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, SLEEP_S_MAX))
