"""Tools from plain functions, and what becomes of their calls."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from rondel import Agent, CallContext, Limits, Media, RondelError, Text, Tool, Toolbox, ToolError, tool
from rondel.events import CallFinished, CallProgressed
from rondel.testing import call, calls
from rondel.tool import describe
from rondel.tool import result_of as tool_result
from rondel.values import ToolCall
from tests.helpers import events_after, of, play, result_of, scripted


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "FR"


@tool
async def weather(place: Place, unit: Unit, days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 1) -> str:
    """The weather in a place.

    Args:
        place: where to look
        unit: in which unit
        days: how many days ahead,
            today included
    """
    return f"{place.city} {place.country} {unit.value} {days}"


def answer(item: Tool, arguments: dict[str, Any], **fields: Any) -> Any:
    """The result of one call of this tool, made by a model."""
    reply = call(item.name, "c1", **arguments)
    agent, engine = scripted(reply, "ok", tools=[item], **fields)

    result = play(result_of("go"), agent)
    assert result.output == "ok", result
    return engine.prompts[1].messages[-1].parts[0]


def test_one_object_gives_schema_prompt_text_validation_and_handler():
    """T01."""
    assert weather.name == "weather"
    assert weather.description == "The weather in a place."
    properties = weather.schema["properties"]
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "default": 1,
        "description": "how many days ahead, today included",
    }
    assert weather.schema["required"] == ["place", "unit"]
    assert weather.schema["$defs"]["Place"]["properties"]["city"] == {"type": "string"}
    assert "## weather" in describe(weather.spec)
    assert answer(weather, {"place": {"city": "Paris"}, "unit": "celsius"}).text == "Paris FR celsius 1"


def test_the_text_of_a_tool_has_all_that_a_model_needs():
    """T02: heading, description, parameters with type and required or optional, enum values, examples as calls."""

    @tool(examples=[{"mode": "fast", "tags": ["a"]}])
    def search(mode: Literal["fast", "deep"], tags: list[str], limit: int | None = None) -> str:
        """Search the archive.

        :param mode: how to search
        :param limit: how many at the most
        """
        return ""

    assert describe(search.spec) == (
        "## search\n"
        "**Description**: Search the archive.\n"
        "**Parameters**:\n"
        '- mode (enum, required): how to search ("deep", "fast")\n'
        "- tags (array of string, required)\n"
        "- limit (integer or null, optional): how many at the most\n"
        "**Examples**:\n"
        '- <tool_use name="search">{"mode":"fast","tags":["a"]}</tool_use>'
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"unit": "celsius"}, "argument 'place' is missing"),
        ({"place": {"city": 1}, "unit": "celsius"}, "argument 'place.city': expected `str`, got `int`"),
        ({"place": {"city": "x"}, "unit": "kelvin"}, "argument 'unit': invalid enum value 'kelvin'"),
        ({"place": {"city": "x"}, "unit": "celsius", "days": 9}, "argument 'days': expected `int` <= 7"),
        ({"place": {"city": "x"}, "unit": "celsius", "dais": 2}, "argument 'dais' is not known; did you mean 'days'?"),
    ],
)
def test_a_validation_error_goes_to_the_model_with_the_field_named(arguments: dict[str, Any], said: str):
    """T03: an error result; the loop goes on."""
    result = answer(weather, arguments)
    assert (result.is_error, result.text) == (True, said)


def test_numbers_in_strings_are_understood():
    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert answer(double, {"n": "21"}).text == "42"


def test_pydantic_models_are_arguments_too():
    class Point(pydantic.BaseModel):
        x: int
        y: int = 0

    async def length(point: Point) -> int:
        return point.x + point.y

    length.__annotations__["point"] = Point
    made = tool(length)
    assert made.schema["properties"]["point"]["properties"]["x"]["type"] == "integer"
    assert answer(made, {"point": {"x": 3, "y": 4}}).text == "7"
    assert answer(made, {"point": {"y": 4}}).is_error


def test_a_sync_tool_may_block_without_blocking_the_loop():
    import threading

    where: list[bool] = []

    @tool
    def blocking() -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return "done"

    assert answer(blocking, {}).text == "done"
    assert where == [False]


def test_a_result_over_the_limit_is_cut_and_says_how_long_it_was():
    """T05."""

    @tool
    async def talk() -> str:
        return "x" * 10_000_000

    text = answer(talk, {}).text
    assert text.startswith("x" * 32_000 + "\n\n[... cut: the result had 10,000,000 characters")
    assert len(text) < 32_200
    assert len(answer(talk, {}, limits=Limits(result_chars=100)).text) < 300


def test_bytes_that_are_not_text_and_lone_surrogates_do_not_break_the_journal():
    @tool
    async def raw() -> bytes:
        return b"caf\xe9 \xff\xfe"

    @tool
    async def odd() -> str:
        return "file-\udce9.txt"

    assert answer(raw, {}).text == "caf\ufffd \ufffd\ufffd"
    assert answer(odd, {}).text == "file-?.txt"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(done, nothing to show)"),
        ({"a": [1, 2]}, '{"a":[1,2]}'),
        (3.5, "3.5"),
        (Place("Oslo", "NO"), '{"city":"Oslo","country":"NO"}'),
        (object, "<class 'object'>"),
    ],
)
def test_what_a_tool_returns_becomes_text_that_a_model_reads(value: object, text: str):
    assert tool_result(ToolCall("c", "t"), value).text == text


def test_a_tool_may_return_an_image():
    picture = Media("image", "image/png", data=b"\x89PNG")

    @tool
    async def draw() -> list[Any]:
        return [Text("here"), picture]

    assert answer(draw, {}).parts == (Text("here"), picture)


def test_a_tool_that_raises_is_an_error_result_and_the_loop_goes_on():
    @tool
    async def fails() -> str:
        raise ValueError("no such thing")

    @tool
    async def advises() -> str:
        raise ToolError("give a year between 1900 and 2000")

    assert answer(fails, {}).text == "'fails' failed: ValueError: no such thing"
    assert answer(advises, {}).text == "give a year between 1900 and 2000"
    assert answer(advises, {}).is_error


def test_a_tool_that_hangs_is_given_up_and_its_siblings_results_survive():
    """T06: each call has a time-out; finished results survive a sibling's."""
    cancelled: list[bool] = []

    @tool(timeout_s=0.05)
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "never"

    @tool
    async def quick() -> str:
        return "quick result"

    agent, engine = scripted(calls(call("hang"), call("quick")), "ok", tools=[hang, quick])

    assert play(result_of("go"), agent).output == "ok"
    hung, done = engine.prompts[1].messages[-1].parts
    assert hung.is_error
    assert "gave no result in time" in hung.text
    assert done.text == "quick result"
    assert cancelled == [True]


def test_the_batch_has_a_time_limit_and_what_finished_before_it_stays():
    """T06: the batch's own limit."""

    @tool(timeout_s=1000)
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    async def quick() -> str:
        return "quick result"

    agent, engine = scripted(calls(call("quick"), call("hang")), "ok", tools=[hang, quick], limits=Limits(batch_s=0.05))

    play(result_of("go"), agent)
    done, hung = engine.prompts[1].messages[-1].parts
    assert (done.text, hung.is_error) == ("quick result", True)


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_run_beside_each_other_only_when_they_are_marked_so(parallel: bool):
    """T06: parallel only when marked, on the call and on the tool; otherwise one after the other, in order."""
    running, most, order = 0, 0, []

    @tool
    async def step(n: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        order.append(n)
        return "ok"

    steps = calls(*(call("step", f"s{n}", parallel=parallel, n=n) for n in range(3)))
    agent, _ = scripted(steps, "ok", tools=[step])

    play(result_of("go"), agent)
    assert (most, order) == ((3, [0, 1, 2]) if parallel else (1, [0, 1, 2]))


def test_a_tool_that_is_not_parallel_runs_alone():
    """T06."""
    running, most = 0, 0

    async def step() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    alone = tool(parallel=False, name="alone")(step)
    agent, _ = scripted(calls(*(call("alone", f"s{n}") for n in range(3))), "ok", tools=[alone])

    play(result_of("go"), agent)
    assert most == 1


def test_calls_over_the_limit_of_a_round_are_answered_with_an_error():
    ran: list[int] = []

    @tool
    async def step(n: int) -> str:
        ran.append(n)
        return "ok"

    many = calls(*(call("step", f"s{n}", n=n) for n in range(20)))
    agent, engine = scripted(many, "ok", tools=[step])

    play(result_of("go"), agent)
    results = engine.prompts[1].messages[-1].parts
    assert (len(ran), len(results)) == (16, 20)
    assert "limits.calls" in results[16].text


def test_an_unknown_tool_is_a_named_error_result():
    """T16: no crash; the nearest name is said."""
    agent, engine = scripted(call("wether"), "ok", tools=[weather])

    play(result_of("go"), agent)
    result = engine.prompts[1].messages[-1].parts[0]
    assert result.text == "no tool is named 'wether'; did you mean 'weather'?"
    assert result.is_error


def test_arguments_that_are_not_json_are_an_error_result_that_shows_them():
    broken = ToolCall("c1", "weather", broken="@@@")
    agent, engine = scripted(
        lambda _: call("weather").__class__(  # a reply whose call came with arguments that nothing can repair
            message=call("weather").message.__class__("assistant", (broken,)), stop="calls"
        ),
        "ok",
        tools=[weather],
    )

    play(result_of("go"), agent)
    result = engine.prompts[1].messages[-1].parts[0]
    assert result.is_error
    assert "'weather'" in result.text


def test_a_tool_can_say_how_far_it_is_and_has_a_key_for_the_world_outside():
    keys: list[str] = []

    @tool
    async def work(context: CallContext) -> str:
        keys.append(context.key)
        context.progress("half way")
        return "done"

    assert work.schema["properties"] == {}
    agent, _ = scripted(call("work", "w1"), "ok", tools=[work])

    events = play(events_after("go", "c"), agent)
    assert of(CallProgressed, events) == [CallProgressed("w1", "half way")]
    assert of(CallFinished, events)[0].result.text == "done"
    assert keys == ["c:w1"]


def test_the_registry_registers_gets_lists_tags_disables_and_unregisters():
    """T17."""

    @tool(tags=["math"])
    def add(a: int) -> int:
        return a

    box = Toolbox([weather])
    box.register(add)
    assert box.names == ("weather", "add")
    assert box.get("add") is add
    assert box.by_tag("math") == (add,)
    box.disable("add")
    assert (box.get("add"), box.names, "add" in box, len(box)) == (None, ("weather",), False, 1)
    box.enable("add")
    assert box.unregister("add") is add
    assert box.get("add") is None
    with pytest.raises(RondelError, match="no tool is named 'wether'; did you mean 'weather'"):
        box.disable("wether")
    with pytest.raises(RondelError, match="two tools named 'weather'"):
        box.register(weather)


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda: tool(lambda *a: None), "is not a valid tool name"),
        (lambda: tool(name="x")(lambda *a: None), "parameter 'a' cannot be part of a schema"),
        (lambda: tool(name="has space")(lambda: None), "'has space' is not a valid tool name"),
        (lambda: Agent("a", tools=[42]), "42 is not a tool"),  # type: ignore[list-item]
        (lambda: Agent("has space"), "'has space' is not a valid agent name"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_at_once(define: Any, said: str):
    with pytest.raises(RondelError, match=said):
        define()


def test_two_tools_of_one_name_in_an_agent_are_refused():
    agent, _ = scripted(tools=[weather, tool(name="weather")(lambda: "x")])
    with pytest.raises(RondelError, match="agent 'helper' has two tools named 'weather'"):
        play(lambda app: asyncio.sleep(0), agent)
