"""What the tables of live events keep, and for how long."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore, live
from rondel.testing import VirtualClock
from rondel.values import PartDelta, user


async def test_live_events_are_deleted_soon_although_nothing_follows_them(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "KEEP_S", 0.05)
    clock = VirtualClock()
    async with SqliteStore(path, clock=clock) as here, SqliteStore(path) as there, asyncio.timeout(20):
        subscription = there.subscribe("c", lambda: None)
        await subscription.read(0)
        await here.append("c", 1, (MessageAdded(user("hello")),), at=1.0)
        for text in "one", "two", "three":
            here.publish("c", 1, PartDelta(0, text))
        with closing(sqlite3.connect(path)) as file:

            def count() -> int:
                return file.execute("select count(*) from live_events").fetchone()[0]

            while not count():
                await asyncio.sleep(0.01)
            clock.advance(1)
            while count():
                await asyncio.sleep(0.01)


def test_a_worker_with_many_subscriptions_is_looked_at_once():
    file, asked = sqlite3.connect(":memory:"), list[str]()
    for statement in live.SCHEMA:
        file.execute(statement)
    for number in range(1_000):
        live.subscribe(file, "alive" if number % 2 else "dead", f"c{number}")

    def is_alive(worker: str) -> bool:
        asked.append(worker)
        return worker == "alive"

    assert live.subscribed(file, is_alive) == {f"c{number}" for number in range(1, 1_000, 2)}
    assert sorted(asked) == ["alive", "dead"]
    file.close()
