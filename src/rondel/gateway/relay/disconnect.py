"""Notices that a caller has disconnected, and cancels the work that is done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeAlias

Receive: TypeAlias = Callable[[], Awaitable[Any]]
DISCONNECT = "http.disconnect"


WATCH_AFTER_S = 0.05
"""Most answers that are not streamed slowly are complete by then, and need no task that watches the caller."""


class DisconnectGuard:
    """`with DisconnectGuard(group, receive, is_over) as guard:` ends early when the caller disconnects, and
    `guard.has_left` says so. A caller that disconnects when its answer `is_over` changes nothing. The task that watches
    the caller runs in `group`; it starts after `WATCH_AFTER_S`."""

    def __init__(self, group: asyncio.TaskGroup, receive: Receive, is_over: Callable[[], bool]) -> None:
        self._group, self._receive, self._is_over = group, receive, is_over
        self.has_left = False

    def __enter__(self) -> DisconnectGuard:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._watcher: asyncio.TimerHandle | asyncio.Task[None] = asyncio.get_running_loop().call_later(
            WATCH_AFTER_S, self._start
        )
        return self

    def _start(self) -> None:
        self._watcher = self._group.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._watcher.cancel()
        if not self.has_left:
            return False
        # Swallow only our own cancellation: another one, such as the server's, must still end the task.
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != DISCONNECT:
            pass
        if not self._is_over():
            self.has_left = True
            self._task.cancel()
