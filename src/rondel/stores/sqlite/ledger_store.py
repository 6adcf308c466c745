"""The ledger store: charges are written in groups; callers wait only for reservations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ...charge import ALL, Charge
from ...contracts.clock import Clock
from ...contracts.ledger import Account, Balance, Cap, ChargePage, Page, Refusal, Reserved, Row, Told, Totals, Unwritten
from ...contracts.window import Window
from . import ledger
from .requests import Charged, Reserve
from .writer import SqliteWriter

if TYPE_CHECKING:
    from .store import SqliteStore


class SqliteLedgerStore:
    def __init__(self, store: SqliteStore, writer: SqliteWriter, clock: Clock) -> None:
        self._store, self._writer, self._clock = store, writer, clock

    @property
    def unwritten(self) -> Unwritten:
        return self._store.unwritten

    def settle(
        self,
        charge: Charge | None,
        *,
        reserved: Reserved | None = None,
        accounts: Sequence[Account] = (),
        told: Told | None = None,
    ) -> None:
        request = Charged(charge, reserved, accounts)
        if told is not None:
            tell, request.waiter = told, asyncio.get_running_loop().create_future()
            request.waiter.add_done_callback(lambda _: tell(request.result) if request.result is not None else None)
        self._store.post(request)

    async def record(self, charge: Charge, accounts: Sequence[Account] = ()) -> list[Balance]:
        return await self._store.ask(Charged(charge, None, accounts, ledger.GIVEN)) or []

    def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Awaitable[Refusal | None]:
        return self._store.ask(Reserve(reserved, caps, self._clock.now()))

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        now = self._clock.now()
        return await self._store.call(lambda c: self._writer.balances(c, accounts, now))

    async def totals(self, accounts: Sequence[Account]) -> list[Totals]:
        for dimension in {account.dimension for account in accounts}:
            await self._bring_forward(dimension)
        return await self._store.reading(lambda c: ledger.totals(c, accounts))

    async def page(
        self, dimension: str, window: Window, *, value: str | None, first: int, last: int, cursor: str, limit: int
    ) -> Page:
        await self._bring_forward(dimension)
        days = (first, last)
        return await self._store.reading(lambda c: ledger.page(c, dimension, window, value, days, cursor, limit))

    async def top(self, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
        await self._bring_forward(dimension)
        return await self._store.reading(lambda c: ledger.top(c, dimension, window, start, limit))

    async def charges(self, first: int, last: int, cursor: str, limit: int) -> ChargePage:
        await self._bring_forward(ALL)  # includes what is still queued
        return await self._store.reading(lambda c: ledger.charges(c, first, last, cursor, limit))

    async def _bring_forward(self, dimension: str) -> None:
        now = self._clock.now()
        await self._store.call(lambda c: self._writer.roll_up(c, dimension, now), small=False)
