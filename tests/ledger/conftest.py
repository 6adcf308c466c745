"""Ledgers to test, on each kind of store, with a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rondel.charge import Rule
from rondel.clock import VirtualClock
from rondel.ledger import Ledger
from rondel.store import Store
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore


def at(text: str) -> float:
    """Seconds since the epoch of a time in UTC: `2026-02-28`, or `2026-02-28T12:00`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Bench:
    """A ledger on a store of one kind; `run` gives a test both and closes them."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self.clock = VirtualClock(at("2026-11-15T12:00"))

    def store(self) -> Store:
        return MemoryStore(clock=self.clock) if self.kind == "memory" else SqliteStore(self.path, clock=self.clock)

    def run(self, test: Callable[[Ledger], Awaitable[Any]], *rules: Rule) -> Any:
        async def main() -> Any:
            store = self.store()
            ledger = Ledger(store.books, rules=rules, clock=self.clock)
            try:
                return await test(ledger)
            finally:
                await ledger.aclose()
                await store.aclose()

        return asyncio.run(main())


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path / "rondel.db")
