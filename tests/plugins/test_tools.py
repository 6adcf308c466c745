"""The tools that ask a person and that end the work."""

from __future__ import annotations

from typing import Any

import pytest

from rondel import Agent, App, Approval, Outcome, QuestionError
from rondel.events import CallHeld, TurnFinished, TurnStarted
from rondel.plugins.approval import ApprovalGate
from rondel.testing import Scripted, VirtualClock, call, calls
from rondel.tools.ask_user import ask_user
from rondel.tools.finish import finish
from rondel.values import ToolCall, assistant
from tests.helpers import talking

from ..helpers import events_of, of


async def test_a_model_asks_and_the_answer_resumes_the_same_turn():
    """T09: a question with id, options and free text; state input-required; the answer resumes the same turn."""
    engine = Scripted(
        call("ask_user", "q1", question="Which one?", options=["red", "blue"], free_text=False), "Blue it is."
    )
    async with talking(Agent("helper", engine=engine, tools=[ask_user])) as conversation:
        first = await events_of(await conversation.send("Paint it."))
        assert of(TurnFinished, first)[-1].state == "input-required"
        (question,) = await conversation.questions()
        assert of(CallHeld, first)[0].question == question
        assert (question.id, question.kind, question.text) == ("ask:q1", "choose", "Which one?")
        assert (question.options, question.free_text, question.deadline) == (("red", "blue"), False, None)
        with pytest.raises(QuestionError, match="'green' is not one of: red, blue"):
            await conversation.answer(question.id, "green")
        second = await events_of(await conversation.answer(question.id, "blue"))
        assert of(TurnStarted, second)[0].turn == of(TurnStarted, first)[0].turn
        assert of(TurnFinished, second)[-1].outcome is Outcome.DONE
    assert engine.prompts[1].history[-1].parts[0].text == "blue"  # type: ignore[union-attr]


async def test_a_question_that_nobody_answers_in_time_is_over():
    """T09: timeout."""
    clock = VirtualClock()
    engine = Scripted(call("ask_user", "q1", question="Still there?", timeout_s=30), "Bye.")
    async with talking(Agent("helper", engine=engine, tools=[ask_user]), clock=clock) as conversation:
        await events_of(await conversation.send("hello"))
        (question,) = await conversation.questions()
        assert (question.kind, question.free_text, question.deadline) == ("ask", True, clock.now() + 30)
        watcher = await conversation.watch()
        clock.advance(30)
        async for _, event in watcher:
            if isinstance(event, TurnFinished):
                break
    assert engine.prompts[1].history[-1].parts[0].text == "(no answer in time)"  # type: ignore[union-attr]


async def test_two_questions_of_one_round_each_get_their_own_answer():
    """T09: an answer finds its question by its id, and leave to ask is no answer."""
    ask = [call("ask_user", id, question=f"{id}?") for id in ("q1", "q2")]
    engine = Scripted(calls(*ask), "ok")
    gate = ApprovalGate({"ask_user": Approval()})
    async with App(Agent("helper", engine=engine, tools=[ask_user], plugins=[gate])) as app:
        conversation = app.conversation()
        await events_of(await conversation.send("hello"))
        for question in await conversation.questions():
            await events_of(await conversation.answer(question.id, "yes"))
        for id, text in (("ask:q2", "two"), ("ask:q1", "one")):
            await events_of(await conversation.answer(id, text))
    parts: Any = engine.prompts[1].history[-1].parts
    assert [part.text for part in parts] == ["one", "two"]


async def test_finish_ends_the_loop_with_its_text_as_the_answer():
    """T10: no further round is asked for."""
    engine = Scripted(assistant("So:", ToolCall("f1", "finish", {"text": "42, and that is all."})))
    async with talking(Agent("helper", engine=engine, tools=[finish])) as conversation:
        result = await (await conversation.send("How much?")).result()
        output, roles = result.output, [message.role for message in (await conversation.transcript()).messages]
    assert output == "42, and that is all."
    assert roles == ["user", "assistant", "tool", "assistant"]
    engine.check_done()
