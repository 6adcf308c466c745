"""The tools of the built-in agent: the time, sums without evaluating code, and the shell, which asks first."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rondel import App
from rondel.events import CallFinished, Outcome, TurnFinished
from rondel.project.folder import builtin_agent
from rondel.testing import Echo, VirtualClock, call
from rondel.tools.calculate import calculate
from rondel.tools.clock import current_time
from rondel.tools.shell import run_shell
from rondel.values import ModelFacts, ToolResult
from tests.helpers import events_of, of, play, scripted, talking


def result_of(name: str, tool: object, *, answer: str = "", **arguments: object) -> ToolResult:
    """What a model gets back when it calls this tool."""

    async def scene(app: App) -> ToolResult:
        conversation = app.conversation()
        events = await events_of(await conversation.send("go"))
        if answer:
            assert of(TurnFinished, events)[-1].outcome is Outcome.WAITING
            (question,) = await conversation.questions()
            events += await events_of(await conversation.answer(question.id, answer))
        return of(CallFinished, events)[-1].result

    agent, _ = scripted(call(name, "c", **arguments), "done", tools=[tool])
    return play(scene, agent, clock=VirtualClock(1_800_000_000.0))


def test_the_time_is_told_in_a_time_zone():
    result = result_of("current_time", current_time, timezone="Europe/Berlin")
    assert result.text == "Friday, 15 January 2027, 09:00:00 CET (UTC+0100)"
    assert result_of("current_time", current_time, timezone="../etc").is_error


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 40", "42"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("(1 + 2) * 3 - 4 / 2", "7"),
        ("7 // 2 + 7 % 2", "4"),
        ("round(sqrt(2), 3)", "1.414"),
        ("max(1, 2, 3) ^ 2", "9"),
        ("2 × 3 ÷ 4 − 1", "0.5"),
        ("2 ** 200", str(2**200)),
    ],
)
def test_sums_are_right(expression: str, value: str):
    assert result_of("calculate", calculate, expression=expression).text == value


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("1e308 * 10", "too large"),
        ("(1 + 2", "a closing bracket is missing"),
        ("2 +", "ends where a number was expected"),
        ("2 3", "was not expected there"),
        ("(-1) ** 0.5", "not a real number"),
        ("__import__('os')", "is not arithmetic"),
        ("exit()", "is not known here"),
        ("(" * 500 + ")" * 500, "nested more than"),
        ("1" * 2000, "at most 1000 are allowed"),
    ],
)
def test_what_is_no_sum_is_said_to_the_model(expression: str, said: str):
    result = result_of("calculate", calculate, expression=expression)
    assert result.is_error
    assert said in result.text


def test_a_shell_command_runs_after_a_yes_and_not_after_a_no(tmp_path: Path):
    marker = tmp_path / "made"
    denied = result_of("run_shell", run_shell, answer="no", command=f"touch {marker}")
    assert denied.is_error
    assert not marker.exists()
    allowed = result_of("run_shell", run_shell, answer="yes", command=f"touch {marker}; echo out; echo err >&2; exit 3")
    assert allowed.text == "exit code 3\nout\nerr\n"
    assert marker.exists()


def test_a_shell_command_that_prints_too_much_is_cut_and_says_so():
    result = result_of("run_shell", run_shell, answer="yes", command="head -c 200000 /dev/zero | tr '\\0' 'x'")
    assert result.text.endswith("\n\n[... cut: the result had 64,055 characters, the first 32,000 are shown]")
    assert len(result.text) < 70_000


async def test_a_shell_command_ends_with_all_it_started_when_the_turn_is_stopped(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = f"(sleep 1000 & echo $! > {fifo}; wait)"
    agent, _ = scripted(call("run_shell", "c", command=command), tools=[run_shell])
    async with talking(agent) as conversation:
        await events_of(await conversation.send("go"))
        (question,) = await conversation.questions()
        view = await conversation.answer(question.id, "yes")
        async with asyncio.TaskGroup() as group:
            group.create_task(events_of(view))
            child = int(await asyncio.to_thread(fifo.read_text))
            await conversation.stop()
        async with asyncio.timeout(10):
            while _is_alive(child):
                await asyncio.sleep(0.01)


async def test_a_shell_command_that_is_stopped_before_its_waiting_thread_started_leaves_no_zombie(tmp_path: Path):
    fifo, busy = tmp_path / "fifo", threading.Event()
    os.mkfifo(fifo)
    agent, _ = scripted(call("run_shell", "c", command=f"echo $$ > {fifo}; sleep 1000"), tools=[run_shell])
    with ThreadPoolExecutor(1) as only, ThreadPoolExecutor(1) as reader:
        asyncio.get_running_loop().set_default_executor(only)
        only.submit(busy.wait)
        try:
            async with App(agent) as app, asyncio.timeout(10):
                conversation = app.conversation()
                await events_of(await conversation.send("go"))
                (question,) = await conversation.questions()
                view = await conversation.answer(question.id, "yes")
                pid = int(await asyncio.wrap_future(reader.submit(fifo.read_text)))
                await conversation.stop()
                await events_of(view)
                assert not Path(f"/proc/{pid}").exists()
        finally:
            busy.set()


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_model_that_is_no_good_with_tools_is_offered_none():
    able, small, unable = Echo(), Echo("local:smollm2-135m"), Echo("other:model")
    unable.facts = ModelFacts(tools=False)
    names = [tool if isinstance(tool, str) else tool.name for tool in builtin_agent(able).tools]  # pyright: ignore
    assert names == ["current_time", "calculate", "ask_user", "run_shell"]
    assert builtin_agent(small).tools == ()
    assert builtin_agent(unable).tools == ()
