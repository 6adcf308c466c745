"""Two processes talk in one conversation: their turns queue, and stop, steer and answers reach the one that runs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from rondel import Agent, App, tool
from rondel.contracts.runtime import Job
from rondel.errors import StoreConflict
from rondel.events import DurableEvent, MessageAdded, RoundFinished, TurnFinished, TurnStarted
from rondel.machine.journal import Journal
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, call, say
from tests.helpers import of
from tests.machine.processes import Process, open_gate, until_heard

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def events_in(path: Path, conversation: str = "c") -> list[DurableEvent]:
    async def read() -> list[DurableEvent]:
        async with SqliteStore(path) as store:
            return [entry.event for entry in await store.read(conversation)]

    return asyncio.run(read())


def until_written(process: Process, kind: str, times: int = 1) -> None:
    """Wait until entries of this kind are on disk, where other processes see them."""
    until = time.monotonic() + 20
    while process.ask("kinds", "kinds").count(kind) < times:
        assert time.monotonic() < until


def test_the_second_process_waits_for_the_turn_of_the_first_and_hears_what_was_said(path: Path):
    """Trust 2: the second one's message queues behind the first one's turn, and no turn fails."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("send", text="and me", id="m2")
        b.wait("sent", "m2")
        assert b.ask("at_work", "at_work") is True
        open_gate(path, "gate")
        assert a.wait("ended", "m1") == {"ended": "m1", "outcome": "done", "output": "heard wait gate", "error": ""}
        assert b.wait("ended", "m2") == {"ended": "m2", "outcome": "done", "output": "heard and me", "error": ""}
        a.tell("send", text="again", id="m3")
        assert a.wait("ended", "m3")["output"] == "heard again"
        texts = a.ask("texts", "texts")
        assert texts == b.ask("texts", "texts")
        assert [text for text in texts if text and "open" not in text] == [
            *("wait gate", "heard wait gate", "and me", "heard and me", "again", "heard again")
        ]


def test_a_stop_reaches_the_process_that_runs_the_turn(path: Path):
    """Trust 2: and only while a turn is there."""
    with Process(path) as a, Process(path) as b:
        stopped(a, b)
        a.tell("send", text="still there?", id="m2")
        assert a.wait("ended", "m2")["output"].endswith("still there?")
        a.ask("drain", "drained")
        until = time.monotonic() + 20
        while b.ask("at_work", "at_work"):  # a job that is over is forgotten a moment later
            assert time.monotonic() < until
        assert b.ask("stop", "stopped") is False


def test_a_stop_takes_a_few_tenths_of_a_second(path: Path):
    """Trust 2: 0.15 s, also on a busy machine; one that stands still for a moment gets another attempt."""

    def seconds(attempt: int) -> float:
        own = path.with_name(f"{attempt}-{path.name}")  # who has just heard a signal hears the next one sooner
        with Process(own) as a, Process(own) as b:
            return stopped(a, b)

    took: list[float] = []
    while not took or took[-1] > 0.4:
        assert len(took) < 3, took
        took.append(seconds(len(took)))


def stopped(worker: Process, other: Process) -> float:
    """Let a process work and another one stop it. Returns how many seconds that took."""
    worker.work("for-ever")
    began = time.monotonic()
    assert other.ask("stop", "stopped") is True
    assert worker.wait("ended", "m1")["outcome"] == "stopped"
    return time.monotonic() - began


def test_a_message_that_waits_for_another_process_can_be_withdrawn_at_once(path: Path):
    """Trust 2: a stop of one's own queued turn leaves the other's alone."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("withdraw", text="never mind", id="m2")
        assert b.wait("stopped")["stopped"] is True
        assert b.wait("ended", "m2")["outcome"] == "stopped"
        open_gate(path, "gate")
        assert a.wait("ended", "m1")["output"] == "heard wait gate"
    assert "never mind" not in [event.message.text for event in of(MessageAdded, events_in(path))]


def test_what_steers_from_another_process_is_heard_by_the_turn_at_work_once(path: Path):
    """Trust 2: between two rounds, not as a turn of its own."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("steer", text="quickly")
        b.wait("steered")
        until_written(b, "MessageQueued")
        open_gate(path, "gate")
        assert a.wait("ended", "m1")["output"] == "heard wait gate, quickly"
        b.ask("drain", "drained")
        kinds = b.ask("kinds", "kinds")
        assert [kinds.count(kind) for kind in ("InboxTaken", "TurnStarted", "TurnFinished")] == [1, 1, 1]


def test_what_steers_a_process_that_dies_is_answered_by_the_one_that_said_it(path: Path):
    """Trust 2: nothing that was acknowledged is lost with the owner of the turn."""
    with Process(path) as a, Process(path) as b:
        a.work()
        until_written(b, "RoundFinished")
        a.signal(signal.SIGSTOP)
        b.tell("steer", text="quickly")
        b.wait("steered")
        a.kill()
        b.wait("working", "gate")  # it goes on with what the dead one left in the conversation
        open_gate(path, "gate")
        b.ask("drain", "drained")
        assert b.ask("texts", "texts")[-1] == "heard wait gate, quickly"


def test_a_question_of_one_process_is_answered_in_another(path: Path):
    """Trust 2: the turn goes on where the answer was given, and the first process learns of it."""
    with Process(path) as a, Process(path) as b:
        a.tell("send", text="delete", id="m1")
        assert a.wait("ended", "m1")["outcome"] == "waiting"
        (question,) = b.ask("questions", "questions")
        b.tell("answer", text="yes")
        assert b.wait("ended", "answer")["output"] == "heard delete"
        assert a.ask("questions", "questions") == []
        a.tell("answer", text="no", question=question)
        assert "is not open" in a.wait("failed")["failed"]


def test_a_choice_of_engine_waits_for_the_turn_of_another_process(path: Path):
    """Trust 2: nothing is written into a conversation that another process works on."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("engine")
        open_gate(path, "gate")
        assert a.wait("ended", "m1")["outcome"] == "done"
        b.wait("chosen")
        a.tell("send", text="hello", id="m2")
        assert a.wait("ended", "m2")["output"] == "hello", "the other engine echoes"


def test_resume_leaves_a_turn_to_the_process_that_works_on_it(path: Path):
    """Trust 2: its view ends as that turn does."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("resume")
        assert b.wait("resumed")["resumed"]
        open_gate(path, "gate")
        assert a.wait("ended", "m1")["output"] == "heard wait gate"
        assert b.wait("ended", "resume") == {
            "ended": "resume", "outcome": "done", "output": "heard wait gate", "error": ""
        }  # fmt: skip
        assert not [told for told in b.told if "working" in told]
    assert len(of(TurnStarted, events_in(path))) == 1


def test_a_stopped_process_is_waited_for_and_a_dead_one_is_not(path: Path):
    """Trust 2: SIGSTOP does not cost a process its turn; `kill -9` does."""
    with Process(path) as a, Process(path) as b:
        a.work()
        a.signal(signal.SIGSTOP)
        open_gate(path, "gate")
        b.tell("send", text="and me", id="m2")
        b.wait("sent", "m2")
        assert b.ask("stop", "stopped") is True  # heard as soon as it can hear again, if the turn is still there
        time.sleep(0.5)
        assert not [told for told in b.told if "ended" in told]
        a.signal(signal.SIGCONT)
        assert a.wait("ended", "m1")["error"] == ""
        assert b.wait("ended", "m2")["output"].endswith("and me")
        rounds = b.ask("kinds", "kinds").count("RoundFinished")
        a.work("other", "m3")
        until_written(b, "RoundFinished", rounds + 1)
        b.tell("send", text="me again", id="m4")
        b.wait("sent", "m4")
        a.kill()
        b.wait("working", "other")
        open_gate(path, "other")
        assert b.wait("ended", "m4")["output"] == "heard wait other, me again"


def test_a_process_that_lost_its_claim_ends_its_turn_with_a_clear_error(path: Path, tmp_path: Path):
    """Trust 2: the fence. Somebody removed its lock file, so another process went on with its turn."""
    with Process(path) as a:
        a.work()
        (lock,) = tmp_path.glob("rondel.db.worker-*")
        with Process(path) as b:
            until_written(b, "RoundFinished")
            lock.unlink()
            b.tell("resume")
            b.wait("working", "gate")
            open_gate(path, "gate")
            failed = a.wait("ended", "m1")
            assert failed["outcome"] == "failed"
            assert "conversation 'c'" in failed["error"]
            assert b.wait("ended", "resume")["output"] == "heard wait gate"
    events = events_in(path)
    assert len(of(TurnStarted, events)) == len(of(TurnFinished, events)) == 1


@pytest.mark.slow
def test_a_stopped_process_that_only_waits_holds_nobody_up(path: Path):
    """Trust 2: who waits and does not begin although it could is passed after some seconds."""
    with Process(path) as a, Process(path) as b:
        a.work()
        b.tell("send", text="later", id="m2")
        b.wait("sent", "m2")
        a.tell("send", text="me too", id="m3")
        a.wait("sent", "m3")
        b.signal(signal.SIGSTOP)
        open_gate(path, "gate")
        assert a.wait("ended", "m3")["output"] == "heard me too"
        b.signal(signal.SIGCONT)
        assert b.wait("ended", "m2")["output"] == "heard later"


@pytest.mark.slow
def test_twenty_messages_each_from_two_processes_of_which_one_is_killed_again_and_again(tmp_path: Path):
    """Trust 2: what was acknowledged is answered exactly once, in each sender's order, and no turn fails."""
    path, chance = tmp_path / "rondel.db", random.Random(2)
    acknowledged: dict[str, list[str]] = {"a": [], "b": []}
    ended: list[dict[str, str]] = []
    a, b = Process(path, recover=True), Process(path)
    kills = 0
    try:
        for number in range(20):
            for name in chance.sample(["a", "b"], 2):
                process = a if name == "a" else b
                process.tell("send", text=f"{name}{number}", id=f"{name}{number}")
                if name == "a" and number % 5 == 3:
                    time.sleep(chance.random() * 0.2)
                    a.kill()
                    ended += [told for told in a.told if "ended" in told]
                    acknowledged["a"] += [told["sent"] for told in a.told if "sent" in told]
                    a = Process(path, recover=True)
                    kills += 1
        for name in acknowledged["a"]:
            a.tell("send", text=name, id=name)  # again: what is known adds nothing, and its sender hears the answer
        for process in (a, b):
            process.ask("drain", "drained")
        a.tell("at_work")
        a.wait("at_work")
        acknowledged["a"] += [told["sent"] for told in a.told if "sent" in told]
        acknowledged["b"] += [told["sent"] for told in b.told if "sent" in told]
        ended += [told for process in (a, b) for told in process.told if "ended" in told]
    finally:
        a.kill()
        b.kill()
    assert kills == 4
    assert len(set(acknowledged["b"])) == 20
    events = events_in(path)
    said = [event.message for event in of(MessageAdded, events) if event.message.role == "user"]
    assert max(Counter(message.id for message in said).values()) == 1, "nothing was said twice"
    assert [told for told in ended if told["error"]] == []
    for name in ("a", "b"):
        numbers = [int(message.id[1:]) for message in said if message.id.startswith(name)]
        assert set(acknowledged[name]) <= {message.id for message in said}, "nothing was lost"
        assert numbers == sorted(numbers), "in the order in which it was sent"
    answers = [word for told in _outputs(events) for word in told]
    for name in {*acknowledged["a"], *acknowledged["b"]}:
        assert answers.count(name) == 1, f"{name} was answered once"
    assert len(of(TurnStarted, events)) <= len(said) + 2 * kills


def _outputs(events: list[DurableEvent]) -> list[list[str]]:
    texts = [event.message.text for event in of(RoundFinished, events) if event.message.text]
    return [text.removeprefix("heard ").split(", ") for text in texts]


async def test_a_stop_leaves_alone_what_is_not_a_turn(path: Path):
    """Trust 2: a change of a conversation that waited for its place is made, and whoever waits for it hears so."""
    async with (
        App(Agent("helper", engine=Scripted(say("hi"))), store=SqliteStore(path)) as one,
        App(Agent("helper", engine=Scripted()), store=SqliteStore(path)) as other,
    ):
        await (await one.conversation("c").send("hello")).result()
        began, asked, tries = asyncio.Event(), asyncio.Event(), 0

        async def change(journal: Journal) -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise StoreConflict("another process works on it")
            began.set()
            await asked.wait()
            await until_heard(one)
            return "changed"

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            changing = group.create_task(one.journals.change("c", change))
            await began.wait()
            await other.conversation("c").stop()
            asked.set()
            assert await one.conversation("c").stop() is False
        assert changing.result() == "changed"
        turns = [entry.event.turn for entry in await one.store.read("c") if isinstance(entry.event, TurnFinished)]
        assert len(turns) == 1


async def test_a_resumed_turn_that_waits_for_another_process_can_be_stopped(path: Path):
    """Trust 2: it is stopped when its place comes, and the approved call does not run."""
    ran: list[str] = []

    @tool(approval="confirm")
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    agent = Agent("helper", engine=Scripted(call("pay"), "paid"), tools=[pay])
    async with App(agent, store=SqliteStore(path)) as one, App(agent, store=SqliteStore(path)) as other:
        await (await one.conversation("c").send("pay!")).result()
        await one.store.put_job(Job("busy", "write", "c"))
        here = other.conversation("c")
        view = await here.answer((await here.questions())[0].id, "yes")
        assert await view.stop() is True
        one.store.finish_job("busy")
        async with asyncio.timeout(20):
            events = [event async for event in view]
        assert [event.outcome.value for event in of(TurnFinished, events) if event.turn == view.id] == ["stopped"]
    assert ran == []
