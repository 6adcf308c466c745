"""Faults outside the loop: the disk, another process, a power cut, a restart. One clear sentence, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from rondel import Agent, App, Approval, Outcome, Plugin, QuestionError, tool
from rondel.errors import StoreFull
from rondel.events import CallFinished, Kept, MessageAdded, TurnFinished
from rondel.job import Job
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, VirtualClock, call, say
from rondel.turn import Turn
from rondel.values import ToolResult, user
from tests.helpers import events_of, of, play, scripted


class FullDisk(MemoryStore):
    """Refuses to write while it is full."""

    full_after = 10**9

    async def append(
        self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float, wait: bool = True
    ) -> None:
        self.full_after -= 1
        if self.full_after < 0:
            raise StoreFull("no space is left for rondel.db; free some and try again")
        await super().append(conversation, seq, events, at=at)


@pytest.mark.parametrize("after", range(5))
def test_a_full_disk_ends_the_turn_with_one_sentence_and_loses_nothing_that_was_kept(after: int):
    """F06."""

    @tool(idempotent=True)
    async def look() -> str:
        "Look."
        return "seen"

    def answer(prompt):
        return say("done") if prompt.messages[-1].role == "tool" else call("look")

    store = FullDisk()
    agent = Agent("helper", engine=Scripted(*[answer] * 20), tools=[look])

    async def scene(app: App):
        conversation = app.conversation("c")
        store.full_after = after
        view = await conversation.send("go")
        events = await events_of(view)
        failed = await view.result()
        store.full_after = 10**9
        fine = await (await conversation.send("again")).result()
        return of(TurnFinished, events)[-1], failed, fine, await conversation.transcript()

    finished, failed, fine, transcript = play(scene, agent, store=store)
    assert finished.outcome is Outcome.FAILED
    assert failed.error == "no space is left for rondel.db; free some and try again"
    assert fine.output == "done"
    assert transcript.messages[-1].text == "done"
    assert "again" in [message.text for message in transcript.messages]


def test_another_process_that_appends_fences_this_one_off_and_the_next_turn_reads_anew(tmp_path: Path):
    agent, _ = scripted("never said", "said")
    path = tmp_path / "rondel.db"

    async def scene(app: App):
        conversation = app.conversation("c")
        journal = await app.journal("c")
        async with SqliteStore(path) as other:
            await other.append("c", 1, (MessageAdded(user("from elsewhere", id="x")),), at=1.0)
        failed = await (await conversation.send("hi")).result()
        assert journal.broken
        fine = await (await conversation.send("hi again")).result()
        return failed, fine, [m.text for m in (await conversation.transcript()).messages]

    failed, fine, texts = play(scene, agent, store=SqliteStore(path))
    assert "another worker appended first" in failed.error
    assert fine.output == "said"
    assert texts[0] == "from elsewhere"
    assert texts[-1] == "said"


@tool(approval=Approval("confirm", timeout_s=60))
async def delete_all() -> str:
    "Delete all."
    return "all gone"


def danger() -> Agent:
    def answer(prompt):
        return say(prompt.messages[-1].parts[0].text) if prompt.messages[-1].role == "tool" else call("delete_all")

    return Agent("helper", engine=Scripted(*[answer] * 5), tools=[delete_all])


def test_a_held_call_resumes_after_a_restart(tmp_path: Path):
    """T09, Q02: the answer can come tomorrow, in another process; the same turn goes on."""
    path, clock = tmp_path / "rondel.db", VirtualClock()

    async def ask(app: App):
        view = await app.conversation("c").send("clean up")
        finished = of(TurnFinished, await events_of(view))[0]
        return finished.state, view.id

    async def answer(app: App):
        conversation = app.conversation("c")
        await app.drain()
        questions = await conversation.questions()
        view = await conversation.answer(questions[0].id, "yes", by="ann")
        return questions, view.id, await view.result()

    state, first_turn = play(ask, danger(), store=SqliteStore(path), clock=clock)
    assert state == "input-required"
    questions, second_turn, result = play(answer, danger(), store=SqliteStore(path), clock=clock)
    assert [q.kind for q in questions] == ["approve"]
    assert second_turn == first_turn
    assert result.output == "all gone"


def test_a_deadline_that_passed_while_nobody_was_there_denies_at_the_next_start(tmp_path: Path):
    """T08: 60 s without an answer is a no, also across a restart."""
    path, clock = tmp_path / "rondel.db", VirtualClock()

    async def ask(app: App):
        await events_of(await app.conversation("c").send("clean up"))

    async def look(app: App):
        await app.drain()
        return (await app.conversation("c").transcript()).output

    play(ask, danger(), store=SqliteStore(path), clock=clock)
    clock.advance(3600)
    assert "nobody answered" in play(look, danger(), store=SqliteStore(path), clock=clock)


def test_a_deadline_passes_while_the_app_runs():
    """T08."""
    clock = VirtualClock()

    async def scene(app: App):
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        with await conversation.watch() as watcher:
            clock.advance(61)
            async for event in watcher:
                if isinstance(event, TurnFinished):
                    return event.state, (await conversation.transcript()).output

    state, output = play(scene, danger(), clock=clock)
    assert state == "completed"
    assert "nobody answered" in output


def test_a_question_is_answered_once_and_only_while_it_is_open():
    async def scene(app: App):
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

    play(scene, danger())


def test_a_stop_closes_what_waits_for_an_answer():
    """T08: a cancel denies."""

    async def scene(app: App):
        conversation = app.conversation("c")
        await events_of(await conversation.send("clean up"))
        assert await conversation.stop()
        entries = await conversation.entries()
        assert not await conversation.stop()
        return await conversation.questions(), [entry.event for entry in entries]

    questions, events = play(scene, danger())
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


def test_an_app_that_closes_lets_go_of_its_turns_and_the_next_takes_them_up(tmp_path: Path):
    path = tmp_path / "rondel.db"
    reached = asyncio.Event()

    def agent(answer):
        return Agent("helper", engine=Scripted(answer))

    async def leave(app: App):
        async def hang():
            reached.set()
            await asyncio.Event().wait()

        @tool(idempotent=True)
        async def wait() -> str:
            "Wait."
            await hang()
            return "never"

        app.add_agent(Agent("waiter", engine=Scripted(call("wait")), tools=[wait]))
        await app.conversation("c", agent="waiter").send("go")
        await reached.wait()

    async def find(app: App):
        await app.drain()
        return (await app.conversation("c").transcript()).output

    @tool(idempotent=True)
    async def wait() -> str:
        "Wait."
        return "waited"

    play(leave, agent("unused"), store=SqliteStore(path))
    waiter = Agent("waiter", engine=Scripted("it waited"), tools=[wait])
    assert play(find, waiter, store=SqliteStore(path)) == "it waited"


def test_a_stop_that_comes_while_the_turn_ends_is_too_late_and_harmless():
    """F05."""
    reached, go = asyncio.Event(), asyncio.Event()

    class Slow(Plugin):
        async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
            reached.set()
            await go.wait()

    agent, _ = scripted("hi", plugins=[Slow()])

    async def scene(app: App):
        conversation = app.conversation()
        view = await conversation.send("x")
        await reached.wait()
        await view.stop()
        go.set()
        return of(TurnFinished, await events_of(view))[0], await conversation.entries()

    finished, entries = play(scene, agent)
    assert finished.outcome is Outcome.DONE
    assert isinstance(entries[-1].event, TurnFinished)


def test_a_required_plugin_that_fails_at_the_start_or_the_end_fails_the_turn_and_the_chat_goes_on():
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

    async def scene(app: App):
        conversation = app.conversation()
        errors = []
        for hook in ("on_turn_start", "on_turn_end", ""):
            plugin.hook = hook
            errors.append((await (await conversation.send("x")).result()).error)
        return errors

    at_start, at_end, fine = play(scene, agent)
    assert at_start == "plugin 'broken', on_turn_start: ValueError: not today"
    assert at_end == "plugin 'broken', on_turn_end: ValueError: not today"
    assert fine == ""


def test_a_message_that_only_its_job_remembers_is_found_by_resume(tmp_path: Path):
    """Q02: the crash came between the job and the first entry, and nobody recovers at the start."""
    path = tmp_path / "rondel.db"

    async def leave() -> None:
        async with SqliteStore(path) as store:
            message = msgspec.to_builtins(user("are you there?", id="m1"))
            await store.put_job(Job("t1", "turn", "c", {"turn": "t1", "agent": "helper", "message": message}))
            await store.put_job(Job("t2", "turn", "other", {"turn": "t2", "agent": "helper", "message": message}))

    async def scene(app: App):
        await app.drain()
        conversation = app.conversation("c")
        before = (await conversation.transcript()).messages[:]
        view = await conversation.resume()
        assert view is not None
        other = await app.conversation("other").transcript()
        return before, (await view.result()).output, other.messages, await conversation.resume()

    asyncio.run(leave())
    agent, _ = scripted("I am.")
    before, output, others, nothing = play(scene, agent, store=SqliteStore(path), recover=False)
    assert (before, output, others, nothing) == ([], "I am.", [], None)
