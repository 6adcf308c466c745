"""Crash at every append of a conversation with work in the background: nothing is lost, and nothing is heard twice."""

from __future__ import annotations

import asyncio

import pytest

from rondel import Agent, App, tool
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, Step, VirtualClock, call
from rondel.text.schedule import parse
from rondel.tool import Tool
from rondel.values import Message, ToolResult
from tests.machine.test_crash import PowerCut, until_dead

CUTS_MAX = 40


class Once:
    """A tool in the background that must not run twice, and an engine that answers by what it is asked."""

    def __init__(self, mode: str) -> None:
        self.runs = 0

        def work() -> str:
            self.runs += 1
            return "worked"

        self.tool: Tool = tool(background=mode)(work)  # pyright: ignore

    def agent(self) -> Agent:
        return Agent("helper", engine=Scripted(*[answer] * 20), tools=[self.tool])


def answer(prompt: Prompt) -> Step:
    last = prompt.messages[-1]
    if last.role == "tool":
        return "begun"
    if last.author.startswith("job:"):
        return "heard of it"
    if last.text == "go":
        return call("work")
    return f"heard {last.text}"


async def drive(agent: Agent, store: MemoryStore, *, told: tuple[str, ...] = ("go", "and?")) -> None:
    clock = VirtualClock()
    async with App(agent, store=store, clock=clock) as app:
        conversation = app.conversation("c")
        for text in told:
            await app.drain()
            if text not in (await conversation.transcript()).ids:
                await conversation.send(text, id=text)
        await app.drain()


async def history(store: MemoryStore) -> list[Message]:
    async with App(Agent("reader", engine="echo"), store=store.reopen(), recover=False) as app:
        return (await app.conversation("c").transcript()).messages


def digests(messages: list[Message]) -> list[str]:
    return [message.text.splitlines()[-1] for message in messages if message.author == "job:work"]


async def _cut_and_go_on(mode: str, at: int, *, written: bool) -> tuple[Once, list[Message], bool]:
    once, disk = Once(mode), MemoryStore(clock=VirtualClock())
    store = PowerCut(disk, at, written=written, counts_all=True)
    died = await until_dead(drive(once.agent(), store), store)
    disk = disk.reopen()
    await drive(once.agent(), disk)
    return once, await history(disk), died


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("mode", ["background", "inline"])
async def test_a_crash_at_any_write_loses_no_digest_and_tells_none_twice(mode: str, written: bool):
    """B01: never lost, exactly once, whatever a crash cuts off."""
    async with asyncio.timeout(60):
        for at in range(1, CUTS_MAX):
            once, messages, died = await _cut_and_go_on(mode, at, written=written)
            told = digests(messages)
            assert len(told) == 1, (at, told)
            assert once.runs <= 1, at
            worked = told[0] == "work completed: worked"
            assert worked or "interrupted: the program ended while 'work' ran" in told[0], (at, told)
            if once.runs == 0:
                assert not worked
            assert "begun" in [message.text for message in messages], at
            if not died:
                assert at > 10
                return
        raise AssertionError("the scenario has more writes than were cut")


async def test_results_ride_in_the_history_with_their_calls():
    """What the scenario above is without a crash."""
    once, disk = Once("background"), MemoryStore(clock=VirtualClock())
    await drive(once.agent(), disk)
    messages = await history(disk)
    assert [message.text for message in messages if message.role == "assistant"] == ["", "begun", "heard of it"]
    (result,) = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    assert result.text.startswith("'work' runs in the background as job j_")


async def _tick(store: MemoryStore, clock: VirtualClock) -> None:
    """Let the hour of a schedule come, and what it says be answered."""
    agent = Agent("a", engine=Scripted(*["heard"] * 5))
    async with App(agent, store=store, clock=clock) as app:
        if not await app.timetable.schedules():
            schedule = parse({"every": "1h", "say": "tick"}, now=clock.now())
            await app.timetable.add("a", schedule, conversation="c", id="s_1")
        clock.advance(max(0.0, BEGIN + 3_601 - clock.now()))
        for _ in range(50):
            await asyncio.sleep(0)
            await app.drain()


BEGIN = 1_000_000_000.0


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_write_lets_a_schedule_speak_once(written: bool):
    """Trust 3: the job of a schedule that has spoken runs again after a kill, and says nothing twice."""
    async with asyncio.timeout(60):
        for at in range(1, CUTS_MAX):
            clock = VirtualClock(BEGIN)
            disk = MemoryStore(clock=clock)
            store = PowerCut(disk, at, written=written, counts_all=True)
            died = await until_dead(_tick(store, clock), store)
            disk = disk.reopen()
            await _tick(disk, clock)
            texts = [message.text for message in await history(disk)]
            assert texts == ["tick", "heard"], (at, texts)
            if not died:
                return
        raise AssertionError("the scenario has more writes than were cut")
