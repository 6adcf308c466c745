"""Schedules that run: at their time, once for what was missed, in their conversation, and until somebody cancels."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from rondel import Agent, App, RondelError
from rondel.events import TurnFinished
from rondel.jobs.timetable import PER_CONVERSATION_MAX, forget_schedule
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Pause, Scripted, VirtualClock, call
from rondel.text.schedule import Schedule, parse
from rondel.tools.schedule import cancel_schedule, list_schedules, schedule
from rondel.values import Person, ToolResult
from tests.jobs.workbench import app_of, helper, tell

TOOLS = (schedule, list_schedules, cancel_schedule)
HOUR = 3_600


async def later(app: App, clock: VirtualClock, seconds: float) -> None:
    """Let time pass, and everything that it brings about."""
    clock.advance(seconds)
    for _ in range(5):
        await asyncio.sleep(0)
        await app.drain()


async def said_by_the_clock(app: App, conversation: str = "c") -> list[str]:
    transcript = await app.conversation(conversation).transcript()
    return [message.text for message in transcript.messages if message.author.startswith("schedule:")]


def result(engine: Scripted) -> str:
    (part,) = engine.prompts[-1].messages[-1].parts
    assert isinstance(part, ToolResult)
    return part.text


# --- an agent's tool --------------------------------------------------------------------------------------------------


async def test_an_agent_has_itself_told_something_every_so_often():
    """T13: an interval of at least 60 s."""
    clock = VirtualClock()
    agent, engine = helper(
        call("schedule", say="water the plants", every="1h"), "I will", "watered", "watered again", tools=TOOLS
    )
    async with app_of(agent, clock=clock) as app:
        await tell(app, "remind yourself")
        assert "every 1 h; next 2001-09-09 02:46 UTC" in result(engine)
        await later(app, clock, HOUR - 1)
        assert await said_by_the_clock(app) == []
        await later(app, clock, 1)
        await later(app, clock, HOUR)
        assert await said_by_the_clock(app) == ["water the plants"] * 2
    engine.check_done()


async def test_a_time_comes_once():
    """T13: at."""
    clock = VirtualClock()
    agent, engine = helper(call("schedule", say="call Ann", at="in 20m"), "I will", "calling", tools=TOOLS)
    async with app_of(agent, clock=clock) as app:
        await tell(app, "remind me")
        await later(app, clock, 20 * 60)
        await later(app, clock, 86_400)
        assert await said_by_the_clock(app) == ["call Ann"]
        assert await app.timetable.schedules() == []
    engine.check_done()


async def test_a_mistake_is_told_to_the_model():
    agent, engine = helper(call("schedule", say="x", every="10s"), "sorry", tools=TOOLS)
    async with app_of(agent) as app:
        await tell(app, "go")
        assert result(engine) == "every '10s' must be between 60 seconds and 366 days"


async def test_an_agent_lists_and_cancels_what_is_scheduled_in_its_conversation_only():
    clock = VirtualClock()
    agent, engine = helper(
        call("schedule", say="theirs", every="1h"),
        "ok",
        call("schedule", say="ours", every="2h"),
        "ok",
        call("list_schedules"),
        "ok",
        tools=TOOLS,
    )
    async with app_of(agent, clock=clock) as app:
        await tell(app, "go", "other")
        theirs = (await app.timetable.schedules())[0].id
        await tell(app, "go")
        await tell(app, "list")
        assert "says 'ours'" in result(engine)
        assert "theirs" not in result(engine)
        (ours,) = [made.id for made in await app.timetable.schedules() if made.id != theirs]
        engine.add(call("cancel_schedule", schedule_id=theirs), "no", call("cancel_schedule", schedule_id=ours), "y")
        await tell(app, "cancel theirs")
        assert result(engine).startswith(f"this conversation has no schedule {theirs!r}")
        engine.add(call("cancel_schedule", schedule_id=ours), "yes")
        await tell(app, "cancel ours")
        assert result(engine) == f"{ours} is cancelled"
        assert [made.id for made in await app.timetable.schedules()] == [theirs]


async def test_an_agent_that_only_works_for_a_call_cannot_schedule():
    """T13: not for temporary agents."""
    worker, worker_engine = helper(call("schedule", say="x", every="1h"), "it cannot", name="worker", tools=TOOLS)
    boss, _ = helper(call("worker", input="go"), "well", name="boss", tools=[worker])
    async with app_of(boss) as app:
        await tell(app, "go")
        assert result(worker_engine).startswith("you work for one call only")
        assert await app.timetable.schedules() == []


async def test_a_conversation_has_a_limit_of_schedules():
    clock = VirtualClock()
    async with app_of(Agent("a", engine="echo"), clock=clock) as app:
        every = Schedule("x", every_s=60)
        for number in range(PER_CONVERSATION_MAX):
            await app.timetable.add("a", every, conversation="c", id=f"s_{number}")
        with pytest.raises(RondelError, match="this conversation has 32 schedules, which is the limit"):
            await app.timetable.add("a", every, conversation="c", id="s_more")


async def test_whoever_had_a_schedule_made_is_charged_for_its_turns():
    """L05: a schedule speaks for the person whose turn made it."""
    clock = VirtualClock()
    agent, _ = helper(call("schedule", say="tick", every="1h"), "made", "heard", tools=[schedule])
    async with app_of(agent, clock=clock) as app:
        await (await app.conversation("c").send("remind me", person=Person("ada"))).result()
        await later(app, clock, HOUR)
        rows = await app.ledger.top(by="person", window="lifetime")
        assert [(row.value, row.totals.calls) for row in rows] == [("ada", 3)]


# --- restarts and what was missed -------------------------------------------------------------------------------------


async def test_what_was_missed_while_nothing_ran_is_made_up_for_once():
    """T13: survives a restart; missed runs are made up for once, not many times."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    agent = Agent("a", engine=Scripted(*["heard"] * 5))
    async with app_of(agent, store=store, clock=clock) as app:
        hourly = parse({"every": "1h", "say": "tick"}, now=clock.now())
        await app.timetable.add("a", hourly, conversation="c", id="s_1")
    clock.advance(10.5 * HOUR)
    async with app_of(agent, store=store.reopen(), clock=clock) as app:
        await later(app, clock, 0)
        assert await said_by_the_clock(app) == ["tick"]
        await later(app, clock, 0.5 * HOUR)
        assert await said_by_the_clock(app) == ["tick", "tick"], "and then in the old step"


async def test_a_restart_that_changes_nothing_says_nothing_twice():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    hourly = parse({"every": "1h", "say": "tick"})
    agent = Agent("a", engine=Scripted(*["heard"] * 5), schedules=[hourly])
    for _ in range(3):
        async with app_of(agent, store=store, clock=clock) as app:
            await later(app, clock, 0)
            assert len(await app.timetable.schedules()) == 1
        store = store.reopen()
    async with app_of(agent, store=store, clock=clock) as app:
        await later(app, clock, HOUR)
        assert await said_by_the_clock(app, "schedule-a") == ["tick"]


async def test_what_was_missed_waits_for_the_active_hours():
    clock = VirtualClock(parse({"at": "2026-01-10 16:30", "say": "x"}).at)
    store = MemoryStore(clock=clock)
    agent = Agent("a", engine=Scripted(*["heard"] * 5))
    daily = parse({"every": "15m", "hours": "09:00-17:00", "say": "look"}, now=clock.now())
    async with app_of(agent, store=store, clock=clock) as app:
        await app.timetable.add("a", daily, conversation="c", id="s_1")
    clock.advance(8 * HOUR)  # half past midnight
    async with app_of(agent, store=store.reopen(), clock=clock) as app:
        await later(app, clock, 0)
        assert await said_by_the_clock(app) == []
        await later(app, clock, 8.5 * HOUR)
        assert await said_by_the_clock(app) == ["look"]


async def test_a_schedule_lives_in_a_file_and_outlives_the_process(path: Any):
    clock = VirtualClock()
    agent = Agent("a", engine=Scripted("heard"))
    async with App(agent, store=SqliteStore(path), clock=clock) as app:
        soon = parse({"at": "in 20m", "say": "now"}, now=clock.now())
        await app.timetable.add("a", soon, conversation="c", id="s_1")
    clock.advance(HOUR)
    async with App(agent, store=SqliteStore(path), clock=clock) as app:
        await later(app, clock, 0)
        assert await said_by_the_clock(app) == ["now"]
        assert await app.timetable.schedules() == []


async def test_a_schedule_that_another_process_cancelled_says_nothing():
    clock = VirtualClock()
    agent = Agent("a", engine=Scripted("never"))
    async with app_of(agent, clock=clock) as app:
        await app.timetable.add("a", parse({"every": 60, "say": "x"}, now=clock.now()), conversation="c", id="s_1")
        (scheduled,) = await app.timetable.schedules("c")
        await forget_schedule(app.store, scheduled)  # all that another process can do
        await later(app, clock, HOUR)
        assert await said_by_the_clock(app) == []


async def test_the_schedule_of_a_conversation_that_was_deleted_ends_with_it():
    clock = VirtualClock()
    agent, _ = helper(call("schedule", say="x", every="1h"), "ok", tools=TOOLS)
    async with app_of(agent, clock=clock) as app:
        await tell(app, "go")
        await app.store.delete("c")
        await later(app, clock, HOUR)
        assert await app.timetable.schedules() == []
        assert await app.store.info("c") is None


async def test_a_process_that_stays_takes_up_what_another_one_leaves(tmp_path: Any):
    clock = VirtualClock()
    agent = Agent("a", engine=Scripted("heard"))
    async with App(agent, store=SqliteStore(tmp_path / "db"), clock=clock) as stays, asyncio.TaskGroup() as group:
        keeping_up = group.create_task(stays.keep_up())
        async with App(agent, store=SqliteStore(tmp_path / "db"), clock=clock, recover=False) as leaves:
            soon = parse({"at": "in 1s", "say": "now"}, now=clock.now())
            await leaves.timetable.add("a", soon, conversation="c", id="s_1")
        with await stays.conversation("c").watch() as watcher:
            clock.advance(10)
            async with asyncio.timeout(10):
                while not any(isinstance(event, TurnFinished) for _, event in await watcher.batch()):
                    pass
        keeping_up.cancel()
        assert await said_by_the_clock(stays) == ["now"]


async def test_a_process_that_stays_survives_a_store_that_is_locked_for_a_while(tmp_path: Any):
    """Trust 1: `rondel jobs run` ended when another process held the database for some seconds."""
    clock, path = VirtualClock(), tmp_path / "db"
    store = SqliteStore(path, busy_timeout_s=0.05)
    async with App(Agent("a", engine=Scripted()), store=store, clock=clock) as stays, asyncio.TaskGroup() as group:
        keeping_up = group.create_task(stays.keep_up())
        await asyncio.sleep(0)
        with closing(sqlite3.connect(path, isolation_level=None)) as locker:
            locker.execute("begin immediate")
            clock.advance(10)
            await asyncio.sleep(0.3)
            locker.execute("rollback")
        assert not keeping_up.done()
        keeping_up.cancel()


# --- agents' files ----------------------------------------------------------------------------------------------------


async def test_the_schedules_of_an_agent_are_armed_at_the_start_and_forgotten_with_the_file():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    daily = parse({"cron": "0 9 * * *", "zone": "Europe/Berlin", "say": "Good morning"})
    agent = Agent("a", engine=Scripted("morning"), schedules=[daily])
    async with app_of(agent, store=store, clock=clock) as app:
        await later(app, clock, 86_400)
        assert await said_by_the_clock(app, "schedule-a") == ["Good morning"]
    async with app_of(Agent("a", engine=Scripted()), store=store.reopen(), clock=clock) as app:
        assert await app.timetable.schedules() == []
        await later(app, clock, 3 * 86_400)


async def test_on_the_command_line_the_schedules_of_files_wait_for_a_process_that_stays():
    hourly = parse({"every": "1h", "say": "tick"})
    async with app_of(Agent("a", engine=Scripted(), schedules=[hourly]), recover=False) as app:
        assert await app.timetable.schedules() == []


async def test_an_agent_that_is_gone_ends_its_schedule(caplog: pytest.LogCaptureFixture):
    clock = VirtualClock()
    async with app_of(Agent("a", engine=Scripted()), clock=clock) as app:
        await app.timetable.add("gone", Schedule("x", every_s=60), conversation="c", id="s_1")
        await later(app, clock, 60)
        assert await app.timetable.schedules() == []
    assert "schedule s_1 has ended: agent 'gone' no longer exists" in caplog.text


# --- many -------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_takes_longer_than_the_time_between_two_does_not_pile_up():
    clock = VirtualClock()
    pause = Pause("hm")
    agent = Agent("a", engine=Scripted(pause, "second"))
    async with app_of(agent, clock=clock) as app:
        minutely = parse({"every": 60, "say": "tick"}, now=clock.now())
        await app.timetable.add("a", minutely, conversation="c", id="s_1")
        clock.advance(60)
        await pause.reached.wait()
        for _ in range(5):
            clock.advance(60)
            for _ in range(20):
                await asyncio.sleep(0)
        pause.release()
        await app.drain()
        assert await said_by_the_clock(app) == ["tick"]
        await later(app, clock, 60)
        assert await said_by_the_clock(app) == ["tick", "tick"]


@pytest.mark.slow
async def test_ten_thousand_schedules_wait_with_one_timer():
    """T13: nothing is scanned and no timer is set for each."""
    clock = VirtualClock()
    start = clock.now()
    async with app_of(Agent("a", engine=Scripted("heard")), clock=clock) as app:
        for number in range(10_000):
            once = Schedule("x", at=start + 1_000_000 - number)
            await app.timetable.add("a", once, conversation=f"c{number}", id=f"s_{number}", made_by="file")
        for _ in range(3):
            await asyncio.sleep(0)
        assert clock.sleepers == 1
        await later(app, clock, 1_000_000 - 9_999)
        assert await said_by_the_clock(app, "c9999") == ["x"]
        assert clock.sleepers == 1
        for number in range(9_000):
            await app.timetable.cancel(f"s_{number}")
        assert len(await app.timetable.schedules()) == 999
