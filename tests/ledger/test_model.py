"""Random histories with crashes, against a naive recount of everything that was ever charged."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from math import floor, inf
from pathlib import Path
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from rondel.charge import DIMENSIONS, Scope
from rondel.contracts.ledger import Rule
from rondel.contracts.store import Store
from rondel.errors import TokenLimitError
from rondel.ledger.admission import Reservation
from rondel.ledger.ledger import Ledger
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.testing import VirtualClock
from rondel.values import Usage, Value

from .conftest import at

NAMES = st.sampled_from(["", "a", "b"])
SCOPES = st.builds(
    Scope,
    st.sampled_from(["chat", "agent"]),
    st.sampled_from(["m", "n"]),
    person=NAMES,
    roles=st.lists(st.sampled_from(["r", "s"]), max_size=2, unique=True).map(tuple),
    key=NAMES,
)
USAGES = st.builds(Usage, st.integers(-5, 60), st.integers(0, 60), st.integers(0, 80))
RULES = (
    Rule({"model": "m"}, "day", tokens=150, mode="block"),
    Rule({"key": "*", "model": "*"}, "month", tokens=300, mode="block"),
    Rule({"role": "r"}, "week", tokens=200),
)


class Record(Value, frozen=True):
    scope: Scope
    usage: Usage


class Call(Value, frozen=True):
    scope: Scope
    estimate: int


class End(Value, frozen=True):
    """Settle the call at this place of those under way, or void it."""

    place: int
    usage: Usage | None


class Wait(Value, frozen=True):
    days: float


class Crash(Value, frozen=True):
    """The process is gone; a new one opens the file."""


class Look(Value, frozen=True):
    """Ask for sums in the middle of it."""


Step: TypeAlias = Record | Call | End | Wait | Crash | Look
STEPS = st.lists(
    st.one_of(
        st.builds(Record, SCOPES, USAGES),
        st.builds(Call, SCOPES, st.integers(1, 90)),
        st.builds(Call, SCOPES, st.integers(1, 90)),
        st.builds(End, st.integers(0, 5), st.none() | USAGES),
        st.builds(End, st.integers(0, 5), USAGES),
        st.builds(Wait, st.floats(-3, 40)),
        st.just(Crash()),
        st.just(Look()),
    ),
    max_size=40,
)


def key_of(window: str, when: float) -> str:
    moment = datetime.fromtimestamp(floor(when), UTC)  # else the last half of a microsecond would be the next day's
    year, week, _ = moment.isocalendar()
    return {
        "day": moment.strftime("%Y-%m-%d"),
        "week": f"{year}-W{week:02d}",
        "month": moment.strftime("%Y-%m"),
        "lifetime": "lifetime",
    }[window]


class Recount:
    """The simplest ledger that could be right: a list, counted anew for each question."""

    def __init__(self) -> None:
        self.charges: list[tuple[float, Scope, Usage]] = []
        self.under_way: list[tuple[Reservation, int]] = []

    def rows(self, by: str, window: str) -> dict[tuple[str, str], tuple[int, int, int, int]]:
        sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for when, scope, usage in self.charges:
            values = scope.roles if by == "role" else (getattr(scope, by),) if by != "all" else ("",)
            for value in values:
                if value or by == "all":
                    row = sums[key_of(window, when), value]
                    counts = (usage.tokens_in, usage.tokens_out, usage.tokens_cached, 1)
                    row[:] = [a + b for a, b in zip(row, counts, strict=True)]
        return {place: tuple(row) for place, row in sums.items()}  # pyright: ignore[reportReturnType]

    def has_room(self, scope: Scope, now: float, needed: int) -> bool:
        for rule in RULES:
            if rule.mode != "block" or (rule.scope.get("model") == "m" and scope.model != "m"):
                continue
            if "key" in rule.scope and not scope.key:
                continue

            def same(other: Scope, when: float, rule: Rule = rule) -> bool:
                dimensions = [d for d in rule.scope if getattr(other, d) != getattr(scope, d)]
                return not dimensions and key_of(rule.window, when) == key_of(rule.window, now)

            used = sum(u.tokens_in + u.tokens_out for when, other, u in self.charges if same(other, when))
            used += sum(n for r, n in self.under_way if same(r.scope, r.at))
            if used + needed > (rule.tokens or 0):
                return False
        return True


def clamped(usage: Usage) -> Usage | None:
    tokens_in = max(usage.tokens_in, 0)
    if not tokens_in + usage.tokens_out:
        return None
    return Usage(tokens_in, usage.tokens_out, min(usage.tokens_cached, tokens_in))


class World:
    """A ledger and its recount, told the same."""

    def __init__(self, store: Store, path: Path | None) -> None:
        self.clock = VirtualClock(at("2024-02-28"))
        self.path, self.naive = path, Recount()
        self._open(store)

    def _open(self, store: Store) -> None:
        store.ledger_store._clock = self.clock  # pyright: ignore[reportAttributeAccessIssue]
        self.store = store
        self.ledger = Ledger(store.ledger_store, rules=RULES, clock=self.clock)

    async def do(self, step: Step) -> None:
        naive, ledger = self.naive, self.ledger
        if isinstance(step, Record):
            recorded, usage = await ledger.record(step.scope, step.usage), clamped(step.usage)
            assert (recorded is None) == (usage is None)
            if usage is not None:
                naive.charges.append((self.clock.now(), step.scope, usage))
        elif isinstance(step, Call):
            await self._call(step)
        elif isinstance(step, End):
            if step.place < len(naive.under_way):
                reservation, _ = naive.under_way.pop(step.place)
                usage = clamped(step.usage) if step.usage is not None else None
                if step.usage is None:
                    ledger.void(reservation)
                else:
                    ledger.settle(reservation, step.usage)
                if usage is not None:
                    naive.charges.append((reservation.at, reservation.scope, usage))
        elif isinstance(step, Wait):
            # Backwards, too: the clock of a machine may be set.
            self.clock._now = max(self.clock._now + step.days * 86_400, at("2024-01-01"))  # pyright: ignore[reportPrivateUsage]
            await self._lose_the_expired()
        elif isinstance(step, Crash):
            await self._crash()
        else:
            await self.check()

    async def _call(self, step: Call) -> None:
        room = self.naive.has_room(step.scope, self.clock.now(), step.estimate)
        try:
            reservation = await self.ledger.reserve(step.scope, tokens=lambda: (step.estimate, 0))
        except TokenLimitError:
            assert not room
            return
        assert room
        self.naive.under_way.append((reservation, step.estimate))

    async def _lose_the_expired(self) -> None:
        left: list[tuple[Reservation, int]] = []
        for reservation, estimate in self.naive.under_way:
            if reservation.reserved and self.clock.now() >= reservation.at + 6 * 3600:
                self._lost(reservation, estimate)
            else:
                left.append((reservation, estimate))
        self.naive.under_way = left
        if isinstance(self.store, SqliteStore):
            self.store._writer._reconciled_at = -inf  # pyright: ignore[reportPrivateUsage]
        await self.store.ledger_store.balances([])  # whoever looks next finds out

    def _lost(self, reservation: Reservation, estimate: int) -> None:
        self.naive.charges.append((reservation.at, reservation.scope, Usage(estimate, 0)))
        reservation.over = True

    async def _crash(self) -> None:
        """Calls that had a reservation count as they were estimated; what was settled is on its way to the disk."""
        if isinstance(self.store, MemoryStore):
            self._open(self.store.reopen())
        else:
            assert self.path is not None
            await self.store.aclose()
            self._open(SqliteStore(self.path, clock=self.clock))
        for reservation, estimate in self.naive.under_way:
            if reservation.reserved:
                self._lost(reservation, estimate)
        self.naive.under_way.clear()

    async def check(self) -> None:
        for by in (*DIMENSIONS, "all"):
            for window in ("day", "week", "month", "lifetime"):
                page = await self.ledger.summary(by=by, window=window, limit=500)  # pyright: ignore[reportArgumentType]
                seen = {
                    (r.key, r.value): (r.totals.tokens_in, r.totals.tokens_out, r.totals.tokens_cached, r.totals.calls)
                    for r in page.rows
                }
                assert seen == self.naive.rows(by, window), (by, window)


def play(steps: list[Step], kind: str) -> None:
    async def main(path: Path | None) -> None:
        world = World(MemoryStore() if path is None else SqliteStore(path), path)
        try:
            for step in steps:
                await world.do(step)
            await world.check()
        finally:
            await world.store.aclose()

    if kind == "memory":
        asyncio.run(main(None))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder) / "rondel.db"))


@given(STEPS)
def test_in_memory_every_history_adds_up_to_its_recount(steps: list[Step]):
    play(steps, "memory")


@given(STEPS)
def test_on_disk_every_history_adds_up_to_its_recount(steps: list[Step]):
    play(steps, "sqlite")


def test_a_long_history_is_rolled_up_many_times_and_loses_nothing():
    scopes = [Scope("chat", model, person=person, key=person) for model in "no" for person in ("", "a", "b")]
    steps: list[Step] = []
    for number in range(400):
        steps += [Record(scopes[number % 6], Usage(number % 50, 1)), Wait(0.07)]
    steps[300:300] = [Look()]
    play(steps, "sqlite")
