"""A sentence with a question in it, as a person at the terminal sees it."""

from __future__ import annotations

import io

from rich.console import Console

from rondel import Agent, App
from rondel.events import Event
from rondel.gateway.splice import Splice
from rondel.surfaces.terminal.screen import Screen
from rondel.values import (
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
)
from tests.helpers import events_of, play

DELTAS = (ReplyStarted, PartStarted, PartDelta, PartFinished, ReplyFinished)
HOST = Agent("host", template='Good evening! {{ .AskUser "Your name?" }} is welcome.')


def both_halves(app_agent: Agent) -> tuple[list[Event], list[Event]]:
    async def scene(app: App) -> tuple[list[Event], list[Event]]:
        conversation = app.conversation()
        before = await events_of(await conversation.send("hi"))
        (question,) = await conversation.questions()
        return before, await events_of(await conversation.answer(question.id, "Ann"))

    return play(scene, app_agent)


def printed(events: list[Event]) -> str:
    file = io.StringIO()
    screen = Screen(Console(file=file, width=80), now=lambda: 0.0)
    for event in events:
        screen.show(event)
    return file.getvalue()


def test_who_saw_the_beginning_sees_the_rest_and_nothing_twice():
    before, after = both_halves(HOST)
    shown = printed([*before, *after])
    assert shown.index("Good evening!") < shown.index("Your name?") < shown.index("Ann is welcome.")
    assert shown.count("Good evening!") == shown.count("is welcome.") == 1
    assert "A plugin changed" not in shown


def test_who_comes_later_is_told_the_whole_sentence():
    _, after = both_halves(HOST)
    assert "Good evening! Ann is welcome." in printed(after)


def test_a_caller_of_the_gateway_gets_one_text_in_two_pieces_and_nothing_twice():
    agent = Agent("host", template='Good evening! {{ .Get "cellar" }} Enjoy.')

    async def scene(app: App) -> list[Event]:
        return await events_of(await app.conversation().send("hi"))

    splice = Splice(lent=("cellar",))
    builder = ReplyBuilder()
    for event in play(scene, agent, Agent("cellar", template="It is open.")):
        if isinstance(event, DELTAS) and (delta := splice.feed(event)) is not None:
            builder.add(delta)
    pieces = [part.text for part in builder.reply().message.parts if isinstance(part, Text)]
    assert pieces == ["Good evening! ", "It is open. Enjoy."]
