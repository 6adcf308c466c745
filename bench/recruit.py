"""What recruiting costs: templates that recruit templates, a tree of agents with models, and questions that wait."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

import rondel
from bench import bare
from bench.measure import Ratio, compare, cpu_of, shown
from bench.server import serving
from bench.turns import bare_turn, ignore
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engines.http import HttpEngine
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore

FEW, MANY = 20, 1_000
ROUNDS = 5
QUESTIONS = 1_000
WAIT_S = 1.0
MODEL = "deltas-100"


def recruiting(name: str, recruits: list[str]) -> rondel.Agent:
    return rondel.Agent(name, template=" ".join(f'{{{{ .Get "{recruit}" }}}}' for recruit in recruits))


async def templates() -> Ratio:
    """A template with 1,000 recruited template-only agents against one with 20: as much for each."""
    names = [f"t{n}" for n in range(MANY)]
    leaves = [rondel.Agent(name, template=f"{name}.") for name in names]
    many, few = recruiting("many", names), recruiting("few", names[:FEW])
    async with rondel.App(few, many, *leaves, store=MemoryStore()) as app:

        async def run(agent: str) -> None:
            result = await (await app.conversation(agent=agent).send("go")).result()
            assert "error" not in result.output

        return await compare(
            f"a template with {MANY:,} recruited templates against one with {FEW}",
            lambda: run("many"),
            lambda: run("few"),
            limit=60.0,
            rounds=ROUNDS,
        )


async def tree() -> Ratio:
    """100 agents with models, recruited by 10 templates, which one template recruits, against 100 bare loops."""
    async with AsyncExitStack() as stack:
        base_url = stack.enter_context(serving())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        engine = HttpEngine(Endpoint("bench", base_url, "openai-chat"), DIALECTS["openai-chat"](), MODEL)
        leaves = [rondel.Agent(f"leaf{n}", "Be brief.", engine=engine) for n in range(100)]
        twigs = [recruiting(f"twig{n}", [leaf.name for leaf in leaves[n * 10 : n * 10 + 10]]) for n in range(10)]
        root = recruiting("root", [twig.name for twig in twigs])
        store = SqliteStore(folder / "tree.db")
        app = await stack.enter_async_context(rondel.App(root, *twigs, *leaves, store=store))
        model = bare.HttpModel(base_url, MODEL, session)

        async def ours() -> None:
            async for event in await app.conversation().send("Please do it."):
                ignore(event)

        async def theirs() -> None:
            await asyncio.gather(*(bare_turn(model) for _ in range(100)))

        return await compare("a tree of 100 agents", ours, theirs, limit=2.0, per=100, rounds=ROUNDS)


async def questions() -> list[Ratio]:
    """1,000 conversations that wait for a person: what they keep in memory, and what waiting costs."""
    agent = rondel.Agent("host", template='Good evening. {{ .AskUser "What is your name?" }}, welcome.')
    with tempfile.TemporaryDirectory() as folder:
        async with rondel.App(agent, store=SqliteStore(Path(folder) / "questions.db")) as app:

            async def ask(number: int) -> None:
                await (await app.conversation(f"q{number}").send("hello")).result()

            await ask(-1)
            await app.drain()
            gc.collect()
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            for number in range(QUESTIONS):
                await ask(number)
            await app.drain()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            each = max(0, after - before) / QUESTIONS
            began = time.perf_counter()
            cpu_s = await cpu_of(lambda: asyncio.sleep(WAIT_S))
            share = cpu_s / (time.perf_counter() - began)
            assert len(await app.conversation("q7").questions()) == 1
    return [
        Ratio(f"memory of each of {QUESTIONS:,} waiting questions", each / 2048, 1.0, f"{each:,.0f} bytes", "2,048"),
        Ratio(f"CPU while {QUESTIONS:,} questions wait", share / 0.01, 1.0, shown(cpu_s), f"1 % of {WAIT_S:g} s"),
    ]


def run() -> list[Ratio]:
    return [asyncio.run(templates()), asyncio.run(tree()), *asyncio.run(questions())]
