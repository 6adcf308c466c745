"""What a long conversation costs: turn 1,000 against turn 10, each less what sending its prompt costs by itself.

The bare loop sends the same history, so the difference is what Rondel adds: it should not grow with the conversation.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

import rondel
from bench import bare
from bench.measure import Ratio, shown
from bench.server import serving
from bench.turns import ignore
from rondel.dialects import DIALECTS
from rondel.endpoint import Endpoint
from rondel.engines.http import HttpEngine
from rondel.stores.sqlite import SqliteStore
from rondel.values import ModelFacts

MODEL = "deltas-20"
WINDOW = ModelFacts(window_tokens=1_000_000)
"""A window that is known, so that the trim plugin counts what it would have to leave out."""


async def added_cost(app: rondel.App, conversation: str, model: bare.HttpModel, first: int, last: int) -> float:
    """The median CPU that our turns add to the bare loop's, for the turns between `first` and `last`."""
    added: list[float] = []
    talk = app.conversation(conversation)
    for turn in range(last):
        if turn < first:
            await (await talk.send(f"question {turn}")).result()
            continue
        messages = [{"role": m.role, "content": m.text} for m in (await talk.transcript()).messages]
        messages.append({"role": "user", "content": f"question {turn}"})
        gc.disable()
        start = time.process_time()
        async for event in await talk.send(f"question {turn}"):
            ignore(event)
        ours = time.process_time() - start
        start = time.process_time()
        await bare.run_turn(model, messages, ignore)
        theirs = time.process_time() - start
        gc.enable()
        added.append(ours - theirs)
    return statistics.median(added)


async def growth() -> Ratio:
    async with AsyncExitStack() as stack:
        base_url = stack.enter_context(serving())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        engine = HttpEngine(Endpoint("bench", base_url, "openai-chat"), DIALECTS["openai-chat"](), MODEL, WINDOW)
        agent = rondel.Agent("bench", engine=engine)
        app = await stack.enter_async_context(rondel.App(agent, store=SqliteStore(folder / "growth.db")))
        model = bare.HttpModel(base_url, MODEL, session)
        await added_cost(app, "warm", model, 5, 20)
        early = statistics.median([await added_cost(app, f"early-{n}", model, 5, 15) for n in range(5)])
        late = await added_cost(app, "late", model, 980, 1020)
    what = "turn 1,000 against turn 10, beyond sending the prompt"
    return Ratio(what, late / early, 1.3, shown(late), shown(early))


def run() -> list[Ratio]:
    return [asyncio.run(growth())]
