"""`Agent(handoffs=[...])`: the model chooses who takes over."""

from __future__ import annotations

import pytest

from rondel import Agent, App, Handoff, RondelError, ask, tool
from rondel.events import Event, HandedOff, RoundFinished
from rondel.testing import Scripted, call, calls
from rondel.values import ToolResult
from tests.helpers import events_of, of


def desk(*steps: object, **fields: object) -> tuple[Agent, Agent, Agent, Scripted]:
    billing = Agent("billing", engine=Scripted("Your bill is paid."), description="Knows about invoices")
    travel = Agent("travel", engine=Scripted("By train."))
    model = Scripted(*steps)  # type: ignore[arg-type]
    triage = Agent("triage", engine=model, handoffs=[billing, travel], **fields)  # type: ignore[arg-type]
    return triage, billing, travel, model


async def told(agent: Agent) -> list[Event]:
    async with App(agent) as app:
        return await events_of(await app.conversation().send("Is my bill paid?"))


async def test_the_model_chooses_who_takes_over_and_that_agent_answers():
    triage, _, _, model = desk(call("hand_off", agent="billing", reason="about an invoice"))
    events = await told(triage)
    assert of(HandedOff, events) == [HandedOff("billing", by="triage", reason="about an invoice")]
    assert [event.agent for event in of(RoundFinished, events)] == ["triage", "billing"]
    (spec,) = model.prompts[0].tools
    assert spec.name == "hand_off"
    assert spec.schema["properties"]["agent"]["enum"] == ["billing", "travel"]
    assert "- billing: Knows about invoices\n- travel" in spec.description


async def test_the_agent_that_takes_over_reads_the_conversation_so_far():
    billing = Agent("billing", engine=(model := Scripted("Paid.")))
    triage = Agent("triage", engine=Scripted(call("hand_off", agent="billing")), handoffs=[billing])
    assert (await ask(triage, "Is my bill paid?")).output == "Paid."
    assert model.prompts[0].messages[0].text == "Is my bill paid?"
    result = model.prompts[0].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.text == "The agent billing takes over."


async def test_the_model_may_answer_itself():
    triage, *_ = desk("I can tell you that.")
    assert (await ask(triage, "Hello?")).output == "I can tell you that."


async def test_agents_are_named_where_the_app_knows_them_and_may_hand_back():
    boss = Agent("boss", engine=Scripted(call("hand_off", agent="clerk"), "Done."), handoffs=["clerk"])
    clerk = Agent("clerk", engine=Scripted(call("hand_off", agent="boss")), handoffs=["boss"])
    async with App(boss, clerk) as app:
        assert (await app.conversation().ask("Go.")).output == "Done."


async def test_an_agent_that_is_not_listed_cannot_take_over():
    triage, _, _, model = desk(call("hand_off", agent="bilings"), call("hand_off", agent="billing"))
    events = await told(triage)
    assert "did you mean 'billing'?" in model.prompts[1].messages[-1].parts[0].text  # type: ignore[union-attr]
    assert len(of(HandedOff, events)) == 1


async def test_the_first_of_two_takes_over():
    both = calls(call("hand_off", "c1", agent="travel"), call("hand_off", "c2", agent="billing"))
    triage, *_ = desk(both)
    assert [event.agent for event in of(HandedOff, await told(triage))] == ["travel"]


async def test_a_name_that_no_agent_has_is_an_error_at_the_start():
    with pytest.raises(RondelError, match="no agent is named 'bilings'; did you mean 'billing'"):
        async with App(Agent("triage", engine="echo", handoffs=["bilings"]), Agent("billing", engine="echo")):
            pass


async def test_a_second_tool_of_that_name_is_an_error():
    @tool
    def hand_off() -> str:
        return ""

    triage, *_ = desk(tools=[hand_off])
    with pytest.raises(RondelError, match="two tools named 'hand_off'"):
        async with App(triage):
            pass


async def test_a_tool_may_return_a_handoff():
    @tool
    def escalate(to: str) -> Handoff:
        "Escalate."
        return Handoff(to, "too hard")

    boss = Agent("boss", engine=Scripted("I decide."))
    model = Scripted(call("escalate", to="nobody"), call("escalate", to="boss"))
    async with App(Agent("clerk", engine=model, tools=[escalate]), boss) as app:
        assert (await app.conversation().ask("Go.")).output == "I decide."
    assert "no agent is named 'nobody'" in model.prompts[1].messages[-1].parts[0].text  # type: ignore[union-attr]
