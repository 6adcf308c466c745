"""A sentence with a question in it, as a person at the terminal sees it."""

from __future__ import annotations

import io

from rich.console import Console

from rondel import Agent, App, Plugin, Reply
from rondel.events import Event
from rondel.gateway.bridge.reply_merger import ReplyMerger
from rondel.machine.turn import Turn
from rondel.surfaces.terminal.screen import Screen
from rondel.testing import Scripted
from rondel.values import PartDelta, PartFinished, PartStarted, ReplyBuilder, ReplyFinished, ReplyStarted, Text
from tests.helpers import events_after, events_of, play

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


def test_what_a_plugin_makes_of_a_reply_is_all_that_is_shown():
    """Trust 6: in the terminal as for callers of the gateway."""

    class Censor(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return reply.with_text(reply.text.replace("secret", "private"))

    agent = Agent("host", engine=Scripted("A secret word."), plugins=[Censor()])
    shown = printed(play(events_after("hi"), agent))
    assert "A private word." in shown
    assert "secret" not in shown
    assert "A plugin changed" not in shown


def test_who_comes_later_is_told_the_whole_sentence():
    _, after = both_halves(HOST)
    assert "Good evening! Ann is welcome." in printed(after)


def test_a_caller_of_the_gateway_gets_one_text_and_nothing_twice():
    agent = Agent("host", template='Good evening! {{ .Get "cellar" }} Enjoy.')

    merger = ReplyMerger(injected=("cellar",))
    builder = ReplyBuilder()
    for event in play(events_after("hi"), agent, Agent("cellar", template="It is open.")):
        if isinstance(event, PartStarted):
            for delta in merger.start_part(event):
                builder.add(delta)
        elif isinstance(event, DELTAS) and (delta := merger.feed(event)) is not None:
            builder.add(delta)
    pieces = [part.text for part in builder.reply().message.parts if isinstance(part, Text)]
    assert pieces == ["Good evening! It is open. Enjoy."]
