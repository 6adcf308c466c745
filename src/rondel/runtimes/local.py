"""The runtime that everybody has: jobs run in this process, and what is pending is kept in the store.

A key that is idle costs nothing: no task, no queue. Knows nothing of turns, and no SQL.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count

from ..clock import Clock, SystemClock
from ..errors import RondelError, nearest
from ..job import Handler, Job, JobStore

logger = logging.getLogger("rondel.runtime")


class Work:
    """A job that this runtime has taken on; its task, once its key is free.

    `cancelled` says that it is to be forgotten, not kept for a restart.
    """

    __slots__ = ("cancelled", "job", "task")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.task: asyncio.Task[bool] | None = None
        self.cancelled = False


class LocalRuntime:
    """Jobs of one key one after the other, jobs of different keys side by side.

    A handler that raises is logged and its job is finished. A job that `stop` interrupts stays in the store.
    """

    def __init__(self, store: JobStore, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._handlers: Mapping[str, Handler] = {}
        self._works: dict[str, Work] = {}
        # The line of each busy key: its first work runs, the others wait.
        self._lines: dict[str, deque[Work]] = {}
        # Works whose time has not come, earliest first, and the one task that waits for them.
        self._later: list[tuple[float, int, Work]] = []
        self._withdrawn = 0
        self._numbers = count()
        self._timekeeper: asyncio.Task[None] | None = None
        self._started = False
        self._stopping = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None

    async def start(self, handlers: Mapping[str, Handler], *, recover: bool = True) -> None:
        if self._started:
            raise RondelError("this runtime is running already: stop it before you start it again")
        self._started = True
        try:
            orphans = await self._store.orphaned_jobs() if recover else []
        except BaseException:
            self._started = False
            raise
        self._handlers = dict(handlers)
        self._stopping.clear()
        entered: asyncio.Future[asyncio.TaskGroup] = asyncio.get_running_loop().create_future()
        # A task without a group, because it owns the group of all jobs' tasks; `stop` awaits it.
        self._owner = asyncio.create_task(self._own_jobs(entered), name="rondel-runtime")  # noqa: TID251
        self._group = await entered
        for job in orphans:
            if job.kind in self._handlers:
                self._take_on(job)
            else:
                logger.warning("job %r was left alone: nobody handles jobs of kind %r", job.id, job.kind)

    async def submit(self, job: Job) -> bool:
        """The job begins when it is kept: nothing runs that a crash would make unheard of."""
        if self._group is None:
            raise RondelError(f"job {job.id!r} cannot be submitted: the runtime is not running; start it first")
        if job.kind not in self._handlers:
            raise RondelError(f"nobody handles jobs of kind {job.kind!r}{nearest(job.kind, [*self._handlers])}")
        if job.id in self._works:
            return False
        try:
            kept = await self._store.put_job(job)
        except asyncio.CancelledError:  # which a store raises only when it is done: the job is kept, so it runs
            self._take_on_kept(job)
            raise
        if kept:
            self._take_on_kept(job)
        return kept

    async def recover(self, key: str) -> list[Job]:
        known = set(self._works)  # one of them may end while the store is read
        orphans = [job for job in await self._store.orphaned_jobs(key) if job.id not in known | self._works.keys()]
        for job in orphans:
            self._take_on_kept(job)
        return orphans

    async def cancel(self, id: str) -> bool:
        work = self._works.get(id)
        if work is None:
            return False
        await self._withdraw(work)
        return True

    async def drain(self) -> None:
        while tasks := [line[0].task for line in self._lines.values() if line[0].task is not None]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        if self._owner is None:
            return
        if any(work.task is asyncio.current_task() for work in self._works.values()):
            raise RondelError("a job cannot stop the runtime that runs it: let whoever started the runtime do that")
        self._stopping.set()
        await asyncio.wait([self._owner])
        self._works.clear()
        self._lines.clear()
        self._later.clear()
        self._owner = self._timekeeper = None
        self._started = False

    async def _own_jobs(self, entered: asyncio.Future[asyncio.TaskGroup]) -> None:
        async with asyncio.TaskGroup() as group:
            entered.set_result(group)
            try:
                await self._stopping.wait()
            finally:
                # From here on nothing new begins, whether `stop` or the end of the loop brought us here.
                self._group = None
            for work in self._works.values():
                if work.task is not None:
                    work.task.cancel()
            if self._timekeeper is not None:
                self._timekeeper.cancel()

    # --- one job's way --------------------------------------------------------------------------------------------

    def _take_on_kept(self, job: Job) -> None:
        """Begin what was submitted, unless it was submitted twice or the runtime has stopped meanwhile."""
        if self._group is not None and job.id not in self._works:
            self._take_on(job)

    def _take_on(self, job: Job) -> Work:
        work = self._works[job.id] = Work(job)
        if job.at and job.at > self._clock.now():
            self._wait_for(work)
        else:
            self._line_up(work)
        return work

    def _line_up(self, work: Work) -> None:
        line = self._lines.get(work.job.key)
        if line is None:
            self._lines[work.job.key] = deque((work,))
            self._begin(work)
        else:
            line.append(work)

    def _begin(self, work: Work) -> None:
        assert self._group is not None, "jobs begin only while the runtime runs"
        work.task = self._group.create_task(self._run(work.job), name=work.job.id)
        # Not a `finally` in the coroutine: one that is cancelled before its first step has none.
        work.task.add_done_callback(partial(self._end, work))

    async def _run(self, job: Job) -> bool:
        """Whether the job is over: one that was interrupted is not, even if its handler fell over in that moment."""
        try:
            await self._handlers[job.kind](job)
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            logger.error("job %r of kind %r gave up: something that it waited for was cancelled", job.id, job.kind)
        except Exception:
            logger.exception("job %r of kind %r failed", job.id, job.kind)
            return not _is_being_cancelled()
        return True

    def _end(self, work: Work, task: asyncio.Task[bool]) -> None:
        self._works.pop(work.job.id, None)
        is_over = not task.cancelled() and task.exception() is None and task.result()
        if is_over or work.cancelled:
            self._store.finish_job(work.job.id)
        line = self._lines[work.job.key]
        line.popleft()
        if not line:
            del self._lines[work.job.key]
        elif self._group is not None:
            self._begin(line[0])

    async def _withdraw(self, work: Work) -> None:
        """End a job for good: its task, or its place in a line."""
        work.cancelled = True
        if work.task is not None:
            work.task.cancel()
            if work.task is not asyncio.current_task():
                await asyncio.wait([work.task])
            return
        self._works.pop(work.job.id, None)
        line = self._lines.get(work.job.key)
        if line is not None and work in line:
            line.remove(work)
        elif self._later:
            self._forget_later()
        self._store.finish_job(work.job.id)

    # --- jobs for later -------------------------------------------------------------------------------------------

    def _wait_for(self, work: Work) -> None:
        heapq.heappush(self._later, (work.job.at, next(self._numbers), work))
        if self._later[0][2] is not work:
            return
        assert self._group is not None, "jobs are taken on only while the runtime runs"
        if self._timekeeper is not None:
            self._timekeeper.cancel()
        self._timekeeper = self._group.create_task(self._keep_time(), name="rondel-timekeeper")

    def _forget_later(self) -> None:
        """One that is withdrawn stays in the heap, marked: to look for each there would cost a walk through all. They
        are cleared away when they are the most."""
        self._withdrawn += 1
        if self._withdrawn * 2 > len(self._later):
            self._later = [late for late in self._later if not late[2].cancelled]
            heapq.heapify(self._later)
            self._withdrawn = 0

    async def _keep_time(self) -> None:
        while self._later:
            await self._clock.sleep_until(self._later[0][0])
            while self._later and (self._later[0][2].cancelled or self._later[0][0] <= self._clock.now()):
                work = heapq.heappop(self._later)[2]
                if work.cancelled:
                    self._withdrawn = max(0, self._withdrawn - 1)
                else:
                    self._line_up(work)
        self._timekeeper = None


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
