"""What watchers cost: they are woken at most every few milliseconds, not for every token."""

from __future__ import annotations

import asyncio

import rondel
from bench.measure import Ratio, compare
from bench.turns import InProcess, ignore
from rondel.machine import journal
from rondel.stores.memory import MemoryStore

WATCHERS = 10


async def watched_turn(app: rondel.App, wake_s: float) -> None:
    """A turn of 1,000 deltas that arrive one by one, seen by several."""
    journal.WAKE_S = wake_s
    conversation = app.conversation()

    async def look(watcher: journal.Watcher) -> None:
        with watcher:
            async for _, event in watcher:
                ignore(event)
                if isinstance(event, journal.TurnFinished):
                    return

    watchers = [await conversation.watch() for _ in range(WATCHERS)]
    async with asyncio.TaskGroup() as group:
        for watcher in watchers:
            group.create_task(look(watcher))
        await conversation.send("go")


class OneByOne(InProcess):
    """Lets the loop go round after each delta, as a network does."""

    async def stream(self, prompt: rondel.Prompt):  # type: ignore[no-untyped-def,override]
        async for delta in super().stream(prompt):
            yield delta
            await asyncio.sleep(0)


async def measured() -> Ratio:
    gentle = journal.WAKE_S
    async with rondel.App(rondel.Agent("bench", engine=OneByOne("deltas-1000")), store=MemoryStore()) as app:
        return await compare(
            f"1,000 deltas to {WATCHERS} watchers, against waking them for each",
            lambda: watched_turn(app, gentle),
            lambda: watched_turn(app, 0.0),
            limit=0.8,
        )


def run() -> list[Ratio]:
    return [asyncio.run(measured())]
