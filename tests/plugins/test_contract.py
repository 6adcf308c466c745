"""The contract of a plugin: every plugin that comes with Rondel passes these tests unchanged.

A new one is found by its row in `PLUGINS`; if it has required settings, they are in `SETTINGS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rondel import Agent, App, Plugin, tool
from rondel.contracts.source import Passage
from rondel.events import Outcome, PluginFailed, TurnFinished
from rondel.machine.trigger import Trigger
from rondel.project.lookup import PLUGINS, import_attribute
from rondel.prompt import Node
from rondel.testing import MemoryStore, Scripted, call
from rondel.tool import NAME
from rondel.values import user

from ..helpers import events_of, of


class Nothing:
    """A source without documents."""

    name = "nothing"

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        return ()


SETTINGS: dict[str, dict[str, Any]] = {
    "auto_reply": {"text": "Go on.", "trigger": Trigger(search=("never said",))},
    "position": {"target": "history", "text": "Be brief."},
    "reroll": {"search": "never said"},
    "respond": {"nodes": [Node("response", text="{{response}}")]},
    "retrieve": {"source": Nothing()},
}


@pytest.fixture(params=PLUGINS)
def plugin(request: pytest.FixtureRequest) -> Plugin:
    return import_attribute(PLUGINS[request.param])(**SETTINGS.get(request.param, {}))


@tool
async def add(a: int, b: int) -> int:
    return a + b


def agent_with(plugin: Plugin, *steps: Any) -> Agent:
    return Agent("helper", engine=Scripted(*steps), tools=[add], plugins=[plugin])


async def test_it_takes_part_in_a_turn_and_nothing_fails(plugin: Plugin) -> None:
    async with App(agent_with(plugin, call("add", a=1, b=2), "3")) as app:
        events = await events_of(await app.conversation().send("What is 1 + 2?"))
        assert of(TurnFinished, events)[-1].outcome is Outcome.DONE
        assert not of(PluginFailed, events)


async def test_it_can_be_started_again_after_its_end(plugin: Plugin) -> None:
    for _ in range(2):
        async with asyncio.timeout(20), App(agent_with(plugin, "hello"), store=MemoryStore()) as app:
            assert (await (await app.conversation().send("hi")).result()).error == ""


async def test_a_preview_of_its_prompt_asks_no_model(plugin: Plugin) -> None:
    async with App(agent_with(plugin)) as app:
        assert [step async for step in app.preview("helper", user("hi", id="m"))][-1].step == "complete"


async def test_its_tools_have_names_and_descriptions_that_models_take(plugin: Plugin) -> None:
    async with App(agent_with(plugin)) as app:
        for offered in plugin.tools:
            assert NAME.fullmatch(offered.name)
            assert offered.description
            assert app.registry.resolve("helper").tools[offered.name].name == offered.name
