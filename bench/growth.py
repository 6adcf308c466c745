"""What a long conversation costs: turn 1,000 against turn 10, each less what sending its prompt costs by itself.

The bare loop sends the same history, so the difference is what Rondel adds: it should not grow with the conversation.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

import rondel
from bench import bare
from bench.measure import Ratio, cpu_of, shown
from bench.server import serving
from bench.turns import ignore
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engines.http import HttpEngine
from rondel.events import MessageAdded, RoundFinished
from rondel.stores.sqlite import SqliteStore
from rondel.values import ModelFacts, assistant, user

MODEL = "burst-20"
WINDOW = ModelFacts(window_tokens=1_000_000)
"""A window that is known, so that the trim plugin counts what it would have to leave out."""


SAMPLES = 60


async def prepared(app: rondel.App, id: str, turns: int) -> rondel.Conversation:
    """A kept conversation of so many turns."""
    conversation = app.conversation(id)
    journal = await app.journals.open(id)
    for n in range(turns):
        await journal.append(
            MessageAdded(user(f"question {n}", id=f"{n}")),
            RoundFinished(assistant("".join(f"word{k} " for k in range(20)))),
            wait=n == turns - 1,
        )
    return conversation


async def added_cost(conversation: rondel.Conversation, model: bare.HttpModel, *, first: bool) -> float:
    """The CPU that one more turn of ours adds to the same turn of the bare loop, which sends the same history.

    Whoever runs first finds the caches cold: ours does every other time.
    """
    messages = [{"role": m.role, "content": m.text} for m in (await conversation.transcript()).messages]
    messages.append({"role": "user", "content": "one more"})

    async def ours() -> None:
        async for event in await conversation.send("one more"):
            ignore(event)

    async def theirs() -> None:
        await bare.run_turn(model, messages, ignore)

    if first:
        return await cpu_of(ours, tidy=False) - await cpu_of(theirs, tidy=False)
    return -(await cpu_of(theirs, tidy=False) - await cpu_of(ours, tidy=False))


async def growth() -> Ratio:
    async with AsyncExitStack() as stack:
        base_url = stack.enter_context(serving())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        engine = HttpEngine(Endpoint("bench", base_url, "openai-chat"), DIALECTS["openai-chat"](), MODEL, WINDOW)
        agent = rondel.Agent("bench", engine=engine)
        app = await stack.enter_async_context(rondel.App(agent, store=SqliteStore(folder / "growth.db")))
        model = bare.HttpModel(base_url, MODEL, session)
        old = await prepared(app, "old", 1000 - SAMPLES // 2)
        young = [await prepared(app, f"young-{n}", 8) for n in range(SAMPLES)]
        late: list[float] = []
        early: list[float] = []
        gc.collect()
        gc.freeze()
        for n, conversation in enumerate(young):  # in turn, so that a slow moment of the machine hits both
            await added_cost(conversation, model, first=True)
            early.append(await added_cost(conversation, model, first=n % 2 == 0))
            late.append(await added_cost(old, model, first=n % 2 == 0))
    a, b = statistics.median(late), statistics.median(early)
    return Ratio("turn 1,000 against turn 10, beyond sending the prompt", a / b, 1.3, shown(a), shown(b))


def run() -> list[Ratio]:
    return [asyncio.run(growth())]
