"""The local runtime: order per key, once per id, time by the clock, nothing lost at a stop or a crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rondel.clock import VirtualClock
from rondel.errors import RondelError, StoreFull
from rondel.job import Job, JobStore
from rondel.runtimes.local import LocalRuntime
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore


class Workshop:
    """A handler that tells what it does and goes on only when it is let."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, job: Job) -> None:
        await self._tell(f"{job.id} began")
        try:
            await self._gate(job.id).wait()
        except asyncio.CancelledError:
            await self._tell(f"{job.id} was cancelled")
            raise
        await self._tell(f"{job.id} ended")

    def let(self, *ids: str) -> None:
        for id in ids:
            self._gate(id).set()

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: all(line in self.log for line in lines))

    async def _tell(self, line: str) -> None:
        async with self._changed:
            self.log.append(line)
            self._changed.notify_all()

    def _gate(self, id: str) -> asyncio.Event:
        return self._gates.setdefault(id, asyncio.Event())


Test = Callable[[LocalRuntime, Workshop], Awaitable[None]]


def run(test: Test, *, store: JobStore | None = None, clock: VirtualClock | None = None) -> None:
    async def main() -> None:
        runtime, shop = LocalRuntime(store or MemoryStore(), clock or VirtualClock()), Workshop()
        await runtime.start({"turn": shop})
        try:
            await test(runtime, shop)
        finally:
            await runtime.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no orphan task"

    asyncio.run(main())


def turn(id: str, key: str = "c", at: float = 0.0) -> Job:
    return Job(id, "turn", key, at=at)


def test_jobs_of_one_key_run_one_at_a_time_in_the_order_they_came() -> None:
    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        for id in ("a", "b", "c"):
            assert await runtime.submit(turn(id)) is True
        shop.let("c", "b", "a")
        await shop.until("c ended")
        assert shop.log == ["a began", "a ended", "b began", "b ended", "c began", "c ended"]

    run(test)


def test_jobs_of_different_keys_run_side_by_side() -> None:
    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        for number in range(50):
            await runtime.submit(turn(f"j{number}", key=f"k{number}"))
        await shop.until(*(f"j{number} began" for number in range(50)))
        shop.let("j7")
        await shop.until("j7 ended")
        assert len(shop.log) == 51

    run(test)


def test_an_id_that_waits_or_runs_is_not_taken_twice() -> None:
    """Q02: dedupe by id."""

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        assert [await runtime.submit(turn(id)) for id in ("a", "b", "a", "b")] == [True, True, False, False]
        assert await runtime.submit(turn("a", key="other")) is False
        shop.let("a", "b")
        await shop.until("b ended")
        assert shop.log == ["a began", "a ended", "b began", "b ended"]

    run(test)


def test_a_finished_id_may_come_again() -> None:
    store = MemoryStore()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        shop.let("a", "b")
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        await shop.until("b ended", "a ended")
        assert await runtime.submit(turn("a")) is True

    run(test, store=store)


def test_a_handler_that_raises_is_logged_and_the_key_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
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

    with caplog.at_level(logging.ERROR, logger="rondel.runtime"):
        asyncio.run(main())
    first, second = caplog.records
    assert first.getMessage() == "job 'bad' of kind 'turn' failed"
    assert first.exc_info is not None
    assert "job 'gives up' of kind 'turn' gave up" in second.getMessage()


def test_a_running_job_is_cancelled_waited_for_and_forgotten() -> None:
    store = MemoryStore()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        await shop.until("a began")
        assert await runtime.cancel("a") is True
        assert "a was cancelled" in shop.log
        assert await runtime.cancel("a") is False
        await shop.until("b began")
        assert await store.orphaned_jobs() == [turn("b")]

    run(test, store=store)


def test_a_job_that_has_not_taken_its_first_step_can_be_cancelled() -> None:
    store = MemoryStore()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        await runtime.submit(turn("a"))
        await runtime.submit(turn("b"))
        assert await runtime.cancel("a") is True
        await shop.until("b began")
        assert shop.log == ["b began"]
        assert await store.orphaned_jobs() == [turn("b")]

    run(test, store=store)


def test_a_waiting_job_is_forgotten_when_it_is_cancelled() -> None:
    store, clock = MemoryStore(), VirtualClock()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
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

    run(test, store=store, clock=clock)


def test_a_job_may_cancel_itself() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_job_for_later_waits_for_its_time() -> None:
    clock = VirtualClock()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        shop.let("in 30", "in 10", "in 20", "too", "now", "past")
        for id, delay_s in (("in 30", 30), ("in 10", 10), ("in 20", 20), ("too", 10), ("past", -5)):
            await runtime.submit(turn(id, at=clock.now() + delay_s))
        await runtime.submit(turn("now"))
        await shop.until("now ended")
        assert shop.log == ["past began", "past ended", "now began", "now ended"]
        assert clock.sleepers == 1, "one for all of them"
        clock.advance(9.9)
        assert clock.sleepers == 1
        clock.advance(0.1)
        await shop.until("too ended")
        assert shop.log[4:] == ["in 10 began", "in 10 ended", "too began", "too ended"]
        clock.advance(100)
        await shop.until("in 30 ended")
        assert shop.log[8:] == ["in 20 began", "in 20 ended", "in 30 began", "in 30 ended"]

    run(test, clock=clock)


def test_jobs_for_later_that_are_cancelled_in_any_order_leave_the_others_on_time() -> None:
    clock = VirtualClock()

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        at = clock.now()
        for number in range(500):
            await runtime.submit(turn(f"j{number}", key=f"k{number}", at=at + 1 + number))
        for number in (*range(1, 400), 0, 450):  # the first of all among them
            assert await runtime.cancel(f"j{number}")
        shop.let(*(f"j{number}" for number in range(500)))
        clock.advance(1_000)
        await shop.until("j499 ended")
        assert len(shop.log) == 2 * 99
        assert "j450 began" not in shop.log

    run(test, clock=clock)


def test_what_is_taken_up_again_is_not_what_runs_or_has_just_run() -> None:
    store = MemoryStore()

    class Slow(MemoryStore):
        """Tells of a job, and only then lets the loop go on, in which that job ends."""

        async def orphaned_jobs(self, key: str = "") -> list[Job]:
            found = await store.orphaned_jobs(key)
            for _ in range(20):
                await asyncio.sleep(0)
            return found

        async def put_job(self, job: Job) -> bool:
            return await store.put_job(job)

        def finish_job(self, id: str) -> None:
            store.finish_job(id)

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        await runtime.submit(turn("a"))
        await shop.until("a began")
        shop.let("a")
        assert await runtime.recover("") == []
        assert shop.log == ["a began", "a ended"]

    run(test, store=Slow())


def test_stop_interrupts_what_runs_and_a_restart_takes_everything_up() -> None:
    """Q02: pending work survives a restart."""
    store, clock = MemoryStore(), VirtualClock()
    jobs = [turn("a"), turn("b"), turn("other", key="d"), turn("late", at=clock.now() + 5)]

    async def before(runtime: LocalRuntime, shop: Workshop) -> None:
        for job in jobs:
            await runtime.submit(job)
        await shop.until("a began", "other began")
        await runtime.stop()
        assert shop.log == ["a began", "other began", "a was cancelled", "other was cancelled"]
        assert await store.orphaned_jobs() == jobs
        with pytest.raises(RondelError, match="job 'x' cannot be submitted: the runtime is not running"):
            await runtime.submit(turn("x"))
        await runtime.stop()

    async def after(runtime: LocalRuntime, shop: Workshop) -> None:
        assert await runtime.submit(turn("b")) is False
        shop.let("a", "b", "other", "late")
        await shop.until("b ended", "other ended")
        clock.advance(5)
        await shop.until("late ended")
        assert [line for line in shop.log if line[0] in "abl"] == [
            *("a began", "a ended", "b began", "b ended", "late began", "late ended")
        ]

    run(before, store=store, clock=clock)
    run(after, store=store, clock=clock)


def test_a_handler_that_falls_over_at_a_stop_leaves_its_job_for_the_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
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

    asyncio.run(main())
    assert "job 'a' of kind 'turn' failed" in caplog.text


def test_the_same_runtime_starts_again_after_a_stop() -> None:
    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        with pytest.raises(RondelError, match="this runtime is running already"):
            await runtime.start({})
        await runtime.submit(turn("a"))
        await shop.until("a began")
        await runtime.stop()
        shop.let("a")
        await runtime.start({"turn": shop})
        await shop.until("a ended")

    run(test)


def test_a_job_cannot_stop_its_own_runtime(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
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

    asyncio.run(main())
    assert caplog.records == []


def test_without_recovery_what_was_left_is_left() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_kind_that_nobody_handles_is_refused_or_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    asyncio.run(store.put_job(Job("strange", "schedule", "c")))

    async def test(runtime: LocalRuntime, shop: Workshop) -> None:
        with pytest.raises(RondelError, match="nobody handles jobs of kind 'job'; known are turn"):
            await runtime.submit(Job("x", "job", "c"))
        assert await store.orphaned_jobs() == [Job("strange", "schedule", "c")]

    run(test, store=store)
    assert "job 'strange' was left alone: nobody handles jobs of kind 'schedule'" in caplog.text


def test_a_job_that_cannot_be_kept_does_not_begin() -> None:
    class FullStore(MemoryStore):
        async def put_job(self, job: Job) -> bool:
            raise StoreFull("no space is left")

    async def main() -> None:
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

    asyncio.run(main())


def test_an_idle_key_has_no_task() -> None:
    async def main() -> None:
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

    asyncio.run(main())


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


def test_a_new_process_takes_up_what_a_dead_one_left_in_the_file(tmp_path: Path) -> None:
    """Q02: pending work survives a restart."""

    async def main() -> None:
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

    asyncio.run(main())
