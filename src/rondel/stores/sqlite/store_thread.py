"""A thread that serves requests in order: all pending ones as one group, with one wake-up of the loop per group.

Two threads that wake each other cost more than most requests. So a group that need not wait for anything is served on
the loop's own thread while this one is idle. Knows no SQL: the function that serves a group is passed in.

A second Ctrl-C under `asyncio.run` raises KeyboardInterrupt anywhere on the loop's thread, and a callback of the loop
may be lost. Then all tasks are cancelled, and each must end: no request may stay unsettled, and the lock must be
released.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from ...errors import StoreError

CROWD_S = 0.0002  # requests that follow each other faster than this are served together


class StoreRequest(msgspec.Struct, kw_only=True, eq=False):
    """A request to a thread. The serving function sets `result` or `error`, and its thread then `settled`; the loop
    owns `waiter`.

    A request that is served later is marked as `deferred`, and added to the group that completes it.
    """

    result: Any = None
    error: Exception | None = None
    settled: bool = False
    deferred: bool = False
    waiter: asyncio.Future[None] | None = None


R = TypeVar("R", bound=StoreRequest)


class StoreThread(Generic[R]):
    """`serve` serves groups of requests on this thread; `finish` is called there at the end.

    `at_once` serves a group on the loop's thread. It must not wait for anything, and returns False if it would have to.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[list[R]], None],
        finish: Callable[[], None],
        at_once: Callable[[list[R]], bool] | None = None,
    ) -> None:
        self._serve, self._finish, self._at_once = serve, finish, at_once
        self._serving = threading.RLock()  # reentrant: an interrupted owner may not know that it has the lock
        self._requests: deque[R] = deque()
        # A token wakes the thread, once for all requests of one pass of the loop; False ends it.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._waking = False
        self._asked_at = 0.0
        self._asked_by: asyncio.Task[Any] | None = None
        self._end = StoreRequest()
        # A daemon, so that a program that forgets to close the store can end. Acknowledged entries are on disk.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        if not self._thread.is_alive():
            self._thread.start()

    def post(self, request: R) -> int:
        """Add a request without waiting; it is served with the next one that wakes the thread. Return how many wait."""
        self._requests.append(request)
        return len(self._requests)

    @property
    def posted(self) -> int:
        return len(self._requests)

    def wake(self) -> None:
        """Serve the requests as soon as the loop has run every task that is ready, which may add more."""
        assert self.loop is not None, "a thread is started before it is woken"
        if not self._waking:
            self.loop.call_soon(self._wake)
            self._waking = True

    def _wake(self) -> None:
        self._waking = False
        if self._at_once is None or not self._serve_here(self._at_once):
            self._tokens.put(True)

    def _serve_here(self, at_once: Callable[[list[R]], bool]) -> bool:
        group: list[R] = []
        try:
            if not self._serving.acquire(blocking=False):
                return False
            # Nothing is added meanwhile, because only this thread adds requests.
            group.extend(self._requests)
            self._requests.clear()
            if group and not at_once(group):
                self._requests.extendleft(reversed(group))
                return False
            _settle(group)
        except BaseException:
            for request in group:
                if not request.settled:
                    request.error = StoreError("the program was interrupted while this was written: it may be stored")
            _settle(group)
            raise
        finally:
            try:  # noqa: SIM105 - entering `suppress` can be interrupted
                self._serving.release()
            except RuntimeError:
                pass  # the other thread has it
        _wake_waiters(group)
        return True

    async def ask(self, request: R) -> Any:
        """Add a request and wait for its result.

        It is in the queue before the first wait. A caller that is cancelled meanwhile gets CancelledError only after
        the request was served, so it knows that it was done.
        """
        self._requests.append(request)
        # A single request is served here at once; requests of several tasks in one pass of the loop are served
        # together. A task that asks again has had its answer, so it does not count as several.
        task, now = asyncio.current_task(self.loop), monotonic()
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
        self._tokens.put(False)
        if not self._thread.is_alive():
            return  # it was interrupted while it started
        await self._served(self._end)
        if self._end.error is not None:
            raise self._end.error
        self._thread.join()

    async def _served(self, request: StoreRequest) -> None:
        assert self.loop is not None, "a thread is started before it is asked"
        cancelled: asyncio.CancelledError | None = None
        while not request.settled:
            request.waiter = self.loop.create_future()
            try:
                await request.waiter
            except asyncio.CancelledError as error:
                cancelled = error
                self._waking = False  # the callback that wakes the thread may be lost
                self._tokens.put(True)
        if cancelled is not None and request.error is None:
            raise cancelled

    def _run(self) -> None:
        collecting = True
        while collecting:
            collecting = self._tokens.get()
            with self._serving:
                group: list[R] = []
                while self._requests:  # one by one: the loop's thread may add more
                    group.append(self._requests.popleft())
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
            # Every waiting caller must get the error, of any kind: a thread that dies would leave all of them waiting.
            for request in group:
                request.error = request.error or error

    def _tell_loop(self, group: Sequence[StoreRequest]) -> None:
        assert self.loop is not None, "a thread is started before it serves"
        _settle(group)
        # A closed loop is not an error: no task waits any more.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_wake_waiters, group)


def _settle(group: Sequence[StoreRequest]) -> None:
    for request in group:
        if not request.deferred:
            request.settled = True


def _wake_waiters(group: Sequence[StoreRequest]) -> None:
    for request in group:
        waiter = request.waiter
        if waiter is not None and request.settled and not waiter.done():
            waiter.set_result(None)
