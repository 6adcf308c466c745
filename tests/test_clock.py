"""The clock that a test moves by hand, and the system's."""

from __future__ import annotations

import asyncio

import pytest

from rondel.contracts.clock import SystemClock
from rondel.testing import VirtualClock


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = VirtualClock(100.0), list[str]()

    async def sleep(name: str, at: float) -> None:
        await clock.sleep_until(at)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, at in (("c", 103.0), ("a", 101.0), ("b", 102.0), ("b too", 102.0), ("past", 99.0)):
            group.create_task(sleep(name, at))
        gone = group.create_task(sleep("gone", 101.5))
        await asyncio.sleep(0)
        gone.cancel()
        clock.advance(1.0)
        await asyncio.sleep(0)
        assert woken == ["past", "a"]
        assert clock.sleepers == 3
        clock.advance(5.0)
    assert woken == ["past", "a", "b", "b too", "c"]
    assert clock.now() == 106.0


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match=r"time cannot run backwards: advance\(-1\)"):
        VirtualClock().advance(-1)


async def test_the_systems_clock_does_not_sleep_for_a_time_that_is_past() -> None:
    clock = SystemClock()
    start = clock.now()
    await clock.sleep_until(start - 1)
    await clock.sleep_until(start + 0.001)
    assert clock.now() >= start + 0.001
