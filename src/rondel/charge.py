"""What was spent, on what, and how much of it may be spent: values, and the contract of the books that keep them.

Tokens and money are whole numbers here, so that a sum is exact: money counts in billionths of a dollar. A price that
nobody knows is None and never 0. Knows no store, no engine and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from .errors import RondelError, nearest
from .values import Usage, Value
from .window import WINDOWS, Window, day_of, end_of, key_of, start_of

NANO = 1_000_000_000
TOKENS_MAX = 1_000_000_000
"""No call spends more; who says so is not believed."""
TEXT_CHARS_MAX = 200
PAGE_MAX = 500
PAGE = 50

Mode: TypeAlias = Literal["warn", "block"]
DIMENSIONS = (
    "kind",
    "model",
    "engine",
    "agent",
    "conversation",
    "person",
    "role",
    "channel",
    "guild",
    "key",
    "project",
)
ALL = "all"
"""The dimension of everything together; its only value is the empty one."""
EACH = "*"
BETWEEN = "\x1f"
"""Stands between the values of several dimensions. No value has it: control characters are taken out."""

_CONTROLS = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Scope(Value, frozen=True):
    """What a call is for. What is empty is not known, and counts nowhere.

    `kind` is `chat`, `agent` (one that works for another), `question` (of a trigger), `summary`, `relay`, `image`,
    `voice`, `embedding`, or a word of your own.
    """

    kind: str = ""
    model: str = ""
    engine: str = ""
    agent: str = ""
    conversation: str = ""
    person: str = ""
    roles: tuple[str, ...] = ()
    channel: str = ""
    guild: str = ""
    key: str = ""
    project: str = ""

    def values_of(self, dimension: str) -> tuple[str, ...]:
        if dimension == "role":
            return self.roles
        value: str = getattr(self, dimension)
        return (value,) if value else ()

    def over(self, other: Scope) -> Scope:
        """This scope, with what it does not know taken from another."""
        return Scope(
            self.kind or other.kind,
            self.model or other.model,
            self.engine or other.engine,
            self.agent or other.agent,
            self.conversation or other.conversation,
            self.person or other.person,
            self.roles or other.roles,
            self.channel or other.channel,
            self.guild or other.guild,
            self.key or other.key,
            self.project or other.project,
        )

    def cleaned(self) -> Scope:
        """The same in texts that can be kept: short, and with no control characters."""
        if not self.roles:
            told = f"{self.kind}{self.model}{self.engine}{self.agent}{self.conversation}{self.person}"
            told += f"{self.channel}{self.guild}{self.key}{self.project}"
            if len(told) <= TEXT_CHARS_MAX and told.isascii() and told.isprintable():  # as nearly all are
                return self
        roles = tuple(dict.fromkeys(cleaned for role in self.roles if (cleaned := _clean(role))))
        values = (roles if field == "roles" else _clean(getattr(self, field)) for field in self.__struct_fields__)
        return Scope(*values)  # type: ignore[arg-type]


def _clean(text: str) -> str:
    text = text[:TEXT_CHARS_MAX]
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(" ", text)


class Charge(Value, frozen=True):
    """What one call spent. `at` is when it began; `price` names the list of prices that `cost_nanousd` is from."""

    id: str
    at: float
    scope: Scope
    usage: Usage
    cost_nanousd: int | None = None
    price: str = ""
    metadata: dict[str, Any] = {}

    @property
    def tokens(self) -> int:
        return self.usage.tokens_in + self.usage.tokens_out


class Totals(Value, frozen=True):
    """Sums over charges. Those without a price are counted in `unpriced`, and `cost_nanousd` leaves them out."""

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

    def plus(self, charge: Charge) -> Totals:
        usage, cost = charge.usage, charge.cost_nanousd
        return Totals(
            self.calls + 1,
            self.tokens_in + usage.tokens_in,
            self.tokens_out + usage.tokens_out,
            self.tokens_cached + usage.tokens_cached,
            self.tokens_cache_written + usage.tokens_cache_written,
            self.tokens_reasoning + usage.tokens_reasoning,
            self.cost_nanousd + (cost or 0),
            self.unpriced + (cost is None),
            self.estimated + usage.estimated,
            max(self.updated_at, charge.at),
        )


class Row(Value, frozen=True):
    """What one value of a dimension spent in one window."""

    dimension: str
    value: str
    window: Window
    key: str
    totals: Totals

    @property
    def values(self) -> tuple[str, ...]:
        """One for each dimension, where several are counted together."""
        return tuple(self.value.split(BETWEEN))


class Page(Value, frozen=True):
    """`cursor` is what the next page begins behind; it is empty when there is none."""

    rows: tuple[Row, ...] = ()
    cursor: str = ""


class ChargePage(Value, frozen=True):
    charges: tuple[Charge, ...] = ()
    cursor: str = ""


# --- rules ------------------------------------------------------------------------------------------------------------


class Rule(Value, frozen=True):
    """How much may be spent in a window by what `scope` names: in tokens, in dollars, or both.

    `scope` maps dimensions to values; `*` stands for each value on its own, so `{"person": "*"}` gives everybody as
    much. Without a scope it holds for everything together. `warn` tells, `block` refuses.
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
            raise RondelError(f"a limit's window is not {self.window!r}{nearest(self.window, WINDOWS)}")
        if self.mode not in ("warn", "block"):
            raise RondelError(f"a limit's mode is not {self.mode!r}{nearest(self.mode, ('warn', 'block'))}")
        if self.tokens is None and self.money is None:
            raise RondelError("a limit limits nothing: give it `tokens`, `money` (in dollars), or both")
        for name, most in (("tokens", self.tokens), ("money", self.money)):
            if most is not None and not 0 <= most < 1e15:
                raise RondelError(f"a limit's {name} is {most!r}; it is 0 or more")

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(dimension for dimension in DIMENSIONS if dimension in self.scope)

    @property
    def cost_nanousd(self) -> int | None:
        return None if self.money is None else round(self.money * NANO)

    def accounts_of(self, scope: Scope) -> tuple[tuple[str, str], ...]:
        """The (dimension, value) pairs under which this rule counts a call; none when it does not apply."""
        found: list[tuple[str, ...]] = [()]
        for dimension in self.dimensions:
            wanted, values = self.scope[dimension], scope.values_of(dimension)
            kept = values if wanted == EACH else tuple(value for value in values if value == wanted)
            found = [(*before, value) for before in found for value in kept]
        return tuple((dimension_of(self.dimensions), BETWEEN.join(values)) for values in found)


def dimension_of(names: Sequence[str]) -> str:
    """The name of several dimensions that are counted together: `key+model`, and `all` for none."""
    return "+".join(sorted(names, key=DIMENSIONS.index)) if names else ALL


def dimensions_in(dimension: str) -> tuple[str, ...]:
    """The single dimensions in a name such as `key+model`; RondelError with the nearest one when there is none."""
    names = () if dimension in ("", ALL) else tuple(dimension.replace(",", "+").split("+"))
    for name in names:
        if name not in DIMENSIONS:
            raise RondelError(f"nothing is counted by {name!r}{nearest(name, (*DIMENSIONS, ALL))}")
    return tuple(sorted(set(names), key=DIMENSIONS.index))


class Account(Value, frozen=True):
    """Where something is counted: one value of a dimension in one window."""

    dimension: str
    value: str
    window: Window
    start: int

    @classmethod
    def at(cls, dimension: str, value: str, window: Window, at: float) -> Account:
        return cls(dimension, value, window, start_of(window, day_of(at)))

    @property
    def key(self) -> str:
        return key_of(self.window, self.start)

    @property
    def end(self) -> int:
        return end_of(self.window, self.start)


class Balance(Value, frozen=True):
    """What an account has come to, and what is reserved of it by calls that are under way."""

    tokens: int = 0
    cost_nanousd: int = 0
    reserved_tokens: int = 0
    reserved_nanousd: int = 0


class Cap(Value, frozen=True):
    """How much an account may come to."""

    account: Account
    tokens: int | None = None
    cost_nanousd: int | None = None

    def has_room(self, balance: Balance) -> bool:
        """Whether one token more, or one billionth of a dollar, would still be within it."""
        if self.tokens is not None and balance.tokens + balance.reserved_tokens >= self.tokens:
            return False
        return self.cost_nanousd is None or balance.cost_nanousd + balance.reserved_nanousd < self.cost_nanousd


class Refusal(Value, frozen=True):
    """Which of the caps has no room left."""

    place: int
    balance: Balance


class Reserved(Value, frozen=True):
    """A claim on some accounts until its call is settled. `charge` is what it will have been if nobody settles it."""

    charge: Charge
    accounts: tuple[Account, ...] = ()
    until: float = 0.0


Tell: TypeAlias = Callable[[Any], object]
"""Hears events of the ledger."""


class Reservation:
    """A call that was admitted and is not over yet. It is settled or voided once; what comes later does nothing."""

    __slots__ = ("at", "over", "reserved", "scope", "tell")

    def __init__(self, at: float, scope: Scope, tell: Tell | None = None) -> None:
        self.at, self.scope, self.tell = at, scope, tell
        self.reserved: Reserved | None = None
        """What the books hold for it."""
        self.over = False


class Counter(Protocol):
    """What a wrapper around an engine needs of the ledger."""

    async def reserve(
        self, scope: Scope, *, tokens: Callable[[], tuple[int, int]], tell: Tell | None = None
    ) -> Reservation: ...

    def settle(
        self,
        reservation: Reservation,
        usage: Usage,
        *,
        model: str = "",
        estimate: Callable[[], Usage] | None = None,
        whole: bool = True,
    ) -> None: ...

    def void(self, reservation: Reservation) -> None: ...


Told: TypeAlias = Callable[[list[Balance]], None]


class Books(Protocol):
    """Where charges are kept and added up. Part of a store; nothing here blocks the event loop."""

    def settle(
        self,
        charge: Charge | None,
        *,
        reserved: Reserved | None = None,
        accounts: Sequence[Account] = (),
        told: Told | None = None,
    ) -> None:
        """Keep a charge and let go of a reservation, soon and without waiting. The same id is kept once.

        With `accounts`, `told` hears what they have come to once that is written.
        """
        ...

    async def record(self, charge: Charge, accounts: Sequence[Account] = ()) -> list[Balance]:
        """Keep a charge. It returns when the charge would survive `kill -9`, with what the accounts have come to."""
        ...

    async def reserve(self, reserved: Reserved, caps: Sequence[Cap]) -> Refusal | None:
        """Claim the charge's tokens and money on all of the accounts, when all of the caps have room left.

        That is one step, whoever else does the same. What a worker that died had claimed counts as spent.
        """
        ...

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]: ...

    async def totals(self, accounts: Sequence[Account]) -> list[Totals]: ...

    async def page(
        self, dimension: str, window: Window, *, value: str | None, first: int, last: int, cursor: str, limit: int
    ) -> Page:
        """Newest windows first, the values of one window in order; `first` and `last` are days that windows begin."""
        ...

    async def top(self, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
        """Who spent most in one window."""
        ...

    async def charges(self, first: int, last: int, cursor: str, limit: int) -> ChargePage:
        """The charges of some days, in the order in which they were kept."""
        ...
