"""A turn while it streams: the answer's text is not mixed up with thinking or with the arguments of calls."""

from __future__ import annotations

import runpy

import pytest

from rondel import Agent, App, tool
from rondel.events import Event, Lagged, RoundFinished
from rondel.machine.answer_text import AnswerText
from rondel.testing import Scripted, call, say
from rondel.values import (
    Message,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    assistant,
)
from tests.docs.pages import ROOT, blocks_of
from tests.helpers import events_after, of, play, scripted


@tool
async def weather(city: str) -> str:
    "The weather in a city."
    return f"mild in {city}"


def test_scripted_models_stream_the_arguments_of_calls_as_real_ones_do():
    """Trust 9: a call begins without its arguments, which come as pieces of JSON."""
    agent, _ = scripted(call("weather", "c1", city="Lisbon"), "Warm.", tools=[weather])

    events = play(events_after("go"), agent)
    started = next(event.part for event in of(PartStarted, events))
    assert started == ToolCall("c1", "weather")
    pieces = [event.text for event in of(PartDelta, events)]
    assert pieces == ['{"city":"Lisbon"}', "Warm."]


def test_the_documented_loops_print_the_answer_and_nothing_else(capsys: pytest.CaptureFixture[str]):
    """Trust 9: examples/stream.py, and the loop of docs/surfaces.md, to the letter."""
    runpy.run_path(str(ROOT / "examples" / "stream.py"), run_name="__main__")
    assert capsys.readouterr().out == "[weather: mild in Lisbon]\nTake a light coat.\n(done)\n"
    block = next(b for b in blocks_of(ROOT / "docs" / "surfaces.md") if b.language == "python")
    exec(compile(block.text, "surfaces.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "booked: Lisboa\nHave fun."


async def test_the_text_of_a_turn_can_be_iterated():
    """Trust 9: thinking and arguments are not in it, and what was said in two rounds does not run together."""
    model = Scripted(
        Message("assistant", (Thinking("hm"), Text("Let me see."), ToolCall("c1", "weather", {"city": "Porto"}))),
        say("Mild.", thinking="so it is"),
    )
    async with App(Agent("helper", engine=model, tools=[weather])) as app:
        turn = await app.conversation().send("go")
        assert "".join([text async for text in turn.text_stream()]) == "Let me see.\n\nMild."


async def test_a_sentence_that_goes_on_in_another_round_is_one_sentence():
    """Trust 9: directives in mid-sentence are rounds of their own."""
    outer = Agent("outer", template='It is {{ .Get "inner" }} today.')
    async with App(outer, Agent("inner", template="mild")) as app:
        turn = await app.conversation(agent="outer").send("go")
        assert "".join([text async for text in turn.text_stream()]) == "It is mild today."


def test_what_a_slow_watcher_missed_comes_with_the_end_of_the_round():
    """Trust 9."""
    answer = AnswerText()
    events: list[Event] = [ReplyStarted(), PartStarted(0, Text("")), PartDelta(0, "one "), Lagged(1)]
    events += [RoundFinished(assistant("one two")), RoundFinished(assistant("three"))]
    assert "".join(map(answer.feed, events)) == "one two"
    later: list[Event] = [PartStarted(0, Text("")), PartFinished(0, Text("four")), ReplyFinished()]
    assert "".join(map(answer.feed, later)) == "\n\nfour"
