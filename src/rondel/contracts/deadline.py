"""Deadlines that share one timer, because most calls end long before theirs.

`asyncio.timeout` sets and cancels a timer for each use, which costs more than many tools do. Knows no tools.
"""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Protocol


class Due(Protocol):
    """Something that expires at a time of the loop."""

    @property
    def at(self) -> float: ...

    def expire(self) -> None: ...


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self._open: dict[Due, None] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # when it is due; a timer of uvloop may not say

    def until(self, at: float | None) -> Deadline:
        """`with deadlines.until(loop_time):` raises TimeoutError in its task when that time comes; None never does."""
        return Deadline(self, at)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, deadline: Due) -> None:
        self._open[deadline] = None
        if self._timer is None or deadline.at < self._timer_at:
            self._arm(deadline.at)

    def remove(self, deadline: Due) -> None:
        self._open.pop(deadline, None)  # the timer stays: it then finds nothing, or the next deadline

    def _arm(self, at: float) -> None:
        self.close()
        self._timer_at, self._timer = at, asyncio.get_running_loop().call_at(at, self._go_off)

    def _go_off(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for deadline in [deadline for deadline in self._open if deadline.at <= now]:
            del self._open[deadline]
            deadline.expire()
        if self._open:
            self._arm(min(deadline.at for deadline in self._open))


class Deadline:
    def __init__(self, deadlines: Deadlines, at: float | None) -> None:
        self._deadlines = deadlines
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.at = inf if at is None else at
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Deadline:
        if self.at != inf:
            self._task = asyncio.current_task()
            self._cancelling = self._task.cancelling() if self._task else 0
            self._deadlines.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._deadlines.remove(self)
        # Only our own cancellation becomes a TimeoutError; any other is passed on.
        ours = self.expired and self._task.uncancel() <= self._cancelling
        if ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error
