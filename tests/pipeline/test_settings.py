"""Settings of one conversation: what it overrides of its agent, until it is undone, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App, RondelError
from rondel.plugins.trim import Trim
from rondel.prompt import Node
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted
from rondel.trace import read as read_trace
from rondel.values import ModelFacts, Options
from tests.cli.conftest import Place, place  # noqa: F401  # pyright: ignore[reportUnusedImport]

TREE = Node("rules", text="Rules. ", role="system", children=(Node("tone", text="Be kind."),))


def helper(model: Scripted, **fields: Any) -> Agent:
    return Agent("helper", TREE, engine=model, options=Options(temperature=1.0, tokens_max=50), **fields)


async def test_a_conversation_overrides_options_nodes_and_parameters_and_others_do_not(tmp_path: Path):
    """P24: kept in the journal, so it holds after a restart."""
    model = Scripted(*["Yes."] * 5, facts=ModelFacts(window_tokens=100_000))
    path = tmp_path / "s.db"
    async with App(helper(model, plugins=[Trim(0.9)]), store=SqliteStore(path)) as app:
        conversation = app.conversation("c")
        await conversation.set("options.temperature", "0.2")
        await conversation.set("prompt.tone", 'Be brief. {{ .Get "x" }}')
        await conversation.set("plugins.trim.window_tokens", 30)
        await (await conversation.send("hi")).result()
        await (await app.conversation("other").send("hi")).result()
    async with App(helper(model, plugins=[Trim(0.9)]), store=SqliteStore(path)) as app:
        conversation = app.conversation("c")
        await (await conversation.send("a message that is long enough to fill a window of thirty tokens " * 3)).result()
        await conversation.set("prompt.tone", False)
        await (await conversation.send("more")).result()
        await conversation.set("prompt.tone", None)
        await conversation.set("options.temperature", None)
        await (await conversation.send("again")).result()
        trace = await read_trace(app.store, "c")
    first, other, second, third, last = model.prompts
    assert first.messages[0].text == 'Rules. Be brief. {{ .Get "x" }}'
    assert (first.options.temperature, first.options.tokens_max) == (0.2, 50)
    assert other.messages[0].text == "Rules. Be kind."
    assert other.options.temperature == 1.0
    assert len(second.messages) == 2  # what does not fit the small window was left out
    assert third.messages[0].text == "Rules."
    assert last.messages[0].text == "Rules. Be kind."
    assert last.options.temperature == 1.0
    notes = [node.output for _, node in trace.walk() if node.name == "setting changed"]
    assert notes[0] == 'options.temperature = "0.2"'
    assert notes[-1] == "options.temperature is the agent's own again"


async def test_a_conversation_overrides_the_model_until_it_is_the_agent_s_own_again(tmp_path: Path):
    """P24: the agent's model; kept in the journal, and shown by the trace."""
    own, other = Scripted("Mine.", "Mine again."), Scripted("Hers.", "Hers again.", name="scripted:other")
    path = tmp_path / "s.db"
    async with App(helper(own), store=SqliteStore(path), make_engine=lambda name: other) as app:
        conversation = app.conversation("c")
        await conversation.set("model", "scripted:other")
        assert (await (await conversation.send("hi")).result()).output == "Hers."
        assert (await (await app.conversation("else").send("hi")).result()).output == "Mine."
    async with App(helper(own), store=SqliteStore(path), make_engine=lambda name: other) as app:
        conversation = app.conversation("c")
        assert (await (await conversation.send("hi")).result()).output == "Hers again."
        await conversation.set("model", None)
        assert (await (await conversation.send("hi")).result()).output == "Mine again."
        trace = await read_trace(app.store, "c")
    rounds = [(node.name, node.output) for _, node in trace.walk() if node.kind == "round"]
    assert rounds == [
        ("scripted:other", "Hers."),
        ("scripted:other", "Hers again."),
        ("scripted:test", "Mine again."),
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("temperature", 1, "'temperature' is not a setting; write model, options.NAME"),
        ("options.temprature", 1, "did you mean 'temperature'"),
        ("options.temperature", "hot", "'temperature' must be a number, not 'hot'"),
        ("options.output", {}, "there is no option 'output'"),
        ("prompt.tne", "x", "did you mean 'tone'"),
        ("prompt.tone", 4, "takes a text"),
        ("prompt.history", "x", "has no node 'history'"),
        ("plugins.trm.share", 1, "did you mean 'trim'"),
        ("plugins.trim.shre", 1, "did you mean 'share'"),
        ("plugins.trim.share", "much", "does not take share = 'much'"),
        ("plugins.approval.mode", "auto", "cannot be changed for one conversation: it is required"),
        ("plugins.limits.rounds", 99, "cannot be changed for one conversation: it is required"),
    ],
)
async def test_what_cannot_be_set_is_one_sentence_and_changes_nothing(key: str, value: Any, said: str):
    """P24."""
    async with App(helper(Scripted())) as app:
        conversation = app.conversation("c")
        with pytest.raises(RondelError) as error:
            await conversation.set(key, value)
        assert said in str(error.value)
        assert conversation.settings == {}


async def test_a_setting_that_no_longer_fits_is_left_out():
    """P24: the agent's file may change."""
    model = Scripted("Yes.")
    async with App(helper(model)) as app:
        await app.conversation("c").set("prompt.tone", "Be brief.")
        entries = [entry.event for entry in await app.store.read("c")]
    async with App(Agent("helper", "Only this.", engine=model)) as app:
        await app.store.append("c", 1, tuple(entries), at=1.0)
        await (await app.conversation("c").send("hi")).result()
    assert model.prompts[0].messages[0].text == "Only this."


def test_rondel_prompt_shows_the_settings_of_a_conversation(place: Place):  # noqa: F811
    """P24."""
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/helper.md", "---\n---\nHelp.\n")
    lines = b"/set options.temperature 0.5\n/set prompt.instructions Be brief.\n/set\nhello\n"
    shown = place.spawn("chat", "helper", stdin=lines)
    assert "options.temperature" in shown.out
    assert "Be brief." in shown.out
    done = place.rondel("prompt", "helper", "and now?", "--conversation", "last", "--json")
    seen = json.loads(done.out)
    assert [message["text"] for message in seen["messages"]] == ["Be brief.", "hello", "hello", "and now?"]
    assert seen["settings"] == {"options.temperature": 0.5, "prompt.instructions": "Be brief."}
    assert (
        "This conversation sets options.temperature = 0.5"
        in place.rondel("prompt", "helper", "x", "--conversation", "last").err
    )
