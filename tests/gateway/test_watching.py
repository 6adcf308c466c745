"""How the gateway notices that a caller left: without a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel.gateway.leaving import Leaving

LEFT, MORE = {"type": "http.disconnect"}, {"type": "http.request", "body": b""}


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


def test_a_caller_who_leaves_ends_what_is_made_for_it() -> None:
    async def main() -> None:
        caller = Caller()
        asyncio.get_running_loop().call_soon(caller.messages.put_nowait, LEFT)
        with Leaving(caller.receive, caller.is_over) as leaving:
            await asyncio.Event().wait()
        assert leaving.has_left
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_what_else_a_caller_sends_ends_nothing() -> None:
    async def main() -> None:
        caller = Caller()
        with Leaving(caller.receive, caller.is_over) as leaving:
            for _ in range(3):
                caller.messages.put_nowait(MORE)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        assert not leaving.has_left

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_caller_who_has_its_answer_may_leave() -> None:
    async def main() -> None:
        caller = Caller()
        with Leaving(caller.receive, caller.is_over) as leaving:
            caller.over = True
            caller.messages.put_nowait(LEFT)
            for _ in range(3):
                await asyncio.sleep(0)
        assert not leaving.has_left

    asyncio.run(asyncio.wait_for(main(), 10))


def test_nobody_waits_any_more_once_the_answer_is_made() -> None:
    async def main() -> None:
        caller = Caller()
        with Leaving(caller.receive, caller.is_over) as leaving:
            assert caller.ended == 0
        assert caller.ended == 1
        caller.messages.put_nowait(LEFT)
        await asyncio.sleep(0)
        assert not leaving.has_left

    asyncio.run(asyncio.wait_for(main(), 10))


def test_somebody_elses_cancelling_goes_on() -> None:
    async def main() -> None:
        caller = Caller()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        with Leaving(caller.receive, caller.is_over):
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_an_error_of_the_answer_goes_on() -> None:
    async def main() -> None:
        caller = Caller()
        with Leaving(caller.receive, caller.is_over):
            raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        asyncio.run(main())
