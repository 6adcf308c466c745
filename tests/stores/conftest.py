"""Stores to test, each made by name in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rondel.store import Store
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "memory":
        return MemoryStore
    return lambda: SqliteStore(tmp_path / "rondel.db")
