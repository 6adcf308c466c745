"""Ends the work for a request early: when its caller has disconnected, or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeAlias

from ...contracts.deadline import Deadlines

Receive: TypeAlias = Callable[[], Awaitable[Any]]
DISCONNECT = "http.disconnect"


WATCH_AFTER_S = 0.05
"""Most answers that are not streamed slowly are complete by then, and need no task that watches the caller."""


class DisconnectGuard:
    """`with DisconnectGuard(group, deadlines, receive, is_over) as guard:` ends early when the caller disconnects, and
    `guard.has_left` says so. A caller that disconnects when its answer `is_over` changes nothing. The task that watches
    the caller runs in `group`; it starts after `WATCH_AFTER_S`."""

    def __init__(
        self, group: asyncio.TaskGroup, deadlines: Deadlines, receive: Receive, is_over: Callable[[], bool]
    ) -> None:
        self._group, self._deadlines, self._receive, self._is_over = group, deadlines, receive, is_over
        self._watcher: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.has_left = False
        self.at = 0.0  # when the watcher starts

    def __enter__(self) -> DisconnectGuard:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self.at = task.get_loop().time() + WATCH_AFTER_S
        self._deadlines.add(self)
        return self

    def expire(self) -> None:
        """Called by the deadlines when the answer takes longer than most."""
        self._watcher = self._group.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._watcher is None:
            self._deadlines.remove(self)
        else:
            self._watcher.cancel()
        return self.has_left and self._is_only_reason() and isinstance(error, asyncio.CancelledError)

    def stop(self) -> None:
        """End the work because the server stops; a second time does nothing."""
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()

    def ended_by_stop(self) -> bool:
        """Whether a CancelledError of the work, which must have been caught, was caused by `stop` alone."""
        return self._is_stopped and self._is_only_reason()

    def _is_only_reason(self) -> bool:
        """Take back one cancellation of our own. Another one, such as the server's, must still end the task."""
        return self._task.uncancel() <= self._cancelling

    async def _watch(self) -> None:
        while (await self._receive())["type"] != DISCONNECT:
            pass
        if not self._is_over():
            self.has_left = True
            self._task.cancel()
