"""The books as the event loop sees them: what nobody waits for is written together, what must hold is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...charge import ALL, Account, Balance, Cap, Charge, ChargePage, Page, Refusal, Reserved, Row, Told, Totals
from ...clock import Clock
from ...window import Window
from . import ledger
from .requests import Charged
from .writer import Writer

if TYPE_CHECKING:
    from .store import SqliteStore

RECONCILE_S = 60.0


class SqliteBooks:
    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._reconciled_at: float | None = None

    def settle(
        self,
        charge: Charge | None,
        *,
        reserved: Reserved | None = None,
        accounts: Sequence[Account] = (),
        told: Told | None = None,
    ) -> None:
        if charge is not None and reserved is None and told is None:
            return self._store.charge(charge)
        request = Charged(charge, reserved, accounts)
        if told is not None:
            tell, request.waiter = told, asyncio.get_running_loop().create_future()
            request.waiter.add_done_callback(lambda _: tell(request.result) if request.result is not None else None)
        self._store.post(request)

    async def record(self, charge: Charge, accounts: Sequence[Account] = ()) -> list[Balance]:
        return await self._store.ask(Charged(charge, None, accounts, ledger.GIVEN))

    async def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Refusal | None:
        def claim(writer: Writer) -> Refusal | None:
            return writer.claims.reserve(writer.settled(), reserved, caps, writer.worker_id)

        await self._reconcile()
        refusal = await self._store.call(claim)
        if refusal is not None and (refusal.balance.reserved_tokens or refusal.balance.reserved_nanousd):
            # Some of it may have been claimed by a worker that has died since: then it is known what it comes to.
            await self._reconcile(now=True)
            return await self._store.call(claim)
        return refusal

    async def _reconcile(self, *, now: bool = False) -> None:
        """At the first use, and then every minute or so: most of the time nobody has died."""
        time, last = self._clock.now(), self._reconciled_at
        if now or last is None or abs(time - last) >= RECONCILE_S:
            self._reconciled_at = time
            await self._store.call(lambda writer: writer.reconcile(time), small=False)

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        await self._reconcile()
        return await self._store.call(lambda writer: writer.claims.balances(writer.settled(), accounts))

    async def totals(self, accounts: Sequence[Account]) -> list[Totals]:
        for dimension in {account.dimension for account in accounts}:
            await self._bring_forward(dimension)
        return await self._store.reading(lambda reader: ledger.totals(reader.open(), accounts))

    async def page(
        self, dimension: str, window: Window, *, value: str | None, first: int, last: int, cursor: str, limit: int
    ) -> Page:
        await self._bring_forward(dimension)
        days = (first, last)
        return await self._store.reading(
            lambda reader: ledger.page(reader.open(), dimension, window, value, days, cursor, limit)
        )

    async def top(self, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
        await self._bring_forward(dimension)
        return await self._store.reading(lambda reader: ledger.top(reader.open(), dimension, window, start, limit))

    async def charges(self, first: int, last: int, cursor: str, limit: int) -> ChargePage:
        await self._reconcile()
        await self._bring_forward(ALL)  # what is on its way is read, too
        return await self._store.reading(lambda reader: ledger.charges(reader.open(), first, last, cursor, limit))

    async def _bring_forward(self, dimension: str) -> None:
        await self._reconcile()
        await self._store.call(lambda writer: writer.roll_up(dimension), small=False)
