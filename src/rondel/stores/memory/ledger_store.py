"""The ledger in memory: charges in a list, and their sums by account, brought up to date when they are asked for.

The newest charges are kept one by one. Older ones are merged by day and scope, without the conversation, so memory
grows with the number of people, keys and models, not with the number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...charge import BETWEEN, Charge, Scope
from ...contracts.clock import Clock
from ...contracts.ledger import (
    Account,
    Balance,
    Cap,
    ChargePage,
    Page,
    Refusal,
    Reserved,
    Row,
    Told,
    Totals,
    Unwritten,
    dimensions_in,
    values_in,
)
from ...contracts.window import WINDOWS, Window, day_of, key_of, start_of

CHARGES_MAX = 10_000
"""Charges that are kept one by one. Sums by conversation are of these; all other sums are of every charge."""
_MERGED_AT_ONCE = 256


class MemoryLedgerStore:
    unwritten = Unwritten()

    def __init__(self, clock: Clock, *, charges_max: int = CHARGES_MAX) -> None:
        self._clock = clock
        self.charges_max = charges_max
        self._charges: list[Charge] = []
        self._recorded: set[str] = set()
        self._merged: dict[tuple[Scope, int], Totals] = {}
        """The older charges, by their scope without the conversation and by their day."""
        self._merged_count = 0
        self._dimensions: list[str] = []
        """The dimensions that were asked for; their sums are kept up to date from then on."""
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
        self._keep_once(charge)
        return [self._balance(account) for account in accounts]

    async def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Refusal | None:
        self._reconcile(dead=False)
        for index, cap in enumerate(caps):
            spent = self._balance(cap.account)
            tokens = spent.tokens + spent.reserved_tokens + reserved.tokens_min
            if not cap.allows(tokens, spent.cost_nanousd + spent.reserved_nanousd + reserved.nanousd_min):
                return Refusal(index, spent)
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
        keys = [
            (start, found)
            for start, found in rows
            if first <= start <= last and value in (None, found) and (-start, found) > (-behind[0], behind[1])
        ]
        keys.sort(key=lambda key: (-key[0], key[1]))
        shown = tuple(
            Row(dimension, value, window, key_of(window, start), rows[start, value]) for start, value in keys[:limit]
        )
        more = len(keys) > limit
        return Page(shown, f"{keys[limit - 1][0]}:{keys[limit - 1][1]}" if more else "")

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
        after = max(int(cursor or 0) - self._merged_count, 0)
        found = [
            (number, charge)
            for number, charge in enumerate(self._charges[after:], self._merged_count + after + 1)
            if first <= day_of(charge.at) <= last
        ]
        more = str(found[limit - 1][0]) if len(found) > limit else ""
        return ChargePage(tuple(charge for _, charge in found[:limit]), more)

    def reopen(self) -> MemoryLedgerStore:
        """Return what a new process would find: every worker with a reservation is dead."""
        store = MemoryLedgerStore(self._clock, charges_max=self.charges_max)
        store._charges, store._reserved = list(self._charges), dict(self._reserved)
        store._recorded = set(self._recorded)
        store._merged, store._merged_count = dict(self._merged), self._merged_count
        store._reconcile(dead=True)
        return store

    # --- sums -----------------------------------------------------------------------------------------------------

    def _keep_once(self, charge: Charge) -> None:
        if charge.id not in self._recorded:
            self._recorded.add(charge.id)
            self._keep(charge)

    def _keep(self, charge: Charge) -> None:
        self._charges.append(charge)
        if len(self._charges) >= self.charges_max + min(_MERGED_AT_ONCE, self.charges_max):
            self._merge_oldest(len(self._charges) - self.charges_max)

    def _merge_oldest(self, count: int) -> None:
        if self._dimensions:
            self._roll_up(self._dimensions[0])
        old, self._charges = self._charges[:count], self._charges[count:]
        self._rolled = max(self._rolled - count, 0)
        self._merged_count += count
        for charge in old:
            self._recorded.discard(charge.id)
            key = msgspec.structs.replace(charge.scope, conversation=""), day_of(charge.at)
            self._merged[key] = self._merged.get(key, Totals()) + Totals.of(charge)
        for (dimension, _), rows in self._totals.items():
            names = dimensions_in(dimension)
            if "conversation" in names:
                index, known = names.index("conversation"), {charge.scope.conversation for charge in self._charges}
                for row in [row for row in rows if row[1].split(BETWEEN)[index] not in known]:
                    del rows[row]

    def _reconcile(self, *, dead: bool) -> None:
        now = self._clock.now()
        for id, reserved in list(self._reserved.items()):
            if dead or reserved.until <= now:
                del self._reserved[id]
                self._keep_once(reserved.charge)

    def _balance(self, account: Account) -> Balance:
        totals = self._total(account)
        claims = [r.charge for r in self._reserved.values() if account.counts(r.charge)]
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
            self._add(dimension, ((scope, day, totals) for (scope, day), totals in self._merged.items()))
            self._add(dimension, map(_summed, self._charges[: self._rolled]))
            self._dimensions.append(dimension)
        new = [_summed(charge) for charge in self._charges[self._rolled :]]
        self._rolled = len(self._charges)
        for known in self._dimensions if new else ():
            self._add(known, new)

    def _add(self, dimension: str, sums: Iterable[tuple[Scope, int, Totals]]) -> None:
        names = dimensions_in(dimension)
        for scope, day, totals in sums:
            for value in values_in(scope, names):
                for window in WINDOWS:
                    rows = self._totals.setdefault((dimension, window), {})
                    key = (start_of(window, day), value)
                    rows[key] = rows.get(key, Totals()) + totals


def _summed(charge: Charge) -> tuple[Scope, int, Totals]:
    return charge.scope, day_of(charge.at), Totals.of(charge)
