"""What every surface must do, seen by a person who uses it. A new one needs a row in `FRONTS`, and passes these
tests unchanged. What surfaces with a session also share is in `test_session.py`."""

from __future__ import annotations

import asyncio

import pytest

from rondel import Agent, Limits, RondelError, tool
from rondel.events import QuestionAnswered
from rondel.testing import Pause, Scripted, call
from rondel.tools.ask_user import ask_user
from rondel.values import Media
from tests.surfaces.fronts import Front, InMemory, InTerminal, OnDiscord, OnTheWeb

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


FRONTS: dict[str, type[Front]] = {"memory": InMemory, "terminal": InTerminal, "web": OnTheWeb, "discord": OnDiscord}


@pytest.fixture(params=FRONTS)
def opened(request: pytest.FixtureRequest) -> type[Front]:
    return FRONTS[request.param]


def helper(model: Scripted, limits: Limits | None = None) -> Agent:
    booked.clear()
    return Agent("helper", engine=model, tools=[ask_user, book], limits=limits or Limits())


booked: list[str] = []


@tool(approval="confirm")
async def book(hotel: str) -> str:
    "Book a room."
    booked.append(hotel)
    return f"booked {hotel}"


async def answered(chat: Front) -> list[tuple[str, str]]:
    """Who answered which question how."""
    entries = await chat.conversation.entries()
    return [(e.event.answer.text, e.event.answer.by) for e in entries if isinstance(e.event, QuestionAnswered)]


async def test_an_answer_is_shown(opened: type[Front]):
    async with opened(helper(Scripted("The answer is here."))) as chat:
        await chat.say("hello")
        await chat.sees("The answer is here.")


async def test_a_question_is_answered_in_the_person_s_name(opened: type[Front]):
    question = call("ask_user", "q", question="Which colour?", options=["red", "blue"])
    async with opened(helper(Scripted(question, "Blue it is."))) as chat:
        await chat.say("paint")
        await chat.sees("Which colour?")
        await chat.answer("blue")
        await chat.sees("Blue it is.")
        assert await answered(chat) == [("blue", chat.person)]


async def test_an_open_question_survives_a_restart(opened: type[Front]):
    model = Scripted(call("ask_user", "q", question="Who are you?"), "Hello, Ann.")
    async with opened(helper(model)) as chat:
        await chat.say("hi")
        await chat.sees("Who are you?")
        await chat.restart()
        await chat.sees("Who are you?")
        await chat.answer("Ann")
        await chat.sees("Hello, Ann.")
        assert await answered(chat) == [("Ann", chat.person)]


@pytest.mark.parametrize("said", ["yes", "no"])
async def test_what_needs_approval_runs_only_after_a_yes(opened: type[Front], said: str):
    async with opened(helper(Scripted(call("book", "c", hotel="Ritz"), "That is it."))) as chat:
        await chat.say("book")
        await chat.sees("Ritz")
        assert booked == []
        while not await chat.conversation.questions():
            await asyncio.sleep(0.002)
        await chat.answer(said)
        await chat.sees("That is it.")
        assert booked == (["Ritz"] if said == "yes" else [])


async def test_the_person_steers_what_is_being_answered(opened: type[Front]):
    pause = Pause("Let me think. ")
    model = Scripted(pause, "By train, then.")
    async with opened(helper(model)) as chat:
        await chat.say("How do I get to Porto?")
        await pause.reached.wait()
        await chat.steer("How do I get to Porto without flying?")
        while not (await chat.conversation.transcript()).inbox:
            await asyncio.sleep(0.002)
        pause.release()
        await chat.sees("By train, then.")
        assert "without flying" in model.prompts[-1].messages[-1].text


async def test_stop_ends_the_answer_and_the_chat_goes_on(opened: type[Front]):
    pause = Pause("I begin and never ")
    async with opened(helper(Scripted(pause, "Here I am."))) as chat:
        await chat.say("talk for ever")
        await pause.reached.wait()
        await chat.stop()
        while (await chat.conversation.transcript()).outcome is None:
            await asyncio.sleep(0.002)
        await chat.say("and now?")
        await chat.sees("Here I am.")


async def test_a_failure_is_shown_and_the_chat_goes_on(opened: type[Front]):
    async with opened(helper(Scripted(RondelError("the model is on fire"), "Better now."))) as chat:
        before = chat.text
        await chat.say("hi")
        while (await chat.conversation.transcript()).outcome is None or chat.text == before:
            await asyncio.sleep(0.002)
        await chat.say("and now?")
        await chat.sees("Better now.")


async def test_a_limit_that_ends_an_answer_is_named(opened: type[Front]):
    async with opened(helper(Scripted(call("ask_user", "q", question="Who?")), Limits(rounds=1))) as chat:
        await chat.say("hi")
        await chat.sees("Who?")
        await chat.answer("Ann")
        await chat.sees("limits.rounds")


async def test_the_transcript_and_the_ledger_know_who_spoke(opened: type[Front]):
    async with opened(helper(Scripted("Hello."))) as chat:
        await chat.say("hi")
        await chat.sees("Hello.")
        transcript = await chat.conversation.transcript()
        assert transcript.person.id == chat.person
        assert [m.author for m in transcript.messages if m.role == "user"] == [chat.person]
        assert (await chat.conversation.app.ledger.totals(by="person", value=chat.person, window="day")).calls == 1


async def test_a_picture_that_the_person_attaches_reaches_the_model(opened: type[Front]):
    model = Scripted("A cat.")
    async with opened(helper(model)) as chat:
        await chat.say("look", Media("image", "image/png", PNG, name="cat.png"))
        await chat.sees("A cat.")
        parts = model.prompts[-1].messages[-1].parts
        assert [(part.mime, part.data) for part in parts if isinstance(part, Media)] == [("image/png", PNG)]
