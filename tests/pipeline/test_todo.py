"""A list of what is to be done, kept by the conversation and shown to the model in every round."""

from __future__ import annotations

from pathlib import Path

from rondel import Agent, App, Prompt
from rondel.plugins.duration import Duration
from rondel.plugins.todo import CHARS_MAX, Todo, write_todo
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, Step, call

from ..helpers import play, result_of


def shown(prompt: Prompt) -> str:
    """The list as the model sees it: the last thing that it is told."""
    last = prompt.messages[-1]
    return last.text if last.text.startswith("<current_todo_list>") else ""


def listed(text: str) -> str:
    return f"<current_todo_list>\n{text}\n</current_todo_list>"


def talk(*steps: Step, says: int = 1, plugins: tuple[Todo | Duration, ...] = ()) -> Scripted:
    engine = Scripted(*steps)

    async def scene(app: App) -> None:
        conversation = app.conversation()
        for _ in range(says):
            await (await conversation.send("Go on")).result()

    play(scene, Agent("helper", "", engine, plugins=plugins or (Todo(),)))
    engine.check_done()
    return engine


def todo(text: str, id: str = "") -> Step:
    return call("write_todo", id, text=text)


def test_the_list_is_shown_in_every_round_after_it_was_written():
    """T12: also in the turns that follow, and only the newest."""
    engine = talk(todo("- [ ] one\n- [ ] two"), todo("- [x] one\n- [ ] two"), "Later.", "Later still.", says=2)
    lists = [shown(prompt) for prompt in engine.prompts]
    assert lists == ["", listed("- [ ] one\n- [ ] two"), *[listed("- [x] one\n- [ ] two")] * 2]
    assert [spec.name for spec in engine.prompts[0].tools] == ["write_todo"]


def test_the_list_is_told_once_as_an_instruction():
    engine = talk(todo("- [ ] one"), "Done.")
    assert [(m.role, m.text) for m in engine.prompts[1].messages if "<current" in m.text] == [
        ("system", listed("- [ ] one"))
    ]
    assert engine.prompts[1].nodes[-1].id == "todo"


def test_an_empty_list_is_not_shown():
    """T12"""
    engine = talk(todo("- [ ] one"), todo(""), "Done.")
    assert [bool(shown(prompt)) for prompt in engine.prompts] == [False, True, False]


def test_a_list_that_was_refused_does_not_count():
    """T12: the newest that was written with success."""
    engine = talk(todo("- [ ] one", "a"), todo("x" * (CHARS_MAX + 1), "b"), call("write_todo", "c"), "Done.")
    assert [shown(prompt) for prompt in engine.prompts][1:] == [listed("- [ ] one")] * 3
    error = engine.prompts[2].history[-1].parts[0]
    assert "10,001 characters" in str(error)


def test_the_list_outlives_the_message_that_it_was_written_in():
    """T12: when results expire, the call and its result are not sent any more; the list is."""
    engine = talk(todo("- [ ] one"), "Later.", "Later.", says=2, plugins=(Duration(results=1), Todo()))
    assert not any(message.calls for message in engine.prompts[2].messages)
    assert shown(engine.prompts[2]) == listed("- [ ] one")


def test_the_list_survives_a_restart(tmp_path: Path):
    """T12: it is in the transcript; the plugin keeps nothing."""

    first = result_of("Plan", "c")
    file = tmp_path / "todo.db"
    play(first, Agent("helper", "", Scripted(todo("- [ ] one"), "Planned."), plugins=[Todo()]), store=SqliteStore(file))
    engine = Scripted("Going on.")
    play(first, Agent("helper", "", engine, plugins=[Todo()]), store=SqliteStore(file))
    assert shown(engine.prompts[0]) == listed("- [ ] one")


async def test_each_conversation_has_its_own_list():
    engine = Scripted(todo("- [ ] one"), "Planned.", "What plan?")
    async with App(Agent("helper", "", engine, plugins=[Todo()])) as app:
        for _ in range(2):
            await (await app.conversation().send("Plan")).result()
    assert [bool(shown(prompt)) for prompt in engine.prompts] == [False, True, False]


def test_writing_twice_does_no_harm():
    assert write_todo.idempotent
    assert "every round" in write_todo.description
    assert "- [ ] step" in write_todo.schema["properties"]["text"]["description"]
