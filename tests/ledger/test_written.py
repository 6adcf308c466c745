"""When a charge that nobody waits for is on disk, and what becomes of it when something goes wrong."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rondel.charge import Scope
from rondel.contracts.ledger import Balance, Rule
from rondel.events import MessageAdded
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.store import CHARGES_WAIT_MAX
from rondel.values import Usage, user

X = Scope("chat", "X", person="ada")


@asynccontextmanager
async def use(path: Path) -> AsyncIterator[tuple[SqliteStore, Ledger]]:
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store)
        await ledger.record(Scope("chat", "first"), Usage(1, 0))
        yield store, ledger


async def spend(ledger: Ledger, scope: Scope = X, times: int = 1) -> None:
    for _ in range(times):
        ledger.settle(await ledger.reserve(scope, tokens=lambda: (1, 1)), Usage(7, 0))


def written(path: Path, model: str = "X") -> int:
    """As another process sees it."""
    connection = sqlite3.connect(path)
    try:
        counted = "select count(*) from charges join scopes on scopes.number = scope where model = ?"
        return connection.execute(counted, (model,)).fetchone()[0]
    finally:
        connection.close()


async def until_written(path: Path, count: int) -> None:
    while written(path) < count:
        await asyncio.sleep(0)
    assert written(path) == count


async def test_charges_wait_for_each_other_and_are_written_with_whatever_is_asked_next(tmp_path: Path):
    async with use(tmp_path / "rondel.db") as (store, ledger):
        await spend(ledger, times=3)
        assert written(store.path) == 0
        await store.append("c", 1, (MessageAdded(user("hello")),), at=1.0)
        assert written(store.path) == 3
        await spend(ledger)
        await ledger.record(Scope("chat", "other"), Usage(1, 0))
        assert written(store.path) == 4


async def test_charges_are_written_soon_when_nothing_is_asked(tmp_path: Path):
    async with use(tmp_path / "rondel.db") as (store, ledger):
        await spend(ledger, times=3)
        await until_written(store.path, 3)
        await spend(ledger)
        await until_written(store.path, 4)


async def test_many_charges_do_not_wait_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.stores.sqlite.store.CHARGES_WAIT_S", 3600.0)
    async with use(tmp_path / "rondel.db") as (store, ledger):
        await spend(ledger, times=CHARGES_WAIT_MAX)
        await until_written(store.path, CHARGES_WAIT_MAX)


async def test_a_question_counts_the_charges_that_wait(tmp_path: Path):
    async with use(tmp_path / "rondel.db") as (_, ledger):
        await spend(ledger, times=2)
        assert (await ledger.lifetime_totals("X")).tokens == 14
        await spend(ledger)
        assert (await ledger.totals(by="person", value="ada")).calls == 3


async def test_a_charge_that_cannot_be_written_takes_no_other_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with use(tmp_path / "rondel.db") as (_, ledger):
        await spend(ledger, times=2)
        reservation = await ledger.reserve(X, tokens=lambda: (1, 1))
        ledger.settle(reservation, Usage(100, 0), metadata={"not": object()})
        await spend(ledger, Scope("chat", "X", person="grace"))
        totals = await ledger.lifetime_totals("X")
        assert (totals.calls, totals.tokens) == (3, 21)
        rows = (await ledger.summary(by="person", window="lifetime")).rows
        assert [(row.value, row.totals.calls) for row in rows] == [("ada", 2), ("grace", 1)]
    assert caplog.text.count("the charge of the call") == 1


async def test_workers_on_one_file_keep_a_scope_once(path: Path):
    stores = [SqliteStore(path) for _ in range(3)]
    ledgers = [Ledger(store.ledger_store) for store in stores]
    for _ in range(2):
        for ledger in ledgers:
            await ledger.record(X, Usage(7, 0))
    assert (await ledgers[0].totals(by="person", value="ada")).calls == 6
    for store in stores:
        await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("select count(*) from scopes").fetchone() == (1,)
    connection.close()


async def test_more_scopes_than_are_kept_at_hand_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.stores.sqlite.scopes.NUMBERS_MAX", 4)
    async with use(tmp_path / "rondel.db") as (_, ledger):
        for _ in range(2):
            for number in range(10):
                await spend(ledger, Scope("chat", "X", conversation=f"c{number}"))
        rows = (await ledger.summary(by="conversation", window="lifetime")).rows
        assert [(row.value, row.totals.calls) for row in rows] == [(f"c{number}", 2) for number in range(10)]


async def test_charges_of_many_short_processes_are_added_up(tmp_path: Path):
    path = tmp_path / "rondel.db"
    rule = Rule({"model": "X"}, "month", tokens=10**9, mode="block")
    for _ in range(4):
        async with SqliteStore(path) as store:
            await spend(Ledger(store.ledger_store, rules=[rule]), times=400)
    connection = sqlite3.connect(path)
    assert connection.execute("select number > 1000 from mark").fetchone() == (1,)
    connection.close()
    async with SqliteStore(path) as store:
        (state,) = await Ledger(store.ledger_store, rules=[rule]).limit_state(X)
        assert state.balance == Balance(4 * 400 * 7)
