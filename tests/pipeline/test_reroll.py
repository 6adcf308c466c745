"""A reply that says what it must not is asked for again, and nobody sees what was thrown away."""

from __future__ import annotations

import pytest

from rondel import Agent, App, Limits, Prompt, Reply, tool
from rondel.errors import ConfigError
from rondel.events import LimitHit, RoundFinished, TurnFinished
from rondel.plugins.auto_reply import AutoReply
from rondel.plugins.reroll import Reroll
from rondel.project.lookup import find_plugin
from rondel.testing import Pause, call, say
from rondel.values import PartDelta, Usage
from tests.helpers import events_after, events_of, of, play, result_of, scripted, talking, turn_after
from tests.machine.test_crash import Scenario, by_history, survives

BAD = "As an AI, I cannot."


async def test_a_reply_with_the_phrase_is_regenerated_from_the_same_prompt():
    """P21."""
    agent, engine = scripted(BAD, "Gladly.", prompt="You help.", plugins=[Reroll(search="as an ai")])
    async with talking(agent) as conversation:
        result = await (await conversation.send("please")).result()
        found = result.output, [message.text for message in (await conversation.transcript()).messages]
    assert found == ("Gladly.", ["please", "Gladly."])
    assert engine.prompts[0].messages == engine.prompts[1].messages
    engine.check_done()


def test_it_asks_again_so_many_times_and_then_keeps_what_came():
    """P21: at most max times."""
    agent, engine = scripted(*(f"{BAD} {number}" for number in range(4)), plugins=[Reroll(search="as an ai")])

    assert play(result_of("please"), agent).output == f"{BAD} 3"
    engine.check_done()


async def test_the_next_message_of_a_person_may_be_asked_again_too():
    agent, engine = scripted(BAD, "one", BAD, "two", plugins=[Reroll(search="as an ai", max=1)])
    async with talking(agent) as conversation:
        assert [(await (await conversation.send(text)).result()).output for text in ("a", "b")] == ["one", "two"]
    engine.check_done()


async def test_nobody_sees_what_was_thrown_away():
    """P21: not while it streams, not in any event, and not in the journal."""
    agent, _ = scripted(BAD, "Gladly.", plugins=[Reroll(search=("never", "AS AN AI"))])
    async with talking(agent) as conversation:
        events = await events_of(await conversation.send("please"))
        entries = await conversation.entries()
    assert [delta.text for delta in of(PartDelta, events)] == ["Gladly."]
    assert "As an AI" not in repr(events) + repr(entries)


def test_the_tokens_of_what_was_thrown_away_count():
    """P21."""
    agent, _ = scripted(
        say(BAD, usage=Usage(10, 5)), say("Gladly.", usage=Usage(10, 2)), plugins=[Reroll(search="as an ai")]
    )

    events = play(events_after("please"), agent)
    assert [(e.next, e.usage.tokens_out) for e in of(RoundFinished, events)] == [("again", 5), ("human", 2)]
    assert of(TurnFinished, events)[0].usage == Usage(20, 7)


def test_a_reply_that_calls_tools_stays():
    @tool
    async def look() -> str:
        return "seen"

    agent, engine = scripted(call("look", saying=BAD), "done", tools=[look], plugins=[Reroll(search="as an ai")])

    assert play(result_of("please"), agent).output == "done"
    engine.check_done()


@pytest.mark.parametrize("reroll_first", [True, False], ids=["above", "below"])
async def test_asking_again_beats_an_auto_reply(reroll_first: bool):
    """F07."""
    plugins = [Reroll(search="as an ai"), AutoReply(text="more", max=1)]
    agent, engine = scripted(BAD, "one", "two", plugins=plugins if reroll_first else plugins[::-1])
    async with talking(agent) as conversation:
        await (await conversation.send("go")).result()
        found = [message.text for message in (await conversation.transcript()).messages]
    assert found == ["go", "one", "more", "two"]
    engine.check_done()


def test_the_rounds_of_a_turn_hold_it_too():
    agent, engine = scripted(BAD, BAD, plugins=[Reroll(search="as an ai", max=9)], limits=Limits(rounds=2))

    assert [hit.name for hit in of(LimitHit, play(turn_after("go"), agent))] == ["limits.rounds"]
    engine.check_done()


async def test_a_stop_while_it_is_asked_again_keeps_nothing_of_either():
    """F05: what nobody was shown is not kept."""
    agent, engine = scripted(plugins=[Reroll(search="as an ai")])
    async with App(agent) as app:
        pause = Pause("half of ")
        engine.add(BAD, pause)
        conversation = app.conversation()
        view = await conversation.send("go")
        await pause.reached.wait()
        await view.stop()
        states = [state async for state in view.states()]
        found = states, pause.closed, [message.text for message in (await conversation.transcript()).messages]
    assert found == (["working", "canceled"], True, ["go"])


@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_crash_at_any_append_throws_away_as_many(written: bool):
    """Q02, P21: how often it was asked again is in the transcript."""

    def make() -> Scenario:
        def answer(prompt: Prompt) -> Reply | str:
            return BAD if prompt.messages[-1].text == "one" else "fine"

        entry = Reroll(search="as an ai", max=2)
        return Scenario(Agent("a", engine=by_history(answer), plugins=[entry]), says=("one", "two"))

    assert [message.text for message in await survives(make, written=written)] == ["one", BAD, "two", "fine"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "needs the parameter 'search'"),
        ({"search": ""}, "needs a phrase to search for"),
        ({"search": []}, "needs a phrase to search for"),
        ({"search": ["  "]}, "has no word"),
        ({"search": "x", "max": 0}, "max is 0"),
        ({"serch": "x"}, "did you mean 'search'"),
    ],
)
def test_a_wrong_entry_is_one_clear_sentence(parameters: dict[str, object], said: str):
    with pytest.raises(ConfigError) as raised:
        find_plugin("reroll", parameters)
    assert said in str(raised.value)
