"""Answers in the user's place: really said, counted for each message of a person, and held by the limits."""

from __future__ import annotations

import msgspec
import pytest

from rondel import Agent, App, Limits, Plugin, Prompt, Reply
from rondel.errors import ConfigError, EngineOverloaded
from rondel.events import LimitHit, TurnFinished, Warned
from rondel.machine.trigger import ModelQuestion, Trigger
from rondel.machine.turn import Turn
from rondel.plugins.auto_reply import AutoReply
from rondel.project.lookup import find_plugin
from rondel.testing import Pause, call
from tests.helpers import events_of, of, play, result_of, scripted, talking, turn_after
from tests.machine.test_crash import Scenario, by_history, survives


def texts_of(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in prompt.messages]


async def test_the_text_is_really_said_by_the_user_and_a_new_round_starts():
    """P20: a user message in the transcript, and the model reads it."""
    agent, engine = scripted(
        "Chapter one. To be continued", "The end.", plugins=[AutoReply(text="Go on.", trigger=Trigger(search="to be"))]
    )
    async with talking(agent) as conversation:
        result = await (await conversation.send("write")).result()
        messages = (await conversation.transcript()).messages
    assert result.output == "The end."
    assert texts_of(engine.prompts[1]) == [
        ("user", "write"),
        ("assistant", "Chapter one. To be continued"),
        ("user", "Go on."),
    ]
    assert [(message.author, message.shown) for message in messages if message.text == "Go on."] == [
        ("plugin:auto_reply", True)
    ]
    engine.check_done()


async def test_without_a_trigger_it_speaks_five_times_for_each_message_of_a_person():
    """P20: stops after 5 by default, per user message; then the turn is completed as any other."""
    agent, engine = scripted(*(f"part {number}" for number in range(12)), plugins=[AutoReply(text="more")])
    async with talking(agent) as conversation:
        first = of(TurnFinished, await events_of(await conversation.send("one")))[0]
        asked = len(engine.prompts)
        second = of(TurnFinished, await events_of(await conversation.send("two")))[0]
        total = len(engine.prompts)
    assert (asked, total) == (6, 12)
    assert [(finished.state, finished.reason) for finished in (first, second)] == [("completed", "")] * 2
    engine.check_done()


def test_it_stops_at_its_own_number():
    """P20."""
    agent, engine = scripted("1", "2", "3", plugins=[AutoReply(text="more", max=2)])

    assert play(result_of("go"), agent).output == "3"
    engine.check_done()


def test_the_limit_of_the_agent_holds_too_and_is_an_outcome_with_a_name():
    """P20: limits.auto_replies."""
    agent, engine = scripted("1", "2", "3", plugins=[AutoReply(text="more", max=9)], limits=Limits(auto_replies=2))

    events = play(turn_after("go"), agent)
    assert [hit.name for hit in of(LimitHit, events)] == ["limits.auto_replies"]
    assert of(TurnFinished, events)[0].state == "completed"
    engine.check_done()


async def test_a_message_that_steers_the_turn_starts_the_count_anew():
    agent, engine = scripted(plugins=[AutoReply(text="more", max=1)])
    async with App(agent) as app:
        pause = Pause("2")
        engine.add("1", pause, "3", "4")
        conversation = app.conversation()
        view = await conversation.send("go")
        await pause.reached.wait()
        await conversation.steer("a person speaks")
        pause.release()
        assert (await view.result()).output == "4"
    assert [text for role, text in texts_of(engine.prompts[-1]) if role == "user"] == [
        "go",
        "more",
        "a person speaks",
        "more",
    ]
    engine.check_done()


def test_nothing_is_said_while_tools_are_called():
    entry = AutoReply(text="x", trigger=Trigger(search="more"))
    agent, engine = scripted(call("nothing", saying="more"), "done", plugins=[entry])

    assert play(result_of("go"), agent).output == "done"
    engine.check_done()


@pytest.mark.parametrize("first", [True, False], ids=["above", "below"])
def test_it_stays_silent_when_another_plugin_said_where_control_goes(first: bool):
    """F07: a hand-off beats self, in whatever order the plugins stand."""

    class Over(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="agent:other")

    plugins = [AutoReply(text="more"), Over()]
    agent, _ = scripted("over", plugins=plugins if first else plugins[::-1])
    other, engine = scripted("here", name="other")

    assert play(result_of("go"), agent, other).output == "here"
    assert texts_of(engine.prompts[0]) == [("user", "go"), ("assistant", "over")]


def test_two_entries_each_say_their_own():
    """P06, P20: each acts for its own trigger, and counts its own."""
    agent, engine = scripted(
        "ask A",
        "ask B",
        "ask A",
        "ask B",
        plugins=[
            AutoReply(text="a!", trigger=Trigger(search="ask A"), max=2),
            AutoReply(text="b!", trigger=Trigger(search="ask B"), max=1),
        ],
    )

    play(result_of("go"), agent)
    assert [text for role, text in texts_of(engine.prompts[-1]) if role == "user"] == ["go", "a!", "b!", "a!"]
    engine.check_done()


def test_of_two_entries_that_both_hold_one_speaks():
    """F07: of equals the first that is asked stays; a round has one message."""
    agent, engine = scripted("1", "2", plugins=[AutoReply(text="outer", max=1), AutoReply(text="inner", max=1)])
    engine.add("3")

    assert play(result_of("go"), agent).output == "3"
    assert [text for role, text in texts_of(engine.prompts[-1]) if role == "user"] == ["go", "inner", "outer"]
    engine.check_done()


def test_a_model_decides():
    agent, engine = scripted(
        "part one",
        "yes",
        "part two",
        "no",
        plugins=[AutoReply(text="go on", trigger=Trigger(model=ModelQuestion("Unfinished? <<input>>")))],
    )

    assert play(result_of("go"), agent).output == "part two"
    engine.check_done()


async def test_a_model_that_fails_leaves_the_turn_as_it_is():
    """P18: failure = not triggered."""
    agent, _ = scripted(
        "part one",
        EngineOverloaded("busy"),
        plugins=[AutoReply(text="go on", trigger=Trigger(model=ModelQuestion("<<input>>?")))],
    )
    async with App(agent) as app:
        view = await app.conversation().send("go")
        events, output = await events_of(view), (await view.result()).output
    assert output == "part one"
    assert [warned.plugin for warned in of(Warned, events)] == ["auto_reply"]


async def test_a_stop_in_the_round_that_it_started_ends_the_turn_and_keeps_what_was_said():
    """F05."""
    agent, engine = scripted(plugins=[AutoReply(text="more")])
    async with App(agent) as app:
        pause = Pause("half of ")
        engine.add("one", pause)
        conversation = app.conversation()
        view = await conversation.send("go")
        await pause.reached.wait()
        await view.stop()
        states = [state async for state in view.states()]
        found = states, pause.closed, [message.text for message in (await conversation.transcript()).messages]
    assert found == (["working", "canceled"], True, ["go", "one", "more", "half of "])


@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_crash_at_any_append_says_nothing_twice_and_counts_right(written: bool):
    """Q02, P20."""

    def make() -> Scenario:
        def answer(prompt: Prompt) -> Reply | str:
            return f"part {sum(message.role == 'assistant' for message in prompt.messages)}"

        entry = AutoReply(text="more", max=2, trigger=Trigger(chance=1.0))
        return Scenario(Agent("a", engine=by_history(answer), plugins=[entry]), says=("one", "two"))

    said = [message.text for message in await survives(make, written=written) if message.role == "user"]
    assert said == ["one", "more", "more", "two", "more", "more"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "needs the parameter 'text'"),
        ({"text": "  "}, "is blank"),
        ({"text": "x", "max": 0}, "max is 0"),
        ({"text": "x", "maximum": 2}, "did you mean 'max'"),
        ({"text": "x", "max": "many"}, "must be a whole number"),
    ],
)
def test_a_wrong_entry_is_one_clear_sentence(parameters: dict[str, object], said: str):
    with pytest.raises(ConfigError) as raised:
        find_plugin("auto_reply", parameters)
    assert said in str(raised.value)
