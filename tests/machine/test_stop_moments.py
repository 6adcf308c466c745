"""A stop at every moment of a turn: before it is open, while it comes to rest, and when it has just done so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rondel import Agent, App, Approval, Plugin, tool
from rondel.contracts.runtime import Job
from rondel.events import Entry, Outcome, TurnFinished
from rondel.jobs.runtime import LocalRuntime
from rondel.machine.conversation import Conversation
from rondel.machine.turn import Turn
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Pause, Scripted, call, say
from tests.machine.processes import until_heard

Moment = Callable[[], Awaitable[None]]


@tool(approval=Approval("confirm"))
async def delete_all() -> str:
    return "all gone"


async def nothing() -> None:
    pass


class Store(SqliteStore):
    """Calls `at_read` when the first entries are read."""

    at_read: Moment = staticmethod(nothing)

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        moment, self.at_read = self.at_read, nothing
        await moment()
        return await super().read(conversation, after)


class Runtime(LocalRuntime):
    """Calls `at_deadline` when the deadline of a question is kept: the turn has come to rest then."""

    at_deadline: Moment = staticmethod(nothing)

    async def submit(self, job: Job) -> bool:
        if job.id.startswith("deadline:"):
            moment, self.at_deadline = self.at_deadline, nothing
            await moment()
        return await super().submit(job)


class AtEnd(Plugin):
    """Calls `at_end` while a turn comes to rest."""

    name = "at_end"
    at_end: Moment = staticmethod(nothing)

    async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
        moment, self.at_end = self.at_end, nothing
        await moment()


@pytest.mark.parametrize("moment", ["opening", "coming to rest", "at rest"])
@pytest.mark.parametrize("whose", ["the process's own", "another process's", "the view's"])
async def test_a_stop_that_was_acknowledged_stops_the_turn(path: Path, moment: str, whose: str) -> None:
    """Trust 2: no question is left open, the tool never runs, and nothing calls itself without end."""
    store, plugin = Store(path), AtEnd()
    runtime = Runtime(store)
    agent = Agent("helper", engine=Scripted(call("delete_all"), say("done")), tools=[delete_all], plugins=[plugin])
    async with (
        asyncio.timeout(20),
        App(agent, store=store, runtime=runtime) as app,
        App(Agent("helper", engine=Scripted()), store=SqliteStore(path), recover=False) as other,
    ):
        conversation = app.conversation("c")
        stopped: list[bool] = []

        async def stop() -> None:
            if whose == "the view's":
                stopped.append(await view.stop())
                return
            asked: Conversation = conversation if whose == "the process's own" else other.conversation("c")
            stopped.append(await asked.stop())
            if asked is not conversation:
                await until_heard(app)

        if moment == "coming to rest":
            plugin.at_end = stop
        elif moment == "at rest":
            runtime.at_deadline = stop
        view = await conversation.send("delete")
        if moment == "opening":
            (await app.journals.open("c")).broken = True  # so that it is read when its turn is opened
            store.at_read = stop
        await view.result()
        await app.drain()
        assert stopped == [True]
        assert await conversation.questions() == []
        ends = [entry.event for entry in await store.read("c") if isinstance(entry.event, TurnFinished)]
        assert ends[-1].outcome is Outcome.STOPPED
        assert ends[-1].reason != "the turn was stopped before it began" or moment == "opening"


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_stop_of_a_turn_that_is_over_leaves_the_next_one_alone(tmp_path: Path, processes: int) -> None:
    agent = Agent("helper", engine=Scripted("one", call("delete_all")), tools=[delete_all])
    async with App(agent, store=SqliteStore(tmp_path / "rondel.db")) as here:
        over = await here.conversation("c").send("hi")
        await over.result()
        async with App(agent, store=SqliteStore(tmp_path / "rondel.db")) as there:
            other = (here if processes == 1 else there).conversation("c")
            await (await other.send("delete")).result()
            assert len(await other.questions()) == 1
            async with asyncio.timeout(20):
                while await there.store.is_claimed("c"):  # its job is deleted a moment later
                    pass
            assert not await over.stop()
            assert len(await here.conversation("c").questions()) == 1


async def test_a_stop_of_a_turn_that_is_over_leaves_the_turn_of_another_process_alone(tmp_path: Path) -> None:
    agent = Agent("helper", engine=Scripted("one", pause := Pause("two ", "three")))
    async with App(agent, store=SqliteStore(tmp_path / "rondel.db")) as here:
        over = await here.conversation("c").send("hi")
        await over.result()
        async with App(agent, store=SqliteStore(tmp_path / "rondel.db")) as there:
            view = await there.conversation("c").send("go on")
            await pause.reached.wait()
            await over.stop()
            await until_heard(there)
            pause.release()
            assert (await view.result()).output == "two three"
