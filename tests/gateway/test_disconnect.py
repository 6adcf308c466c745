"""How the gateway notices that a caller has disconnected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel.contracts.deadline import Deadlines
from rondel.gateway.relay import disconnect
from rondel.gateway.relay.disconnect import DisconnectGuard

LEFT, MORE = {"type": "http.disconnect"}, {"type": "http.request", "body": b""}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnect, "WATCH_AFTER_S", 0.0)


class Caller:
    """Receives what is put into its queue."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.over = False
        self.ended = 0

    async def receive(self) -> Any:
        try:
            return await self.messages.get()
        finally:
            self.ended += 1

    def is_over(self) -> bool:
        return self.over


async def test_a_caller_who_leaves_ends_what_is_made_for_it() -> None:
    caller = Caller()
    asyncio.get_running_loop().call_soon(caller.messages.put_nowait, LEFT)
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            await asyncio.Event().wait()
    assert guard.has_left
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_what_else_a_caller_sends_ends_nothing() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            for _ in range(3):
                caller.messages.put_nowait(MORE)
                await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
    assert not guard.has_left


async def test_a_caller_who_has_its_answer_may_leave() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            caller.over = True
            caller.messages.put_nowait(LEFT)
            for _ in range(3):
                await asyncio.sleep(0.01)
    assert not guard.has_left


async def test_nobody_waits_any_more_once_the_answer_is_made() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            await asyncio.sleep(0.01)
            assert caller.ended == 0
    await asyncio.sleep(0.01)
    assert caller.ended == 1
    caller.messages.put_nowait(LEFT)
    await asyncio.sleep(0.01)
    assert not guard.has_left


def test_somebody_elses_cancelling_goes_on() -> None:
    async def main() -> None:
        caller = Caller()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        async with asyncio.TaskGroup() as group:
            with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over):
                await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


async def test_an_error_of_the_answer_goes_on() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        guard = DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over)
        with pytest.raises(ValueError, match="it failed"), guard:
            raise ValueError("it failed")


async def test_a_stop_ends_the_work_and_says_so() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            asyncio.get_running_loop().call_soon(guard.stop)
            asyncio.get_running_loop().call_soon(guard.stop)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            assert guard.ended_by_stop()
            await asyncio.sleep(0)  # what is left to do can be awaited
    assert not guard.has_left


async def test_a_caller_who_leaves_while_the_server_stops_has_left() -> None:
    caller = Caller()
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            asyncio.get_running_loop().call_later(0.01, caller.messages.put_nowait, LEFT)
            asyncio.get_running_loop().call_later(0.02, guard.stop)
            try:
                await _deaf_for(0.05)
            except asyncio.CancelledError:
                assert not guard.ended_by_stop()
                raise
    assert guard.has_left


async def _deaf_for(seconds: float) -> None:
    """Wait, and be cancelled only then."""
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.call_later(seconds, end.set)
    cancelled: asyncio.CancelledError | None = None
    while not end.is_set():
        try:
            await end.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def test_an_answer_that_is_made_at_once_needs_no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnect, "WATCH_AFTER_S", 0.02)
    caller = Caller()
    caller.messages.put_nowait(LEFT)
    async with asyncio.TaskGroup() as group:
        with DisconnectGuard(group, Deadlines(), caller.receive, caller.is_over) as guard:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
    assert not guard.has_left
    assert not caller.ended
