"""Questions in the middle of a sentence: they wait durably, and the sentence goes on where it stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel import Agent, App, QuestionError
from rondel.events import CallHeld, Outcome, RoundFinished, TurnFinished
from rondel.question import Answer, Hold, Question
from rondel.stores.sqlite import SqliteStore
from rondel.testing import MemoryStore, Scripted, VirtualClock, call, say
from rondel.tool import CallContext, tool
from rondel.tools.ask_user import ask_user
from rondel.values import PartDelta
from tests.helpers import events_of, of, play, scripted, talking


def texts(events: list[Any]) -> list[str]:
    return [delta.text for delta in of(PartDelta, events)]


async def test_a_template_asks_in_the_middle_of_a_sentence_and_goes_on_where_it_stopped():
    """T09, S06: the question has an id and options, the turn needs input, and the answer resumes the same turn."""
    agent = Agent("barkeeper", template='Good evening! {{ .Options "Red or white?" "red" "white" }} it is.')
    async with talking(agent) as conversation:
        view = await conversation.send("hi")
        before = await events_of(view)
        (question,) = await conversation.questions()
        again = await conversation.answer(question.id, "red", by="ann")
        turn, same_turn, after = view.id, again.id, await events_of(again)
    assert (question.kind, question.text, question.options) == ("choose", "Red or white?", ("red", "white"))
    assert of(TurnFinished, before)[-1].state == "input-required"
    assert texts(before) == ["Good evening! "]
    assert same_turn == turn
    assert texts(after) == ["red it is."]
    assert of(RoundFinished, after)[-1].message.text == "Good evening! red it is."


async def test_a_models_sentence_waits_for_days_in_another_process_and_the_model_is_not_asked_again(tmp_path: Any):
    """T09: the answer comes tomorrow, from another surface; what was said is not said twice."""
    said = 'Nice to meet you. {{ .AskUser "What is your name?" }} is a good name.'
    agent = Agent("host", engine=Scripted(said), expands_output=True)
    async with App(agent, store=SqliteStore(tmp_path / "r.db"), clock=VirtualClock(1_000.0)) as app:
        assert texts(await events_of(await app.conversation("c").send("hi"))) == ["Nice to meet you. "]
    agent = Agent("host", engine=Scripted(), expands_output=True)  # a script without steps: nobody may ask it
    async with App(agent, store=SqliteStore(tmp_path / "r.db"), clock=VirtualClock(90_000.0)) as app:
        conversation = app.conversation("c")
        (question,) = await conversation.questions()
        view = await conversation.answer(question.id, "Ann", by="the web page")
        events = await events_of(view)
        question, output = question.text, (await conversation.transcript()).output
    assert question == "What is your name?"
    assert texts(events) == ["Ann is a good name."]
    assert output == "Nice to meet you. Ann is a good name."


async def test_several_questions_wait_together_and_are_answered_in_any_order():
    agent = Agent("form", template='{{ .AskUser "First?" }}/{{ .AskUser "Second?" }}/{{ .AskUser "First?" }}')
    async with talking(agent) as conversation:
        await (await conversation.send("go")).result()
        first, second = await conversation.questions()
        waiting = await (await conversation.answer(second.id, "b")).result()
        waiting, output = waiting.error, (await (await conversation.answer(first.id, "a")).result()).output
    assert waiting == "waiting for an answer: First?"
    assert output == "a/b/a"


async def test_agents_that_ask_for_the_same_sentence_keep_their_questions_apart():
    """Two recruited agents ask the same words: each gets its own answer."""
    outer = Agent("outer", template='{{ .Get "a" }} {{ .Get "b" }}')
    agents = [Agent(name, template=f'{name}={{{{ .AskUser "Which?" }}}}') for name in "ab"]
    async with talking(outer, *agents) as conversation:
        await (await conversation.send("go")).result()
        first, second = await conversation.questions()
        assert first.id != second.id
        await (await conversation.answer(second.id, "2")).result()
        assert (await (await conversation.answer(first.id, "1")).result()).output == "a=1 b=2"


async def test_an_answer_that_is_no_option_is_refused_and_the_question_stays_open():
    agent = Agent("barkeeper", template='{{ .Options "Red or white?" "red" "white" }}')
    async with talking(agent) as conversation:
        await (await conversation.send("hi")).result()
        (question,) = await conversation.questions()
        with pytest.raises(QuestionError, match="'beer' is not one of: red, white"):
            await conversation.answer(question.id, "beer")
        assert (await (await conversation.answer(question.id, " RED ")).result()).output.strip() == "RED"


def test_an_answer_to_a_question_that_is_closed_says_why():
    """T09: answered, expired, stopped, never asked, or somebody else's."""

    @tool(idempotent=True)
    async def ask_bob(context: CallContext) -> Hold | str:
        if context.answer is not None:
            return context.answer.text
        return Hold(Question("bob", "ask", "Bob?", call_id=context.call.id, person="bob"))

    asks = call("ask_user", "q1", question="Well?", timeout_s=60)
    agent, _ = scripted(
        asks, "ok", call("ask_bob"), "ok", call("ask_user", "q2", question="?"), tools=[ask_user, ask_bob]
    )
    clock = VirtualClock()

    async def refused(app: App, question: str, by: str = "ann") -> str:
        with pytest.raises(QuestionError) as caught:
            await app.conversation("c").answer(question, "x", by=by)
        return str(caught.value)

    async def scene(app: App) -> list[str]:
        conversation = app.conversation("c")
        await (await conversation.send("one")).result()
        told = [await refused(app, "ask:nonsense")]
        clock.advance(61)
        await asyncio.sleep(0)
        await app.drain()
        told.append(await refused(app, "ask:q1"))
        await (await conversation.send("two")).result()
        told.append(await refused(app, "bob"))
        await (await conversation.answer("bob", "yes", by="bob")).result()
        told.append(await refused(app, "bob", by="bob"))
        await (await conversation.send("three")).result()
        await conversation.stop()
        told.append(await refused(app, "ask:q2"))
        return told

    assert play(scene, agent, clock=clock) == [
        "question 'ask:nonsense' is not open: it was never asked here",
        "question 'ask:q1' is not open: no answer came in time",
        "question 'bob' is for 'bob', not for 'ann'",
        "question 'bob' is not open: it was answered already by bob",
        "question 'ask:q2' is not open: its turn was stopped",
    ]


async def test_a_question_that_nobody_answers_in_time_is_answered_by_its_default():
    """T09: a time-out; the turn goes on."""
    agent, engine = scripted(call("ask_user", "q1", question="Well?", timeout_s=60), "Then not.", tools=[ask_user])
    clock = VirtualClock()
    async with App(agent, clock=clock) as app:
        conversation = app.conversation()
        await (await conversation.send("go")).result()
        clock.advance(61)
        await asyncio.sleep(0)
        await app.drain()
        assert (await conversation.transcript()).output == "Then not."
    assert engine.prompts[1].messages[-1].parts[0].text == "(no answer in time)"


async def test_a_stop_in_the_middle_of_a_sentence_keeps_what_was_said_and_leaves_nothing_open():
    agent = Agent("host", template='Hello. {{ .AskUser "Name?" }}!')
    async with talking(agent) as conversation:
        await (await conversation.send("hi")).result()
        await conversation.stop()
        transcript = await conversation.transcript()
        found = transcript.outcome, transcript.questions, transcript.unanswered, transcript.messages[-1].text
    assert found == (Outcome.STOPPED, [], [], "Hello. ")


async def test_a_conversation_that_waits_is_not_kept_in_memory():
    """T09: waiting costs nothing."""
    agent = Agent("host", template='{{ .Get "inner" }}')
    inner = Agent("inner", template='{{ .AskUser "Name?" }}')
    async with App(agent, inner) as app:
        conversation = app.conversation("c")
        await (await conversation.send("hi")).result()
        await app.drain()
        held = [app.journals.get(id) is not None for id in ("c", "c/d1.0")]
        (question,) = await conversation.questions()
        found = *held, (await (await conversation.answer(question.id, "Ann")).result()).output
    assert found == (False, False, "Ann")


async def test_a_question_reaches_every_watcher():
    agent = Agent("host", template='{{ .AskUser "Name?" }}')
    async with App(agent) as app:
        conversation = app.conversation("c")
        watchers = [await conversation.watch() for _ in range(2)]
        await (await conversation.send("hi")).result()
        held = [of(CallHeld, [event for _, event in await watcher.batch()]) for watcher in watchers]
        for watcher in watchers:
            watcher.close()
        assert [len(questions) for questions in held] == [1, 1]


def test_the_author_of_a_question_may_say_who_answers():
    question = Question("q", "ask", "Well?", person="ann")
    from rondel.question import check_answer

    check_answer(question, Answer("q", "yes", by="ann"))
    with pytest.raises(QuestionError, match="is for 'ann', not for 'bob'"):
        check_answer(question, Answer("q", "yes", by="bob"))


async def test_a_store_in_memory_forgets_nothing_that_waits():
    store = MemoryStore()
    agent = Agent("host", engine=Scripted(say('{{ .AskUser "Name?" }}!')), expands_output=True)
    async with App(agent, store=store) as app:
        conversation = app.conversation("c")
        await (await conversation.send("hi")).result()
        (question,) = await conversation.questions()
        assert (await (await conversation.answer(question.id, "Ann")).result()).output == "Ann!"
