"""Watchers: many may watch one turn, a turn outlives them, and one that falls behind reads on from the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rondel import Agent, App
from rondel.clock import SystemClock
from rondel.events import Lagged, MessageAdded, RoundFinished, TurnFinished, TurnStarted
from rondel.journal import WATCHER_EVENTS_MAX, Journal
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Echo, Pause
from rondel.values import PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text, user
from tests.helpers import events_of, of, play, scripted


def test_two_watchers_see_the_same_and_one_may_leave():
    async def scene(app: App):
        pause = Pause("one ", "two")
        engine.add(pause)
        conversation = app.conversation()
        with await conversation.watch() as early, await conversation.watch() as patient:
            await conversation.send("hi")
            await pause.reached.wait()
            early.close()
            pause.release()
            return [event async for event in until_finished(patient)]

    agent, engine = scripted()
    events = play(scene, agent)
    assert [e.text for e in of(PartDelta, events)] == ["one ", "two"]


async def until_finished(watcher):
    async for event in watcher:
        yield event
        if isinstance(event, TurnFinished):
            return


def test_a_turn_goes_on_when_nobody_watches():
    agent, _ = scripted("said to nobody")

    async def scene(app: App):
        conversation = app.conversation()
        view = await conversation.send("hi")
        view.close()
        await app.drain()
        return (await conversation.transcript()).output

    assert play(scene, agent) == "said to nobody"


def test_a_view_that_falls_behind_sees_the_end_although_the_disk_does_not_have_it_yet(tmp_path: Path):
    agent = Agent("helper", engine=Echo())

    async def scene(app: App):
        return await events_of(await app.conversation().send("word " * 50_000))

    for _ in range(5):
        events = play(scene, agent, store=SqliteStore(tmp_path / "rondel.db"))
        assert len(of(TurnFinished, events)) == 1
        assert len(of(RoundFinished, events)) == 1


def test_a_watcher_that_falls_behind_is_told_and_misses_no_entry():
    pieces = WATCHER_EVENTS_MAX + 100
    flood = [
        ReplyStarted("m"),
        PartStarted(0, Text("")),
        *(PartDelta(0, "x") for _ in range(pieces)),
        PartFinished(0, Text("x" * pieces)),
        ReplyFinished(),
    ]
    agent, _ = scripted(flood)

    async def scene(app: App):
        conversation = app.conversation()
        with await conversation.watch() as slow:
            await (await conversation.send("hi")).result()
            return [event async for event in until_finished(slow)]

    events = play(scene, agent)
    assert isinstance(events[0], Lagged)
    assert len(of(PartDelta, events)) == 0
    assert [e.message.text for e in of(MessageAdded, events)] == ["hi"]
    assert of(RoundFinished, events)[0].message.text == "x" * pieces


def test_a_cursor_reads_on_where_a_watcher_left():
    agent, _ = scripted("first", "second")

    async def scene(app: App):
        conversation = app.conversation()
        with await conversation.watch() as watcher:
            await conversation.send("one")
            async for _ in until_finished(watcher):
                pass
            cursor = watcher.seq
        await (await conversation.send("two")).result()
        return [entry.event for entry in await conversation.entries(after=cursor)]

    events = play(scene, agent)
    assert [e.message.text for e in of(MessageAdded, events)] == ["two"]
    assert [e.message.text for e in of(RoundFinished, events)] == ["second"]


def test_a_view_of_a_queued_turn_shows_only_its_own_events():
    async def scene(app: App):
        pause = Pause("first")
        engine.add(pause, "second")
        conversation = app.conversation()
        await conversation.send("one")
        await pause.reached.wait()
        second = await conversation.send("two")
        pause.release()
        return await events_of(second)

    agent, engine = scripted()
    events = play(scene, agent)
    assert [e.text for e in of(PartDelta, events)] == ["second"]
    assert len(of(TurnFinished, events)) == 1


def test_views_that_nobody_reads_do_not_pile_up():
    agent, _ = scripted(*["ok"] * 20)

    async def scene(app: App):
        conversation = app.conversation()
        for _ in range(20):
            await conversation.send("hi")
        await app.drain()
        await asyncio.sleep(0)
        return (await app.journal(conversation.id)).is_watched

    assert play(scene, agent) is False


def test_what_lands_while_a_watcher_catches_up_is_not_missed():
    """The store is read, the entries land, and only then the answer of the store comes: they are in neither."""

    class Slow(MemoryStore):
        """Answers with what it had when it was asked, after something else has happened."""

        meanwhile: Any = None

        async def read(self, conversation: str, after: int = 0):
            entries = await super().read(conversation, after)
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
            return entries

    async def scene():
        store = Slow()
        journal = Journal("c", store, SystemClock())

        async def land():
            await journal.append(TurnStarted("t", "helper"), MessageAdded(user("hi")))

        store.meanwhile = land
        return [seq for seq, _ in await journal.since(0)]

    assert asyncio.run(scene()) == [1, 2]
