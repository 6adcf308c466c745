"""The tool `generate_image`: its picture is part of the conversation, and charged to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel import Agent, App, Media, Person, Rule, ToolResult, generate_image
from rondel.ledger.ledger import Ledger
from rondel.project.config import load
from rondel.project.folder import Project
from rondel.stores.memory import MemoryStore
from rondel.surfaces.export import export
from rondel.testing import Scripted, ScriptedImages, call


def painter(*steps: object) -> Agent:
    drawing = steps or (call("generate_image", prompt="a red fox"), "Here it is.")
    return Agent("painter", engine=Scripted(*drawing), tools=[generate_image])  # type: ignore[arg-type]


def result_in(messages: object) -> ToolResult:
    (found,) = (part for message in messages for part in message.parts if isinstance(part, ToolResult))  # type: ignore[attr-defined]
    return found


async def test_a_picture_is_part_of_the_conversation_and_charged_to_it(tmp_path: Path) -> None:
    """L05: a picture that a tool makes is charged to the person, the agent and the conversation."""
    path, agent = tmp_path / "talks.db", painter()
    async with App(agent, images=ScriptedImages(), store=path) as app:
        await (await app.conversation("c1").send("Draw a fox.", person=Person("ada"))).result()
        await app.drain()
        charges = (await app.store.ledger_store.charges(0, 10**6, "", 10)).charges
    (charge,) = (one for one in charges if one.scope.kind == "image")
    scope = charge.scope
    assert (scope.person, scope.agent, scope.conversation, scope.engine) == ("ada", "painter", "c1", "test:images")
    assert charge.metadata == {"images": 1}
    async with App(Agent("painter", engine=Scripted()), store=path) as app:  # another process, later
        found = result_in((await app.conversation("c1").transcript()).messages)
        written = (await export(app.store, "c1")).text
        as_json = (await export(app.store, "c1", "json")).text
    _, picture = found.parts
    assert isinstance(picture, Media)
    assert (picture.kind, picture.mime, picture.name) == ("image", "image/png", "a-red-fox.png")
    assert picture.data.startswith(b"\x89PNG")
    assert "a-red-fox.png" in found.text
    assert "![a-red-fox.png](data:image/png;base64," in written
    assert '"name": "a-red-fox.png"' in as_json


async def test_without_an_engine_the_model_gets_one_clear_sentence() -> None:
    async with App(painter()) as app:
        await app.conversation("c1").ask("Draw a fox.")
        found = result_in((await app.conversation("c1").transcript()).messages)
    assert found.is_error
    assert found.text.startswith("no image engine is configured: set `engine` in [images]")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "x" * 1_000_000}, "at most 32,000"),
        ({"prompt": "x", "size": "huge"}, "'huge' is not a size"),
    ],
)
async def test_what_a_model_does_wrong_it_reads_in_one_sentence(arguments: dict[str, str], said: str) -> None:
    engine = ScriptedImages()
    async with App(painter(call("generate_image", **arguments), "Sorry."), images=engine) as app:
        await app.conversation("c1").ask("Draw a fox.")
        found = result_in((await app.conversation("c1").transcript()).messages)
    assert found.is_error
    assert said in found.text
    assert engine.requests == []


async def test_a_budget_that_is_used_up_is_told_to_the_model_and_nothing_is_drawn() -> None:
    store, engine = MemoryStore(), ScriptedImages()
    rule = Rule({"kind": "image"}, tokens=100, mode="block", message="No more pictures today.")
    ledger = Ledger(store.ledger_store, rules=[rule])
    async with App(painter(), images=engine, store=store, ledger=ledger) as app:
        await app.conversation("c1").ask("Draw a fox.")
        found = result_in((await app.conversation("c1").transcript()).messages)
    assert found.is_error
    assert engine.requests == []


async def test_a_project_names_its_image_engine(tmp_path: Path) -> None:
    settings = '[images]\nengine = "OpenAI/gpt-image-1"\nfallback = ["mine:flux"]\nsize = "512x512"\n'
    settings += '[images.options]\nquality = "low"\n[engines.mine]\nbase_url = "http://127.0.0.1:1/v1"\n'
    (tmp_path / "rondel.toml").write_text(f'engine = "echo"\n[store]\npath = ":memory:"\n{settings}')
    async with Project.load(tmp_path, trust=True).open() as app:
        assert app.images.names == ("openai:gpt-image-1", "mine:flux")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('engine = "anthropic:claude"', 2, "makes no pictures"),
        ('engine = "openai"', 2, "no model is set"),
        ('engine = "opnai:x"', 2, "did you mean 'openai'"),
        ('fallback = ["openai:gpt-image-1"]', 1, "no engine"),
        ('engine = "openai:x"\nsize = "big"', 3, "'big' is not a size"),
        ('engin = "openai:x"', 2, "did you mean 'engine'"),
    ],
)
def test_a_mistake_in_the_settings_has_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    (tmp_path / "rondel.toml").write_text(f"[images]\n{text}\n")
    with pytest.raises(Exception, match=said) as caught:
        load(tmp_path)
    assert f"rondel.toml:{line}:" in str(caught.value)
