"""The implementations that must pass every test of this folder unchanged: one row for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from rondel.contracts.clock import Clock
from rondel.contracts.store import Store
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore

Workers = Callable[..., tuple[Store, Store]]


@pytest.fixture(params=["memory", "sqlite"])
def make_workers(request: pytest.FixtureRequest, tmp_path: Path) -> Workers:
    """Two workers on the same content, as two processes that open the same store."""

    def memory(clock: Clock | None = None) -> tuple[Store, Store]:
        store = MemoryStore(clock=clock)
        return store, store.beside()

    def sqlite(clock: Clock | None = None) -> tuple[Store, Store]:
        return SqliteStore(tmp_path / "rondel.db", clock=clock), SqliteStore(tmp_path / "rondel.db", clock=clock)

    return {"memory": memory, "sqlite": sqlite}[request.param]


@pytest.fixture
def make_store(make_workers: Workers) -> Callable[..., Store]:
    def make(clock: Clock | None = None) -> Store:
        return make_workers(clock)[0]

    return make


@asynccontextmanager
async def opened(make_workers: Workers, *clock: Clock) -> AsyncIterator[tuple[Store, Store]]:
    one, other = make_workers(*clock)
    async with aclosing(other), aclosing(one):
        yield one, other
