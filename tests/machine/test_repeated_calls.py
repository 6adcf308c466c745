"""The same call again and again with the same result: the model is told, and then the turn ends."""

from __future__ import annotations

from typing import Any

import pytest

from rondel import Agent, App, Limits, tool
from rondel.errors import ToolError
from rondel.events import CallFinished, Event, LimitHit
from rondel.prompt import Prompt
from rondel.testing import MemoryStore, Scripted, call, calls
from rondel.tool import Tool
from rondel.values import AgentResult
from tests.cli.conftest import Place, place, server
from tests.cli.model_server import ModelServer
from tests.helpers import events_of, of, output_of, play, scripted

__all__ = ["place", "server"]


@tool
async def broken(path: str, depth: int = 1) -> str:
    raise ToolError(f"{path} is not there")


@tool
async def edit(text: str) -> str:
    return f"wrote {text}"


@tool(repeatable=True)
async def status() -> str:
    return "running"


def a_turn(*steps: Any, tools: list[Tool], limits: Limits | None = None) -> tuple[list[Event], AgentResult, Scripted]:
    agent, engine = scripted(*steps, tools=tools, limits=limits or Limits())

    async def scene(app: App) -> tuple[list[Event], AgentResult]:
        view = await app.conversation().send("go")
        return await events_of(view), await view.result(check=False)

    return *play(scene, agent), engine


def told(events: list[Event]) -> list[bool]:
    """Whether each result says that the call is repeated."""
    return ["nothing else has changed" in event.result.text for event in of(CallFinished, events)]


def test_the_model_is_told_after_the_third_and_the_turn_ends_after_the_fifth():
    """Trust 18: the arguments' order does not matter."""

    def step(n: int) -> Any:
        arguments: dict[str, Any] = {"path": "x", "depth": 2} if n % 2 else {"depth": 2, "path": "x"}
        return call("broken", f"c{n}", **arguments)

    events, result, engine = a_turn(*map(step, range(40)), tools=[broken])
    assert told(events) == [False, False, True, True, True]
    assert len(engine.prompts) == 5
    assert result.limit == "limits.repeated_calls"
    assert result.error == (
        "'broken' was called 5 times with the same arguments and gave the same result each time; ask in another way, "
        "or raise limits.repeated_calls"
    )
    assert [hit.name for hit in of(LimitHit, events)] == ["limits.repeated_calls"]
    third = of(CallFinished, events)[2].result
    assert third.is_error
    assert third.text == (
        "x is not there\n\n[This call has given this result 3 times, and nothing else has changed. Do something else, "
        "or say what is missing. After 5 times the turn ends.]"
    )


def test_another_argument_another_result_or_other_work_in_between_is_no_repetition():
    """Trust 18: tests that fail again after each edit are work, not a loop."""
    other = [call("broken", f"c{n}", path=f"p{n}") for n in range(8)]
    work = [step for n in range(8) for step in (call("broken", f"b{n}", path="x"), call("edit", f"e{n}", text=str(n)))]
    for steps in (other, work):
        events, result, _ = a_turn(*steps, "done", tools=[broken, edit])
        assert result.output == "done"
        assert not any(told(events))


def test_two_calls_in_turn_are_a_loop_too():
    """Trust 18."""
    steps = [call("broken", f"c{n}", path="x" if n % 2 else "y") for n in range(40)]
    events, result, engine = a_turn(*steps, tools=[broken])
    assert result.limit == "limits.repeated_calls"
    assert len(engine.prompts) <= 12
    assert sum(told(events)) >= 2


def test_the_same_call_several_times_in_one_round_counts_once():
    """Trust 18: a model that makes a call six times at once has not seen its result yet."""
    events, result, _ = a_turn(calls(*(call("broken", f"c{n}", path="x") for n in range(6))), "ok", tools=[broken])
    assert result.output == "ok"
    assert not any(told(events))


def test_a_tool_that_is_polled_may_be_called_as_often_as_it_takes():
    """Trust 18: `repeatable` is a tool's own word; it does not hide another call's loop."""
    events, result, _ = a_turn(*[call("status", f"s{n}") for n in range(12)], "done", tools=[status])
    assert (result.output, any(told(events))) == ("done", False)
    both = [calls(call("status", f"s{n}"), call("broken", f"c{n}", path="x")) for n in range(12)]
    assert a_turn(*both, tools=[status, broken])[1].limit == "limits.repeated_calls"


@pytest.mark.parametrize(("most", "asked", "notes"), [(2, 2, 1), (8, 8, 3), (0, 9, 0)])
def test_the_setting_raises_it_or_turns_it_off(most: int, asked: int, notes: int):
    """Trust 18."""
    steps = [call("broken", f"c{n}", path="x") for n in range(9)]
    events, result, engine = a_turn(*steps, "done", tools=[broken], limits=Limits(repeated_calls=most))
    assert len(engine.prompts) == (asked if most else asked + 1)
    assert sum(told(events)) == notes
    assert (result.limit, result.output) == (("", "done") if not most else ("limits.repeated_calls", ""))


async def test_the_count_survives_a_restart():
    """Trust 18: it is folded from the transcript."""

    @tool(approval="confirm")
    async def ask() -> str:
        raise ToolError("no")

    def answer(prompt: Prompt) -> Any:
        return call("ask", f"a{sum(m.role == 'assistant' for m in prompt.messages)}")

    store, times, limit = MemoryStore(), 0, ""
    for _ in range(8):
        agent = Agent("helper", engine=Scripted(answer, answer), tools=[ask])
        store = store.reopen()
        async with App(agent, store=store) as app:
            conversation = app.conversation("c")
            if not times:
                await (await conversation.send("go")).result(check=False)
            times += 1
            (question,) = await conversation.questions()
            limit = (await (await conversation.answer(question.id, "yes")).result(check=False)).limit
            if limit:
                break
    assert (times, limit) == (5, "limits.repeated_calls")


def test_an_authors_words_may_ask_the_same_agent_as_often_as_they_like():
    """Trust 18: directives are not a model's calls."""
    outer = Agent("outer", template=" ".join(['{{ .Get "inner" }}'] * 9))

    assert play(output_of("go", agent="outer"), outer, Agent("inner", template="x")) == " ".join("x" * 9)


def test_the_note_reaches_the_model_and_the_setting_can_stand_in_a_file(place: Place, server: ModelServer):
    """Trust 18: through the command line, a real server and its wire format."""
    place.uses(server)
    place.write("agents/helper.md", "---\ntools: [calculate]\nlimits: {repeated_calls: 3}\n---\nHelp.\n")
    for n in range(3):
        server.calls("calculate", f"c{n}", expression="1 +")
    done = place.rondel("run", "helper", "go")
    assert done.code == 4
    assert "'calculate' was called 3 times with the same arguments" in done.err
    assert len(server.requests) == 3
