"""Tools that a plugin learns while it starts, as from a server of tools. tests/gateway/lender.py does the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from rondel import Agent, App, Plugin, Tool, tool
from rondel.testing import Scripted, call


class Learner(Plugin):
    """Asks for its tools when it starts."""

    def __init__(self) -> None:
        self.starts = 0

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        self.starts += 1
        self.tools = (learned(),)
        yield


def learned() -> Tool:
    @tool
    async def look_up(word: str) -> str:
        "Look a word up."
        return f"{word}: found"

    return look_up


async def test_tools_that_a_plugin_learns_while_it_starts_are_offered_and_run():
    engine = Scripted(call("look_up", word="tea"), "done")
    plugin = Learner()
    async with App(Agent("helper", engine=engine, plugins=[plugin])) as app:
        assert (await (await app.conversation().send("tea?")).result()).output == "done"
    assert [spec.name for spec in engine.prompts[0].tools] == ["look_up"]
    assert engine.prompts[1].messages[-1].parts[0].text == "tea: found"  # type: ignore[union-attr]


async def test_an_agent_that_was_looked_at_before_the_start_gets_them_too():
    app = App(Agent("helper", engine=Scripted(), plugins=[Learner()]))
    assert "look_up" not in app.registry.resolve("helper").tools
    async with app:
        assert "look_up" in app.registry.resolve("helper").tools


async def test_a_plugin_of_several_agents_starts_once():
    plugin = Learner()
    async with App(Agent("one"), Agent("two"), engine=Scripted(), plugins=[plugin]) as app:
        assert plugin.starts == 1
        assert all("look_up" in app.registry.resolve(name).tools for name in ("one", "two"))
