"""How small models are asked: examples as turns, remarks before the question, and what they may not do next."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.engines.local.examples import example_turns
from rondel.engines.local.model_input import model_input
from rondel.engines.local.steps import CALLS_MAX, steps_of
from rondel.engines.local.weights import Card
from rondel.prompt import Prompt
from rondel.tool import Tool, tool
from rondel.tools.calculate import calculate
from rondel.tools.shell import run_shell
from rondel.values import (
    Example,
    Message,
    Options,
    OutputSchema,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    assistant,
    system,
    user,
)

TOOLS = (calculate.spec, run_shell.spec)


@tool
def book(
    room: str,
    nights: int,
    board: Literal["none", "half", "full"],
    guests: list[str],
    email: str = "",
    note: str | None = None,
) -> str:
    """Book a room. It cannot be undone."""
    return f"{room} {nights} {board} {guests} {email} {note}"


def messages(
    *said: Message, tools: tuple[ToolSpec, ...] = TOOLS, card: Card | None = None, **options: Any
) -> list[Any]:
    prompt = Prompt.of(*said, tools=tools, options=Options(**options))
    return model_input(prompt, card or Card()).body["messages"]


def choices(*said: Message, tools: tuple[ToolSpec, ...] = TOOLS, **options: Any) -> list[str]:
    """What the model may write next: `say`, or the names of tools."""
    schema = model_input(Prompt.of(*said, tools=tools, options=Options(**options)), Card()).schema
    assert schema is not None
    cases = [case["properties"] for case in schema["anyOf"]]
    return ["say" if "say" in case else case["tool"]["const"] for case in cases]


def called(name: str, result: str = "ok", *, failed: bool = False, **arguments: Any) -> tuple[Message, Message]:
    id = f"c-{name}-{sorted(arguments.items())}"
    part = ToolResult(id, (Text(result),), name, is_error=failed)
    return assistant(ToolCall(id, name, arguments)), Message("tool", (part,))


# --- examples ---------------------------------------------------------------------------------------------------------


def test_a_tools_own_examples_are_turns_of_the_conversation() -> None:
    said = [(message["role"], message["content"]) for message in messages(user("Hello"))]
    asked = said.index(("user", "What is 15% of 80?"))
    assert said[asked + 1 : asked + 4] == [
        ("assistant", '{"tool": "calculate", "arguments": {"expression": "80 * 15 / 100"}}'),
        ("user", "Result of calculate: 12"),
        ("assistant", '{"say": "15% of 80 is 12."}'),
    ]
    assert ("assistant", '{"say": "The capital of Italy is Rome."}') in said
    assert said[-1] == ("user", "Hello")


def test_a_tool_without_examples_gets_one_from_its_schema_and_description() -> None:
    turns = list(example_turns([book.spec], Options()))
    call = next(call for turn in turns for call in turn.calls)
    assert call.arguments == {"room": "hall", "nights": 3, "board": "none", "guests": ["tea"]}
    assert book.validate(call.arguments)["nights"] == 3
    asked = next(turn.text for turn, after in pairwise(turns) if after.calls)
    assert asked == 'Book a room: room hall, nights 3, board none, guests ["tea"]'


def test_examples_may_be_arguments_or_whole_exchanges() -> None:
    own = Example({"room": "7"}, "I want room 7.", "booked", "Room 7 is yours.")
    spec = msgspec.structs.replace(book, examples=(own, {"room": "8"})).spec
    said = [turn.text for turn in example_turns([spec], Options())]
    assert "I want room 7." in said
    assert "Room 7 is yours." in said
    assert "Book a room: 8" in said


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer", "minimum": 5},
            {"type": "boolean"},
            {"enum": ["a", 1]},
            {},
            {"type": []},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda a, b: {"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]}, inner, inner),
        st.builds(lambda a: {"anyOf": [a, {"type": "null"}]}, inner),
    ),
    max_leaves=6,
)


@given(SCHEMAS)
def test_any_schema_gives_an_example(schema: dict[str, Any]) -> None:
    spec = ToolSpec("t", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    calls = [call for turn in example_turns([spec], Options()) for call in turn.calls]
    assert {tuple(call.arguments) for call in calls} == {("x",)}


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/A"}, {"$ref": "elsewhere"}, {"$ref": "#"}])
def test_a_schema_that_refers_to_itself_gives_an_example(schema: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"A": {"type": "array", "items": schema}}}
    assert [turn for turn in example_turns([ToolSpec("t", "", whole)], Options()) if turn.calls]


def test_where_words_are_no_answer_no_example_has_words() -> None:
    for options in (Options(tool_choice="required"), Options(output=OutputSchema({"type": "object"}))):
        turns = list(example_turns(TOOLS, options))
        assert turns
        assert not any(turn.role == "assistant" and turn.text for turn in turns)


def test_what_changes_comes_after_what_the_cache_keeps() -> None:
    """The instructions, tools and examples are one prefix, whatever is asked and whenever."""
    first = messages(system("Be kind."), user("Hello"), system("It is Monday, 08:00."))
    later = messages(system("Be kind."), user("Hi"), assistant("Yes?"), user("Hello"), system("It is Tuesday, 09:00."))
    assert first[-1] == {"role": "user", "content": "[It is Monday, 08:00.]\nHello"}
    assert later[-1] == {"role": "user", "content": "[It is Tuesday, 09:00.]\nHello"}
    assert later[: len(first) - 1] == first[:-1]


def test_a_remark_stays_with_the_question_while_tools_work() -> None:
    said = messages(user("Sum?"), *called("calculate", "2", expression="1+1"), system("It is Monday."), tools=())
    assert [message["content"] for message in said] == [
        "[It is Monday.]\nSum?",
        '{"tool": "calculate", "arguments": {"expression": "1+1"}}',
        "Result of calculate: 2",
    ]


def test_a_tool_is_also_shown_twice_in_one_turn_and_the_request_again_after_each_result() -> None:
    """A small model forgets the other half of what was asked."""

    @tool
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        return city

    said = [message["content"] for message in messages(user("Hello"), tools=(weather.spec,))]
    start = said.index("Tell the weather in a city: Turin and Ghent")
    assert said[start + 1 : start + 6] == [
        '{"tool": "weather", "arguments": {"city": "Turin"}}',
        "Result of weather: Turin: ready\n[Asked: Tell the weather in a city: Turin and Ghent]",
        '{"tool": "weather", "arguments": {"city": "Ghent"}}',
        "Result of weather: Ghent: ready\n[Asked: Tell the weather in a city: Turin and Ghent]",
        '{"say": "Turin: ready. Ghent: ready."}',
    ]


def test_only_a_request_of_several_steps_is_repeated_after_a_result() -> None:
    one, two = called("calculate", "2", expression="1+1"), called("calculate", "4", expression="2+2")
    assert messages(user("What is 1+1?"), *one)[-1]["content"] == "Result of calculate: 2"
    asked = "What is 1+1 and 2+2?"
    said = messages(user(asked), *one, *two, system("It is Monday."))
    assert [said[at]["content"] for at in (-5, -3, -1)] == [
        f"[It is Monday.]\n{asked}",
        f"Result of calculate: 2\n[Asked: {asked}]",
        f"Result of calculate: 4\n[Asked: {asked}]",
    ]
    assert messages(user("this and that " * 100), *one)[-1]["content"] == "Result of calculate: 2", "a long one is not"
    large = messages(user(asked), *one, card=Card(small=False))
    assert large[-1]["content"] == "Result of calculate: 2"


# --- what comes next --------------------------------------------------------------------------------------------------


def test_after_a_good_result_only_an_answer_is_possible() -> None:
    assert choices(user("What is 17*23?")) == ["say", "calculate", "run_shell"]
    assert choices(user("What is 17*23?"), *called("calculate", "391", expression="17*23")) == ["say"]


@pytest.mark.parametrize("asked", ["Do this and then that.", "How old? And how tall?", "One.\nTwo.", "a; b"])
def test_a_request_of_several_steps_may_call_again(asked: str) -> None:
    assert choices(user(asked), *called("calculate", expression="1")) == ["say", "calculate", "run_shell"]


def test_after_an_error_another_call_may_help_but_not_for_ever() -> None:
    once = called("calculate", "no", failed=True, expression="x")
    assert "calculate" in choices(user("What is x?"), *once)
    assert choices(user("What is x?"), *once, *called("calculate", "no", failed=True, expression="y")) == ["say"]


def test_the_steps_of_a_turn_are_bounded() -> None:
    calls = [part for n in range(CALLS_MAX) for part in called("calculate", expression=str(n))]
    assert choices(user("This and that and more."), *calls) == ["say"]


def test_a_new_question_may_call_again() -> None:
    earlier = (user("What is 1+1?"), *called("calculate", "2", expression="1+1"), assistant("2"))
    assert "calculate" in choices(*earlier, user("What is 2+2?"))


def test_a_call_that_must_be_made_stays_possible() -> None:
    made = called("calculate", "2", expression="1+1")
    assert choices(user("What is 1+1?"), *made, tool_choice="required") == ["calculate", "run_shell"]


def test_a_repeated_call_is_known_whatever_the_order_of_its_arguments() -> None:
    steps = steps_of((user("Go."), *called("t", a=1, b=2)))
    assert steps.repeats(ToolCall("x", "t", {"b": 2, "a": 1}))
    assert not steps.repeats(ToolCall("x", "t", {"b": 2, "a": 2}))
    assert not steps.repeats(ToolCall("x", "u", {"a": 1, "b": 2}))


def test_the_tools_of_the_built_in_agent_have_examples_that_are_valid() -> None:
    for one in (calculate, run_shell):
        assert isinstance(one, Tool)
        for example in one.spec.examples:
            assert one.validate(example.arguments) == example.arguments
            assert example.asked
            assert example.said
