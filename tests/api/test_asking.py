"""The short ways to ask: `run`, `ask`, `Conversation.ask`, `stream_text`, and what they do if there is no answer."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import rondel
from rondel import Agent, App, Limits, Outcome, RondelError, tool
from rondel.errors import EngineDenied, LimitReached, TurnFailed
from rondel.testing import Pause, Scripted, call
from rondel.values import Usage
from tests.helpers import talking


@tool(approval="confirm")
async def pay() -> str:
    "Pay."
    return "paid"


@tool
async def look() -> str:
    "Look."
    return "nothing"


def test_a_turn_that_fails_raises_with_its_result_and_its_cause():
    agent = Agent("helper", engine=Scripted(EngineDenied("the key is wrong")))
    with pytest.raises(TurnFailed, match="the key is wrong") as raised:
        rondel.run(agent, "Hi.")
    result = raised.value.result
    assert (result.outcome, result.error, result.agent) == (Outcome.FAILED, "the key is wrong", "helper")
    assert isinstance(raised.value.__cause__, EngineDenied)


def test_the_traceback_of_a_failed_run_shows_only_what_failed():
    agent = Agent("helper", engine=Scripted(EngineDenied("the key is wrong")))
    with pytest.raises(TurnFailed) as raised:
        rondel.run(agent, "Hi.")
    assert "no running event loop" not in "".join(traceback.format_exception(raised.value))


def test_a_limit_raises_too_and_the_result_has_its_name():
    agent = Agent("helper", engine=Scripted(call("look"), call("look")), tools=[look], limits=Limits(rounds=2))
    with pytest.raises(TurnFailed, match="used its 2 rounds") as raised:
        rondel.run(agent, "Hi.")
    assert (raised.value.result.outcome, raised.value.result.limit) == (Outcome.LIMITED, "limits.rounds")
    assert isinstance(raised.value.__cause__, LimitReached)


def test_without_check_the_result_says_what_happened():
    result = rondel.run(Agent("helper", engine=Scripted(EngineDenied("no"))), "Hi.", check=False)
    assert (result.output, result.error, result.outcome) == ("", "no", Outcome.FAILED)


def test_a_result_has_the_outcome_and_the_tokens():
    from rondel.testing import say

    result = rondel.run(Agent("helper", engine=Scripted(say("Hi.", usage=Usage(5, 2)))), "Hi.")
    assert (result.outcome, result.usage) == (Outcome.DONE, Usage(5, 2))


async def test_in_async_code_and_notebooks_run_names_ask():
    agent = Agent("helper", engine=Scripted("Hello."))
    with pytest.raises(RondelError, match=r"await rondel\.ask"):
        rondel.run(agent, "Hi.")
    assert (await rondel.ask(agent, "Hi.")).output == "Hello."


def test_a_question_that_nobody_can_answer_is_an_error():
    agent = Agent("helper", engine=Scripted(call("pay")), tools=[pay])
    with pytest.raises(TurnFailed, match="no one can answer here") as raised:
        rondel.run(agent, "Pay!")
    assert raised.value.result.outcome is Outcome.WAITING


async def test_a_turn_that_waits_or_was_stopped_is_not_a_failure():
    pause = Pause("I begin")
    async with talking(Agent("helper", engine=Scripted(call("pay"), "Paid.", pause), tools=[pay])) as conversation:
        assert (await conversation.ask("Pay!")).outcome is Outcome.WAITING
        (question,) = await conversation.questions()
        assert (await (await conversation.answer(question.id, "yes")).result()).output == "Paid."
        turn = await conversation.send("Talk.")
        await pause.reached.wait()
        await turn.stop()
        assert (await turn.result()).outcome is Outcome.STOPPED


def test_a_stored_conversation_takes_two_lines(tmp_path: Path):
    model = Scripted("Hello Ann.", "Ann.")
    agent, store = Agent("helper", engine=model), tmp_path / "talks.db"
    rondel.run(agent, "I am Ann.", store=store, conversation="ann")
    assert rondel.run(agent, "Who am I?", store=str(store), conversation="ann").output == "Ann."
    assert [message.text for message in model.prompts[1].messages] == ["I am Ann.", "Hello Ann.", "Who am I?"]


async def test_an_approval_can_be_given_later_where_the_conversation_is_stored(tmp_path: Path):
    agent = Agent("helper", engine=Scripted(call("pay"), "Paid."), tools=[pay])
    result = await rondel.ask(agent, "Pay!", store=tmp_path / "talks.db", conversation="c")
    assert result.outcome is Outcome.WAITING
    async with App(agent, store=tmp_path / "talks.db") as app:
        conversation = app.conversation("c")
        (question,) = await conversation.questions()
        assert (await (await conversation.answer(question.id, "yes")).result()).output == "Paid."


async def test_the_text_of_an_answer_streams():
    pause = Pause("One, ", "two.")
    async with App(Agent("helper", engine=Scripted(pause))) as app:
        pieces: list[str] = []
        async for text in app.conversation().stream_text("Count."):
            pieces.append(text)
            pause.release()
    assert pieces == ["One, ", "two."]


async def rest(pieces: AsyncIterator[str]) -> list[str]:
    return [text async for text in pieces]


async def test_a_stream_that_fails_raises_after_what_was_said():
    async with App(Agent("helper", engine=Scripted("One.", EngineDenied("no"), EngineDenied("no")))) as app:
        conversation, pieces = app.conversation(), list[str]()
        async for text in conversation.stream_text("Count."):
            pieces.append(text)
        pieces += await rest(conversation.stream_text("More.", check=False))
        with pytest.raises(TurnFailed, match="no"):
            await rest(conversation.stream_text("Again."))
        assert pieces == ["One."]


def test_what_is_not_an_agent_is_one_sentence():
    with pytest.raises(RondelError, match="'helper' is not an agent; give an Agent, or load a folder"):
        rondel.run("helper", "Hi.")  # type: ignore[arg-type]
