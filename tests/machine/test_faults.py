"""Faults outside the loop: the disk, another process, a power cut, a restart. One clear sentence, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel import Agent, App, Approval, Outcome, Plugin, QuestionError, tool
from rondel.contracts.runtime import Job
from rondel.errors import StoreFull
from rondel.events import (
    CallFinished,
    DurableEvent,
    MessageAdded,
    MessageQueued,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from rondel.limits import Limits
from rondel.machine.turn import Turn
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, VirtualClock, call, say
from rondel.values import Message, Text, ToolResult, user
from tests.helpers import events_of, of, play, scripted, talking


class FullDisk(MemoryStore):
    """Refuses to write while it is full."""

    full_after = 10**9

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        self.full_after -= 1
        if self.full_after < 0:
            raise StoreFull("no space is left for rondel.db; free some and try again")
        await super().append(conversation, seq, events, at=at)


@pytest.mark.parametrize("after", range(5))
async def test_a_full_disk_ends_the_turn_with_one_sentence_and_loses_nothing_that_was_kept(after: int):
    """F06."""

    @tool(idempotent=True)
    async def look() -> str:
        return "seen"

    def answer(prompt):
        return say("done") if prompt.messages[-1].role == "tool" else call("look")

    store = FullDisk()
    agent = Agent("helper", engine=Scripted(*[answer] * 20), tools=[look])
    async with App(agent, store=store) as app:
        conversation = app.conversation("c")
        store.full_after = after
        view = await conversation.send("go")
        events = await events_of(view)
        failed = await view.result(check=False)
        store.full_after = 10**9
        fine = await (await conversation.send("again")).result(check=False)
        finished, transcript = of(TurnFinished, events)[-1], await conversation.transcript()
    assert finished.outcome is Outcome.FAILED
    assert failed.error == "no space is left for rondel.db; free some and try again"
    assert fine.output == "done"
    assert transcript.messages[-1].text == "done"
    assert "again" in [message.text for message in transcript.messages]


async def test_what_another_process_appended_is_read_before_the_next_turn_begins(path: Path):
    """Trust 2: no turn fails because another process was there before it."""
    agent, engine = scripted("said")
    async with App(agent, store=SqliteStore(path)) as app:
        conversation = app.conversation("c")
        await app.journals.open("c")
        async with SqliteStore(path) as other:
            await other.append("c", 1, (MessageAdded(user("from elsewhere", id="x")),), at=1.0)
        fine = await (await conversation.send("hi")).result()
        fine, texts = fine, [m.text for m in (await conversation.transcript()).messages]
    assert (fine.output, fine.error) == ("said", "")
    assert texts == ["from elsewhere", "hi", "said"]
    assert [m.text for m in engine.prompts[0].messages][-2:] == ["from elsewhere", "hi"]


@tool(approval=Approval("confirm", timeout_s=60))
async def delete_all() -> str:
    return "all gone"


def danger() -> Agent:
    def answer(prompt):
        return say(prompt.messages[-1].parts[0].text) if prompt.messages[-1].role == "tool" else call("delete_all")

    return Agent("helper", engine=Scripted(*[answer] * 5), tools=[delete_all])


async def test_a_held_call_resumes_after_a_restart(tmp_path: Path):
    """T09, Q02: the answer can come tomorrow, in another process; the same turn goes on."""
    path, clock = tmp_path / "rondel.db", VirtualClock()
    async with App(danger(), store=SqliteStore(path), clock=clock) as app:
        view = await app.conversation("c").send("clean up")
        finished = of(TurnFinished, await events_of(view))[0]
        state, first_turn = finished.state, view.id
    assert state == "input-required"
    async with App(danger(), store=SqliteStore(path), clock=clock) as app:
        conversation = app.conversation("c")
        await app.drain()
        questions = await conversation.questions()
        view = await conversation.answer(questions[0].id, "yes", by="ann")
        second_turn, result = view.id, await view.result()
    assert [q.kind for q in questions] == ["approve"]
    assert second_turn == first_turn
    assert result.output == "all gone"


async def test_a_deadline_that_passed_while_nobody_was_there_denies_at_the_next_start(tmp_path: Path):
    """T08: 60 s without an answer is a no, also across a restart."""
    path, clock = tmp_path / "rondel.db", VirtualClock()
    async with App(danger(), store=SqliteStore(path), clock=clock) as app:
        await events_of(await app.conversation("c").send("clean up"))
    clock.advance(3600)
    async with App(danger(), store=SqliteStore(path), clock=clock) as app:
        await app.drain()
        assert "no answer within" in (await app.conversation("c").transcript()).output


def test_a_deadline_passes_while_the_app_runs():
    """T08."""
    clock = VirtualClock()

    async def scene(app: App):
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        with await conversation.watch() as watcher:
            clock.advance(61)
            async for _, event in watcher:
                if isinstance(event, TurnFinished):
                    return event.state, (await conversation.transcript()).output

    state, output = play(scene, danger(), clock=clock)
    assert state == "completed"
    assert "no answer within" in output


async def test_a_question_is_answered_once_and_only_while_it_is_open():
    async with App(danger()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        question = (await conversation.questions())[0]
        with pytest.raises(QuestionError, match="'nonsense' is not open"):
            await conversation.answer("nonsense", "yes")
        view = await conversation.answer(question.id, "no")
        with pytest.raises(QuestionError, match="is not open"):
            await conversation.answer(question.id, "yes")
        await events_of(view)
        with pytest.raises(QuestionError, match="is not open"):
            await conversation.answer(question.id, "yes")


def two_questions() -> Agent:
    return Agent("host", template='{{ .Options "Red or white?" "red" "white" }} it is, {{ .AskUser "Your name?" }}.')


async def test_answers_that_follow_each_other_at_once_each_bring_the_end_of_the_turn():
    """The view of the second answer ended as the turn did after the first one: waiting for the second answer."""
    async with App(two_questions()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("Good evening!"))
        red, name = await conversation.questions()
        await conversation.answer(red.id, "red")
        result = await (await conversation.answer(name.id, "Ann")).result()
        assert (result.outcome, result.output) == (Outcome.DONE, "red it is, Ann.")


async def test_the_events_of_an_answer_are_those_of_the_turn_that_takes_it():
    async with App(two_questions()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("Good evening!"))
        red, name = await conversation.questions()
        await conversation.answer(red.id, "red")
        events = await events_of(await conversation.answer(name.id, "Ann"))
    assert [event.outcome for event in of(TurnFinished, events)] == [Outcome.DONE]


async def test_the_first_of_two_answers_alone_brings_a_turn_that_waits():
    async with App(two_questions()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("Good evening!"))
        result = await (await conversation.answer((await conversation.questions())[0].id, "red")).result()
        assert result.outcome is Outcome.WAITING
        assert str(result) == "[host is waiting for an answer: Your name?]"


async def test_a_stop_closes_what_waits_for_an_answer():
    """T08: a cancel denies."""
    async with App(danger()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        assert await conversation.stop()
        entries = await conversation.entries()
        assert not await conversation.stop()
        questions, events = await conversation.questions(), [entry.event for entry in entries]
    assert questions == []
    result = of(CallFinished, events)[0].result
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert of(TurnFinished, events)[-1].state == "canceled"


CHILD = """
    import asyncio, sys
    from pathlib import Path
    from rondel import Agent, App, tool
    from rondel.stores.sqlite import SqliteStore
    from rondel.testing import Scripted, call, say

    folder = Path(sys.argv[1])

    @tool(idempotent={idempotent})
    async def work() -> str:
        "Work."
        with (folder / "ran").open("a") as file:
            file.write("x")
        if len((folder / "ran").read_text()) == 1 and sys.argv[2] == "first":
            print("working", flush=True)
            await asyncio.Event().wait()
        return "worked"

    def answer(prompt):
        last = prompt.messages[-1]
        return say("read: " + last.parts[0].text) if last.role == "tool" else call("work")

    async def main():
        agent = Agent("helper", engine=Scripted(*[answer] * 9), tools=[work])
        async with App(agent, store=SqliteStore(folder / "rondel.db")) as app:
            conversation = app.conversation("c")
            if sys.argv[2] == "first":
                await (await conversation.send("go")).result()
            await app.drain()
            print((await conversation.transcript()).output, flush=True)

    asyncio.run(main())
"""


@pytest.mark.parametrize("idempotent", [True, False])
def test_kill_9_in_the_middle_of_a_tool_and_the_next_process_goes_on(tmp_path: Path, idempotent: bool):
    """Q02: what may run twice does, what must not is told to the model as interrupted."""
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD).format(idempotent=idempotent))
    command = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen([*command, "first"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        os.kill(child.pid, signal.SIGKILL)
    after = subprocess.run([*command, "second"], capture_output=True, text=True, timeout=60, check=True)
    if idempotent:
        assert after.stdout == "read: worked\n"
    else:
        assert "interrupted" in after.stdout
    assert (tmp_path / "ran").read_text() == ("xx" if idempotent else "x")


def test_an_app_that_closes_lets_go_of_its_turns_and_the_next_takes_them_up(path: Path):
    reached = asyncio.Event()

    def agent(answer):
        return Agent("helper", engine=Scripted(answer))

    async def leave(app: App):
        async def hang():
            reached.set()
            await asyncio.Event().wait()

        @tool(idempotent=True)
        async def wait() -> str:
            await hang()
            return "never"

        app.registry.add_agent(Agent("waiter", engine=Scripted(call("wait")), tools=[wait]))
        await app.conversation("c", agent="waiter").send("go")
        await reached.wait()

    async def find(app: App):
        await app.drain()
        return (await app.conversation("c").transcript()).output

    @tool(idempotent=True)
    async def wait() -> str:
        return "waited"

    play(leave, agent("unused"), store=SqliteStore(path))
    waiter = Agent("waiter", engine=Scripted("it waited"), tools=[wait])
    assert play(find, waiter, store=SqliteStore(path)) == "it waited"


async def test_a_stop_that_comes_while_the_turn_ends_is_too_late_and_harmless():
    """F05."""
    reached, go = asyncio.Event(), asyncio.Event()

    class Slow(Plugin):
        async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
            reached.set()
            await go.wait()

    agent, _ = scripted("hi", plugins=[Slow()])
    async with talking(agent) as conversation:
        view = await conversation.send("x")
        await reached.wait()
        await view.stop()
        go.set()
        finished, entries = of(TurnFinished, await events_of(view))[0], await conversation.entries()
    assert finished.outcome is Outcome.DONE
    assert isinstance(entries[-1].event, TurnFinished)


async def test_a_required_plugin_that_fails_at_the_start_or_the_end_fails_the_turn_and_the_chat_goes_on():
    class Broken(Plugin):
        required = True
        hook = "on_turn_start"

        async def on_turn_start(self, turn: Turn) -> None:
            if self.hook == "on_turn_start":
                raise ValueError("not today")

        async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
            if self.hook == "on_turn_end":
                raise ValueError("not today")

    plugin = Broken()
    agent, _ = scripted("one", "two", plugins=[plugin])
    async with App(agent) as app:
        conversation = app.conversation()
        errors = []
        for hook in ("on_turn_start", "on_turn_end", ""):
            plugin.hook = hook
            errors.append((await (await conversation.send("x")).result(check=False)).error)
        at_start, at_end, fine = errors
    assert at_start == "plugin 'broken', on_turn_start: ValueError: not today"
    assert at_end == "plugin 'broken', on_turn_end: ValueError: not today"
    assert fine == ""


async def test_a_message_that_only_its_job_remembers_is_found_by_resume(path: Path):
    """Q02: the crash came between the job and the first entry, and nobody recovers at the start."""
    async with SqliteStore(path) as store:
        message = msgspec.to_builtins(user("are you there?", id="m1"))
        await store.put_job(Job("t1", "turn", "c", {"turn": "t1", "agent": "helper", "message": message}))
        await store.put_job(Job("t2", "turn", "other", {"turn": "t2", "agent": "helper", "message": message}))
    agent, _ = scripted("I am.")
    async with App(agent, store=SqliteStore(path), recover=False) as app:
        await app.drain()
        conversation = app.conversation("c")
        before = (await conversation.transcript()).messages[:]
        view = await conversation.resume()
        assert view is not None
        other = await app.conversation("other").transcript()
        output, others, nothing = (await view.result()).output, other.messages, await conversation.resume()
    assert (before, output, others, nothing) == ([], "I am.", [], None)


async def _left_behind(path: Path, *events: DurableEvent, payload: dict[str, Any]) -> None:
    """What a process leaves that is killed after its last append, before its job is forgotten."""
    async with SqliteStore(path) as store:
        await store.put_job(Job(payload["turn"], "turn", "c", {"agent": "helper", **payload}))
        await store.append("c", 1, events, at=1.0)


ANSWERED = (
    TurnStarted("t1", "helper"),
    MessageAdded(user("hi", id="m1")),
    RoundFinished(Message("assistant", (Text("hello"),), id="r1"), agent="helper"),
)


@pytest.mark.parametrize("recover", [False, True])
def test_a_turn_that_had_ended_before_the_crash_ends_again_for_who_resumes_it(path: Path, recover: bool):
    """Trust 3: its job was not forgotten yet, and finds nothing to do."""
    message = msgspec.to_builtins(user("hi", id="m1"))
    finished = TurnFinished("t1", Outcome.DONE)
    asyncio.run(_left_behind(path, *ANSWERED, finished, payload={"turn": "t1", "message": message}))

    async def scene(app: App):
        await app.drain()
        conversation = app.conversation("c")
        view = await conversation.resume()
        ended = None if view is None else (await events_of(view), (await view.result()).output)
        return ended, await conversation.resume(), len(await conversation.entries())

    agent, _ = scripted()
    ended, nothing, entries = play(scene, agent, store=SqliteStore(path), recover=recover)
    assert ended == (None if recover else ([finished], "hello"))
    assert (nothing, entries) == (None, 4)


async def test_a_turn_that_waits_for_a_person_says_so_again_to_who_resumes_it(path: Path):
    """Trust 3: its job was not forgotten yet; the question can be answered all the same."""
    async with App(danger(), store=SqliteStore(path)) as app:
        await events_of(await app.conversation("c").send("clean up", id="m1"))
        turn = (await app.conversation("c").transcript()).turn
    async with SqliteStore(path) as store:
        message = msgspec.to_builtins(user("clean up", id="m1"))
        assert await store.put_job(Job(turn, "turn", "c", {"turn": turn, "agent": "helper", "message": message}))
    async with App(danger(), store=SqliteStore(path), recover=False) as app:
        conversation = app.conversation("c")
        view = await conversation.resume()
        assert view is not None
        states = [state async for state in view.states()]
        waiting = (await view.result()).error
        answered = await conversation.answer((await conversation.questions())[0].id, "yes")
        output = (await answered.result()).output
    assert states == ["working", "input-required"]
    assert waiting.startswith("waiting for an answer: ")
    assert output == "all gone"


def test_what_came_just_as_a_turn_ended_is_answered_after_a_crash(path: Path):
    """Trust 3: the crash came between the end of the turn and the start of the one that answers it."""
    queued = MessageQueued(user("one more thing", id="m2"))
    asyncio.run(_left_behind(path, *ANSWERED, queued, TurnFinished("t1", Outcome.DONE), payload={"turn": "t1"}))
    agent, _ = scripted("heard it")

    async def scene(app: App):
        await app.drain()
        return (await app.conversation("c").transcript()).output

    assert play(scene, agent, store=SqliteStore(path)) == "heard it"


async def test_a_message_with_a_known_id_adds_nothing_and_brings_the_answer_that_it_got(tmp_path: Path):
    """Trust 3: 7,890 TurnStarted were written for 660 messages that were sent again and again."""
    agent, engine = scripted("first", "second", "third")
    async with App(agent, store=SqliteStore(tmp_path / "rondel.db")) as app:
        conversation = app.conversation("c")
        views = [await conversation.send("one", id="m1") for _ in range(3)]  # the others while it is under way
        outputs = [(await view.result()).output for view in views]
        await (await conversation.send("two", id="m2")).result()
        entries = len(await conversation.entries())
        again = await conversation.send("one", id="m1")
        events = await events_of(again)
        outputs.append((await again.result()).output)
        turn, before, after = again.id, entries, len(await conversation.entries())
    assert outputs == ["first"] * 4
    assert len(engine.prompts) == 2
    assert before == after
    assert [(event.turn, event.outcome) for event in of(TurnFinished, events)] == [(turn, Outcome.DONE)]


async def test_a_message_that_failed_is_tried_again_when_it_is_sent_again():
    """Trust 3: it is known and still owed, so it is answered and not said twice."""
    agent, _ = scripted(RuntimeError("not now"), "better")
    async with App(agent) as app:
        conversation = app.conversation("c")
        failed = await (await conversation.send("one", id="m1")).result(check=False)
        fine = await (await conversation.send("one", id="m1")).result(check=False)
        texts = [message.text for message in (await conversation.transcript()).messages if message.role == "user"]
        error, output = failed.error, fine.output
    assert "not now" in error
    assert (output, texts) == ("better", ["one"])


async def test_a_message_that_came_while_a_question_was_open_is_not_said_twice():
    """Trust 3: it is known before the calls that it waits for are answered."""
    async with App(danger()) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        for _ in range(2):
            await events_of(await conversation.send("and hurry", id="m2"))
        await (await conversation.answer((await conversation.questions())[0].id, "yes")).result()
        assert [message.text for message in (await conversation.transcript()).messages].count("and hurry") == 1


def test_two_that_resume_the_same_turn_both_hear_of_its_end(path: Path):
    """Trust 3: whoever waits is told, in whichever process the turn goes on."""
    asyncio.run(_left_behind(path, *ANSWERED[:2], payload={"turn": "t1"}))

    async def main():
        everybody = asyncio.Event()

        class Patient(Plugin):
            name = "patient"

            async def on_turn_start(self, turn: Turn) -> None:
                await everybody.wait()

        agents = [scripted("hello", plugins=[Patient()])[0] for _ in range(2)]
        async with (
            asyncio.timeout(20),
            App(agents[0], store=SqliteStore(path), recover=False) as one,
            App(agents[1], store=SqliteStore(path), recover=False) as other,
        ):
            views = [await app.conversation("c").resume() for app in (one, other, one)]
            everybody.set()
            return [(await view.result()).output for view in views if view is not None]

    assert asyncio.run(main()) == ["hello"] * 3


async def test_a_message_that_a_limit_ended_ends_the_same_way_when_it_is_sent_again():
    """Trust 3: with the same error and the name of the limit."""

    @tool(idempotent=True)
    async def look() -> str:
        return "seen"

    agent = Agent("helper", engine=Scripted(*[call("look")] * 9), tools=[look], limits=Limits(rounds=2))
    async with App(agent) as app:
        conversation = app.conversation("c")
        first = await (await conversation.send("one", id="m1")).result(check=False)
        before = len(await conversation.entries())
        again = await (await conversation.send("one", id="m1")).result(check=False)
        assert len(await conversation.entries()) == before
    assert first.limit == "limits.rounds"
    assert again == first
