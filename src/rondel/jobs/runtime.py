"""The local runtime: each process runs the jobs that it submitted, and pending jobs are kept in the store.

A job is claimed in the store before it runs, so jobs of one key run one at a time in all processes that share it. An
idle key costs nothing, neither a task nor a queue, and nothing listens to other processes unless a job runs or waits.
Knows no turns and no SQL.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Mapping
from functools import partial
from itertools import count, islice

import msgspec

from ..contracts.clock import Clock, SystemClock
from ..contracts.runtime import Handler, Job, JobQueue, Signal, SignalHandler
from ..errors import RondelError, StoreError, nearest

logger = logging.getLogger("rondel.runtime")

LISTEN_AFTER_S = 0.1
"""How long a job runs before this runtime listens for signals of other processes: most jobs end sooner."""
PATIENCE_S = 5.0
"""How long a job waits for an earlier one of another process that could begin but does not: a suspended process
(Ctrl-Z) must not hold up the others."""
STORE_PAUSE_S = 1.0  # how long to wait after a failure of the store before the next attempt


class Work(msgspec.Struct, eq=False):
    """A job of this runtime, with its task once it has a slot of its key.

    `running`: its claim was granted. `cancelled`: it is deleted when it ends, not kept for a restart.
    """

    job: Job
    task: asyncio.Task[bool] | None = None
    cancelled: bool = False
    running: bool = False


class LocalRuntime:
    """Runs jobs of one key one after the other, and jobs of different keys in parallel.

    If a handler raises, that is logged and the job is finished. A job that `stop` interrupts stays in the store.
    """

    def __init__(self, store: JobQueue, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._handlers: Mapping[str, Handler] = {}
        self._on_signal: SignalHandler | None = None
        self._works: dict[str, Work] = {}
        # The jobs of each busy key: the first ones, as many as the key has slots, have a task; the others wait.
        self._lines: dict[str, list[Work]] = {}
        # Jobs whose time has not come, earliest first, and the one task that waits for them.
        self._later: list[tuple[float, int, Work]] = []
        self._withdrawn = 0
        self._numbers = count()
        self._timekeeper: asyncio.Task[None] | None = None
        # The task that listens to other processes, or the timer that starts it; and the future on which jobs wait whose
        # key another process has claimed.
        self._listening: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._news: asyncio.Future[None] | None = None
        self._started = False
        self._stopping = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None

    async def start(
        self, handlers: Mapping[str, Handler], *, recover: bool = True, on_signal: SignalHandler | None = None
    ) -> None:
        if self._started:
            raise RondelError("this runtime is already running: stop it before you start it again")
        self._started = True
        try:
            orphans = await self._store.orphaned_jobs() if recover else []
        except BaseException:
            self._started = False
            raise
        self._handlers, self._on_signal = dict(handlers), on_signal
        self._stopping.clear()
        entered: asyncio.Future[asyncio.TaskGroup] = asyncio.get_running_loop().create_future()
        # A task without a group, because it owns the group of all jobs' tasks; `stop` awaits it.
        self._owner = asyncio.create_task(self._own_jobs(entered), name="rondel-runtime")  # noqa: TID251
        self._group = await entered
        for job in orphans:
            if job.kind in self._handlers:
                self._take_on(job)
            else:
                logger.warning("job %r was ignored: no handler for jobs of kind %r", job.id, job.kind)

    async def submit(self, job: Job) -> bool:
        """Submit a job. It begins only when it is stored, so that no crash can lose a job that has begun."""
        if self._group is None:
            raise RondelError(f"job {job.id!r} cannot be submitted: the runtime is not running; start it first")
        if job.kind not in self._handlers:
            raise RondelError(f"no handler for jobs of kind {job.kind!r}{nearest(job.kind, [*self._handlers])}")
        if job.id in self._works:
            return False
        try:
            kept = await self._store.put_job(job)
        except asyncio.CancelledError:  # a store raises this only after the write: the job is stored, so it runs
            self._take_on(job)
            raise
        if kept:
            self._take_on(job)
        return kept

    async def recover(self, key: str) -> list[Job]:
        known = set(self._works)  # some may end while the store is read
        orphans = [job for job in await self._store.orphaned_jobs(key) if job.id not in known | self._works.keys()]
        for job in orphans:
            self._take_on(job)
        return orphans

    async def cancel(self, id: str) -> bool:
        work = self._works.get(id)
        if work is None:
            return False
        await self._withdraw(work)
        return True

    async def signal(self, signal: Signal) -> bool:
        for work in self._lines.get(signal.key, ()):
            if (work.running and not signal.job) or work.job.id == signal.job:
                return await self._deliver(msgspec.structs.replace(signal, job=work.job.id))
        return await self._store.signal_job(signal)

    def is_pending(self, key: str) -> bool:
        return key in self._lines

    async def drain(self) -> None:
        while tasks := [work.task for line in self._lines.values() for work in line if work.task is not None]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        if self._owner is None:
            return
        if any(work.task is asyncio.current_task() for work in self._works.values()):
            raise RondelError("a job cannot stop the runtime that runs it; stop it from outside")
        self._stopping.set()
        await asyncio.wait([self._owner])
        self._works.clear()
        self._lines.clear()
        self._later.clear()
        self._owner = self._timekeeper = self._listening = self._news = None
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
            if self._listening is not None:
                self._listening.cancel()

    # --- running a job --------------------------------------------------------------------------------------------

    def _take_on(self, job: Job) -> None:
        """Run a job that is stored, or wait for its time; unless it is known already or the runtime is stopping."""
        if self._group is None or job.id in self._works:
            return
        work = self._works[job.id] = Work(job)
        if job.at and job.at > self._clock.now():
            self._wait_for(work)
        else:
            self._enqueue(work)

    def _enqueue(self, work: Work) -> None:
        line = self._lines.setdefault(work.job.key, [])
        line.append(work)
        if len(line) <= work.job.slots:
            self._begin(work)

    def _begin(self, work: Work) -> None:
        assert self._group is not None, "jobs begin only while the runtime runs"
        work.task = self._group.create_task(self._run(work), name=work.job.id)
        # Not a `finally` in the coroutine: a task that is cancelled before its first step never runs it.
        work.task.add_done_callback(partial(self._end, work))

    async def _run(self, work: Work) -> bool:
        """Run a job, and return whether it has ended. An interrupted one has not, even if its handler raised another
        error then."""
        job = work.job
        await self._claim(job)
        work.running = True
        if self._listening is None:
            self._listening = asyncio.get_running_loop().call_later(LISTEN_AFTER_S, self._listen)
        try:
            await self._handlers[job.kind](job)
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            logger.error("job %r of kind %r ended: something that it waited for was cancelled", job.id, job.kind)
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
        line.remove(work)
        if not line:
            del self._lines[work.job.key]
        elif self._group is not None:
            for waiting in islice(line, line[0].job.slots):
                if waiting.task is None:
                    self._begin(waiting)

    # --- other processes ------------------------------------------------------------------------------------------

    async def _claim(self, job: Job) -> None:
        """Wait until the store grants the claim: no other process has the key, or queued earlier.

        After a failure of the store this tries again: an error from here would end all jobs of this runtime.
        """
        # `since` is when the last job of another process ended: patience counts from there, however long that job ran.
        loop, since, failing = asyncio.get_running_loop(), 0.0, False
        while True:
            try:
                claim = await self._store.claim_job(job.id, patient=not since or loop.time() - since < PATIENCE_S)
                if claim == "granted":
                    return
                if claim == "gone" and await self._store.put_job(job):
                    continue  # another process took it over as an orphan, but callers here still wait for it
                since = 0.0 if await self._store.is_claimed(job.key) else since or loop.time()
                failing = False
            except (StoreError, OSError) as error:
                if not failing:
                    logger.warning("job %r waits: its claim cannot be written: %s", job.id, error)
                failing = True
            if not isinstance(self._listening, asyncio.Task):
                self._listen()
            if self._news is None:
                self._news = loop.create_future()
            await asyncio.wait([self._news])  # not awaited directly: cancelling one job must not cancel it for all

    def _listen(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._listening = None
        if self._group is not None:
            self._listening = self._group.create_task(self._hear_others(), name="rondel-listener")

    async def _hear_others(self) -> None:
        """Deliver the signals of other processes, and let waiting jobs try again, while there are jobs.

        It looks once more after the end of the last job: a signal may have been sent just before.
        """
        last_look = failing = False
        while not last_look:
            last_look = not self._lines
            try:
                for signal in await self._store.wait_for_others():
                    await self._deliver(signal)
                failing = False
            except Exception as error:  # of any kind: an error that leaves this task would end all jobs
                if not failing:
                    logger.warning("signals of other processes cannot be read: %s", error)
                failing = True
                await asyncio.sleep(STORE_PAUSE_S)
            news, self._news = self._news, None
            if news is not None:
                news.set_result(None)
            last_look = last_look and not self._lines
        self._listening = None

    async def _deliver(self, signal: Signal) -> bool:
        try:
            return self._on_signal is not None and await self._on_signal(signal)
        except Exception:
            logger.exception("the signal %r could not be delivered to job %r", signal.kind, signal.job)
            return False

    # --- cancelling a job -----------------------------------------------------------------------------------------

    async def _withdraw(self, work: Work) -> None:
        """Cancel the task of a job, or remove the job from where it waits; and delete it from the store."""
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
        assert self._group is not None, "jobs are only accepted while the runtime runs"
        if self._timekeeper is not None:
            self._timekeeper.cancel()
        self._timekeeper = self._group.create_task(self._keep_time(), name="rondel-timekeeper")

    def _forget_later(self) -> None:
        """Leave a withdrawn job in the heap, marked, because finding it would mean a search through all of them. They
        are removed when they are more than half of the heap."""
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
                    self._enqueue(work)
        self._timekeeper = None


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
