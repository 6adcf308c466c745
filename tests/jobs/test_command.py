"""`rondel jobs`: a list over all conversations, one of them, an end to it, and a process that does what is pending."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rondel import Agent, App, RondelError
from rondel.contracts.command import Table
from rondel.jobs.background import read_jobs
from rondel.jobs.timetable import read_schedules
from rondel.stores.sqlite import SqliteStore
from rondel.surfaces.commands import run_command
from rondel.surfaces.terminal.chat import Terminal
from rondel.testing import Scripted, VirtualClock, call
from rondel.text.schedule import parse
from tests.cli.conftest import WAIT_S, Place
from tests.cli.conftest import place as place
from tests.cli.conftest import server as server
from tests.cli.model_server import ModelServer
from tests.docs.runner import forget_modules
from tests.helpers import play
from tests.jobs.workbench import Bench, digests_in, jobs_of, tell

AGENTS = "agents:\n  helper:\n    prompt: You help.\n    tools: [slow:slow]\n"
SLOW = '''
from rondel import tool

@tool(background="{mode}")
def slow(topic: str) -> str:
    """Look something up."""
    return "all about " + topic
'''


@pytest.fixture(autouse=True)
def fresh_modules(tmp_path: Path) -> Iterator[None]:
    yield
    forget_modules(tmp_path)


def project(place: Place, *, mode: str = "background") -> Path:
    place.write("rondel.toml", 'engine = "echo"\n[store]\npath = "rondel.db"\n')
    place.write("agents/helper.yaml", AGENTS)
    place.write("slow.py", SLOW.format(mode=mode))
    return place.project / "rondel.db"


def left_by_a_dead_process(path: Path) -> str:
    """A job that was at work when its process ended; its id."""

    async def main() -> str:
        bench = Bench()
        agent = Agent("helper", engine=Scripted(call("slow", topic="tea"), "begun"), tools=[bench.tool])
        async with App(agent, store=SqliteStore(path)) as app:
            await tell(app, "go", "c_talk")
            await bench.began.wait()
            return (await jobs_of(app, "c_talk"))[0].id

    return asyncio.run(main())


KILLED = """
import asyncio, os, signal, sys
from rondel import Agent, App, tool
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, call

@tool(background=True, idempotent={idempotent})
def slow(topic: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    agent = Agent("helper", engine=Scripted(call("slow", topic="tea"), "begun"), tools=[slow])
    async with App(agent, store=SqliteStore({path!r})) as app:
        await (await app.conversation("c_talk").send("go")).result()
        await app.drain()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize(("idempotent", "said"), [(False, "interrupted"), (True, "all about tea")])
async def test_kill_9_in_the_middle_of_a_job_and_the_next_process_goes_on(place: Place, idempotent: bool, said: str):
    """B01: what was handed to the background survives."""
    path = project(place)
    code = KILLED.format(idempotent=idempotent, path=str(path))
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S, check=False).returncode == -9
    bench = Bench(idempotent=idempotent, go=True)
    engine = Scripted("begun", "I see")
    async with App(Agent("helper", engine=engine, tools=[bench.tool]), store=SqliteStore(path)) as app:
        await app.drain()
        await tell(app, "and?", "c_talk")
    (told,) = digests_in(engine)
    assert said in told


def finished(path: Path) -> str:
    async def main() -> str:
        bench = Bench(go=True)
        agent = Agent("helper", engine=Scripted(call("slow", topic="tea"), "begun"), tools=[bench.tool])
        async with App(agent, store=SqliteStore(path)) as app:
            await tell(app, "go", "c_talk")
            await app.drain()
            return (await jobs_of(app, "c_talk"))[0].id

    return asyncio.run(main())


def test_there_is_nothing_to_list(place: Place):
    project(place)
    assert place.rondel("jobs").out == "No background jobs and no schedules.\n"


def test_jobs_of_all_conversations_are_listed_with_their_status(place: Place):
    """S10: with id, status."""
    id = finished(project(place))
    listed = place.rondel("jobs").out
    assert all(word in listed for word in (id, "slow", "done", "c_talk", "all about tea"))
    (job,) = json.loads(place.rondel("jobs", "--json").out)["jobs"]
    assert (job["id"], job["status"], job["summary"]) == (id, "done", "all about tea")
    assert "all about tea" in place.rondel("jobs", "show", id[-6:]).out
    assert json.loads(place.rondel("jobs", "show", id, "--json").out)["id"] == id
    assert place.rondel("jobs", "cancel", id).err == f"{id} has already ended: done.\n"


def test_a_job_whose_process_is_gone_is_not_called_running_for_long(place: Place):
    path = project(place)
    id = left_by_a_dead_process(path)

    async def look() -> str:
        async with SqliteStore(path) as store:
            await store.remove("jobs-alive", id)  # some seconds later
            return (await read_jobs(store))[0].status

    assert asyncio.run(look()) == "queued"
    assert "interrupted; waiting to resume" in place.rondel("jobs").out


def test_a_job_that_nobody_works_on_is_cancelled_at_once(place: Place):
    """S10: cancel."""
    path = project(place)
    id = left_by_a_dead_process(path)
    assert place.rondel("jobs", "cancel", id).err == f"Cancelled {id}.\n"
    assert json.loads(place.rondel("jobs", "show", id, "--json").out)["status"] == "cancelled"
    lines = place.rondel("jobs", "--watch").out.splitlines()
    assert lines == [f"{id} slow cancelled it was cancelled before it finished"]
    engine = Scripted("I see")

    async def look(app: App) -> None:
        await tell(app, "and?", "c_talk")
        assert [job.status for job in await jobs_of(app, "c_talk")] == ["cancelled"]

    play(look, Agent("helper", engine=engine), store=SqliteStore(path))
    (told,) = digests_in(engine)
    assert told.endswith("slow failed: it was cancelled before it finished")


async def test_a_job_that_another_process_works_on_is_cancelled_by_that_process(place: Place):
    path = project(place)
    bench = Bench()
    agent = Agent("helper", engine=Scripted(call("slow", topic="tea"), "begun"), tools=[bench.tool])
    async with App(agent, store=SqliteStore(path)) as app:
        await tell(app, "go", "c_talk")
        await bench.began.wait()
        (job,) = await jobs_of(app, "c_talk")
        done = await asyncio.to_thread(place.spawn, "jobs", "cancel", job.id)
        assert done.err == f"{job.id} is running in another process, which was asked to cancel it.\n"
        async with asyncio.timeout(WAIT_S):
            await app.drain()
        assert [job.status for job in await jobs_of(app, "c_talk")] == ["cancelled"]


def test_something_is_scheduled_listed_and_cancelled(place: Place):
    """T13: cron with a time zone and active hours, from the command line."""
    path = project(place)
    done = place.rondel(
        "jobs", "schedule", "helper", "Good morning", "--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin"
    )
    assert done.code == 0
    id = done.out.partition(":")[0]
    assert "0 9 * * 1-5 Europe/Berlin; next " in done.out
    assert all(word in place.rondel("jobs").out for word in (id, "schedule-helper", "Good morning"))
    assert "Good morning" in place.rondel("jobs", "show", id).out
    assert place.rondel("jobs", "cancel", id).err == f"Cancelled {id}.\n"

    async def look() -> None:
        async with SqliteStore(path) as store:
            assert await read_schedules(store) == []

    asyncio.run(look())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("schedule", "helper", "x", "--every", "5s"), "every '5s' must be between 60 seconds and 366 days"),
        (("schedule", "helper", "x"), "a schedule has exactly one of every, at and cron; it has none"),
        (("schedule", "helpr", "x", "--every", "1h"), "there is no agent 'helpr'; did you mean 'helper'?"),
        (("show", "j_nothing"), "there is no job or schedule 'j_nothing'; `rondel jobs` lists them"),
        (("cancel", ""), "there is no job or schedule ''; `rondel jobs` lists them"),
        (("--watch", "show", "x"), "options go after the command"),
    ],
)
def test_a_mistake_is_one_sentence(place: Place, arguments: tuple[str, ...], said: str):
    project(place)
    done = place.rondel("jobs", *arguments)
    assert done.code != 0
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_process_that_stays_says_what_is_due_and_does_what_is_pending(place: Place):
    """T13: survives a restart."""
    path = project(place)
    place.write(
        "agents/watch.yaml", "agents: {watch: {prompt: Look., schedules: [{cron: '0 9 1 1 *', say: New year}]}}"
    )
    id = left_by_a_dead_process(path)

    async def prepare() -> None:
        long_ago = VirtualClock(1_700_000_000)
        async with App(Agent("helper", engine="echo"), store=SqliteStore(path), clock=long_ago, recover=False) as app:
            soon = parse({"at": "in 20m", "say": "wake up"}, now=long_ago.now())
            await app.timetable.add("helper", soon, conversation="c_s", id="s_1")

    asyncio.run(prepare())
    command = [sys.executable, "-m", "rondel", "jobs", "run"]
    with subprocess.Popen(command, cwd=place.project, env=place.env, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert b"Ctrl-C stops this" in child.stderr.readline()
        asyncio.run(_until_done(path, id))
        child.terminate()
        assert child.wait(WAIT_S) == 0


async def _until_done(path: Path, id: str) -> None:
    async with asyncio.timeout(WAIT_S), SqliteStore(path) as store:
        while True:  # another process writes: nobody tells when
            (job,) = await read_jobs(store)
            info = await store.info("c_s")
            if job.is_over and info is not None and info.state == "done":
                break
            await asyncio.sleep(0.05)
        assert (job.id, job.status) == (id, "failed")
        assert "interrupted" in job.summary
        (yearly,) = await read_schedules(store)
        assert (yearly.agent, yearly.made_by, yearly.schedule.say) == ("watch", "file", "New year")


async def test_the_chat_lists_and_cancels_the_jobs_of_its_conversation():
    bench = Bench()
    agent = Agent("helper", engine=Scripted(call("slow", topic="tea"), "begun"), tools=[bench.tool])
    async with App(agent) as app:
        chat = Terminal(app, source=io.StringIO(), target=io.StringIO()).session
        chat.conversation = app.conversation("c")
        assert await run_command(chat, "/jobs") == "No background jobs and no schedules."
        await bench.begin(app)
        await app.timetable.add("helper", parse({"every": 3600, "say": "hi"}), conversation="c", id="s_1")
        (job,) = await jobs_of(app)
        listed = await run_command(chat, "/jobs")
        assert isinstance(listed, Table)
        assert listed.rows == ((job.id, "slow", "running 25%", "looking"), ("s_1", "every 1 h", "scheduled", "hi"))
        assert await run_command(chat, f"/jobs cancel {job.id}") == f"Cancelling {job.id}."
        assert await run_command(chat, "/jobs cancel s_1") == "Cancelled s_1."
        await app.drain()
        assert await run_command(chat, f"/jobs cancel {job.id}") == f"{job.id} is already over."
        for wrong, said in (("/jobs cancel j_x", "there is no job 'j_x'"), ("/jobs now", "not 'now'")):
            with pytest.raises(RondelError, match=said):
                await run_command(chat, wrong)


@pytest.mark.parametrize(("mode", "out"), [("background", "begun\n"), ("inline", "begun\nit is about tea\n")])
def test_one_answer_waits_for_what_it_left_to_the_background(place: Place, server: ModelServer, mode: str, out: str):
    path = project(place, mode=mode)
    place.uses(server)
    with (place.project / "rondel.toml").open("a") as file:
        file.write('[store]\npath = "rondel.db"\n')
    server.calls("slow", "call-1", topic="tea")
    server.says("begun")
    server.says("it is about tea")
    done = place.rondel("run", "helper", "look it up")
    assert (done.code, done.out) == (0, out)

    async def look() -> str:
        async with SqliteStore(path) as store:
            return (await read_jobs(store))[0].status

    assert asyncio.run(look()) == "done"
