"""Deadlines that share a timer behave like those that have one each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel.contracts.deadline import Deadlines


async def test_what_takes_too_long_is_given_up_and_the_rest_goes_on():
    deadlines, loop, ended = Deadlines(), asyncio.get_running_loop(), list[str]()

    async def wait(name: str, after_s: float, gate: asyncio.Event) -> None:
        limit = deadlines.until(loop.time() + after_s)
        try:
            with limit:
                await gate.wait()
            ended.append(f"{name} in time")
        except TimeoutError:
            assert limit.expired
            ended.append(f"{name} too late")
            late.set()

    never, late = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(wait("patient", 60, late))
        group.create_task(wait("hasty", 0.01, never))
    deadlines.close()
    assert ended == ["hasty too late", "patient in time"]


async def test_somebody_elses_cancelling_is_not_a_time_out():
    deadlines = Deadlines()

    async def wait() -> None:
        with deadlines.until(asyncio.get_running_loop().time() + 60):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
    deadlines.close()
    assert task.cancelled()


async def test_no_deadline_never_comes():
    with Deadlines().until(None) as limit:
        await asyncio.sleep(0)
    assert not limit.expired


async def test_an_error_of_its_own_passes_through():
    deadlines = Deadlines()
    with pytest.raises(ValueError, match="mine"), deadlines.until(asyncio.get_running_loop().time() + 60):
        raise ValueError("mine")
    deadlines.close()


async def test_deadlines_that_are_due_already_are_set_side_by_side(loop: Any):
    """uvloop gives a timer that is due no time of its own."""
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    ended = 0

    async def wait(at: float) -> None:
        nonlocal ended
        try:
            with deadlines.until(at):
                await asyncio.Event().wait()
        except TimeoutError:
            ended += 1

    async with asyncio.TaskGroup() as group:
        for at in (now, now - 1, now + 0.0001):
            group.create_task(wait(at))
    deadlines.close()
    assert ended == 3
