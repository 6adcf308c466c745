"""What an agent takes: structured arguments as they are, texts read by a model, one sentence about what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App
from rondel.engines.fallback import Fallback
from rondel.errors import EngineDenied, ToolError
from rondel.events import CallFinished, Event, InputsRead, TurnFinished
from rondel.stores.sqlite import SqliteStore
from rondel.templates.extract import extract
from rondel.testing import Scripted, VirtualClock, call, say
from rondel.text.inputs import check, described_by, from_text, schema_of
from rondel.values import AgentResult, Usage
from tests.helpers import events_after, events_of, of, output_of, play

CITY: dict[str, Any] = {"type": "string", "description": "the city", "required": True}
DATE: dict[str, Any] = {"type": "string", "description": "the day", "required": True}
DAYS: dict[str, Any] = {"type": "integer"}


def trip(city: str, date: str, days: int = 1) -> str:
    return f"{days} days in {city} from {date}"


def trips(*steps: Any, **fields: Any) -> tuple[Agent, Scripted]:
    engine = Scripted(*steps)
    inputs = {"city": CITY, "date": DATE, "days": DAYS}
    return Agent("trips", engine=engine, function=trip, inputs=inputs, **fields), engine


def told(agent: Agent, *said: str, **settings: Any) -> tuple[list[AgentResult], list[Event]]:
    async def scene(app: App) -> tuple[list[AgentResult], list[Event]]:
        conversation, events, results = app.conversation(agent=agent.name), list[Event](), list[AgentResult]()
        for text in said:
            turn = await conversation.send(text)
            events += await events_of(turn)
            results.append(await turn.result(check=False))
        return results, events

    return play(scene, agent, **settings)


# --- where the values come from ---------------------------------------------------------------------------------------


def test_arguments_that_are_structured_are_used_directly():
    """S02: no model is asked for what a call's JSON says already."""
    agent, model = trips()
    boss = Agent("boss", engine=Scripted(call("trips", city="Lisbon", date="May 3", days="2"), "Good."), tools=[agent])

    events = play(events_after("Plan it.", agent="boss"), boss, agent)
    assert of(CallFinished, events)[0].result.text == "2 days in Lisbon from May 3"
    assert model.prompts == []


def test_a_text_for_several_inputs_is_read_by_one_structured_question():
    """S02: one call with a JSON schema, in which the person's words are data."""
    agent, model = trips(say('{"city": "Lisbon", "date": "May 3", "days": null}', usage=Usage(20, 8)))
    (result,), events = told(agent, "To Lisbon on May 3, please {{ .Input }}")
    assert result.output == "1 days in Lisbon from May 3"
    (prompt,) = model.prompts
    assert prompt.options.output is not None
    assert prompt.options.output.schema["properties"]["days"]["type"] == ["integer", "null"]
    assert prompt.messages[-1].text == "To Lisbon on May 3, please {{ .Input }}"
    assert prompt.tools == ()
    (read,) = of(InputsRead, events)
    assert (read.values, read.usage) == ({"city": "Lisbon", "date": "May 3"}, Usage(20, 8))
    assert of(TurnFinished, events)[0].usage == Usage(20, 8)


def test_a_text_that_is_a_json_object_of_the_inputs_needs_no_model():
    """S02"""
    agent, model = trips()
    (result,), _ = told(agent, '{"city": "Lisbon", "date": "May 3", "days": "3"}')
    assert result.output == "3 days in Lisbon from May 3"
    assert model.prompts == []


def test_the_only_input_takes_the_text_as_it_is():
    """S02"""
    agent = Agent("loud", function=lambda city: city.upper(), inputs={"city": CITY})
    (result,), _ = told(agent, "  What about Lisbon?")
    assert result.output == "  WHAT ABOUT LISBON?"


def test_an_answer_that_is_no_json_is_asked_for_once_more():
    """S02: with the reason in the second question."""
    agent, model = trips("I cannot do that.", '{"city": "Lisbon", "date": "May 3", "days": 2}')
    (result,), _ = told(agent, "Lisbon, May 3, two days")
    assert result.output == "2 days in Lisbon from May 3"
    assert "could not be used: it was no JSON object" in model.prompts[1].messages[0].text


def test_two_answers_that_are_no_json_fail_the_turn_in_one_sentence():
    agent, _ = trips("Sorry.", "Sorry!")
    (result,), _ = told(agent, "Lisbon")
    assert result.error.startswith(
        "plugin 'inputs', on_turn_start: scripted:test was asked for values twice and gave none"
    )


def test_missing_required_inputs_are_named():
    """S02"""
    agent, _ = trips('{"city": null, "date": "", "days": 2}')
    (result,), events = told(agent, "Somewhere nice for two days")
    assert result.error == "'trips' still needs city, date"
    failure = of(TurnFinished, events)[0].failure
    assert failure is not None
    assert (failure.name, failure.agent) == ("InputError", "trips")


def test_a_model_that_leaves_out_what_is_required_is_told_and_may_do_better():
    """S02: a call is an error result for the model, and no end of the turn."""
    agent, _ = trips()
    calls = Scripted(call("trips", city="Lisbon"), call("trips", city="Lisbon", date="May 3", nights=2), "Sorry.")
    boss = Agent("boss", engine=calls, tools=[agent])

    first, second = of(CallFinished, play(events_after("Plan it.", agent="boss"), boss, agent))
    assert first.result.is_error
    assert first.result.text == "'trips' still needs date"
    assert second.result.text.startswith("agent 'trips' has no input 'nights'")


def test_what_an_earlier_message_said_stays_known():
    agent, model = trips('{"city": "Lisbon", "date": "May 3", "days": 2}', '{"city": null, "date": "May 9", "days": 5}')
    (_, result), _ = told(agent, "Lisbon, May 3, two days", "Rather on the 9th, for five days")
    assert result.output == "5 days in Lisbon from May 9"
    assert model.left == 0


def test_an_agent_that_makes_no_use_of_its_inputs_is_simply_talked_to():
    model = Scripted("Hello.")
    agent = Agent("guide", "You plan holidays.", engine=model, inputs={"city": CITY, "date": DATE})
    (result,), events = told(agent, "Hi.")
    assert result.output == "Hello."
    assert of(InputsRead, events) == []


def test_the_text_itself_needs_no_reading():
    model = Scripted("Hello.")
    words = 'You plan holidays for {{ .Input }}. \\{{ .Input "city" }}'
    agent = Agent("guide", words, engine=model, inputs={"city": CITY, "date": DATE})
    (result,), events = told(agent, "Ann")
    assert (result.output, of(InputsRead, events)) == ("Hello.", [])


def test_inputs_are_read_before_they_are_handed_on():
    model = Scripted('{"city": "Lisbon", "date": "May 3"}')
    agent = Agent("guide", engine=model, template='See: {{ .Get "where" }}', inputs={"city": CITY, "date": DATE})
    where = Agent("where", template='{{ .Input "city" }} on {{ .Input "date" }}', inputs={"date": DATE, "city": CITY})

    assert play(output_of("Lisbon on May 3", agent="guide"), agent, where) == "See: Lisbon on May 3"


def test_a_prompt_that_speaks_of_an_input_gets_it():
    """S02, S06"""
    model = Scripted('{"city": "Lisbon", "date": "May 3"}', "Sunny.")
    prompt = 'You know {{ .Input "city" }} on {{ .Input "date" }}. {{ .Input "name" "Guest" }} asks.'
    agent = Agent("guide", prompt, engine=model, inputs={"city": CITY, "date": DATE})
    (result,), _ = told(agent, "Lisbon on May 3?")
    assert result.output == "Sunny."
    assert model.prompts[1].messages[0].text == "You know Lisbon on May 3. Guest asks."


async def test_inputs_that_were_read_are_not_read_again_after_a_restart(tmp_path: Path):
    """S02: a turn that waits for a person finds them in its transcript."""
    file, model = tmp_path / "store.db", Scripted('{"city": "Lisbon", "date": "May 3"}')
    words = 'To {{ .Input "city" }} with {{ .AskUser "Who comes along?" }} on {{ .Input "date" }}.'
    agent = Agent("guide", engine=model, template=words, inputs={"city": CITY, "date": DATE})

    async def main() -> AgentResult:
        async with App(agent, store=SqliteStore(file)) as app:
            conversation = app.conversation("c", agent="guide")
            turn = await conversation.send("Lisbon, May 3")
            await turn.result()
        async with App(agent, store=SqliteStore(file)) as app:
            conversation = app.conversation("c", agent="guide")
            (question,) = await conversation.questions()
            return await (await conversation.answer(question.id, "Ann")).result()

    async with asyncio.timeout(10):
        assert (await main()).output == "To Lisbon with Ann on May 3."
    assert len(model.prompts) == 1


async def test_an_answer_is_checked_whatever_the_model_says():
    model = Scripted('{"days": "soon"}', '```json\n{"days": 4, "city": "", "extra": 1}\n```')
    assert (await extract(model, {"days": DAYS, "city": CITY}, "x" * 60_000, task="Read.")).values == {"days": 4}


async def test_values_that_a_fallback_read_name_its_engine():
    model = Fallback(Scripted(EngineDenied("no key"), name="a:m"), Scripted('{"days": 4, "city": ""}', name="b:m"))
    assert (await extract(model, {"days": DAYS, "city": CITY}, "x", task="Read.")).engine == "b:m"


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given", "made"),
    [
        ({"type": "integer"}, " 42 ", 42),
        ({"type": "integer"}, 4.0, 4),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        ({}, 5, "5"),
        ({}, True, "true"),
        ({"type": "array", "items": {"type": "integer"}}, '["1", 2]', [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "string"]}, "7", "7"),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"enum": ["red", "blue"]}, "Red ", "red"),
        ({"enum": [1, 2]}, 2, 2),
        ({"type": "integer", "default": 3}, None, 3),
        ({"anyOf": [{"type": "integer"}]}, "as it is", "as it is"),
    ],
)
def test_values_are_made_what_they_should_be(field: dict[str, Any], given: Any, made: Any):
    """S02"""
    assert check("a", {"x": field}, {"x": given}) == {"x": made}


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [
        ({"type": "integer"}, "soon", "input 'x' of agent 'a' must be a whole number, not 'soon'"),
        ({"type": "integer"}, True, "input 'x' of agent 'a' must be a whole number, not True"),
        ({"type": "integer"}, 1.5, "input 'x' of agent 'a' must be a whole number, not 1.5"),
        ({"type": "number"}, "nan", "input 'x' of agent 'a' must be a number, not 'nan'"),
        ({"type": "integer"}, "9" * 5_000, "input 'x' of agent 'a' must be a whole number, not '999"),
        ({"type": "boolean"}, "perhaps", "input 'x' of agent 'a' must be true or false, not 'perhaps'"),
        ({}, ["a"], "input 'x' of agent 'a' must be a text, not ['a']"),
        ({"type": "array"}, "a, b", "input 'x' of agent 'a' must be a list, not 'a, b'"),
        ({"type": "array", "items": {"type": "integer"}}, ["b"], "item 1 must be a whole number, not 'b'"),
        ({"enum": ["red"]}, "green", "input 'x' of agent 'a' must be one of 'red', not 'green'"),
        ({"required": True}, "  ", "'a' still needs x"),
    ],
)
def test_a_wrong_value_is_one_sentence(field: dict[str, Any], given: Any, said: str):
    """S02"""
    with pytest.raises(ToolError) as caught:
        check("a", {"x": field}, {"x": given})
    assert str(caught.value).startswith(said)


def test_an_input_that_is_not_known_is_told_with_the_nearest():
    with pytest.raises(ToolError, match=r"agent 'a' has no input 'citty'; did you mean 'city'\?"):
        check("a", {"city": CITY}, {"citty": "Bonn"})


def test_an_input_is_required_only_where_it_says_so():
    """S02, S04: as a property of a JSON schema is optional unless it is listed."""
    assert schema_of({"city": CITY, "days": DAYS, "note": {}}) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "the city"},
            "days": {"type": "integer"},
            "note": {"type": "string"},
        },
        "required": ["city"],
    }


@pytest.mark.parametrize(
    ("fields", "text", "found"),
    [
        ({}, "anything", {}),
        ({"days": DAYS}, " 4 ", {"days": 4}),
        ({"days": DAYS}, "four", None),
        ({"days": DAYS, "city": CITY}, "", {}),
        ({"days": DAYS, "city": CITY}, '{"days": 4}', {"days": 4}),
        ({"days": DAYS, "city": CITY}, '{"day": 4}', None),
        ({"days": DAYS, "city": CITY}, "[1]", None),
        ({"days": DAYS, "city": CITY}, '{"days": ', None),
    ],
)
def test_what_a_text_gives_by_its_form_alone(fields: dict[str, Any], text: str, found: Any):
    assert from_text(fields, text) == found


def test_a_function_says_itself_what_it_takes():
    def book(city: str, nights: int = 1) -> str:
        """Book a room.

        Args:
            city: where
        """
        return f"{nights} in {city}"

    assert described_by(book) == (
        "Book a room.",
        {
            "city": {"type": "string", "description": "where", "required": True},
            "nights": {"type": "integer", "default": 1},
        },
    )


async def test_nobody_is_asked_when_somebody_only_looks():
    agent, model = trips()
    async with App(agent, clock=VirtualClock()) as app:
        from rondel.values import user

        async for _ in app.preview("trips", user("Lisbon on May 3")):
            pass
    assert model.prompts == []


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ({}, " I go to Porto\nin May ", " I go to Porto\nin May "),
        ({"type": "integer"}, " 4 ", 4),
        ({"type": "boolean"}, "yes", True),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"enum": ["red", "blue"], "type": "string"}, "Red", "red"),
        ({"type": "integer"}, "about four of us", None),
        ({"type": "array"}, "a and b", None),
        ({"enum": ["red", "blue"], "type": "string"}, "the colour of the sky", None),
    ],
)
def test_a_free_text_is_the_only_input_if_it_fits_and_else_a_model_extracts_it(
    field: dict[str, object], text: str, value: object
):
    """S02: the table in docs/agents.md."""
    found = from_text({"only": field}, text)
    assert found == (None if value is None else {"only": value})
    assert from_text({"only": field, "other": {}}, text) is None
