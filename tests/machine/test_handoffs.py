"""Where control goes after a reply that also calls tools: the calls are carried out first, and nothing is dropped."""

from __future__ import annotations

import msgspec
import pytest

from rondel import Agent, App, Message, Plugin, Reply, tool
from rondel.events import Event, HandedOff, LimitHit, MessageAdded, RoundFinished, TurnFinished
from rondel.limits import Limits
from rondel.machine.turn import Turn
from rondel.testing import MemoryStore, Scripted, call, calls
from rondel.tools.finish import finish
from rondel.values import user
from tests.helpers import events_of, of, play, scripted
from tests.machine.test_crash import Scenario, by_history, survives


@tool(idempotent=True)
async def look(at: int = 0) -> str:
    return f"seen {at}"


@tool(approval="confirm")
async def book() -> str:
    return "booked"


class Next(Plugin):
    """Says where control goes after replies with calls."""

    def __init__(self, target: str, message: Message | None = None, times: int = 99) -> None:
        self.target, self.message, self.times = target, message, times

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if not reply.message.calls or not self.times:
            return reply
        self.times -= 1
        return msgspec.structs.replace(reply, next=self.target, next_message=self.message)


def a_turn(*agents: Agent) -> tuple[list[Event], str]:
    async def scene(app: App) -> tuple[list[Event], str]:
        view = await app.conversation().send("go")
        return await events_of(view), (await view.result(check=False)).output

    return play(scene, *agents)


def test_a_hand_off_beside_calls_takes_effect_when_they_are_answered():
    """Trust 9: the first agent's tools run, then the other one owes the reply and reads their results."""
    both = calls(call("look", "c1", at=1), call("look", "c2", at=2))
    agent, engine = scripted(both, tools=[look], plugins=[Next("agent:other")])
    other, answers = scripted("From the other.", name="other")
    events, output = a_turn(agent, other)
    assert output == "From the other."
    assert of(HandedOff, events) == [HandedOff("other", by="helper")]
    assert [part.text for part in answers.prompts[0].messages[-1].parts] == ["seen 1", "seen 2"]  # type: ignore[union-attr]
    assert [event.agent for event in of(RoundFinished, events)] == ["helper", "other"]
    engine.check_done()


async def test_a_hand_off_beside_a_call_that_waits_for_a_person_happens_after_the_answer():
    """Trust 9: also when the answer comes to another process."""
    store = MemoryStore()
    agent, _ = scripted(call("book"), tools=[book], plugins=[Next("agent:other")])
    other, _ = scripted("Booked, I hear.", name="other")
    async with App(agent, other, store=store) as app:
        await (await app.conversation("c").send("go")).result()
    async with App(agent, other, store=store.reopen()) as app:
        conversation = app.conversation("c")
        (question,) = await conversation.questions()
        result = await (await conversation.answer(question.id, "yes")).result()
        assert (result.output, (await conversation.transcript()).agent) == ("Booked, I hear.", "other")


def test_a_hand_off_to_nobody_is_said_after_the_calls():
    """Trust 9."""
    agent, engine = scripted(call("look"), "I stay.", tools=[look], plugins=[Next("agent:nobody")])
    events, output = a_turn(agent)
    assert output == "I stay."
    (error,) = [event.message for event in of(MessageAdded, events) if event.message.role == "error"]
    assert "'nobody'" in error.text
    assert [message.role for message in engine.prompts[1].messages] == ["user", "assistant", "tool", "user"]


def test_a_hand_off_beats_a_tool_that_ends_the_turn():
    """Trust 9, F07: a hand-off beats human."""
    agent, _ = scripted(call("finish", text="Mine."), tools=[finish], plugins=[Next("agent:other")])
    other, _ = scripted("From the other.", name="other")
    assert a_turn(agent, other)[1] == "From the other."


def test_a_message_in_the_users_place_beside_calls_follows_their_results():
    """Trust 9: `next_message` was dropped silently, too."""
    agent, engine = scripted(call("look"), "Done.", tools=[look], plugins=[Next("self", user("And now?"))])
    assert a_turn(agent)[1] == "Done."
    assert [message.role for message in engine.prompts[1].messages] == ["user", "assistant", "tool", "user"]
    assert engine.prompts[1].messages[-1].text == "And now?"


def test_a_reply_with_calls_that_is_thrown_away_calls_nothing():
    """Trust 9: `again` was dropped silently, too."""
    steps = (call("look"), call("look"), "Done.")
    limits = Limits(tree_calls=1)  # what was thrown away does not count
    agent, engine = scripted(*steps, tools=[look], plugins=[Next("again", times=1)], limits=limits)
    events, output = a_turn(agent)
    assert output == "Done."
    assert [event.next for event in of(RoundFinished, events)] == ["again", "human", "human"]
    assert [message.role for message in engine.prompts[1].messages] == ["user"]


def test_hand_offs_beside_calls_are_counted():
    """Trust 9: agents that hand over for ever end by the limit's name."""
    limits = Limits(handoffs=3)
    there = Agent(
        "there", engine=Scripted(*[call("look")] * 9), tools=[look], plugins=[Next("agent:back")], limits=limits
    )
    back = Agent(
        "back", engine=Scripted(*[call("look")] * 9), tools=[look], plugins=[Next("agent:there")], limits=limits
    )
    events, _ = a_turn(there, back)
    assert [hit.name for hit in of(LimitHit, events)] == ["limits.handoffs"]
    assert of(TurnFinished, events)[-1].outcome == "limited"


@pytest.mark.parametrize("written", [False, True])
async def test_a_hand_off_beside_calls_survives_a_crash_at_every_append(written: bool):
    """Trust 9, F02."""

    def make() -> Scenario:
        first = by_history(lambda _: calls(call("look", "c1", at=1), call("look", "c2", at=2)))
        agent = Agent("helper", engine=first, tools=[look], plugins=[Next("agent:other")])
        return Scenario(agent, Agent("other", engine=by_history(lambda _: "From the other.")))

    assert (await survives(make, written=written))[-1].text == "From the other."
