"""Watchers: many may watch one turn, a turn outlives them, and one that falls behind reads on from the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App
from rondel.contracts.clock import SystemClock
from rondel.errors import StoreConflict, StoreError
from rondel.events import Lagged, MessageAdded, Outcome, RoundFinished, TurnFinished, TurnStarted
from rondel.machine.journal import WATCHER_EVENTS_MAX, Journal
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.subscriptions import SqliteSubscription
from rondel.testing import Echo, Pause
from rondel.values import PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text, user
from tests.helpers import events_after, events_of, of, play, scripted, talking

STORED = (TurnStarted, MessageAdded, RoundFinished, TurnFinished)


async def test_two_watchers_see_the_same_and_one_may_leave():
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("one ", "two")
        engine.add(pause)
        conversation = app.conversation()
        with await conversation.watch() as early, await conversation.watch() as patient:
            await conversation.send("hi")
            await pause.reached.wait()
            early.close()
            pause.release()
            events = [event async for event in until_finished(patient)]
    assert [e.text for e in of(PartDelta, events)] == ["one ", "two"]


async def test_a_watcher_without_pieces_sees_where_a_part_begins_and_reads_the_rest_when_it_wants():
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("one ", "two")
        engine.add(pause)
        conversation = app.conversation()
        with (await app.journals.open(conversation.id)).watch(pieces=False) as watcher:
            await conversation.send("hi")
            await pause.reached.wait()
            so_far = conversation.reply_so_far()
            pause.release()
            events = [event async for event in until_finished(watcher)]
    assert [e.text for e in of(PartDelta, so_far)] == ["one "]
    assert [e.part for e in of(PartStarted, events)] == [Text("")]
    assert not of(PartDelta, events)
    assert not of(PartFinished, events)
    assert [e.message.text for e in of(RoundFinished, events)] == ["one two"]


async def until_finished(watcher):
    async for _, event in watcher:
        yield event
        if isinstance(event, TurnFinished):
            return


async def test_a_turn_goes_on_when_nobody_watches():
    agent, _ = scripted("said to nobody")
    async with App(agent) as app:
        conversation = app.conversation()
        view = await conversation.send("hi")
        view.close()
        await app.drain()
        assert (await conversation.transcript()).output == "said to nobody"


def test_a_view_that_falls_behind_sees_the_end_although_the_disk_does_not_have_it_yet(tmp_path: Path):
    agent = Agent("helper", engine=Echo())

    for _ in range(5):
        events = play(events_after("word " * 50_000), agent, store=SqliteStore(tmp_path / "rondel.db"))
        assert len(of(TurnFinished, events)) == 1
        assert len(of(RoundFinished, events)) == 1


async def test_a_watcher_that_falls_behind_is_told_and_misses_no_entry():
    pieces = WATCHER_EVENTS_MAX + 100
    flood = [
        ReplyStarted("m"),
        PartStarted(0, Text("")),
        *(PartDelta(0, "x") for _ in range(pieces)),
        PartFinished(0, Text("x" * pieces)),
        ReplyFinished(),
    ]
    agent, _ = scripted(flood)
    async with talking(agent) as conversation:
        with await conversation.watch() as slow:
            await (await conversation.send("hi")).result()
            events = [event async for event in until_finished(slow)]
    assert isinstance(events[0], Lagged)
    assert len(of(PartDelta, events)) == 0
    assert [e.message.text for e in of(MessageAdded, events)] == ["hi"]
    assert of(RoundFinished, events)[0].message.text == "x" * pieces


async def test_a_cursor_reads_on_where_a_watcher_left():
    agent, _ = scripted("first", "second")
    async with App(agent) as app:
        conversation = app.conversation()
        with await conversation.watch() as watcher:
            await conversation.send("one")
            async for _ in until_finished(watcher):
                pass
            cursor = watcher.seq
        await (await conversation.send("two")).result()
        events = [entry.event for entry in await conversation.entries(after=cursor)]
    assert [e.message.text for e in of(MessageAdded, events)] == ["two"]
    assert [e.message.text for e in of(RoundFinished, events)] == ["second"]


async def test_a_watcher_that_comes_back_with_its_position_sees_every_entry_once():
    """Whatever it saw last: an entry, a live event, nothing at all, or an entry that is not there."""
    engines = ["", "other"] * 3
    agent = Agent("helper", engine=Echo())
    async with App(agent, make_engine={"other": Echo()}.__getitem__) as app:
        conversation = app.conversation()
        with await conversation.watch() as watcher:
            await conversation.send("one")
            seen = [pair async for pair in until_finished_at(watcher)]
        await (await conversation.send("two")).result()
        last = (await conversation.entries())[-1].seq
        again: dict[int, list[int]] = {}
        for after in (0, seen[2][0], seen[-1][0], last, last + 7):
            with await conversation.watch(after) as watcher:
                await conversation.use_engine(engines.pop())
                again[after] = []
                while not again[after] or again[after][-1] <= last:
                    again[after] += [seq for seq, _ in await watcher.batch()]
                last = again[after][-1]
        seen, again = seen, again
    assert {seq for seq, event in seen if isinstance(event, PartDelta)} == {2}
    for after, seqs in again.items():
        first = min(after, seqs[-1] - 1) + 1
        assert seqs == list(range(first, seqs[-1] + 1)), after


async def until_finished_at(watcher):
    async for seq, event in watcher:
        yield seq, event
        if isinstance(event, TurnFinished):
            return


def test_a_watcher_in_another_process_sees_the_same(tmp_path: Path):
    """Trust 2: the entries with their positions, and what streams between them, also if it comes in the middle."""
    begun, middle = Pause("zero"), Pause("one ", "two ")
    agent, engine = scripted(begun)

    async def main():
        stores = [SqliteStore(tmp_path / "rondel.db") for _ in range(2)]
        async with App(agent, store=stores[0]) as here, App(agent, store=stores[1]) as there:
            mine, theirs = here.conversation("c"), there.conversation("c")
            await mine.send("one")
            await begun.reached.wait()
            with await mine.watch() as near, await theirs.watch(0) as far:
                entries = [seq for seq, _ in await far.batch()]
                async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                    seen = [group.create_task(collect(watcher, 2)) for watcher in (near, far)]
                    while "c" not in stores[0].subscribed:
                        await asyncio.sleep(0.01)
                    begun.release()
                    engine.add(middle)
                    await mine.send("two")
                    await middle.reached.wait()
                    middle.release()
                return entries, *(task.result() for task in seen)

    async def collect(watcher, turns: int):
        seen = []
        async for seq, event in watcher:
            seen.append((seq, event))
            turns -= isinstance(event, TurnFinished)
            if not turns:
                return seen
        return seen

    entries, near, far = asyncio.run(main())
    assert entries == [1, 2]
    assert far == near
    assert "one two " in "".join(event.text for _, event in far if isinstance(event, PartDelta))


async def test_a_view_of_a_queued_turn_shows_only_its_own_events():
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("first")
        engine.add(pause, "second")
        conversation = app.conversation()
        await conversation.send("one")
        await pause.reached.wait()
        second = await conversation.send("two")
        pause.release()
        events = await events_of(second)
    assert [e.text for e in of(PartDelta, events)] == ["second"]
    assert len(of(TurnFinished, events)) == 1


async def test_views_that_nobody_reads_do_not_pile_up():
    agent, _ = scripted(*["ok"] * 20)
    async with App(agent) as app:
        conversation = app.conversation()
        for _ in range(20):
            await conversation.send("hi")
        await app.drain()
        await asyncio.sleep(0)
        assert (await app.journals.open(conversation.id)).is_watched is False


async def talked(store: MemoryStore) -> Journal:
    journal = Journal("c", store, SystemClock())
    await journal.append(TurnStarted("t1", "helper"), MessageAdded(user("hi")))
    return journal


async def test_a_watcher_that_has_yet_to_read_the_log_sees_the_end_of_a_turn_that_could_not_be_opened():
    """The end is not stored, because nothing of the turn is."""
    journal = await talked(MemoryStore())
    with journal.watch(after=0) as watcher:
        journal.emit(ReplyStarted("m"))
        journal.repeat(TurnFinished("t2", Outcome.FAILED))
        events = await watcher.batch()
    assert [(seq, type(event)) for seq, event in events] == [(1, TurnStarted), (2, MessageAdded), (2, TurnFinished)]


async def test_a_watcher_whose_queue_is_full_keeps_the_end_of_a_turn_that_is_not_stored():
    journal = await talked(MemoryStore())
    with journal.watch() as watcher:
        journal.repeat(TurnFinished("t2", Outcome.FAILED))
        for _ in range(WATCHER_EVENTS_MAX + 10):
            journal.emit(PartDelta(0, "x"))
        events = await watcher.batch()
    assert [type(event) for _, event in events] == [Lagged, TurnFinished]


async def test_a_watcher_that_is_interrupted_while_it_reads_the_log_reads_it_the_next_time():
    class Failing(MemoryStore):
        is_broken = False

        async def read(self, conversation: str, after: int = 0):
            if self.is_broken:
                raise StoreError("the disk is gone")
            return await super().read(conversation, after)

    store = Failing()
    journal = await talked(store)
    with journal.watch(after=0) as watcher:
        store.is_broken = True
        with pytest.raises(StoreError):
            await watcher.batch()
        await journal.append(TurnFinished("t1", Outcome.DONE))
        store.is_broken = False
        assert [seq for seq, _ in await watcher.batch()] == [1, 2, 3]


async def test_what_lands_while_a_watcher_catches_up_is_not_missed():
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

    store = Slow()
    journal = Journal("c", store, SystemClock())

    async def land():
        await journal.append(TurnStarted("t", "helper"), MessageAdded(user("hi")))

    store.meanwhile = land
    assert [seq for seq, _ in await journal.since(0)] == [1, 2]


@pytest.mark.parametrize("lands_first", [False, True])
async def test_who_joins_while_an_entry_is_written_sees_it_once_and_not_before_it_is_stored(lands_first: bool):
    """`lands_first`: the log has the entry already, but the one who appended it was not told."""

    class Slow(MemoryStore):
        async def append(self, conversation: str, *given: Any, **named: Any):
            if lands_first:
                await super().append(conversation, *given, **named)
            await gate.wait()
            if not lands_first:
                await super().append(conversation, *given, **named)

    async def read(watcher: Any, seen: list[int]):
        async for seq, _ in watcher:
            seen.append(seq)

    gate = asyncio.Event()
    gate.set()
    journal = await talked(Slow())
    gate.clear()
    early: list[int] = []
    late: list[int] = []
    with journal.watch(after=0) as watcher:
        async with asyncio.TaskGroup() as group:
            appending = group.create_task(journal.append(TurnFinished("t1", Outcome.DONE)))
            await asyncio.sleep(0)
            reading = group.create_task(read(watcher, early))
            await asyncio.sleep(0.02)
            assert early == ([1, 2, 3] if lands_first else [1, 2])
            with journal.watch(after=watcher.seq) as returning:
                reading_on = group.create_task(read(returning, late))
                gate.set()
                await appending
                await journal.append(TurnStarted("t2", "helper"), wait=False)
                await asyncio.sleep(0.02)
            reading.cancel()
            reading_on.cancel()
    assert early == [1, 2, 3, 4]
    assert late == ([4] if lands_first else [3, 4])


async def test_appends_that_return_out_of_order_are_told_once():
    class Slow(MemoryStore):
        async def append(self, conversation: str, first: int, *given: Any, **named: Any):
            await super().append(conversation, first, *given, **named)
            await gates[first].wait()

    gates = {first: asyncio.Event() for first in range(1, 5)}
    journal = Journal("c", Slow(), SystemClock())
    with journal.watch() as watcher:
        async with asyncio.TaskGroup() as group:
            appends = [group.create_task(journal.append(*[MessageAdded(user("hi"))] * count)) for count in (1, 1, 2)]
            await asyncio.sleep(0)
            for first in (2, 1, 3):
                gates[first].set()
                await appends[first - 1]
        assert [seq for seq, _ in await watcher.batch()] == [1, 2, 3, 4]


async def test_who_joins_after_an_append_was_cancelled_sees_what_the_log_has_once():
    class Slow(MemoryStore):
        async def append(self, conversation: str, *given: Any, **named: Any):
            await super().append(conversation, *given, **named)
            await asyncio.sleep(0)

    journal = await talked(Slow())
    appending = asyncio.create_task(journal.append(TurnFinished("t1", Outcome.DONE)))
    await asyncio.sleep(0)
    appending.cancel()
    await asyncio.wait([appending])
    with journal.watch(after=0) as watcher:
        assert [seq for seq, _ in await watcher.batch()] == [1, 2, 3]
        await journal.append(TurnStarted("t2", "helper"))
        assert [seq for seq, _ in await watcher.batch()] == [4]


def app_on(path: Path) -> App:
    return App(Agent("helper", engine=Echo()), store=SqliteStore(path), recover=False)


async def test_a_watcher_that_leaves_while_it_reads_for_all_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with app_on(tmp_path / "rondel.db") as here, app_on(tmp_path / "rondel.db") as there:
        with await here.conversation("c").watch() as leaving, await here.conversation("c").watch() as staying:
            await (await there.conversation("c").send("hi")).result()
            await asyncio.sleep(0.2)
            read, never = SqliteSubscription.read, asyncio.Event()
            monkeypatch.setattr(SqliteSubscription, "read", lambda *_: never.wait())
            async with asyncio.TaskGroup() as group:
                first = group.create_task(leaving.batch())
                second = group.create_task(staying.batch())
                await asyncio.sleep(0.01)
                monkeypatch.setattr(SqliteSubscription, "read", read)
                first.cancel()
                async with asyncio.timeout(20):
                    events = await second
        assert [seq for seq, event in events if type(event) in STORED] == [1, 2, 3, 4]


async def test_a_watcher_reads_again_after_a_failure_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.machine.journal.RETRY_S", 0.05)
    async with app_on(tmp_path / "rondel.db") as here, app_on(tmp_path / "rondel.db") as there:
        with await here.conversation("c").watch() as watcher:
            read, failures = SqliteSubscription.read, [StoreError("no")]

            async def fail_once(self: SqliteSubscription, after: int) -> Any:
                if failures:
                    raise failures.pop()
                return await read(self, after)

            await (await there.conversation("c").send("hi")).result()
            await asyncio.sleep(0.2)
            monkeypatch.setattr(SqliteSubscription, "read", fail_once)
            assert (await asyncio.wait_for(watcher.batch(), 20))[-1][0] == 4


async def test_who_watches_a_conversation_that_another_process_deletes_sees_what_comes_after(tmp_path: Path):
    async with app_on(tmp_path / "rondel.db") as here, app_on(tmp_path / "rondel.db") as there:
        conversation = here.conversation("c")
        for _ in range(3):
            await (await conversation.send("hi")).result()
        with await conversation.watch() as watcher:
            assert await there.store.delete("c")
            view = await conversation.send("again")
            async with asyncio.timeout(20):
                events = [event async for event in view]
                seen = await watcher.batch()
            assert [type(event) for event in events if type(event) in STORED] == list(STORED)
            assert [seq for seq, event in seen if type(event) in STORED] == [1, 2, 3, 4]


async def test_a_watcher_of_a_journal_that_broke_sees_what_the_log_has():
    store, clock = MemoryStore(), SystemClock()
    broken = await Journal.open("c", store, clock)
    behind, ahead = broken.watch(), broken.watch()
    await broken.append(TurnStarted("t1", "helper"))
    assert [seq for seq, _ in await ahead.batch()] == [1]
    await store.append("c", 2, (TurnStarted("t2", "helper"),), at=1.0)
    with pytest.raises(StoreConflict):
        await broken.append(TurnStarted("lost", "helper"), wait=False)
    assert [seq for seq, _ in await ahead.batch()] == [2]
    await store.append("c", 3, (TurnStarted("t3", "helper"),), at=1.0)
    fresh = await Journal.open("c", store, clock)
    fresh.take_watchers(broken)
    await fresh.append(TurnStarted("t4", "helper"))
    for watcher, first in ((behind, 1), (ahead, 3)):
        seen: list[int] = []
        while not seen or seen[-1] < 4:
            seen += [seq for seq, _ in await asyncio.wait_for(watcher.batch(), 20)]
        assert seen == list(range(first, 5))


async def test_a_watcher_whose_file_is_gone_says_so_once(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "watchers cannot see" in record.getMessage()]

    async with app_on(path) as app:
        with await app.conversation("c").watch() as watcher:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(watcher.batch())
                await asyncio.sleep(0.2)
                path.rename(tmp_path / "moved.db")
                async with asyncio.timeout(20):
                    while not told():
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                waiting.cancel()
        (tmp_path / "moved.db").rename(path)
    assert len(told()) == 1
    assert "was deleted, moved or replaced while it was in use" in told()[0]
