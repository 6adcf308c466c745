"""Calls whose arguments came broken, and agents that found nothing."""

from __future__ import annotations

from typing import Any

from rondel import Agent, Reply, tool
from rondel.events import CallFinished
from rondel.testing import Scripted
from rondel.values import PartDelta, StopReason, ToolCall, assistant

from ..helpers import events_after, of, play


@tool
async def write(path: str, text: str = "") -> str:
    return f"{path}: {text}"


def broken(text: str, *, stop: StopReason = "calls", first: str = "") -> Reply:
    parts = [ToolCall(f"call-{n}", "write", broken=t) for n, t in enumerate((first, text)) if t]
    return Reply(assistant(*parts), stop=stop)


def results(*steps: Any) -> list[str]:
    events = play(events_after("go"), Agent("helper", engine=Scripted(*steps, "done"), tools=[write]))
    return [event.result.text for event in of(CallFinished, events)]


def test_broken_arguments_are_repaired_before_the_call_runs():
    """M05: JSON, relaxed, repaired."""
    assert results(broken("{'path': 'a', text: 'b',}")) == ["a: b"]
    assert results(broken('{"path": "a" "text": "b"')) == ["a: b"]


def test_arguments_that_cannot_be_saved_stay_broken_and_the_model_is_told():
    """M05: what ends in {} is no repair."""
    assert results(broken("write it, please")) == ["the arguments of 'write' are not a JSON object: 'write it, please'"]


def test_a_call_that_ran_out_of_tokens_does_not_run_with_half_its_arguments():
    """M05: only the last call of a reply that was cut off is half a call."""
    half = '{"path": "a", "text": "half a fi'
    told = sorted(results(broken(half, first="{path: 'b'}", stop="length")))
    assert told[0] == "b: "
    assert told[1].startswith("the arguments of 'write' are not a JSON object")


def test_the_marker_of_a_soft_failure_never_reaches_a_person():
    """F09: %no-result% becomes words, also while it streams."""
    instructions = "Answer %no-result% when you find nothing."

    scene = events_after("go")
    events = play(scene, Agent("helper", instructions, Scripted("Well: %no-result%")))
    assert "".join(delta.text for delta in of(PartDelta, events)) == "Well: No useful result."
    events = play(scene, Agent("helper", instructions, Scripted("Found it.")))
    assert "".join(delta.text for delta in of(PartDelta, events)) == "Found it."


def test_an_agent_that_knows_no_marker_streams_as_it_speaks():
    """F09: the text is left alone where the marker means nothing."""

    events = play(events_after("go"), Agent("helper", "Be brief.", Scripted("100 %no-result% cotton")))
    assert "%no-result%" in "".join(delta.text for delta in of(PartDelta, events))
