"""Hard and soft failures of agents that work for agents, and what is told to whom."""

from __future__ import annotations

import pytest

from rondel import Agent, AgentResult, App, NoResult, Outcome, tool
from rondel.events import CallFinished, RoundFinished
from rondel.testing import Scripted, call, calls
from rondel.values import PartDelta
from tests.helpers import events_of, of, output_of, play, result_of, scripted, talking


def test_a_hard_failure_stops_the_handling_of_tools_at_once_and_names_the_agent():
    """F09, F11: the model is not asked again, and nothing behind the failure runs."""
    ran: list[str] = []

    @tool(parallel=False)
    async def later() -> str:
        ran.append("later")
        return "ok"

    def broken() -> str:
        raise OSError("the archive burned down")

    archive = Agent("archive", function=broken, description="Old things", inputs={})
    asked = calls(call("archive", "a1", input="x", parallel=False), call("later", "l1"))
    boss, engine = scripted(asked, tools=["archive", later])

    result = play(result_of("go"), boss, archive)
    why = "agent 'archive' failed: OSError: the archive burned down"
    assert result == AgentResult("", why, True, "archive", outcome=Outcome.FAILED)
    assert ran == []
    assert len(engine.prompts) == 1


@pytest.mark.parametrize(
    "finds_nothing",
    [
        Agent("search", template="%no-result%", description="Search", inputs={"q": {}}),
        Agent("search", function=lambda: "%no-result%", description="Search", inputs={"q": {}}),
        Agent("search", "Say %no-result% when there is none.", engine=Scripted("%no-result%"), inputs={"q": {}}),
    ],
    ids=["template", "function", "model"],
)
async def test_a_soft_failure_tells_the_model_and_never_shows_its_marker(finds_nothing: Agent):
    """F09: ran stays true, the conversation goes on, and no watcher sees the marker."""
    boss, engine = scripted(call("search", q="x"), "I found nothing.", listeners=["search"])
    async with talking(boss, finds_nothing) as conversation:
        events = await events_of(await conversation.send("go"))
        output = (await conversation.transcript()).output
    assert output == "I found nothing."
    assert engine.prompts[1].messages[-1].parts[0].text == "No useful result."
    nested = [event.event if hasattr(event, "event") else event for event in events]
    assert not any("%no-result%" in delta.text for delta in of(PartDelta, nested))
    assert not any("%no-result%" in done.result.text for done in of(CallFinished, nested))
    assert all(finished.ran for finished in of(RoundFinished, nested))


async def test_the_marker_in_a_final_answer_never_reaches_a_person():
    """F09."""
    agent = Agent("search", template="Well: %no-result%")
    async with talking(agent) as conversation:
        events = await events_of(await conversation.send("go"))
        found = "".join(d.text for d in of(PartDelta, events)), (await conversation.transcript()).output
    assert found == ("Well: No useful result.", "Well: No useful result.")


def test_a_soft_failure_in_the_middle_of_a_sentence_is_words():
    """F09: with its reason and what to try."""
    outer = Agent("outer", template='The archive says: {{ .Get "archive" }}')
    archive = Agent("archive", function=lambda: NoResult("It ends in 1990.", "Ask for an earlier year."))

    said = play(output_of("go"), outer, archive)
    assert said == "The archive says: No useful result. It ends in 1990. Ask for an earlier year."


async def test_a_blank_prompt_of_a_recruited_agent_asks_nobody():
    """F08: flow control by a template."""
    inner, engine = scripted(name="inner", prompt='{{ .Input "topic" }}')
    outer = Agent("outer", template='[{{ .Get "inner" "" }}]')
    async with App(outer, inner) as app:
        conversation = app.conversation("c")
        result = await (await conversation.send("go")).result(check=False)
        child = [entry.event for entry in await app.store.read("c/d1.0")]
        assert (result.output, of(RoundFinished, child)[-1].ran) == ("[]", False)
    assert engine.prompts == []


def test_a_hard_failure_inside_a_recruited_agent_names_the_innermost():
    """F09: which of the agents failed."""

    def broken() -> str:
        raise ValueError("no")

    middle, _ = scripted(call("bottom", input="x"), name="middle", tools=["bottom"])
    top, _ = scripted(call("middle", input="x"), name="top", tools=["middle"])

    result = play(result_of("go", agent="top"), top, middle, Agent("bottom", function=broken))
    assert result.agent == "bottom"
