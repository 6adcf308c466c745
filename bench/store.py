"""What the stores and the local runtime cost in CPU, all threads counted: `python bench/store.py`."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TypeAlias

from rondel.contracts.runtime import Job
from rondel.contracts.store import Store
from rondel.events import RoundFinished
from rondel.jobs.runtime import LocalRuntime
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage, assistant

ROUND = RoundFinished(assistant("A reply of some length, as models give them. " * 5), usage=Usage(100, 20), agent="a")
REPEATS = 3

Work: TypeAlias = Callable[[Store], Awaitable[object]]


async def append(store: Store, conversation: str, times: int) -> None:
    for seq in range(1, times + 1):
        await store.append(conversation, seq, (ROUND,), at=1e9 + seq)


async def append_side_by_side(store: Store, conversations: int, times: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(conversations):
            group.create_task(append(store, f"c{number}", times))


async def submit(store: Store, jobs: int) -> None:
    left, done = jobs, asyncio.Event()

    async def handle(job: Job) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    runtime = LocalRuntime(store)
    await runtime.start({"turn": handle})
    async with asyncio.TaskGroup() as group:
        for number in range(jobs):
            group.create_task(runtime.submit(Job(f"j{number}", "turn", f"k{number % 100}")))
    await done.wait()
    await runtime.stop()


async def fill(store: Store) -> None:
    await store.append("long", 1, (ROUND,) * 10_000, at=1e9)


async def cpu_us(make: Callable[[], Store], times: int, work: Work, before: Work) -> float:
    """The least of a few runs, each on a new store: what is above it is the machine's noise."""
    costs: list[float] = []
    for _ in range(REPEATS):
        store = make()
        await append(store, "warm", 1)
        await before(store)
        start_s = time.process_time()
        await work(store)
        costs.append((time.process_time() - start_s) / times * 1e6)
        await store.aclose()
    return min(costs)


async def nothing(store: Store) -> None:
    pass


async def bench(name: str, make: Callable[[], Store]) -> None:
    rows: list[tuple[str, int, Work, Work]] = [
        ("append, one after the other", 2_000, lambda store: append(store, "c", 2_000), nothing),
        ("append, 8 conversations at once", 1_600, lambda store: append_side_by_side(store, 8, 200), nothing),
        ("append, 500 conversations at once", 5_000, lambda store: append_side_by_side(store, 500, 10), nothing),
        ("read of 10,000 entries, per entry", 10_000, lambda store: store.read("long"), fill),
        ("job: submitted, run and forgotten, 2,000 at once", 2_000, lambda store: submit(store, 2_000), nothing),
    ]
    for what, times, work, before in rows:
        print(f"{name:<8}{what:<52}{await cpu_us(make, times, work, before):8.1f} µs")


def main() -> None:
    asyncio.run(bench("memory", MemoryStore))
    with tempfile.TemporaryDirectory() as folder:
        numbers = count()
        asyncio.run(bench("sqlite", lambda: SqliteStore(Path(folder) / f"{next(numbers)}.db")))


if __name__ == "__main__":
    main()
