"""What tests of jobs need: tools that go on only when they are let, and a process that dies and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rondel import Agent, App
from rondel.events import JobChanged
from rondel.job import JobInfo
from rondel.journal import Watcher
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, Step, VirtualClock
from rondel.tool import CallContext, Tool, tool

WAIT_S = 10


class Bench:
    """A slow tool: it begins, and ends when it is let."""

    def __init__(self, **settings: Any) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
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


def app_of(*agents: Agent, store: MemoryStore | None = None, clock: VirtualClock | None = None, **more: Any) -> App:
    clock = clock or VirtualClock()
    return App(*agents, store=store or MemoryStore(clock=clock), clock=clock, **more)


def helper(*steps: Step, name: str = "helper", **fields: Any) -> tuple[Agent, Scripted]:
    engine = Scripted(*steps)
    return Agent(name, engine=engine, **fields), engine


async def tell(app: App, text: str, conversation: str = "c") -> str:
    async with asyncio.timeout(WAIT_S):
        result = await (await app.conversation(conversation).send(text)).result()
    return result.output or f"({result.error})"


async def jobs_of(app: App, conversation: str = "c") -> list[JobInfo]:
    return await app.background.jobs(conversation)


async def changed(watcher: Watcher, wanted: Callable[[JobChanged], bool], *, times: int = 1) -> JobChanged:
    """The last of so many changes of jobs that are wanted. What came with it is not seen again."""
    found: list[JobChanged] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < times:
            found += [event for event in await watcher.batch() if isinstance(event, JobChanged) and wanted(event)]
    return found[-1]


def digests_in(engine: Scripted) -> list[str]:
    """What the last prompt says of jobs that are over."""
    return [message.text for message in engine.prompts[-1].messages if message.author.startswith("job:")]


def run(scene: Callable[[], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scene()

    asyncio.run(main())
