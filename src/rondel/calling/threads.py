"""Runs blocking functions in threads that nothing has to wait for.

With `asyncio.to_thread`, a program waits at its end for all threads, even those whose call was stopped or timed out,
and a few functions that never return fill the pool. These are daemon threads, which are reused. Knows no tools and no
turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..errors import RondelError

THREADS_MAX = 256  # how many functions may run at a time, including those whose callers have left


async def in_thread(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a function in a thread. If this is cancelled, the thread continues and its result is dropped."""
    if not _busy.acquire(blocking=False):
        raise RondelError(f"{THREADS_MAX} blocking functions are already running; try again when some have ended")
    job = _Job(functools.partial(function, *arguments, **named))
    try:
        _idle.pop().put(job)
    except IndexError:
        jobs: SimpleQueue[_Job] = SimpleQueue()
        jobs.put(job)
        threading.Thread(target=_serve, args=(jobs,), name="rondel-blocking", daemon=True).start()
    return await job.done


class _Job:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._context = work, contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self._loop.create_future()
        self._value: Any = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._context.run(self._work)
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:  # raised here, these would end the event loop
            self._failure = RuntimeError(f"{type(error).__name__}: {error}")
        except BaseException as error:
            self._failure = error

    def report(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self.done.done():  # the caller has left
            return
        if self._failure is not None:
            self.done.set_exception(self._failure)
        else:
            self.done.set_result(self._value)


_busy = threading.BoundedSemaphore(THREADS_MAX)
_idle: list[SimpleQueue[_Job]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has none of its parent's threads


def _serve(jobs: SimpleQueue[_Job]) -> None:
    while True:
        job = jobs.get()
        job.run()
        _busy.release()
        _idle.append(jobs)  # before the report: the caller's next call finds this thread free
        job.report()
        del job  # an idle thread must not keep results alive
