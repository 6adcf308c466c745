"""The books in memory: charges in a list, and their sums by account, brought forward when somebody asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ...charge import (
    ALL,
    BETWEEN,
    DIMENSIONS,
    Account,
    Balance,
    Cap,
    Charge,
    ChargePage,
    Page,
    Refusal,
    Reserved,
    Row,
    Told,
    Totals,
    dimensions_in,
)
from ...clock import Clock
from ...window import WINDOWS, Window, day_of, key_of, start_of


class MemoryBooks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._charges: list[Charge] = []
        self._ids: set[str] = set()
        self._dimensions = [ALL, *DIMENSIONS]
        self._rolled = 0
        self._totals: dict[tuple[str, Window], dict[tuple[int, str], Totals]] = {}
        self._reserved: dict[str, Reserved] = {}

    def settle(
        self,
        charge: Charge | None,
        *,
        reserved: Reserved | None = None,
        accounts: Sequence[Account] = (),
        told: Told | None = None,
    ) -> None:
        lost = reserved is not None and self._reserved.pop(reserved.charge.id, None) is None
        if charge is not None and not lost:
            self._keep(charge)
        if told is not None:
            told([self._balance(account) for account in accounts])

    async def record(self, charge: Charge, accounts: Sequence[Account] = ()) -> list[Balance]:
        self._keep(charge)
        return [self._balance(account) for account in accounts]

    async def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Refusal | None:
        self._reconcile(dead=False)
        for place, cap in enumerate(caps):
            spent = self._balance(cap.account)
            if not cap.has_room(spent):
                return Refusal(place, spent)
        self._reserved[reserved.charge.id] = reserved
        return None

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        self._reconcile(dead=False)
        return [self._balance(account) for account in accounts]

    async def totals(self, accounts: Sequence[Account]) -> list[Totals]:
        return [self._total(account) for account in accounts]

    async def page(
        self, dimension: str, window: Window, *, value: str | None, first: int, last: int, cursor: str, limit: int
    ) -> Page:
        self._roll_up(dimension)
        rows = self._totals.get((dimension, window), {})
        behind = (1 << 60, "") if not cursor else (int(cursor.partition(":")[0]), cursor.partition(":")[2])
        places = [
            (start, found)
            for start, found in rows
            if first <= start <= last and value in (None, found) and (-start, found) > (-behind[0], behind[1])
        ]
        places.sort(key=lambda place: (-place[0], place[1]))
        shown = tuple(
            Row(dimension, value, window, key_of(window, start), rows[start, value]) for start, value in places[:limit]
        )
        more = len(places) > limit
        return Page(shown, f"{places[limit - 1][0]}:{places[limit - 1][1]}" if more else "")

    async def top(self, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
        self._roll_up(dimension)
        rows = [
            Row(dimension, value, window, key_of(window, start), totals)
            for (begin, value), totals in self._totals.get((dimension, window), {}).items()
            if begin == start
        ]
        rows.sort(key=lambda row: (-row.totals.tokens, row.value))
        return rows[:limit]

    async def charges(self, first: int, last: int, cursor: str, limit: int) -> ChargePage:
        after = int(cursor or 0)
        found = [
            (number, charge)
            for number, charge in enumerate(self._charges[after:], after + 1)
            if first <= day_of(charge.at) <= last
        ]
        more = str(found[limit - 1][0]) if len(found) > limit else ""
        return ChargePage(tuple(charge for _, charge in found[:limit]), more)

    def reopen(self) -> MemoryBooks:
        """What a new process would find: whoever had reserved something is dead."""
        books = MemoryBooks(self._clock)
        books._charges, books._ids, books._reserved = list(self._charges), set(self._ids), dict(self._reserved)
        books._reconcile(dead=True)
        return books

    # --- sums -----------------------------------------------------------------------------------------------------

    def _keep(self, charge: Charge) -> None:
        if charge.id not in self._ids:
            self._ids.add(charge.id)
            self._charges.append(charge)

    def _reconcile(self, *, dead: bool) -> None:
        now = self._clock.now()
        for id, reserved in list(self._reserved.items()):
            if dead or reserved.until <= now:
                del self._reserved[id]
                self._keep(reserved.charge)

    def _balance(self, account: Account) -> Balance:
        totals = self._total(account)
        claims = [r.charge for r in self._reserved.values() if account in r.accounts]
        return Balance(
            totals.tokens,
            totals.cost_nanousd,
            sum(charge.tokens for charge in claims),
            sum(charge.cost_nanousd or 0 for charge in claims),
        )

    def _total(self, account: Account) -> Totals:
        self._roll_up(account.dimension)
        rows = self._totals.get((account.dimension, account.window), {})
        return rows.get((account.start, account.value), Totals())

    def _roll_up(self, dimension: str) -> None:
        if dimension not in self._dimensions:
            self._add(dimension, self._charges[: self._rolled])
            self._dimensions.append(dimension)
        new = self._charges[self._rolled :]
        self._rolled = len(self._charges)
        for known in self._dimensions if new else ():
            self._add(known, new)

    def _add(self, dimension: str, charges: Sequence[Charge]) -> None:
        names = dimensions_in(dimension)
        for charge in charges:
            day = day_of(charge.at)
            for values in product(*(charge.scope.values_of(name) for name in names)):
                for window in WINDOWS:
                    rows = self._totals.setdefault((dimension, window), {})
                    place = (start_of(window, day), BETWEEN.join(values))
                    rows[place] = rows.get(place, Totals()).plus(charge)
