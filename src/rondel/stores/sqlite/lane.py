"""A thread that serves requests in the order in which they came, all that wait at once, and wakes the loop once.

Two threads that wake each other cost more than most requests. So what can be served without waiting for anything is
served on the loop's own thread, while the lane's is idle. Knows no SQL: what serves a group of requests is handed in.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

CROWD_S = 0.0002
"""Requests that follow each other faster than this are served together."""


class Request:
    """Something asked of a lane. Its server sets `result` or `error`; the loop's side owns `settled` and `waiter`."""

    __slots__ = ("error", "result", "settled", "waiter")

    def __init__(self) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self.settled = False
        self.waiter: asyncio.Future[None] | None = None


R = TypeVar("R", bound=Request)


class Lane(Generic[R]):
    """`serve` answers groups of requests on the lane's thread; `finish` is its last act there.

    `at_once` answers a group on the loop's thread. It must not wait for anything, and says False when it would have to.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[list[R]], None],
        finish: Callable[[], None],
        at_once: Callable[[list[R]], bool] | None = None,
    ) -> None:
        self._serve, self._finish, self._at_once = serve, finish, at_once
        self._serving = threading.Lock()
        self._requests: deque[R] = deque()
        # A token wakes the thread, once for all that was asked in one pass of the loop; False ends it.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._waking = False
        self._asked_at = 0.0
        self._asked_by: asyncio.Task[Any] | None = None
        self._end = Request()
        # A daemon, so that a program that forgets to close can end. What was acknowledged is on disk.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread.start()

    def post(self, request: R) -> None:
        """Ask without waiting for an answer; it is served with the next one that wakes the lane."""
        self._requests.append(request)

    @property
    def has_posted(self) -> bool:
        """Whether something waits that no token has been put for, or will be at once."""
        return bool(self._requests)

    def wake(self) -> None:
        """Have served what was asked, as soon as the loop has run whoever else is ready to ask."""
        assert self.loop is not None, "a lane is started before it is woken"
        if not self._waking:
            self._waking = True
            self.loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        if self._at_once is None or not self._serve_here(self._at_once):
            self._tokens.put(True)

    def _serve_here(self, at_once: Callable[[list[R]], bool]) -> bool:
        if not self._serving.acquire(blocking=False):
            return False
        try:
            group = self._take()
            if group and not at_once(group):
                self._requests.extendleft(reversed(group))
                return False
        finally:
            self._serving.release()
        _settle(group)
        return True

    async def ask(self, request: R) -> Any:
        """Ask and wait for the answer.

        The request is in its place before the first wait, and a caller who is cancelled meanwhile is told so only when
        it was served: whoever sees CancelledError come out of here knows that it was done.
        """
        assert self.loop is not None, "a lane is started before it is asked"
        self._requests.append(request)
        # Alone, it is served here and now. In a crowd, whoever asks in the same pass of the loop is served together.
        # Who asks again was answered before, and is no crowd.
        task, now = asyncio.current_task(), self.loop.time()
        crowd = self._waking or (now - self._asked_at < CROWD_S and task is not self._asked_by)
        self._asked_at, self._asked_by = now, task
        if crowd or self._at_once is None or not self._serve_here(self._at_once):
            self.wake()
        if not request.settled:
            await self._served(request)
        if request.error is not None:
            raise request.error
        return request.result

    async def aclose(self) -> None:
        """Serve what waits, then end the thread."""
        self._tokens.put(False)
        await self._served(self._end)
        if self._end.error is not None:
            raise self._end.error
        self._thread.join()

    async def _served(self, request: Request) -> None:
        assert self.loop is not None, "a lane is started before it is asked"
        cancelled: asyncio.CancelledError | None = None
        while not request.settled:
            request.waiter = self.loop.create_future()
            try:
                await request.waiter
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None and request.error is None:
            raise cancelled

    def _run(self) -> None:
        going_on = True
        while going_on:
            going_on = self._tokens.get()
            with self._serving:
                group = self._take()
                if group:
                    self._answer_group(group)
            if group:
                self._tell_loop(group)
        try:
            self._finish()
        except Exception as error:
            self._end.error = error
        self._tell_loop([self._end])

    def _answer_group(self, group: list[R]) -> None:
        try:
            self._serve(group)
        except Exception as error:
            # Whoever waits must hear of it, whatever it is: a thread that dies answers nobody ever again.
            for request in group:
                request.error = request.error or error

    def _take(self) -> list[R]:
        group: list[R] = []
        requests = self._requests
        while requests:
            group.append(requests.popleft())
        return group

    def _tell_loop(self, group: Sequence[Request]) -> None:
        assert self.loop is not None, "a lane is started before it serves"
        # A closed loop is no fault: nobody waits any more.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_settle, group)


def _settle(group: Sequence[Request]) -> None:
    for request in group:
        request.settled = True
        waiter = request.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
