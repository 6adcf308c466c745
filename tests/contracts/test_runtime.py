"""What every runtime promises: order per key, one run per id, signals, in one process and in several on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import pytest

from rondel.contracts.clock import Clock
from rondel.contracts.runtime import Job, Runtime, Signal
from rondel.contracts.store import Store
from rondel.errors import RondelError
from rondel.jobs.runtime import LocalRuntime
from rondel.testing import VirtualClock
from tests.contracts.conftest import Workers, opened
from tests.contracts.workshop import Workshop, turn

Make = Callable[..., Runtime]
Run = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["local"])
def make_runtime(request: pytest.FixtureRequest) -> Make:
    """A runtime on a store; one row for each implementation."""
    return {"local": LocalRuntime}[request.param]


@pytest.fixture
def run(make_runtime: Make, make_store: Callable[[Clock], Store]) -> Run:
    @asynccontextmanager
    async def run(*, clock: VirtualClock | None = None) -> AsyncIterator[tuple[Runtime, Workshop]]:
        time, shop = clock or VirtualClock(), Workshop()
        async with aclosing(make_store(time)) as store:
            runtime = make_runtime(store, time)
            await runtime.start({"turn": shop})
            try:
                yield runtime, shop
            finally:
                await runtime.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no orphan task"

    return run


@pytest.fixture
def run_pair(make_runtime: Make, make_workers: Workers) -> Run:
    """Two runtimes on one store, as in two processes."""

    @asynccontextmanager
    async def run_pair() -> AsyncIterator[tuple[Runtime, Runtime, Workshop]]:
        shop = Workshop()
        async with opened(make_workers) as stores:
            one, other = (make_runtime(store) for store in stores)
            for runtime in (one, other):
                await runtime.start({"turn": shop}, on_signal=shop.hear)
            try:
                yield one, other, shop
            finally:
                await one.stop()
                await other.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no orphan task"

    return run_pair


async def test_jobs_of_one_key_run_one_at_a_time_in_the_order_they_came(run: Run) -> None:
    async with run() as (runtime, shop):
        for id in ("a", "b", "c"):
            assert await runtime.submit(turn(id)) is True
        shop.let("c", "b", "a")
        await shop.until("c ended")
        assert shop.log == ["a began", "a ended", "b began", "b ended", "c began", "c ended"]


async def test_jobs_of_different_keys_run_side_by_side(run: Run) -> None:
    async with run() as (runtime, shop):
        for number in range(50):
            await runtime.submit(turn(f"j{number}", key=f"k{number}"))
        await shop.until(*(f"j{number} began" for number in range(50)))
        shop.let("j7")
        await shop.until("j7 ended")
        assert len(shop.log) == 51


async def test_an_id_that_waits_or_runs_is_not_taken_twice(run: Run) -> None:
    """Q02: dedupe by id."""
    async with run() as (runtime, shop):
        assert [await runtime.submit(turn(id)) for id in ("a", "b", "a", "b")] == [True, True, False, False]
        assert await runtime.submit(turn("a", key="other")) is False
        shop.let("a", "b")
        await shop.until("b ended")
        assert shop.log == ["a began", "a ended", "b began", "b ended"]


async def test_a_job_for_later_waits_for_its_time(run: Run) -> None:
    clock = VirtualClock()
    async with run(clock=clock) as (runtime, shop):
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


async def test_jobs_for_later_that_are_cancelled_in_any_order_leave_the_others_on_time(run: Run) -> None:
    clock = VirtualClock()
    async with run(clock=clock) as (runtime, shop):
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


async def test_the_same_runtime_starts_again_after_a_stop(run: Run) -> None:
    async with run() as (runtime, shop):
        with pytest.raises(RondelError, match="this runtime is already running"):
            await runtime.start({})
        await runtime.submit(turn("a"))
        await shop.until("a began")
        await runtime.stop()
        shop.let("a")
        await runtime.start({"turn": shop})
        await shop.until("a ended")


async def test_jobs_of_one_key_run_one_at_a_time_in_all_processes_in_the_order_they_came(run_pair: Run):
    """Trust 2: and jobs of other keys beside them."""
    async with run_pair() as (one, other, shop):
        for runtime, id in ((one, "a"), (other, "b"), (one, "c"), (one, "d"), (other, "e")):
            assert await runtime.submit(turn(id)) is True
        await other.submit(turn("beside", key="d"))
        shop.let("e", "d", "c", "b", "beside")
        await shop.until("a began", "beside ended")
        assert "b began" not in shop.log
        shop.let("a")
        await shop.until("e ended")
        ours = [line for line in shop.log if not line.startswith("beside")]
        assert ours == [f"{id} {what}" for id in "abcde" for what in ("began", "ended")]


async def test_a_job_that_waits_for_another_process_can_be_cancelled(run_pair: Run) -> None:
    """Trust 2: at once, and the one behind it takes its place."""
    async with run_pair() as (one, other, shop):
        await one.submit(turn("a"))
        await other.submit(turn("b"))
        await other.submit(turn("c"))
        await shop.until("a began")
        assert await other.cancel("b") is True
        assert await other.cancel("a") is False, "it is not its own"
        shop.let("a", "c")
        await shop.until("c ended")
        assert shop.log == ["a began", "a ended", "c began", "c ended"]


async def test_a_signal_reaches_the_job_that_runs_wherever_that_is(run_pair: Run) -> None:
    """Trust 2: here or in another process; without one there is nobody to tell."""
    async with run_pair() as (one, other, shop):
        stop = Signal("stop", {}, "c")
        assert await one.signal(stop) is False
        await one.submit(turn("a"))
        await shop.until("a began")
        assert await one.signal(stop) is True
        await shop.until("a heard stop")
        shop.log.clear()
        assert await other.signal(stop) is True
        await shop.until("a heard stop")


async def test_a_key_with_several_slots_runs_that_many_jobs_at_once_in_all_processes(run_pair: Run):
    async with run_pair() as (one, other, shop):
        for runtime, id in ((one, "a"), (one, "b"), (other, "c"), (one, "d"), (other, "e")):
            await runtime.submit(Job(id, "turn", "k", slots=3))
        await shop.until("a began", "b began", "c began")
        shop.let("b")
        await shop.until("b ended", "d began")
        assert "e began" not in shop.log
        shop.let("a", "c", "d", "e")
        await shop.until("e ended")
