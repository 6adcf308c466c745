"""Triggers: when a plugin acts. Through the top where a turn matters, with a plugin that only says whether it holds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rondel import Agent, App, Plugin, Reply
from rondel.errors import ConfigError, EngineOverloaded, RondelError
from rondel.events import Event, Warned
from rondel.machine.trigger import ModelQuestion, Trigger, yes_or_no
from rondel.machine.turn import Turn
from rondel.project.lookup import find_plugin
from rondel.testing import Pause, Scripted, call, say
from rondel.values import user
from tests.helpers import events_after, events_of, of, play, result_of, scripted, talking


class Probe(Plugin):
    """Keeps whether the trigger held for each reply."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.held: list[bool] = []

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        self.held.append(await self.trigger.holds(turn, reply.text, by=self.name))
        return reply


def probed(trigger: Trigger, *replies: str) -> list[bool]:
    probe = Probe(trigger)
    agent, engine = scripted(*replies, plugins=[probe])

    async def scene(app: App) -> None:
        conversation = app.conversation()
        for number in range(len(replies)):
            await (await conversation.send(f"message {number}")).result()

    play(scene, agent)
    engine.check_done()
    return probe.held


def test_no_condition_always_holds():
    """P18: none = always."""
    assert probed(Trigger(), "anything", "") == [True, True]


@pytest.mark.parametrize("search", ["refund, Money Back ,", ("REFUND", " money back ")], ids=["text", "list"])
def test_any_of_the_words_is_enough_whatever_its_case(search: str | tuple[str, ...]):
    """P18: a comma list or a list; any; case-insensitive."""
    held = probed(Trigger(search=search), "A Refund, please", "my MONEY BACK now", "money, back", "hello")
    assert held == [True, True, False, False]


def test_words_of_a_list_may_hold_commas():
    assert probed(Trigger(search=("yes, sir",)), "Yes, Sir!", "yes sir") == [True, False]


def test_a_filter_is_a_piece_of_the_text_exactly_so():
    """P18: filter."""
    assert probed(Trigger(filter="[Draft]"), "a [Draft] here", "a [draft] here", "Draft") == [True, False, False]


def test_a_chance_is_drawn_from_the_function_that_was_handed_in():
    """P18: chance, seeded."""
    numbers = Random(7)
    expected = [number < 0.5 for number in (numbers.random() for _ in range(6))]
    assert set(expected) == {True, False}
    assert probed(Trigger(chance=0.5, random=Random(7).random), *"abcdef") == expected


def test_a_chance_of_nothing_never_holds_and_one_of_all_always():
    assert probed(Trigger(chance=0), *"abcdefgh") == [False] * 8
    assert probed(Trigger(chance=1), *"abcdefgh") == [True] * 8


async def test_a_chance_is_the_same_for_the_same_text_of_a_turn():
    """A round that is asked again, or goes on after a crash, meets the same chance."""

    class Twice(Probe):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            await super().on_reply(turn, reply)
            return await super().on_reply(turn, reply)

    probe = Twice(Trigger(chance=0.5))
    agent, _ = scripted(*(f"reply {number}" for number in range(40)), plugins=[probe])
    async with App(agent) as app:
        conversation = app.conversation()
        for _ in range(40):
            await (await conversation.send("again")).result()
    assert probe.held[::2] == probe.held[1::2]
    assert set(probe.held) == {True, False}


def test_several_conditions_hold_when_any_does():
    """P18: several = any."""
    trigger = Trigger(search="apple", filter="Pear", chance=0.0)
    assert probed(trigger, "an apple", "a Pear", "a plum") == [True, True, False]


# --- a question to a model --------------------------------------------------------------------------------------------


YES = "yes|Yes.|**YES**|_yes_|True!|1|1.|oui|Answer: yes, not no|<answer>true</answer>|是|是的|需要|满足|应该|同意|はい"
NO = "no|No.|NO, yes would be wrong|false|0|nein|not at all|否|不是|不需要|不应该|无|いいえ"


@pytest.mark.parametrize("said", YES.split("|"))
def test_these_answers_mean_yes(said: str):
    """P18: yes/no, true/false, 1/0 all understood."""
    assert yes_or_no(said) is True


@pytest.mark.parametrize("said", NO.split("|"))
def test_these_answers_mean_no(said: str):
    """P18."""
    assert yes_or_no(said) is False


@pytest.mark.parametrize("said", ["", "maybe", "10", "know", "yesterday", "a noble cause", "…"])
def test_these_answers_mean_nothing(said: str):
    assert yes_or_no(said) is None


def ask_in_a_turn(
    question: ModelQuestion, reply: str, *steps: object, **settings: object
) -> tuple[list[bool], list[Event]]:
    """Whether the trigger holds for a reply, where the agent's own engine says the reply and then the steps."""
    probe = Probe(Trigger(model=question))
    agent, engine = scripted(reply, *steps, plugins=[probe])  # type: ignore[arg-type]

    events = play(events_after("hi"), agent, **settings)
    engine.check_done()
    return probe.held, events


def test_a_model_is_asked_coldly_and_shortly_with_the_text_in_its_place():
    """P18: model question; temperature 0.1, ten tokens, what is asked about is data."""
    engine = Scripted("I want <<input>> back", "Yes.")
    probe = Probe(Trigger(model=ModelQuestion("Money? <<input>> And again: <<input>>", system="Say 1 or 0.")))

    play(result_of("hi"), Agent("helper", engine=engine, plugins=[probe]))
    assert probe.held == [True]
    asked = engine.prompts[1]
    assert (asked.options.temperature, asked.options.tokens_max, asked.tools) == (0.1, 10, ())
    assert [(message.role, message.text) for message in asked.messages] == [
        ("system", "Say 1 or 0."),
        ("user", "Money? I want <<input>> back And again: I want <<input>> back"),
    ]


def test_a_model_that_says_no_does_not_trigger_and_warns_of_nothing():
    held, events = ask_in_a_turn(ModelQuestion("Money? <<input>>"), "hello", "0")
    assert held == [False]
    assert of(Warned, events) == []


def test_the_model_is_not_asked_when_a_cheaper_condition_holds():
    probe = Probe(Trigger(search="hello", model=ModelQuestion("<<input>>?")))
    agent, engine = scripted("hello", plugins=[probe])

    play(result_of("hi"), agent)
    assert probe.held == [True]
    engine.check_done()


@pytest.mark.parametrize("failure", [EngineOverloaded("too busy"), ValueError("a bug")], ids=["engine", "bug"])
def test_a_model_that_fails_does_not_trigger_and_the_turn_goes_on_with_a_warning(failure: Exception):
    """P18: failure = not triggered."""
    held, events = ask_in_a_turn(ModelQuestion("<<input>>?"), "hello", failure)
    assert held == [False]
    assert [warned.plugin for warned in of(Warned, events)] == ["probe"]
    assert str(failure) in of(Warned, events)[0].message


def test_a_model_that_says_neither_does_not_trigger_and_the_warning_quotes_it():
    held, events = ask_in_a_turn(ModelQuestion("<<input>>?"), "hello", "That depends on")
    assert held == [False]
    assert "'That depends on'" in of(Warned, events)[0].message


async def test_a_model_that_never_answers_does_not_trigger():
    probe = Probe(Trigger(model=ModelQuestion("<<input>>?", timeout_s=0.0)))
    agent, engine = scripted(plugins=[probe])
    async with App(agent) as app:
        pause = Pause("ye")
        engine.add("hello", pause)
        events, closed = await events_of(await app.conversation().send("hi")), pause.closed
    assert probe.held == [False]
    assert closed
    assert "no answer in time" in of(Warned, events)[0].message


def test_another_engine_is_asked_when_it_is_named():
    cheap = Scripted("yes", name="cheap:small")
    made: list[str] = []

    def make_engine(name: str) -> Scripted:
        made.append(name)
        return cheap

    held, _ = ask_in_a_turn(ModelQuestion("<<input>>?", engine="cheap:small"), "hello", make_engine=make_engine)
    assert held == [True]
    assert made == ["cheap:small"]
    cheap.check_done()


def test_an_engine_that_nobody_knows_does_not_trigger_and_the_warning_names_it():
    held, events = ask_in_a_turn(ModelQuestion("<<input>>?", engine="antropic:small"), "hello")
    assert held == [False]
    assert "antropic" in of(Warned, events)[0].message


def test_a_model_is_asked_once_in_a_turn_for_the_same_text():
    class Before(Plugin):
        held: list[bool] = []

        async def on_prompt(self, turn: Turn, prompt):
            self.held.append(await Trigger(model=ModelQuestion("<<input>>?")).holds(turn, "the same"))
            return prompt

    agent, engine = scripted("yes", call("nothing"), "done", plugins=[Before()])

    assert play(result_of("go"), agent).output == "done"
    assert Before.held == [True, True]
    engine.check_done()


async def test_a_stop_while_a_model_is_asked_ends_the_turn():
    agent, engine = scripted(plugins=[Probe(Trigger(model=ModelQuestion("<<input>>?")))])
    async with App(agent) as app:
        pause = Pause()
        engine.add("hello", pause)
        view = await app.conversation().send("hi")
        await pause.reached.wait()
        await view.stop()
        assert ([state async for state in view.states()], pause.closed) == (["working", "canceled"], True)


async def test_nobody_is_asked_when_somebody_only_looks_at_the_prompt():
    class Shy(Plugin):
        async def on_prompt(self, turn: Turn, prompt):
            held = await Trigger(model=ModelQuestion("<<input>>?")).holds(turn, "text")
            return prompt.instruct("it held" if held else "it did not hold")

    agent, engine = scripted(plugins=[Shy()])
    async with App(agent) as app:
        steps = [step async for step in app.preview("helper", user("hi"))]
    assert "it did not hold" in [message.text for message in steps[-1].messages]
    assert engine.prompts == []


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chance", [-0.1, 1.1, float("nan")])
def test_a_chance_out_of_range_is_refused(chance: float):
    with pytest.raises(RondelError, match=r"from 0 to 1, not (-0\.1|1\.1|nan)"):
        Trigger(chance=chance)


def test_a_search_without_a_word_is_refused():
    with pytest.raises(RondelError, match="has no word"):
        Trigger(search=" , ")


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"serch": "a"}, "did you mean 'search'"),
        ({"chance": 2}, "from 0 to 1, not 2"),
        ({"chance": "often"}, "must be a number"),
        ({"model": {"sytem": "x", "user": "y"}}, "did you mean 'system'"),
        ({"model": {"system": "x"}}, "'user' is missing"),
        ({"random": 1}, "can only be given in code"),
        ("often", "must be a table"),
    ],
)
def test_a_wrong_trigger_in_a_file_is_one_clear_sentence(trigger: object, said: str):
    with pytest.raises(ConfigError) as raised:
        find_plugin("auto_reply", {"text": "go on", "trigger": trigger})
    assert said in str(raised.value)


def test_a_trigger_in_a_file_is_the_value_that_code_would_make():
    plugin = find_plugin(
        "auto_reply", {"text": "go on", "trigger": {"search": ["a", "b"], "chance": 1, "model": {"user": "<<input>>?"}}}
    )
    expected = Trigger(search=("a", "b"), chance=1.0, model=ModelQuestion("<<input>>?"))
    assert plugin._trigger == expected  # pyright: ignore


async def test_the_usage_of_the_reply_is_not_mixed_with_that_of_the_question():
    """The question's own reply is no part of the conversation."""
    probe = Probe(Trigger(model=ModelQuestion("<<input>>?")))
    agent, _ = scripted("hello", say("yes"), plugins=[probe])
    async with talking(agent) as conversation:
        await (await conversation.send("hi")).result()
        assert [message.text for message in (await conversation.transcript()).messages] == ["hi", "hello"]


async def test_a_question_that_is_given_up_leaves_no_task_behind():
    probe = Probe(Trigger(model=ModelQuestion("<<input>>?", timeout_s=0.0)))
    engine = Scripted("hello", Pause())
    async with App(Agent("helper", engine=engine, plugins=[probe])) as app:
        await (await app.conversation().send("hi")).result()
    assert len(asyncio.all_tasks()) == 1
