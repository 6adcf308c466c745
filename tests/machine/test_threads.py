"""Blocking tools in threads: one that never returns holds up neither the program's end nor other tools."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading

import pytest

from rondel import Agent, ask, tool
from rondel.calling.threads import THREADS_MAX, in_thread
from rondel.errors import RondelError
from rondel.testing import Scripted, call, calls, say

WAIT_S = 20.0


def test_a_program_ends_though_a_tool_that_timed_out_never_returns():
    """Trust 4, 16: `timeout_s` ended the call, and the program hung at its end until the thread was done."""
    program = """
        import threading
        import rondel
        from rondel.testing import Scripted, call

        @rondel.tool(timeout_s=0.05)
        def stuck() -> str:
            "Never return."
            threading.Event().wait()
            return ""

        print(rondel.run(rondel.Agent("a", engine=Scripted(call("stuck"), "Done."), tools=[stuck]), "Go."))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")


def test_tools_that_never_return_leave_room_for_others():
    """Trust 16: a handful of them filled the pool, and no blocking tool ran any more."""
    release = threading.Event()

    @tool(timeout_s=0.05)
    def stuck(number: int) -> str:
        release.wait()
        return ""

    @tool
    def quick() -> str:
        return "still here"

    many = calls(*(call("stuck", number=number) for number in range(40)))
    model = Scripted(many, call("quick"), say("Done."))
    try:
        answer = asyncio.run(ask(Agent("a", engine=model, tools=[stuck, quick]), "Go.")).output
    finally:
        release.set()
    assert answer == "Done."
    assert "still here" in str(model.prompts[-1].messages[-1])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_a_blocking_tool_that_tries_to_end_the_program_is_an_error_result(error: BaseException):
    @tool
    def leave() -> str:
        raise error

    model = Scripted(call("leave"), say("Still here."))
    assert asyncio.run(ask(Agent("a", engine=model, tools=[leave]), "Go.")).output == "Still here."
    assert type(error).__name__ in str(model.prompts[-1].messages[-1])


async def test_threads_are_used_again_see_the_context_and_have_a_bound():
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    release = threading.Event()
    name.set("Ann")
    first = await in_thread(threading.get_ident)
    assert await in_thread(threading.get_ident) == first
    assert await in_thread(name.get) == "Ann"
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        waiting = [group.create_task(in_thread(release.wait)) for _ in range(THREADS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(RondelError, match="256 blocking functions are already running"):
            await in_thread(name.get)
        release.set()
    assert all(task.result() for task in waiting)
