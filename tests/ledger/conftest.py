"""Ledgers to test, on each kind of store, with a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rondel.contracts.ledger import Rule
from rondel.contracts.store import Store
from rondel.ledger.ledger import Ledger
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import VirtualClock
from tests.cli.conftest import place, server

__all__ = ["Bench", "at", "bench", "place", "server"]


def at(text: str) -> float:
    """Seconds since the epoch of a time in UTC: `2026-02-28`, or `2026-02-28T12:00`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Bench:
    """A ledger on a store of one kind, with a clock that the test moves."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self.clock = VirtualClock(at("2026-11-15T12:00"))

    def store(self) -> Store:
        return MemoryStore(clock=self.clock) if self.kind == "memory" else SqliteStore(self.path, clock=self.clock)

    @asynccontextmanager
    async def ledger(self, *rules: Rule) -> AsyncIterator[Ledger]:
        async with (
            aclosing(self.store()) as store,
            aclosing(Ledger(store.ledger_store, rules=rules, clock=self.clock)) as ledger,
        ):
            yield ledger

    def run(self, test: Callable[[Ledger], Awaitable[Any]], *rules: Rule) -> Any:
        async def main() -> Any:
            async with self.ledger(*rules) as ledger:
                return await test(ledger)

        return asyncio.run(main())


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path / "rondel.db")
