"""Notices that a caller has left, and cancels what is made for it.

There is no task that waits for that: one for each request would cost as much as reading it. Instead, what the server's
`receive` waits for calls back. That must be a future of asyncio's, as it is in servers made for it. Knows no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, TypeAlias

Receive: TypeAlias = Callable[[], Awaitable[Any]]
LEFT = "http.disconnect"


class Leaving:
    """`with Leaving(receive, is_over) as leaving:` ends early when the caller leaves, and `has_left` says so. A caller
    whose answer `is_over` may leave."""

    __slots__ = ("_cancelling", "_ended", "_is_over", "_receive", "_receiving", "_task", "_wait", "has_left")

    def __init__(self, receive: Receive, is_over: Callable[[], bool]) -> None:
        self._receive, self._is_over = receive, is_over
        self._receiving: Generator[Any, Any, Any] | None = None
        self._wait: asyncio.Future[Any] | None = None
        self._ended = self.has_left = False

    def __enter__(self) -> Leaving:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._ended = True  # its callback may be under way
        if self._wait is not None:
            self._wait.remove_done_callback(self._step)
        if self._receiving is not None:
            self._receiving.close()
        if not self.has_left:
            return False
        # Only our own cancelling ends here: somebody else's goes on.
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    def _step(self, _: object = None) -> None:
        """Go on to receive until that has to wait."""
        self._wait = None
        while self._wait is None and not self._ended:
            if self._receiving is None:
                self._receiving = self._receive().__await__()
            try:
                wait: Any = self._receiving.send(None)
            except StopIteration as message:
                self._receiving = None
                if message.value["type"] == LEFT:
                    self._leave()
                    return
            else:
                wait._asyncio_future_blocking = False  # we wait for it, as a task would
                wait.add_done_callback(self._step)
                self._wait = wait

    def _leave(self) -> None:
        if not self._is_over():
            self.has_left = True
            self._task.cancel()
