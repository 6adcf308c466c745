"""The local runtime beyond its contract: what it does at a stop, a crash, and when the store fails."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TypeVar

import pytest

from rondel.contracts.runtime import Claim, Job, JobQueue, Signal
from rondel.errors import RondelError, StoreBusy, StoreFull
from rondel.jobs import runtime as local
from rondel.jobs.runtime import LocalRuntime
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import VirtualClock
from tests.contracts.workshop import Workshop, turn

T = TypeVar("T")


@asynccontextmanager
async def running(
    store: JobQueue | None = None, clock: VirtualClock | None = None
) -> AsyncIterator[tuple[LocalRuntime, Workshop]]:
    runtime, shop = LocalRuntime(store or MemoryStore(), clock or VirtualClock()), Workshop()
    await runtime.start({"turn": shop})
    try:
        yield runtime, shop
    finally:
        await runtime.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}, "no orphan task"


async def test_a_finished_id_may_come_again() -> None:
    store = MemoryStore()
    async with running(store=store) as (runtime, shop):
        shop.let("a", "b")
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        await shop.until("b ended", "a ended")
        assert await runtime.submit(turn("a")) is True


async def test_a_handler_that_raises_is_logged_and_the_key_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="rondel.runtime"):
        store, done = MemoryStore(), asyncio.Event()

        async def handle(job: Job) -> None:
            if job.id == "bad":
                raise ZeroDivisionError("oops")
            if job.id == "gives up":
                raise asyncio.CancelledError
            done.set()

        runtime = LocalRuntime(store, VirtualClock())
        await runtime.start({"turn": handle})
        for id in ("bad", "gives up", "good"):
            await runtime.submit(turn(id))
        async with asyncio.timeout(10):
            await done.wait()
        await runtime.stop()
        assert await store.orphaned_jobs() == []
    first, second = caplog.records
    assert first.getMessage() == "job 'bad' of kind 'turn' failed"
    assert first.exc_info is not None
    assert "job 'gives up' of kind 'turn' ended" in second.getMessage()


async def test_a_running_job_is_cancelled_waited_for_and_forgotten() -> None:
    store = MemoryStore()
    async with running(store=store) as (runtime, shop):
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        await shop.until("a began")
        assert await runtime.cancel("a") is True
        assert "a was cancelled" in shop.log
        assert await runtime.cancel("a") is False
        await shop.until("b began")
        assert await store.orphaned_jobs() == [turn("b")]


async def test_a_job_that_has_not_taken_its_first_step_can_be_cancelled() -> None:
    store = MemoryStore()
    async with running(store=store) as (runtime, shop):
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        assert await runtime.cancel("a") is True
        await shop.until("b began")
        assert shop.log == ["b began"]
        assert await store.orphaned_jobs() == [turn("b")]


async def test_a_waiting_job_is_forgotten_when_it_is_cancelled() -> None:
    store, clock = MemoryStore(), VirtualClock()
    async with running(store=store, clock=clock) as (runtime, shop):
        for job in (turn("a"), turn("b"), turn("c"), turn("late", at=clock.now() + 60)):
            await runtime.submit(job)
        assert await runtime.cancel("b") is True
        assert await runtime.cancel("late") is True
        assert await runtime.cancel("unknown") is False
        clock.advance(100)
        shop.let("a", "c")
        await shop.until("c ended")
        assert shop.log == ["a began", "a ended", "c began", "c ended"]
        await runtime.stop()
        assert await store.orphaned_jobs() == []


async def test_a_job_may_cancel_itself() -> None:
    runtime, ended = LocalRuntime(MemoryStore(), VirtualClock()), asyncio.Event()

    async def handle(job: Job) -> None:
        try:
            assert await runtime.cancel(job.id)
            await asyncio.Event().wait()
        finally:
            ended.set()

    await runtime.start({"turn": handle})
    await runtime.submit(turn("a"))
    async with asyncio.timeout(10):
        await ended.wait()
    await runtime.stop()


async def test_what_is_taken_up_again_is_not_what_runs_or_has_just_run() -> None:
    class Slow(MemoryStore):
        """Tells of a job, and only then lets the loop go on, in which that job ends."""

        async def orphaned_jobs(self, key: str = "") -> list[Job]:
            found = await super().orphaned_jobs(key)
            for _ in range(20):
                await asyncio.sleep(0)
            return found

    async with running(store=Slow()) as (runtime, shop):
        await runtime.submit(turn("a"))
        await shop.until("a began")
        shop.let("a")
        assert await runtime.recover("") == []
        assert shop.log == ["a began", "a ended"]


async def test_stop_interrupts_what_runs_and_a_restart_takes_everything_up() -> None:
    """Q02: pending work survives a restart."""
    store, clock = MemoryStore(), VirtualClock()
    jobs = [turn("a"), turn("b"), turn("other", key="d"), turn("late", at=clock.now() + 5)]
    async with running(store=store, clock=clock) as (runtime, shop):
        for job in jobs:
            await runtime.submit(job)
        await shop.until("a began", "other began")
        await runtime.stop()
        assert shop.log == ["a began", "other began", "a was cancelled", "other was cancelled"]
        assert await store.orphaned_jobs() == jobs
        with pytest.raises(RondelError, match="job 'x' cannot be submitted: the runtime is not running"):
            await runtime.submit(turn("x"))
        await runtime.stop()
    async with running(store=store, clock=clock) as (runtime, shop):
        assert await runtime.submit(turn("b")) is False
        shop.let("a", "b", "other", "late")
        await shop.until("b ended", "other ended")
        clock.advance(5)
        await shop.until("late ended")
        assert [line for line in shop.log if line[0] in "abl"] == [
            *("a began", "a ended", "b began", "b ended", "late began", "late ended")
        ]


async def test_a_handler_that_falls_over_at_a_stop_leaves_its_job_for_the_restart(caplog: pytest.LogCaptureFixture):
    store, began = MemoryStore(), asyncio.Event()

    async def handle(job: Job) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            raise OSError("the connection is gone")

    runtime = LocalRuntime(store, VirtualClock())
    await runtime.start({"turn": handle})
    await runtime.submit(turn("a"))
    await began.wait()
    await runtime.stop()
    assert await store.orphaned_jobs() == [turn("a")]
    assert "job 'a' of kind 'turn' failed" in caplog.text


async def test_a_job_cannot_stop_its_own_runtime(caplog: pytest.LogCaptureFixture) -> None:
    runtime, refused = LocalRuntime(MemoryStore(), VirtualClock()), asyncio.Event()

    async def handle(job: Job) -> None:
        with pytest.raises(RondelError, match="a job cannot stop the runtime that runs it"):
            await runtime.stop()
        refused.set()

    await runtime.start({"turn": handle})
    await runtime.submit(turn("a"))
    async with asyncio.timeout(10):
        await refused.wait()
    await runtime.stop()
    assert caplog.records == []


async def test_without_recovery_what_was_left_is_left() -> None:
    store, shop = MemoryStore(), Workshop()
    await store.put_job(turn("old"))
    runtime = LocalRuntime(store, VirtualClock())
    await runtime.start({"turn": shop}, recover=False)
    assert await runtime.submit(turn("old")) is False
    shop.let("new")
    await runtime.submit(turn("new"))
    await shop.until("new ended")
    await runtime.stop()
    assert shop.log == ["new began", "new ended"]
    assert await store.orphaned_jobs() == [turn("old")]


async def test_a_kind_that_nobody_handles_is_refused_or_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await store.put_job(Job("strange", "schedule", "c"))
    async with running(store) as (runtime, _):
        with pytest.raises(RondelError, match="no handler for jobs of kind 'job'; available: turn"):
            await runtime.submit(Job("x", "job", "c"))
        assert await store.orphaned_jobs() == [Job("strange", "schedule", "c")]
    assert "job 'strange' was ignored: no handler for jobs of kind 'schedule'" in caplog.text


async def test_a_job_that_cannot_be_kept_does_not_begin() -> None:
    class FullStore(MemoryStore):
        async def put_job(self, job: Job) -> bool:
            raise StoreFull("no space is left")

    began: list[str] = []

    async def handle(job: Job) -> None:
        began.append(job.id)

    runtime = LocalRuntime(FullStore(), VirtualClock())
    await runtime.start({"turn": handle})
    with pytest.raises(StoreFull):
        await runtime.submit(turn("a"))
    await runtime.drain()
    assert began == []
    assert await runtime.cancel("a") is False
    await runtime.stop()


async def test_an_idle_key_has_no_task() -> None:
    left, all_ran = 1000, asyncio.Event()

    async def handle(job: Job) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_ran.set()

    store = MemoryStore()
    runtime = LocalRuntime(store, VirtualClock())
    await runtime.start({"turn": handle})
    for number in range(left):
        await runtime.submit(turn(f"j{number}", key=f"k{number}"))
    async with asyncio.timeout(10):
        await all_ran.wait()
    assert len(asyncio.all_tasks()) == 2, "this one, and the one that owns the jobs"
    await runtime.stop()
    assert await store.orphaned_jobs() == []


def test_a_loop_that_ends_without_a_stop_keeps_the_jobs() -> None:
    store = MemoryStore()

    async def main() -> None:
        shop, runtime = Workshop(), LocalRuntime(store, VirtualClock())
        await runtime.start({"turn": shop})
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        await shop.until("a began")

    asyncio.run(main())
    assert asyncio.run(store.orphaned_jobs()) == [turn("a"), turn("b")]


async def test_a_new_process_takes_up_what_a_dead_one_left_in_the_file(tmp_path: Path) -> None:
    """Q02: pending work survives a restart."""
    async with SqliteStore(tmp_path / "rondel.db") as store:
        runtime, shop = LocalRuntime(store), Workshop()
        await runtime.start({"turn": shop})
        for id in ("a", "b", "c"):
            await runtime.submit(turn(id))
        shop.let("a")
        await shop.until("b began")
        await runtime.stop()
    async with SqliteStore(tmp_path / "rondel.db") as store:
        runtime, shop = LocalRuntime(store), Workshop()
        shop.let("b", "c")
        await runtime.start({"turn": shop})
        await shop.until("c ended")
        await runtime.stop()
        assert shop.log == ["b began", "b ended", "c began", "c ended"]
        assert await store.orphaned_jobs() == []


async def test_a_process_that_has_nothing_to_do_listens_to_nobody() -> None:
    """Trust 2: idle processes cost nothing."""

    def listeners() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "rondel-listener"]

    store, shop = MemoryStore(), Workshop()
    one, other = LocalRuntime(store), LocalRuntime(store.beside())
    async with asyncio.timeout(30):
        for runtime, id in ((one, "a"), (other, "b")):
            await runtime.start({"turn": shop})
            await runtime.submit(turn(id))
        await shop.until("a began")
        while not listeners():  # one waits for the other
            await asyncio.sleep(0.01)
        shop.let("a", "b")
        await shop.until("b ended")
        while listeners():
            await asyncio.sleep(0.01)
        await one.stop()
        await other.stop()


async def test_what_a_dead_process_held_is_free(tmp_path: Path) -> None:
    """Trust 2: who waits for it goes on by itself, and leaves alone what it did not submit."""
    async with SqliteStore(tmp_path / "rondel.db") as store:
        dead, shop = SqliteStore(tmp_path / "rondel.db"), Workshop()
        await dead.put_job(turn("a"))
        runtime = LocalRuntime(store)
        await runtime.start({"turn": shop})
        shop.let("b")
        await runtime.submit(turn("b"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert shop.log == []
        await dead.aclose()
        await shop.until("b ended")
        assert shop.log == ["b began", "b ended"]
        await runtime.stop()
        assert await store.orphaned_jobs() == [turn("a")]


class FullForAWhile(MemoryStore):
    """Cannot write the first claim of one job."""

    def __init__(self, id: str) -> None:
        super().__init__()
        self._id, self.asked = id, 0

    async def claim_job(self, id: str, *, patient: bool = True) -> Claim:
        self.asked += id == self._id
        if self.asked == 1 and id == self._id:
            raise StoreFull("the disk is full")
        return await super().claim_job(id, patient=patient)


async def test_a_claim_that_cannot_be_written_delays_its_job_and_disturbs_no_other() -> None:
    """Trust 2: it ended every job of the process, and nothing could be submitted any more."""
    store = FullForAWhile("b")
    async with running(store=store) as (runtime, shop):
        await runtime.submit(turn("a", key="a"))
        await runtime.submit(turn("b", key="b"))
        shop.let("b")
        await shop.until("a began", "b ended")
        assert store.asked == 2
        shop.let("a", "c")
        await runtime.submit(turn("c", key="c"))
        await shop.until("a ended", "c ended")
        assert "a was cancelled" not in shop.log


class BusyOnce(SqliteStore):
    """Another process has the lock when a signal is taken for the first time."""

    fails = False

    async def call(self, call: Callable[[sqlite3.Connection], T], *, small: bool = True) -> T:
        if self.fails:
            self.fails = False
            raise StoreBusy("locked")
        return await super().call(call, small=small)


async def test_a_signal_that_cannot_be_taken_yet_is_taken_later(tmp_path: Path) -> None:
    """Trust 2: also when nobody writes anything meanwhile, so that `stop` is not lost."""
    async with BusyOnce(tmp_path / "rondel.db") as one, SqliteStore(tmp_path / "rondel.db") as other:
        await one.put_job(turn("a"))
        await one.wait_for_others()
        assert await other.signal_job(Signal("stop", {}, "c"))
        one.fails = True
        with pytest.raises(StoreBusy):
            await one.wait_for_others()
        assert [signal.kind for signal in await one.wait_for_others()] == ["stop"]


async def test_a_signal_that_is_not_understood_does_not_hold_up_others(tmp_path: Path) -> None:
    """Trust 2: a newer version of this program may share the store."""
    async with SqliteStore(tmp_path / "rondel.db") as one, SqliteStore(tmp_path / "rondel.db") as other:
        await one.put_job(turn("a"))
        own = await one.worker_id()
        put = "insert into signals (worker, body) values (?, ?)"
        await other.call(lambda c: c.execute(put, (own, '{"kind": "dance"}')).rowcount)
        assert await other.signal_job(Signal("stop", {}, "c"))
        assert [signal.kind for signal in await one.wait_for_others()] == ["stop"]


async def test_a_long_job_costs_nobody_who_waits_for_it_his_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Trust 2: first come, first served, also behind a job that runs longer than a stopped process is waited for."""
    monkeypatch.setattr(local, "PATIENCE_S", 0.3)
    shop, ids = Workshop(), "abcdef"
    stores = [SqliteStore(tmp_path / "rondel.db") for _ in ids]
    runtimes = [LocalRuntime(store) for store in stores]
    try:
        async with asyncio.timeout(30):
            for id, runtime in zip(ids, runtimes, strict=True):
                await runtime.start({"turn": shop}, recover=False)
                await runtime.submit(turn(id))
                await asyncio.sleep(0.04)  # so that they do not look in the order in which they came
            await shop.until("a began")
            await asyncio.sleep(1.0)
            shop.let(*ids)
            await shop.until("f ended")
    finally:
        for store, runtime in zip(stores, runtimes, strict=True):
            await runtime.stop()
            await store.aclose()
    assert shop.log == [f"{id} {what}" for id in ids for what in ("began", "ended")]


async def test_jobs_that_wait_write_nothing(path: Path) -> None:
    """Trust 2: each write woke all that waited, which then wrote: twenty commits a second for each of them."""
    shop, ids = Workshop(), "abc"
    stores = [SqliteStore(path) for _ in ids]
    runtimes = [LocalRuntime(store) for store in stores]
    try:
        async with asyncio.timeout(30):
            for id, runtime in zip(ids, runtimes, strict=True):
                await runtime.start({"turn": shop}, recover=False)
                await runtime.submit(turn(id))
            await shop.until("a began")
            await asyncio.sleep(0.5)
            with closing(sqlite3.connect(path)) as connection:
                version = connection.execute("pragma data_version").fetchone()
                await asyncio.sleep(1.0)
                assert connection.execute("pragma data_version").fetchone() == version
            shop.let(*ids)
            await shop.until("c ended")
    finally:
        for store, runtime in zip(stores, runtimes, strict=True):
            await runtime.stop()
            await store.aclose()
