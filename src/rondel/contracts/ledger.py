"""The contract of a store for the ledger, and its values: totals, rules, accounts and reservations.

Tokens and money are whole numbers, so that sums are exact: money is in billionths of a dollar. An unknown price is
None, never 0. Knows no store, no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import astuple

from ..charge import ALL, BETWEEN, DIMENSIONS, EACH, NANO, Charge, Scope
from ..errors import RondelError, nearest
from ..values import Value
from .window import WINDOWS, Window, day_of, end_of, key_of, start_of

PAGE_MAX = 500
PAGE = 50

Mode: TypeAlias = Literal["warn", "block"]


class Totals(Value, frozen=True):
    """Sums of charges. `cost_nanousd` leaves out those without a price, which `unpriced` counts."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_cache_written: int = 0
    tokens_reasoning: int = 0
    cost_nanousd: int = 0
    unpriced: int = 0
    estimated: int = 0
    updated_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    @property
    def cost_usd(self) -> float:
        return self.cost_nanousd / NANO

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tokens_cached + other.tokens_cached,
            self.tokens_cache_written + other.tokens_cache_written,
            self.tokens_reasoning + other.tokens_reasoning,
            self.cost_nanousd + other.cost_nanousd,
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
            max(self.updated_at, other.updated_at),
        )

    @classmethod
    def of(cls, charge: Charge) -> Totals:
        *tokens, estimated = astuple(charge.usage)
        cost, at = charge.cost_nanousd, charge.at
        return cls(1, *tokens, cost_nanousd=cost or 0, unpriced=cost is None, estimated=int(estimated), updated_at=at)


class Row(Value, frozen=True):
    """What one value of a dimension spent in one window."""

    dimension: str
    value: str
    window: Window
    key: str
    totals: Totals

    @property
    def values(self) -> tuple[str, ...]:
        """The values of several dimensions that are counted together, one for each."""
        return tuple(self.value.split(BETWEEN))


class Page(Value, frozen=True):
    """`cursor` is where the next page begins; empty on the last page."""

    rows: tuple[Row, ...] = ()
    cursor: str = ""


class ChargePage(Value, frozen=True):
    charges: tuple[Charge, ...] = ()
    cursor: str = ""


# --- rules ------------------------------------------------------------------------------------------------------------


class Rule(Value, frozen=True):
    """How much may be spent in a window on calls that match `scope`: in tokens, in dollars, or both.

    `scope` maps dimensions to values; `*` applies the limit to each value separately: `{"person": "*"}` is a limit per
    person. Without a scope, the rule covers all calls together. `warn` emits an event, `block` refuses the call.
    """

    scope: dict[str, str] = {}
    window: Window = "day"
    tokens: int | None = None
    money: float | None = None
    mode: Mode = "warn"
    message: str = ""

    def __post_init__(self) -> None:
        for dimension in self.scope:
            if dimension not in DIMENSIONS:
                raise RondelError(f"a limit's scope has no {dimension!r}{nearest(dimension, DIMENSIONS)}")
        if self.window not in WINDOWS:
            raise RondelError(f"a limit's window cannot be {self.window!r}{nearest(self.window, WINDOWS)}")
        if self.mode not in ("warn", "block"):
            raise RondelError(f"a limit's mode cannot be {self.mode!r}{nearest(self.mode, ('warn', 'block'))}")
        if self.tokens is None and self.money is None:
            raise RondelError("a limit needs `tokens`, `money` (in dollars), or both")
        for name, most in (("tokens", self.tokens), ("money", self.money)):
            if most is not None and not 0 <= most < 1e15:
                raise RondelError(f"a limit's {name} is {most!r}; it must be 0 or more")

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions that it names, in their usual order."""
        return tuple(dimension for dimension in DIMENSIONS if dimension in self.scope)

    @property
    def cost_nanousd(self) -> int | None:
        """The money in billionths of a dollar, or None."""
        return None if self.money is None else round(self.money * NANO)

    def accounts_of(self, scope: Scope) -> tuple[tuple[str, str], ...]:
        """Return the (dimension, value) pairs under which this rule counts a call; none if it does not apply."""
        found: list[tuple[str, ...]] = [()]
        for dimension in self.dimensions:
            wanted, values = self.scope[dimension], scope.values_of(dimension)
            kept = values if wanted == EACH else tuple(value for value in values if value == wanted)
            found = [(*before, value) for before in found for value in kept]
        return tuple((dimension_of(self.dimensions), BETWEEN.join(values)) for values in found)


def dimension_of(names: Sequence[str]) -> str:
    """Return the name of dimensions that are counted together: `key+model`, or `all` for none."""
    return "+".join(sorted(names, key=DIMENSIONS.index)) if names else ALL


@lru_cache(maxsize=256)
def dimensions_in(dimension: str) -> tuple[str, ...]:
    """Split a name such as `key+model` into dimensions. Raises RondelError with the nearest name for an unknown one."""
    names = () if dimension in ("", ALL) else tuple(dimension.replace(",", "+").split("+"))
    for name in names:
        if name not in DIMENSIONS:
            raise RondelError(f"nothing is counted by {name!r}{nearest(name, (*DIMENSIONS, ALL))}")
    return tuple(sorted(set(names), key=DIMENSIONS.index))


def values_in(scope: Scope, dimensions: Sequence[str]) -> list[str]:
    """Return the values under which a scope counts in several dimensions together; none if one of them is unknown."""
    return [BETWEEN.join(values) for values in product(*(scope.values_of(name) for name in dimensions))]


class Account(Value, frozen=True):
    """One value of a dimension in one window, on which spending is counted."""

    dimension: str
    value: str
    window: Window
    start: int

    @classmethod
    def at(cls, dimension: str, value: str, window: Window, at: float) -> Account:
        return cls(dimension, value, window, start_of(window, day_of(at)))

    def counts(self, charge: Charge) -> bool:
        """Return whether a charge is counted on this account."""
        if start_of(self.window, day_of(charge.at)) != self.start:
            return False
        return self.value in values_in(charge.scope, dimensions_in(self.dimension))

    @property
    def key(self) -> str:
        return key_of(self.window, self.start)

    @property
    def end(self) -> int:
        return end_of(self.window, self.start)


class Balance(Value, frozen=True):
    """What was spent on an account, and what calls in progress have reserved."""

    tokens: int = 0
    cost_nanousd: int = 0
    reserved_tokens: int = 0
    reserved_nanousd: int = 0


class Cap(Value, frozen=True):
    """How much may be spent on an account."""

    account: Account
    tokens: int | None = None
    cost_nanousd: int | None = None

    def allows(self, tokens: int, nanousd: int) -> bool:
        """Return whether this total, spent and reserved, is within the cap."""
        if self.tokens is not None and tokens > self.tokens:
            return False
        return self.cost_nanousd is None or nanousd <= self.cost_nanousd


class Refusal(Value, frozen=True):
    """The first cap without room, by its index, and the balance of its account."""

    index: int
    balance: Balance


class Reserved(Value, frozen=True):
    """What a call is expected to spend, until it is settled. If it is never settled, `charge` is charged. At least
    `tokens_min` and `nanousd_min` must fit."""

    charge: Charge
    until: float
    tokens_min: int = 1
    nanousd_min: int = 1


Told: TypeAlias = Callable[[list[Balance]], None]  # gets the balances of the accounts that were given with it

UnknownPrice: TypeAlias = Literal["block", "estimate", "allow"]
"""What a money limit does with a call of unknown price."""
OnWriteFailure: TypeAlias = Literal["allow", "block"]  # whether calls are allowed while charges cannot be written


class Unwritten(Value, frozen=True):
    """Charges that wait in memory because they could not be written, those that were lost, and the reason."""

    charges: int = 0
    tokens: int = 0
    lost_charges: int = 0
    lost_tokens: int = 0
    reason: str = ""


class LedgerStore(Protocol):
    """Stores charges and adds them up. Part of a store; nothing here blocks the event loop."""

    @property
    def unwritten(self) -> Unwritten: ...

    def settle(
        self,
        charge: Charge | None,
        *,
        reserved: Reserved | None = None,
        accounts: Sequence[Account] = (),
        told: Told | None = None,
    ) -> None:
        """Store a charge and release its reservation, soon and without waiting. A reservation is settled once: a later
        charge, or one after it was considered lost, is not stored. Without a reservation, settle each call once.

        When that is written, `told` is called with the balances of `accounts`.
        """

    async def record(self, charge: Charge, accounts: Sequence[Account] = ()) -> list[Balance]:
        """Store a charge, unless one with this id was recorded before. Returns the balances of the accounts when the
        charge would survive `kill -9`."""
        ...

    def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Awaitable[Refusal | None]:
        """Reserve what the charge spends, on every account on which it counts, if all caps have room for its minimum.

        This is atomic, also between processes. What a dead worker had reserved counts as spent.
        """
        ...

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]: ...

    async def totals(self, accounts: Sequence[Account]) -> list[Totals]: ...

    async def page(
        self, dimension: str, window: Window, *, value: str | None, first: int, last: int, cursor: str, limit: int
    ) -> Page:
        """Return a page of rows, the newest windows first, with the values of a window in order. Only windows that
        begin between the days `first` and `last` are included."""
        ...

    async def top(self, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
        """Return the values with the most tokens in one window."""
        ...

    async def charges(self, first: int, last: int, cursor: str, limit: int) -> ChargePage:
        """Return the charges of some days in the order in which they were stored."""
        ...
