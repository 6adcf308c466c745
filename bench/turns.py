"""Turns over HTTP, persisted in SQLite, and in process, kept in memory: each against the bare loop."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

import rondel
from bench import bare
from bench.measure import Ratio, compare
from bench.server import serving
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engines.http import HttpEngine
from rondel.events import Outcome, TurnFinished
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.values import (
    Delta,
    ModelFacts,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
    Usage,
)

SCENARIOS = [
    ("one streamed turn of 100 deltas", "deltas-100", 20, 1),
    ("one turn of 10 tool rounds", "rounds-10", 5, 1),
    ("one turn with 8 parallel calls", "parallel-8", 20, 1),
    ("500 conversations at once, one call each", "parallel-1", 1, 500),
]
"""What, the model that does it, how often in a row, how many beside each other."""


async def sum_of(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


add = rondel.tool(name="add", idempotent=True, repeatable=True)(sum_of)
"""Marked as what it is: running it twice does no harm, so nothing waits for the disk before it runs."""
add_once = rondel.tool(name="add", repeatable=True)(sum_of)
"""As if it must not run twice: each call waits until the disk knows that it starts."""


ONCE = "of a tool that must not run twice"
UNMARKED = [
    (f"one turn of 10 rounds {ONCE}", "rounds-10", 5, 1),
    (f"one turn with 8 parallel calls {ONCE}", "parallel-8", 20, 1),
]
"""What the promise costs, for orientation: a commit before each round's calls."""


def ignore(_: object) -> None:
    """Where shown text goes: what a screen costs is not measured."""


async def our_turn(app: rondel.App) -> None:
    outcome = None
    async for event in await app.conversation().send("Please do it."):
        ignore(event)
        if type(event) is TurnFinished:
            outcome = event.outcome
    assert outcome is Outcome.DONE, f"the turn did not do its work: {outcome}"


async def bare_turn(model: Any) -> None:
    await bare.run_turn(model, [{"role": "user", "content": "Please do it."}], ignore)


def repeated(work: Callable[[], Awaitable[None]], times: int, beside: int) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        for _ in range(times):
            if beside == 1:
                await work()
            else:
                await asyncio.gather(*(work() for _ in range(beside)))

    return run


async def over_http() -> list[Ratio]:
    ratios: list[Ratio] = []
    async with AsyncExitStack() as stack:
        base_url = stack.enter_context(serving())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        for what, model, times, beside in (*SCENARIOS, *UNMARKED):
            tool = add_once if what.endswith(ONCE) else add
            engine = HttpEngine(Endpoint("bench", base_url, "openai-chat"), DIALECTS["openai-chat"](), model)
            store = SqliteStore(folder / f"{model}-{tool.idempotent}.db")
            agent = rondel.Agent("bench", engine=engine, tools=[tool])
            async with rondel.App(agent, store=store) as app:
                theirs = bare.HttpModel(base_url, model, session)
                ratios.append(
                    await compare(
                        f"over HTTP, {what}",
                        repeated(lambda app=app: our_turn(app), times, beside),
                        repeated(lambda theirs=theirs: bare_turn(theirs), times, beside),
                        limit=2.0 if tool.idempotent else 2.5,
                        per=times * beside,
                    )
                )
    return ratios


class InProcess:
    """The same answers as the server's, as values."""

    def __init__(self, model: str) -> None:
        kind, _, number = model.partition("-")
        self.kind, self.number = kind, int(number)
        self.name, self.facts = f"inprocess:{model}", ModelFacts()

    def plan(self, rounds: int) -> tuple[int, int]:
        """How many pieces of text, and how many calls."""
        if self.kind == "deltas":
            return self.number, 0
        if self.kind == "rounds":
            return (0, 1) if rounds < self.number else (5, 0)
        return (0, self.number) if rounds == 0 else (5, 0)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        rounds = sum(message.role == "assistant" for message in prompt.messages)
        pieces, calls = self.plan(rounds)
        yield ReplyStarted("bench")
        if pieces:
            yield PartStarted(0, Text(""))
            for n in range(pieces):
                yield PartDelta(0, f"word{n} ")
            yield PartFinished(0, Text("".join(f"word{n} " for n in range(pieces))))
        for n in range(calls):
            call = ToolCall(f"c{rounds}_{n}", "add", {"a": n, "b": 1})
            yield PartStarted(n, call)
            yield PartFinished(n, call)
        yield ReplyFinished("calls" if calls else "end", Usage(10, 100))


class BareInProcess(InProcess):
    """The same, as the dicts that the bare loop reads."""

    async def stream(self, messages: list[bare.Json]) -> AsyncIterator[bare.Json]:  # type: ignore[override]
        rounds = sum(message["role"] == "assistant" for message in messages)
        pieces, calls = self.plan(rounds)
        for n in range(pieces):
            yield {"content": f"word{n} "}
        for n in range(calls):
            function = {"name": "add", "arguments": f'{{"a": {n}, "b": 1}}'}
            yield {"tool_calls": [{"index": n, "id": f"c{rounds}_{n}", "function": function}]}


async def in_process() -> list[Ratio]:
    ratios: list[Ratio] = []
    for what, model, times, beside in SCENARIOS:
        agent = rondel.Agent("bench", engine=InProcess(model), tools=[add])
        async with rondel.App(agent, store=MemoryStore()) as app:
            theirs = BareInProcess(model)
            times = times * 10 if beside == 1 else times
            ratios.append(
                await compare(
                    f"in process, {what}",
                    repeated(lambda app=app: our_turn(app), times, beside),
                    repeated(lambda theirs=theirs: bare_turn(theirs), times, beside),
                    limit=10.0,
                    per=times * beside,
                )
            )
    return ratios


def run() -> list[Ratio]:
    return [*asyncio.run(over_http()), *asyncio.run(in_process())]
