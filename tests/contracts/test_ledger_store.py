"""What every ledger store promises: charges that add up, and reservations that all workers share.

tests/ledger checks the same stores through the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rondel.charge import Charge, Scope
from rondel.contracts.clock import Clock
from rondel.contracts.ledger import Account, Balance, Cap, LedgerStore, Reserved
from rondel.contracts.store import Store
from rondel.contracts.window import day_of
from rondel.testing import VirtualClock
from rondel.values import Usage
from tests.contracts.conftest import Workers, opened


@asynccontextmanager
async def use(make_workers: Workers) -> AsyncIterator[tuple[Store, Store, VirtualClock]]:
    clock = VirtualClock()
    async with opened(make_workers, clock) as (one, other):
        yield one, other, clock


def charge(id: str, clock: Clock, tokens: int = 10, model: str = "m") -> Charge:
    return Charge(id, clock.now(), Scope("turn", model=model), Usage(tokens, 0), cost_nanousd=tokens)


def account(clock: Clock, model: str = "m") -> Account:
    return Account.at("model", model, "day", clock.now())


async def settled(store: LedgerStore, charge: Charge | None, reserved: Reserved | None, of: Account) -> Balance:
    written = asyncio.get_running_loop().create_future()
    store.settle(charge, reserved=reserved, accounts=(of,), told=written.set_result)
    return (await written)[0]


async def test_charges_add_up_for_every_worker_and_an_id_is_recorded_once(make_workers: Workers) -> None:
    async with use(make_workers) as (one, other, clock):
        mine, of = one.ledger_store, account(clock)
        for id in ("a", "b"):
            mine.settle(charge(id, clock))
        mine.settle(charge("c", clock, model="other"))
        for store in (mine, mine, other.ledger_store):
            assert await store.record(charge("d", clock, 5), (of,)) == [Balance(25, 25)]
        for store in (mine, other.ledger_store):
            assert [totals.tokens for totals in await store.totals((of, account(clock, "other")))] == [25, 10]
            today = day_of(clock.now())
            rows = await store.top("model", "day", today, 10)
            assert [(row.value, row.totals.tokens) for row in rows] == [("m", 25), ("other", 10)]
            page = await store.page("model", "day", value="m", first=today, last=today, cursor="", limit=10)
            assert [(row.value, row.totals.tokens) for row in page.rows] == [("m", 25)]
            first = await store.charges(today, today, "", 3)
            rest = await store.charges(today, today, first.cursor, 3)
            assert [found.id for found in (*first.charges, *rest.charges)] == ["a", "b", "c", "d"]


async def test_what_one_worker_reserves_the_other_cannot(make_workers: Workers) -> None:
    async with use(make_workers) as (one, other, clock):
        of = account(clock)
        cap, until = Cap(of, tokens=10), clock.now() + 60
        held = Reserved(charge("a", clock), until)
        assert await one.ledger_store.reserve(held, (cap,)) is None
        refusal = await other.ledger_store.reserve(Reserved(charge("b", clock), until), (Cap(of), cap))
        assert refusal is not None
        assert (refusal.index, refusal.balance) == (1, Balance(0, 0, 10, 10))
        for _ in range(2):  # a reservation is settled once
            assert await settled(one.ledger_store, charge("a", clock, 4), held, of) == Balance(4, 4)
        assert await other.ledger_store.reserve(Reserved(charge("b", clock), until), (cap,)) is None
        assert await one.ledger_store.balances((of,)) == [Balance(4, 4, 10, 10)]


async def test_a_reservation_that_is_never_settled_counts_as_spent(make_workers: Workers) -> None:
    async with use(make_workers) as (one, other, clock):
        of = account(clock)
        held = Reserved(charge("a", clock), clock.now() + 60)
        assert await one.ledger_store.reserve(held, (Cap(of, tokens=10),)) is None
        clock.advance(61)
        assert await other.ledger_store.balances((of,)) == [Balance(10, 10)]
        assert await settled(one.ledger_store, charge("a", clock, 4), held, of) == Balance(10, 10), "too late"


async def test_sums_and_pages_have_a_charge_once_whenever_its_call_is_settled(make_workers: Workers) -> None:
    async with use(make_workers) as (one, other, clock):
        of, today = account(clock), day_of(clock.now())
        held = [Reserved(charge(id, clock), clock.now() + 60) for id in ("early", "late", "void")]
        for reserved in held:
            assert await one.ledger_store.reserve(reserved, (Cap(of, tokens=100),)) is None
        other.ledger_store.settle(charge("between", clock, 1))
        calls = charge("early", clock, 2), charge("late", clock, 3), None
        for reserved, spent, so_far in zip(held, calls, (1, 3, 6), strict=True):
            # The other worker adds up what was spent, while the rest is reserved.
            assert [totals.tokens for totals in await other.ledger_store.totals((of,))] == [so_far]
            await settled(one.ledger_store, spent, reserved, of)
        for store in (one.ledger_store, other.ledger_store):
            assert await store.balances((of,)) == [Balance(6, 6)]
            assert [(totals.calls, totals.tokens) for totals in await store.totals((of,))] == [(3, 6)]
            page = await store.charges(today, today, "", 10)
            assert [(found.id, found.tokens) for found in page.charges] == [("between", 1), ("early", 2), ("late", 3)]


async def test_a_balance_includes_what_another_worker_has_written_since(make_workers: Workers) -> None:
    async with use(make_workers) as (one, other, clock):
        of = account(clock)
        mine, theirs = one.ledger_store, other.ledger_store
        for round in range(3):
            held = Reserved(charge(f"a{round}", clock), clock.now() + 60)
            assert await mine.reserve(held, (Cap(of, tokens=1000),)) is None
            assert await theirs.balances((of,)) == [Balance(15 * round, 15 * round, 10, 10)]
            assert await settled(mine, charge(f"a{round}", clock, 4), held, of) == Balance(
                15 * round + 4, 15 * round + 4
            )
            assert await theirs.record(charge(f"b{round}", clock, 11), (of,)) == [
                Balance(15 * round + 15, 15 * round + 15)
            ]
            assert await mine.record(charge(f"b{round}", clock, 11), (of,)) == [
                Balance(15 * round + 15, 15 * round + 15)
            ]


async def test_a_call_counts_for_the_model_that_answered(make_workers: Workers) -> None:
    async with use(make_workers) as (one, _, clock):
        store, of, answered = one.ledger_store, account(clock), account(clock, "other")
        held = Reserved(charge("a", clock), clock.now() + 60)
        assert await store.balances((of, answered)) == [Balance(), Balance()]
        assert await store.reserve(held, (Cap(of, tokens=1000),)) is None
        assert await store.balances((of, answered)) == [Balance(0, 0, 10, 10), Balance()]
        all = Account.at("all", "", "month", clock.now())
        assert await store.balances((all,)) == [Balance(0, 0, 10, 10)]
        assert await settled(store, charge("a", clock, 4, "other"), held, answered) == Balance(4, 4)
        assert await store.balances((of, answered, all)) == [Balance(), Balance(4, 4), Balance(4, 4)]
