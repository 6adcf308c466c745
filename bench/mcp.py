"""Agents with MCP servers: how fast they start, and what many tools cost a round. The servers are tests/mcp/raw.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from bench.measure import Ratio, compare, shown
from bench.startup import cpu_of_processes, python
from rondel import Agent, App
from rondel.mcp.plugin import McpServers
from rondel.mcp.spec import ServerSpec
from rondel.prompt import Prompt
from rondel.values import Delta, ModelFacts, PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text

SERVER = str(Path(__file__).parent.parent / "tests" / "mcp" / "raw.py")
OWN = 12  # the tools that the server always has
TURNS = 20

START = """
import asyncio, os
from rondel import Agent, App
from rondel.testing import Echo
{more}
async def main():
    async with App(Agent("helper", engine=Echo(), plugins=plugins)):
        os._exit(0)

asyncio.run(main())
"""
NONE = START.format(more="plugins = []")
FIVE = START.format(
    more=f"""
import sys
from rondel.mcp.plugin import McpServers
plugins = [McpServers({{f"s{{n}}": {{"command": sys.executable, "args": [{SERVER!r}]}} for n in range(5)}})]
"""
)


class Answering:
    """A model that answers at once and without a network."""

    name = "bench:model"
    facts = ModelFacts(window_tokens=200_000)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        yield ReplyStarted("model")
        yield PartStarted(0, Text(""))
        yield PartDelta(0, "yes")
        yield PartFinished(0, Text("yes"))
        yield ReplyFinished("end")


def run() -> list[Ratio]:
    five, none = cpu_of_processes(python(FIVE), python(NONE))
    what = "an agent with 5 MCP servers that starts, against one with none"
    return [Ratio(what, five / none, 1.2, shown(five), shown(none)), asyncio.run(_rounds())]


async def _rounds() -> Ratio:
    async with AsyncExitStack() as life:
        apps: list[App] = []
        for count in (300, 10):
            spec = ServerSpec(
                "raw", command=sys.executable, args=(SERVER, "", str(max(0, count - OWN))), approval="auto"
            )
            plugin = McpServers.of([spec], logins="/nonexistent")
            app = await life.enter_async_context(App(Agent("helper", engine=Answering(), plugins=[plugin])))
            await plugin.links[0].settled(60)
            assert plugin.links[0].is_ready
            apps.append(app)

        def turns(app: App):
            async def work() -> None:
                for _ in range(TURNS):
                    turn = await app.conversation().send("Is it?")
                    await turn.result()

            return work

        many, few = map(turns, apps)
        return await compare("a round with 300 MCP tools, against one with 10", many, few, limit=1.2, per=TURNS)
