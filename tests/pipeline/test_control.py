"""Where control goes: to a person, to the agent itself, to another agent and back, with the pipeline's own plugins.

The precedence, the strongest first: a stop, `again`, `agent:<id>`, `self`, `human`.
"""

from __future__ import annotations

import asyncio
from itertools import combinations

import msgspec
import pytest

from rondel import Agent, App, Limits, Plugin, Prompt, Reply, tool
from rondel.errors import EngineOverloaded, LimitReached
from rondel.events import Event, HandedOff, LimitHit, Outcome, PluginFailed, RoundFinished, TurnFinished
from rondel.machine.trigger import Trigger
from rondel.machine.turn import Turn
from rondel.plugin import HOOKS
from rondel.plugins.auto_reply import AutoReply
from rondel.plugins.reroll import Reroll
from rondel.testing import Pause, Scripted, call
from rondel.tool import CallContext
from rondel.tools.ask_user import ask_user
from rondel.values import ToolCall, ToolResult
from tests.helpers import events_of, of, play, scripted, talking, turn_after
from tests.machine.test_crash import Scenario, by_history, survives


class HandOver(Plugin):
    """Passes control to an agent when the reply says `to <agent>`."""

    def __init__(self, agent: str) -> None:
        self.agent = agent

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, next=f"agent:{self.agent}") if f"to {self.agent}" in reply.text else reply


def finished(events: list[Event]) -> TurnFinished:
    return of(TurnFinished, events)[0]


def rounds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.agent, event.message.text) for event in of(RoundFinished, events)]


def a_turn(*agents: Agent, text: str = "go") -> list[Event]:
    return play(turn_after(text), *agents)


# --- states -----------------------------------------------------------------------------------------------------------


async def test_the_states_of_a_turn_bear_the_names_of_a2a():
    """F01: working, then completed, input-required, canceled or failed."""
    slow = Scripted()
    agents = (
        Agent("fine", engine=Scripted("one", "two"), plugins=[AutoReply(text="more", max=1)]),
        Agent("broken", engine=Scripted("one", EngineOverloaded("busy")), plugins=[AutoReply(text="more", max=1)]),
        Agent("asking", engine=Scripted(call("ask_user", question="Which?")), tools=[ask_user]),
        Agent("slow", engine=slow),
    )
    async with App(*agents) as app:
        pause = Pause()
        slow.add(pause)
        states: dict[str, list[str]] = {}
        for name in ("fine", "broken", "asking", "slow"):
            view = await app.conversation(agent=name).send("go")
            if name == "slow":
                await pause.reached.wait()
                await view.stop()
            states[name] = [state async for state in view.states()]
    assert states == {
        "fine": ["working", "completed"],
        "broken": ["working", "failed"],
        "asking": ["working", "input-required"],
        "slow": ["working", "canceled"],
    }


# --- human and self ---------------------------------------------------------------------------------------------------


def test_control_goes_to_the_person_after_one_round_when_no_trigger_holds():
    """F02: human."""
    agent, engine = scripted("hello", plugins=[AutoReply(text="more", trigger=Trigger(search="unfinished"))])
    assert finished(a_turn(agent)).state == "completed"
    engine.check_done()


def test_control_goes_to_the_agent_itself_with_the_history_extended():
    """F02: self, by an auto reply."""
    agent, engine = scripted("unfinished", "done", plugins=[AutoReply(text="more", trigger=Trigger(search="unfin"))])
    a_turn(agent)
    assert [message.text for message in engine.prompts[1].messages] == ["go", "unfinished", "more"]


class GoOn(Plugin):
    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, next="self")


@pytest.mark.parametrize(
    ("plugin", "limits", "asked", "name"),
    [
        (GoOn(), Limits(), 4, "limits.continuations"),
        (GoOn(), Limits(continuations=1), 2, "limits.continuations"),
        (AutoReply(text="more", max=99), Limits(), 6, "limits.auto_replies"),
        (Reroll(search="x", max=99), Limits(rounds=5), 5, "limits.rounds"),
    ],
    ids=["self", "self-1", "auto_reply", "reroll"],
)
async def test_a_turn_that_goes_on_by_itself_ends_at_a_limit_that_it_names(
    plugin: Plugin, limits: Limits, asked: int, name: str
):
    """F03: three self-rounds by default, configurable; a completed state that says so."""
    agent, engine = scripted(*["x"] * asked, plugins=[plugin], limits=limits)
    async with App(agent) as app:
        view = await app.conversation().send("go")
        events, result = await events_of(view), await view.result(check=False)
    said = "" if isinstance(plugin, Reroll) else "x"  # what was thrown away was not said
    assert (result.output, result.error, result.limit) == (said, finished(events).reason, name)
    assert [hit.name for hit in of(LimitHit, events)] == [name]
    assert finished(events).state == "completed"
    assert name in finished(events).reason
    engine.check_done()


def test_tools_inside_of_agents_are_held_by_their_levels():
    """F04: the error names the depth and the way there."""

    @tool
    async def look() -> str:
        return "seen"

    inner, _ = scripted(call("look"), "deep", name="inner", tools=[look], limits=Limits(tool_levels=1))
    outer, engine = scripted(call("inner", input="x"), "done", name="outer", tools=[inner])
    events = a_turn(outer)
    assert finished(events).state == "completed"
    engine.check_done()
    told = [message for prompt in _engine(inner).prompts for message in prompt.messages if message.role == "tool"]
    result = told[0].parts[0]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "1 levels deep" in result.text
    assert "outer -> inner -> look" in result.text


def _engine(agent: Agent) -> Scripted:
    assert isinstance(agent.engine, Scripted)
    return agent.engine


# --- another agent, and the way back ----------------------------------------------------------------------------------


def test_control_passes_to_another_agent_and_comes_back():
    """F02: agent:<id> really passes control, and the other agent hands it back in the same turn."""
    clerk, front = scripted("over to expert", "The expert says 42.", name="clerk", plugins=[HandOver("expert")])
    expert, back = scripted("42, back to clerk", name="expert", prompt="You know.", plugins=[HandOver("clerk")])
    events = a_turn(clerk, expert)
    assert rounds(events) == [
        ("clerk", "over to expert"),
        ("expert", "42, back to clerk"),
        ("clerk", "The expert says 42."),
    ]
    assert [(event.by, event.agent) for event in of(HandedOff, events)] == [("clerk", "expert"), ("expert", "clerk")]
    assert finished(events).state == "completed"
    assert [message.text for message in back.prompts[0].messages] == ["You know.", "go", "over to expert"]
    assert [message.text for message in front.prompts[1].messages] == ["go", "over to expert", "42, back to clerk"]
    front.check_done()
    back.check_done()


def test_an_agent_that_was_handed_the_turn_has_its_own_plugins_and_limits():
    clerk, _ = scripted("over to writer", name="clerk", plugins=[HandOver("writer")], limits=Limits(rounds=2))
    writer, engine = scripted("one", "two", name="writer", plugins=[AutoReply(text="more", max=1)])
    assert rounds(a_turn(clerk, writer)) == [("clerk", "over to writer"), ("writer", "one"), ("writer", "two")]
    engine.check_done()


def test_two_agents_that_only_pass_control_on_are_stopped_by_a_limit():
    """F02: the cap on ping-pong is an outcome with a name."""
    limits = Limits(handoffs=3)
    ping, front = scripted(*["to pong"] * 2, name="ping", plugins=[HandOver("pong")], limits=limits)
    pong, back = scripted(*["to ping"] * 2, name="pong", plugins=[HandOver("ping")], limits=limits)
    events = a_turn(ping, pong)
    assert [hit.name for hit in of(LimitHit, events)] == ["limits.handoffs"]
    assert finished(events).reason == "control passed between agents 3 times; raise limits.handoffs for more"
    assert finished(events).state == "completed"
    front.check_done()
    back.check_done()


async def test_the_next_turn_is_the_first_agents_again():
    clerk, front = scripted("over to expert", "hello again", name="clerk", plugins=[HandOver("expert")])
    expert, _ = scripted("done", name="expert")
    async with talking(clerk, expert) as conversation:
        await (await conversation.send("one")).result()
        assert (await (await conversation.send("two")).result()).output == "hello again"
    front.check_done()


async def test_an_agent_that_fails_after_a_hand_over_is_named():
    """F06: state failed, with name, code, provider, message and the agent; the error is kept for one round."""
    clerk, _ = scripted("over to expert", "sorry", name="clerk", plugins=[HandOver("expert")])
    error = EngineOverloaded("too busy", provider="acme", code="529")
    expert, _ = scripted(error, name="expert")
    async with talking(clerk, expert) as conversation:
        events = await events_of(await conversation.send("go"))
        kept = (await conversation.transcript()).messages[-1]
    failure = finished(events).failure
    assert finished(events).state == "failed"
    assert failure is not None
    assert (failure.name, failure.code, failure.provider, failure.message, failure.agent) == (
        *("EngineOverloaded", "529", "acme", "too busy"),
        "expert",
    )
    assert (kept.role, kept.duration) == ("error", 1)


# --- stops ------------------------------------------------------------------------------------------------------------


async def test_a_stop_in_the_round_of_the_other_agent_cancels_the_turn():
    """F05: the upstream request is closed; what was said stays; the next turn works."""
    clerk, _ = scripted("over to expert", "still here", name="clerk", plugins=[HandOver("expert")])
    expert, engine = scripted(name="expert")
    async with App(clerk, expert) as app:
        pause = Pause("I am the ")
        engine.add(pause)
        conversation = app.conversation()
        view = await conversation.send("go")
        await pause.reached.wait()
        await view.stop()
        states = [state async for state in view.states()]
        texts = [message.text for message in (await conversation.transcript()).messages]
        found = states, pause.closed, texts, (await (await conversation.send("and now?")).result()).output
    assert found == (
        ["working", "canceled"],
        True,
        ["go", "over to expert", "I am the "],
        "still here",
    )


@pytest.mark.parametrize("target", ["human", "self", "agent:other", "again"])
def test_a_stop_beats_whatever_a_plugin_wants(target: str):
    """F05, F07: a stop that comes while a plugin looks at the reply ends the turn."""

    class Slow(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            turn.stop()
            await asyncio.sleep(0)  # where the stop arrives
            return msgspec.structs.replace(reply, next=target)

    agent, engine = scripted("x", plugins=[Slow()])
    other, untouched = scripted(name="other")
    events = a_turn(agent, other)
    assert finished(events).outcome is Outcome.STOPPED
    assert of(HandedOff, events) == []
    assert (len(engine.prompts), len(untouched.prompts)) == (1, 0)


# --- precedence -------------------------------------------------------------------------------------------------------


PRECEDENCE = ["again", "agent:other", "self", "human"]


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(PRECEDENCE, 2)))
@pytest.mark.parametrize("stronger_first", [True, False], ids=["above", "below"])
def test_the_stronger_wish_wins_in_whatever_order_the_plugins_stand(stronger: str, weaker: str, stronger_first: bool):
    """F07: the table at the top of this file."""

    class Wants(Plugin):
        def __init__(self, target: str) -> None:
            self.target = target

        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next=self.target) if reply.text == "first" else reply

    plugins = [Wants(stronger), Wants(weaker)]
    agent, _ = scripted("first", "second", plugins=plugins if stronger_first else plugins[::-1])
    other, _ = scripted("other", name="other")
    events = a_turn(agent, other)
    assert of(RoundFinished, events)[0].next == stronger
    expected = {"again": "second", "self": "second", "agent:other": "other", "human": "first"}[stronger]
    assert rounds(events)[-1][1] == expected


def test_calls_are_answered_before_control_goes_anywhere():
    """F07, Trust 9: a reply that calls tools is answered first, then control goes where a plugin wants it."""

    @tool
    async def look() -> str:
        return "seen"

    agent, engine = scripted(call("look", saying="to other"), tools=[look], plugins=[HandOver("other")])
    other, asked = scripted("done", name="other")
    assert rounds(a_turn(agent, other)) == [("helper", "to other"), ("other", "done")]
    assert asked.prompts[0].messages[-1].role == "tool"
    engine.check_done()


# --- a crash ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_crash_at_any_append_of_a_way_there_and_back_leaves_the_same_transcript(written: bool):
    """Q02, F02."""

    def make() -> Scenario:
        def clerk(prompt: Prompt) -> Reply | str:
            return "over to b" if prompt.messages[-1].role == "user" else f"b said: {prompt.messages[-1].text}"

        first = Agent("a", engine=by_history(clerk), plugins=[HandOver("b")])
        second = Agent("b", engine=by_history(lambda prompt: "42, back to a"), plugins=[HandOver("a")])
        return Scenario(first, second, says=("one", "two"))

    said = [message.text for message in await survives(make, written=written)]
    assert said[:4] == ["one", "over to b", "42, back to a", "b said: 42, back to a"]


# --- a plugin that raises ---------------------------------------------------------------------------------------------


def raising(hook: str, error: Exception) -> Plugin:
    async def raises(self: Plugin, *values: object) -> None:
        raise error

    def raises_at_once(self: Plugin, turn: Turn, event: Event) -> None:
        if isinstance(event, RoundFinished):
            raise error

    def applies(self: Plugin, turn: Turn) -> bool:
        raise error

    at_once = {"on_event": raises_at_once, "applies": applies}
    return type("Faulty", (Plugin,), {hook: at_once.get(hook, raises)})()


@pytest.mark.parametrize("hook", [*HOOKS, "applies"])
def test_a_plugin_that_raises_in_a_hook_is_reported_and_the_others_still_work(hook: str):
    """P12: for every hook in turn, before and after plugins that work."""

    @tool
    async def look(context: CallContext) -> str:
        return "seen"

    class Watch(Plugin):
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            self.seen.append(reply.text)
            return reply

        async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall:
            self.seen.append(call.name)
            return call

    watch = Watch()
    plugins = [watch, raising(hook, ValueError("a bug")), AutoReply(text="more", max=1)]
    agent, engine = scripted(call("look"), "one", "two", tools=[look], plugins=plugins)
    events = a_turn(agent)
    assert finished(events).state == "completed"
    failed = of(PluginFailed, events)
    assert {(one.plugin, one.hook, one.message) for one in failed} == {("faulty", hook, "ValueError: a bug")}
    assert watch.seen == ["", "look", "one", "two"]
    engine.check_done()


@pytest.mark.parametrize("hook", [*(hook for hook in HOOKS if hook != "on_event"), "applies"])
def test_a_required_plugin_that_raises_fails_the_turn(hook: str):
    """P12: policy fails closed."""

    @tool
    async def look() -> str:
        return "seen"

    plugin = raising(hook, ValueError("a bug"))
    type(plugin).required = True
    agent, _ = scripted(call("look"), "one", tools=[look], plugins=[plugin])
    events = a_turn(agent)
    failure = finished(events).failure
    assert finished(events).state == "failed"
    assert failure is not None
    assert failure.message == f"plugin 'faulty', {hook}: ValueError: a bug"


def test_a_limit_that_a_plugin_finds_is_an_outcome_and_no_failure():
    agent, _ = scripted(plugins=[raising("on_prompt", LimitReached("limits.mine", "enough for today"))])
    events = a_turn(agent)
    assert (finished(events).state, finished(events).reason) == ("completed", "enough for today")
    assert finished(events).outcome is Outcome.LIMITED
    assert of(PluginFailed, events) == []
