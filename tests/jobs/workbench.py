"""What tests of jobs need: tools that go on only when they are let, and a process that dies and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rondel import Agent, App
from rondel.contracts.runtime import JobInfo
from rondel.events import JobChanged
from rondel.machine.journal import Watcher
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, Step, VirtualClock
from rondel.tool import CallContext, Tool, tool

WAIT_S = 10


class Bench:
    """A slow tool: it begins, and ends when it is let, or with `go` at once."""

    def __init__(self, *, go: bool = False, **settings: Any) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        if go:
            self.go.set()
        self.runs = 0
        settings = {"name": "slow", "background": True, **settings}

        async def slow(topic: str, context: CallContext) -> str:
            """Look something up, slowly."""
            self.runs += 1
            context.progress("looking", 0.25)
            self.began.set()
            await self.go.wait()
            return f"all about {topic}"

        self.tool: Tool = tool(**settings)(slow)

    async def begin(self, app: App) -> None:
        """Have the agent told to use the tool, and wait until that is under way."""
        await tell(app, "go")
        await self.began.wait()

    async def finish(self, app: App) -> None:
        self.go.set()
        await app.drain()


def app_of(*agents: Agent, store: MemoryStore | None = None, clock: VirtualClock | None = None, **more: Any) -> App:
    clock = clock or VirtualClock()
    return App(*agents, store=store or MemoryStore(clock=clock), clock=clock, **more)


def helper(*steps: Step, name: str = "helper", **fields: Any) -> tuple[Agent, Scripted]:
    engine = Scripted(*steps)
    return Agent(name, engine=engine, **fields), engine


async def tell(app: App, text: str, conversation: str = "c") -> str:
    async with asyncio.timeout(WAIT_S):
        result = await (await app.conversation(conversation).send(text)).result(check=False)
    return result.output or f"({result.error})"


async def tell_and_drain(app: App, text: str = "go") -> None:
    """Send a message, and wait for the jobs that its turn started."""
    await tell(app, text)
    await app.drain()


async def jobs_of(app: App, conversation: str = "c") -> list[JobInfo]:
    return await app.background.jobs(conversation)


async def changed(watcher: Watcher, wanted: Callable[[JobChanged], bool], *, times: int = 1) -> JobChanged:
    """The last of so many changes of jobs that are wanted. What came with it is not seen again."""
    found: list[JobChanged] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < times:
            found += [event for _, event in await watcher.batch() if isinstance(event, JobChanged) and wanted(event)]
    return found[-1]


def digests_in(engine: Scripted) -> list[str]:
    """What the last prompt says of jobs that are over."""
    return [message.text for message in engine.prompts[-1].messages if message.author.startswith("job:")]
