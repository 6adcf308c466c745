"""Undo, retry and edit are entries of the journal: the loop, a crash, another process and a trace understand them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel import Agent, App, Prompt, RondelError
from rondel.agent import Fact
from rondel.events import FactsLearned, Learned, TurnsUndone
from rondel.machine.transcript import Transcript
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Pause, Scripted, call, say
from rondel.tools.ask_user import ask_user
from rondel.trace import read as read_trace
from rondel.values import Media, Message, Person, user
from tests.machine.test_crash import PowerCut, until_dead

ANN = Person("ann")


def texts(messages: tuple[Message, ...] | list[Message]) -> list[str]:
    return [f"{message.role}: {message.text}" for message in messages]


def heard(model: Scripted) -> list[str]:
    return texts(model.prompts[-1].messages)


async def test_an_undone_turn_no_longer_counts_and_the_trace_keeps_it():
    model = Scripted("One.", "Two.", "Three.")
    async with App(Agent("a", engine=model)) as app:
        conversation = app.conversation("c")
        for said in ("first", "second"):
            await (await conversation.send(said)).result()
        undone = await conversation.undo(by="ann")
        assert texts(undone) == ["user: second", "assistant: Two."]
        await (await conversation.send("third")).result()
        assert heard(model) == ["user: first", "assistant: One.", "user: third"]
        trace = await read_trace(app.store, "c")
        assert [turn.outcome for turn in trace.children] == ["done", "undone", "done"]
        assert "undone" in [note.name for note in trace.children[1].children]
        assert (await app.store.info("c")).state == "done"  # type: ignore[union-attr]


async def test_several_turns_can_be_undone_and_more_than_there_are_is_an_error():
    async with App(Agent("a", engine=Scripted("One.", "Two."))) as app:
        conversation = app.conversation("c")
        with pytest.raises(RondelError, match="nothing has been said"):
            await conversation.undo()
        for said in ("first", "second"):
            await (await conversation.send(said)).result()
        with pytest.raises(RondelError, match="fewer than 3 turns"):
            await conversation.undo(3)
        await conversation.undo(2)
        transcript = await conversation.transcript()
        assert not transcript.messages
        assert await conversation.resume() is None


async def test_a_retry_sends_the_same_message_again_and_the_model_never_sees_the_first_answer():
    model = Scripted("Bad.", "Good.")
    picture = Media("image", "image/png", b"png", name="a.png")
    async with App(Agent("a", engine=model)) as app:
        conversation = app.conversation("c")
        await (await conversation.send(user("look", picture), person=ANN)).result()
        turn = await conversation.retry(person=ANN)
        assert str(await turn.result()) == "Good."
        assert heard(model) == ["user: look"]
        messages = (await conversation.transcript()).messages
        assert texts(messages) == ["user: look", "assistant: Good."]
        assert picture in messages[0].parts
        assert messages[0].author == "ann"


async def test_a_failed_turn_can_be_tried_again():
    model = Scripted(RondelError("overloaded"), "Here.")
    async with App(Agent("a", engine=model)) as app:
        conversation = app.conversation("c")
        await (await conversation.send("hello")).result(check=False)
        await (await conversation.retry()).result()
        assert heard(model) == ["user: hello"]


async def test_an_edit_sends_another_text_instead():
    model = Scripted("Paris is fine.", "Porto is fine.")
    async with App(Agent("a", engine=model)) as app:
        conversation = app.conversation("c")
        await (await conversation.send("How is Paris?")).result()
        await (await conversation.edit("How is Porto?")).result()
        assert heard(model) == ["user: How is Porto?"]
        with pytest.raises(RondelError, match="empty"):
            await conversation.edit("  ")


async def test_undoing_closes_the_question_of_the_turn():
    model = Scripted(call("ask_user", "q", question="Which?"), "Again.")
    async with App(Agent("a", engine=model, tools=[ask_user])) as app:
        conversation = app.conversation("c")
        await (await conversation.send("paint")).result()
        assert await conversation.questions()
        turn = await conversation.retry()
        assert str(await turn.result()) == "Again."
        assert not await conversation.questions()


async def test_facts_and_the_current_agent_go_back_too():
    notes = Agent("notes", template="Noted.", facts={"city": Fact("a city")})
    async with App(Agent("a", template='{{ .Start "b" }}'), Agent("b", template="I am b."), notes) as app:
        conversation = app.conversation("c")
        await (await conversation.send("go")).result()
        journal = await app.journals.open("c")
        await journal.append(FactsLearned("x", "notes", (Learned("notes.city", "Porto"),)))
        assert journal.transcript.current_agent == "b"
        await conversation.undo()
        assert journal.transcript.current_agent == ""
        assert journal.transcript.facts == {}


async def test_a_template_that_recruits_works_again_after_an_undo():
    """The inner conversation of the undone call is not continued."""
    async with App(Agent("a", template='It says: {{ .Get "b" }}'), Agent("b", template="you said {{ .Input }}")) as app:
        conversation = app.conversation("c")
        assert str(await (await conversation.send("one")).result()) == "It says: you said one"
        assert str(await (await conversation.retry()).result()) == "It says: you said one"
        assert str(await (await conversation.edit("two")).result()) == "It says: you said two"


async def test_a_running_turn_must_be_stopped_first():
    pause = Pause("I begin ")
    async with App(Agent("a", engine=Scripted(pause, "Done."))) as app:
        conversation = app.conversation("c")
        turn = await conversation.send("go")
        await pause.reached.wait()
        with pytest.raises(RondelError, match="stop it first"):
            await conversation.undo()
        await conversation.stop()
        await turn.result()
        await conversation.undo()
        assert not (await conversation.transcript()).messages


async def test_a_retry_undoes_nothing_if_something_else_was_said_meanwhile():
    pause = Pause("slow ")
    model = Scripted("One.", pause, "Three.")
    async with App(Agent("a", engine=model)) as app:
        conversation = app.conversation("c")
        await (await conversation.send("first")).result()
        journal = await app.journals.open("c")
        undo, _ = conversation._undoing(journal, 1, "")
        second = await conversation.send("second")
        await pause.reached.wait()
        late = app.new_id("t")
        await app.turns.start("c", "a", user("first", id="again"), turn=late, undo=undo)
        end = app.turns.end_of(late)
        pause.release()
        await second.result()
        assert "in the meantime" in (await end).result.error
        assert not any(isinstance(entry.event, TurnsUndone) for entry in await conversation.entries())


def answering(prompt: Prompt):
    return say(f"answer to {prompt.messages[-1].text}")


async def test_a_crash_at_any_write_of_a_retry_leaves_the_same_conversation():
    async def drive(store: MemoryStore) -> None:
        async with App(Agent("a", engine=Scripted(*[answering] * 6)), store=store) as app:
            conversation = app.conversation("c")
            await app.drain()
            transcript = await conversation.transcript()
            if "m1" not in transcript.ids:
                await (await conversation.send("hello", id="m1")).result()
            if not (await conversation.transcript()).undone:
                await (await conversation.edit("goodbye")).result()
            await app.drain()

    async def ended(store: MemoryStore) -> list[str]:
        return texts(Transcript(entry.event for entry in await store.read("c")).messages)

    plain = MemoryStore()
    await drive(plain)
    wanted = await ended(plain.reopen())
    assert wanted == ["user: goodbye", "assistant: answer to goodbye"]
    for at in range(1, 14):
        for written in (False, True):
            disk = MemoryStore()
            dying = PowerCut(disk, at, written=written, counts_all=True)
            await until_dead(drive(dying), dying)
            disk = disk.reopen()
            await drive(disk)
            assert await ended(disk.reopen()) == wanted, (at, written)


async def test_an_undo_is_seen_by_the_other_process(tmp_path: Path):
    path = tmp_path / "store.db"
    model = Scripted("One.", "Two.")
    async with (
        App(Agent("a", engine=model), store=SqliteStore(path)) as here,
        App(Agent("a", engine=model), store=SqliteStore(path), recover=False) as there,
    ):
        await (await here.conversation("c").send("first")).result()
        await there.conversation("c").undo()
        await (await here.conversation("c").send("second")).result()
        assert heard(model) == ["user: second"]


async def test_a_conversation_can_be_renamed():
    async with App(Agent("a", engine=Scripted("One.", "Two."))) as app:
        conversation = app.conversation("c")
        with pytest.raises(RondelError, match="nothing to name"):
            await conversation.rename("Trip")
        await (await conversation.send("first")).result()
        await conversation.rename("  A trip\nto Porto ")
        (info,) = await app.store.conversations()
        assert info.title == "A trip to Porto"
        await (await conversation.send("second")).result()
        (info,) = await app.store.conversations()
        assert info.title == "A trip to Porto"
