"""The ledger: what every engine call spent, by whom, and limits that hold.

    reserve -> settle | void

A call is admitted before it is made and charged when it is over. Where no rule applies that costs next to nothing:
charges wait for a moment and are written many at once, and the charges of that moment are what `kill -9` can lose.
Where a rule blocks, the reservation is one conditional update that is waited for, so of such a call at least what was
expected stays. Knows no SQL and no engine; what it counts with is a store's books.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from .charge import (
    ALL,
    PAGE,
    PAGE_MAX,
    Account,
    Balance,
    Books,
    Cap,
    Charge,
    ChargePage,
    Page,
    Refusal,
    Reservation,
    Reserved,
    Row,
    Rule,
    Scope,
    Tell,
    Totals,
    dimension_of,
    dimensions_in,
)
from .clock import Clock, SystemClock
from .engine import Engine, EngineFace
from .engines.meter import meter
from .errors import RondelError, TokenLimitError, nearest
from .events import SpendingWarned, UsageRecorded
from .prices import Prices
from .spending import (
    LimitState,
    Recorded,
    breaches_of,
    credible,
    left,
    limit_sentence,
    named,
    retry_after_s,
    under_way,
)
from .values import Usage
from .window import WINDOWS, Window, day_number, day_of, start_of

log = logging.getLogger("rondel.ledger")

RESERVED_S = 6 * 3600.0
"""A reservation that nobody settles counts as spent after so long."""
UNSETTLED = {"unsettled": True}
"""Says of a charge that its call was never settled: the program died, or forgot it."""
SCOPES_MAX = 4096
"""Scopes whose rules are kept at hand."""

EventName: TypeAlias = Literal["usage.recorded", "usage.limitReached"]
Listener: TypeAlias = Callable[[Any], object]


class _Plan(NamedTuple):
    """The accounts of one day on which the rules for a scope count, in the order of the rules."""

    accounts: tuple[Account, ...]
    capped: tuple[tuple[Rule, Account], ...]
    caps: tuple[Cap, ...]
    claimed: tuple[Account, ...]
    warned: tuple[tuple[Rule, Account], ...]


class _Applying:
    """What applies to calls of one scope: the scope in words that can be kept, its rules, and where they count."""

    __slots__ = ("_day", "_plan", "blocks", "provider", "rules", "scope", "warns")

    def __init__(self, scope: Scope, rules: Sequence[Rule]) -> None:
        self.scope = scope.cleaned()
        self.provider = scope.engine.partition(":")[0]
        self.rules = tuple((rule, *account) for rule in rules for account in rule.accounts_of(self.scope))
        modes = {rule.mode for rule, _, _ in self.rules}
        self.blocks, self.warns = "block" in modes, "warn" in modes
        self._day, self._plan = -1, _Plan((), (), (), (), ())

    def plan(self, at: float) -> _Plan:
        if (day := day_of(at)) != self._day:
            pairs = [(rule, Account.at(name, value, rule.window, at)) for rule, name, value in self.rules]
            capped = tuple(pair for pair in pairs if pair[0].mode == "block")
            self._day, self._plan = (
                day,
                _Plan(
                    tuple(account for _, account in pairs),
                    capped,
                    tuple(Cap(account, rule.tokens, rule.cost_nanousd) for rule, account in capped),
                    tuple(dict.fromkeys(account for _, account in capped)),
                    tuple(pair for pair in pairs if pair[0].mode == "warn"),
                ),
            )
        return self._plan


class Ledger:
    def __init__(
        self,
        books: Books,
        *,
        rules: Sequence[Rule] = (),
        clock: Clock | None = None,
        prices: Prices | None = None,
        on_recorded: Listener | None = None,
        on_limit_reached: Listener | None = None,
    ) -> None:
        self._books = books
        self._clock = clock or SystemClock()
        self._prices = prices or Prices()
        self._loading: asyncio.Future[None] | None = None
        self._unpriced: list[Callable[[], None]] = []
        self._applying: dict[Scope, _Applying] = {}
        self._listeners: dict[str, list[tuple[Listener, bool]]] = {name: [] for name in get_args(EventName)}
        self._id_prefix = f"u_{int(self._clock.now() * 1000):011x}{os.urandom(5).hex()}"
        self._id_count = 0
        self.rules: tuple[Rule, ...] = ()
        self.configure(rules)
        if on_recorded is not None:
            self.on("usage.recorded", on_recorded)
        if on_limit_reached is not None:
            self.on("usage.limitReached", on_limit_reached)

    def configure(self, rules: Sequence[Rule]) -> None:
        """Other rules from now on."""
        self.rules = tuple(rules)
        self._applying.clear()

    def meter(self, engine: EngineFace, scope: Scope | Callable[[], Scope], *, tell: Tell | None = None) -> Engine:
        """The engine, with every call counted. It can relay when the engine can.

        `tell` hears of what is charged and of what is warned of.
        """
        return meter(engine, self, scope, tell)

    # --- a call ---------------------------------------------------------------------------------------------------

    async def reserve(
        self, scope: Scope, *, tokens: Callable[[], tuple[int, int]], tell: Tell | None = None
    ) -> Reservation:
        """Admit a call, or raise TokenLimitError. `tokens` estimates those in and out; it is asked only if need be."""
        applying = self._applying.get(scope) or self._applies_to(scope)
        reservation = Reservation(self._clock.now(), applying.scope, tell)
        if not self._prices.loaded and self._prices.lists(applying.provider):
            self._load_prices()
        if applying.rules:
            await self._admit(reservation, applying, Usage(*tokens(), estimated=True))
        return reservation

    async def _admit(self, reservation: Reservation, applying: _Applying, usage: Usage) -> None:
        plan = applying.plan(reservation.at)
        if applying.blocks:
            if self._loading is not None:
                await asyncio.wait((self._loading,))
            charge = self._charge(self._new_id(), reservation.at, applying.scope, usage, UNSETTLED)
            reserved = Reserved(charge, plan.claimed, reservation.at + RESERVED_S)
            refusal = await self._books.reserve(reserved, plan.caps)
            if refusal is not None:
                raise self._refused(plan.capped[refusal.place], refusal, reservation)
            reservation.reserved = reserved
        if applying.warns and reservation.tell is not None:
            balances = await self._books.balances([account for _, account in plan.warned])
            for (rule, account), balance in zip(plan.warned, balances, strict=True):
                if left(rule, balance)[2]:
                    reservation.tell(_warning(rule, account))

    def settle(
        self,
        reservation: Reservation,
        usage: Usage,
        *,
        model: str = "",
        estimate: Callable[[], Usage] | None = None,
        whole: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Charge what a call spent, once. `estimate` says what it was where the upstream did not, or not credibly;
        `whole` is False for an answer that was cut off. It does not wait."""
        if reservation.over:
            return
        reservation.over = True
        usage = credible(usage, estimate, whole=whole)
        if not usage.tokens_in + usage.tokens_out:
            return self._let_go(reservation)
        scope = reservation.scope
        if model and model != scope.model and (answered := named(model, scope)) != scope.model:
            other = msgspec.structs.replace(scope, model=answered)
            scope = (self._applying.get(other) or self._applies_to(other)).scope
        if self._loading is None:
            self._keep(reservation, scope, usage, metadata or {})
        else:
            self._unpriced.append(partial(self._keep, reservation, scope, usage, metadata or {}))

    def void(self, reservation: Reservation) -> None:
        """The call spent nothing: it failed before it began."""
        if not reservation.over:
            reservation.over = True
            self._let_go(reservation)

    def _let_go(self, reservation: Reservation) -> None:
        if reservation.reserved is not None:
            self._books.settle(None, reserved=reservation.reserved)

    def _keep(self, reservation: Reservation, scope: Scope, usage: Usage, metadata: dict[str, Any]) -> None:
        tell, reserved = reservation.tell, reservation.reserved
        id = self._new_id() if reserved is None else reserved.charge.id
        charge = self._charge(id, reservation.at, scope, usage, metadata)
        applying = self._watched_by(scope, tell)
        if applying is None:
            self._books.settle(charge, reserved=reserved)
        else:
            told = partial(self._told, charge, applying, tell)
            self._books.settle(charge, reserved=reserved, accounts=_watched(charge, applying), told=told)
        if tell is not None:
            tell(UsageRecorded(charge))

    async def record(
        self,
        scope: Scope,
        usage: Usage,
        *,
        at: float | None = None,
        metadata: dict[str, Any] | None = None,
        id: str = "",
    ) -> Recorded | None:
        """Charge something that was spent elsewhere. None, and nothing is kept, when that is nothing or has no model.

        It returns when the charge would survive `kill -9`. The same `id` twice is once.
        """
        usage = credible(usage, None, whole=True)
        applying = self._applying.get(scope) or self._applies_to(scope)
        if not usage.tokens_in + usage.tokens_out or not applying.scope.model:
            return None
        try:
            msgspec.json.encode(metadata)
        except (TypeError, ValueError, RecursionError) as error:
            raise RondelError(
                f"the metadata of a charge cannot be written as JSON ({error}): use plain values"
            ) from error
        now = self._clock.now() if at is None else at
        if not self._prices.loaded and self._prices.lists(applying.provider):
            await self._load_prices()
        charge = self._charge(id or self._new_id(), now, applying.scope, usage, metadata or {})
        spent = await self._books.record(charge, _watched(charge, applying))
        return self._tell_listeners(charge, applying, spent)

    # --- rules ----------------------------------------------------------------------------------------------------

    def _applies_to(self, scope: Scope) -> _Applying:
        applying = _Applying(scope, self.rules)
        if len(self._applying) >= SCOPES_MAX:
            del self._applying[next(iter(self._applying))]
        self._applying[scope] = applying
        return applying

    async def limit_state(self, scope: Scope | str, *, at: float | None = None) -> list[LimitState]:
        """How each rule stands that applies to a scope, or to a model when it is given by its name."""
        applying = self._applies_to(_scope_of(scope))
        now = self._clock.now() if at is None else at
        accounts = [Account.at(dimension, value, rule.window, now) for rule, dimension, value in applying.rules]
        states: list[LimitState] = []
        for (rule, _, _), account, spent in zip(
            applying.rules, accounts, await self._books.balances(accounts), strict=True
        ):
            tokens, nanousd, over = left(rule, spent)
            states.append(LimitState(rule, account, spent, tokens, nanousd, over and rule.mode == "block"))
        return states

    async def will_exceed(self, scope: Scope | str, tokens: int, window: Window | None = None) -> bool:
        """Whether so many tokens more would pass a limit (of this window)."""
        states = await self.limit_state(scope)
        return any(
            state.remaining_tokens is not None and tokens > state.remaining_tokens
            for state in states
            if window in (None, state.rule.window)
        )

    async def assert_within_limit(self, scope: Scope | str, kind: str = "") -> None:
        """Raise TokenLimitError when a rule that blocks has nothing left."""
        scope = _scope_of(scope)
        for state in await self.limit_state(scope):
            if state.blocked:
                raise self._error(state.rule, state.account, state.balance, scope.model, kind or scope.kind)

    def _refused(self, capped: tuple[Rule, Account], refusal: Refusal, reservation: Reservation) -> TokenLimitError:
        rule, account = capped
        return self._error(rule, account, refusal.balance, reservation.scope.model, reservation.scope.kind)

    def _error(self, rule: Rule, account: Account, spent: Balance, model: str, kind: str) -> TokenLimitError:
        waits = under_way(rule, spent)
        return TokenLimitError(
            limit_sentence(rule, account, spent, under_way=waits),
            model=model,
            window=account.window,
            window_key=account.key,
            kind=kind,
            rule=rule,
            retry_after_s=1.0 if waits else retry_after_s(account, self._clock.now()),
        )

    # --- questions ------------------------------------------------------------------------------------------------

    async def summary(
        self,
        *,
        by: str = "model",
        value: str | None = None,
        window: Window = "day",
        since: str = "",
        until: str = "",
        cursor: str = "",
        limit: int = PAGE,
    ) -> Page:
        """What each value of a dimension spent in each window, newest first. `since` and `until` are dates
        (`2026-02-28`), and windows that begin on them or between them are shown. `by` may be several: `key+model`.
        """
        _check_window(window)
        dimension = dimension_of(dimensions_in(by))
        first = day_number(since) if since and window != "lifetime" else -7
        last = day_number(until) if until and window != "lifetime" else 1 << 40
        _check_cursor(cursor)
        limit = min(max(limit, 1), PAGE_MAX)
        return await self._books.page(
            dimension, window, value=value, first=first, last=last, cursor=cursor, limit=limit
        )

    async def top(
        self, *, by: str = "model", window: Window = "day", at: float | None = None, limit: int = PAGE
    ) -> list[Row]:
        """Who spent most in the window of now, or of another time."""
        _check_window(window)
        start = start_of(window, day_of(self._clock.now() if at is None else at))
        return await self._books.top(dimension_of(dimensions_in(by)), window, start, min(max(limit, 1), PAGE_MAX))

    async def totals(
        self, *, by: str = ALL, value: str = "", window: Window = "lifetime", at: float | None = None
    ) -> Totals:
        """What one value of a dimension spent in the window of now; everything, without one."""
        _check_window(window)
        account = Account.at(dimension_of(dimensions_in(by)), value, window, self._clock.now() if at is None else at)
        return (await self._books.totals([account]))[0]

    async def lifetime_totals(self, model: str = "") -> Totals:
        return await self.totals(by="model" if model else ALL, value=model)

    async def charges_of_day(self, day: str, *, cursor: str = "", limit: int = PAGE_MAX) -> ChargePage:
        """The charges of a day (`2026-02-28`, in UTC), in the order in which they came."""
        number = day_number(day)
        _check_cursor(cursor)
        return await self._books.charges(number, number, cursor, min(max(limit, 1), PAGE_MAX))

    # --- who listens ----------------------------------------------------------------------------------------------

    def on(self, event: EventName, listener: Listener) -> None:
        self._of(event).append((listener, False))

    def once(self, event: EventName, listener: Listener) -> None:
        self._of(event).append((listener, True))

    def off(self, event: EventName, listener: Listener) -> None:
        listeners = self._of(event)
        listeners[:] = [one for one in listeners if one[0] is not listener and one[0] != listener]

    def _of(self, event: str) -> list[tuple[Listener, bool]]:
        if event not in self._listeners:
            raise RondelError(f"the ledger has no event {event!r}{nearest(event, list(self._listeners))}")
        return self._listeners[event]

    def _emit(self, event: EventName, told: object) -> None:
        listeners = self._of(event)
        for one in list(listeners):
            if one[1] and one in listeners:
                listeners.remove(one)
            try:
                one[0](told)
            except Exception:
                log.exception("a listener to %s failed", event)

    def _watched_by(self, scope: Scope, tell: Tell | None) -> _Applying | None:
        """What applies to a scope, when somebody wants to hear what that has come to; mostly nobody does."""
        heard = any(self._listeners.values())
        if not heard and (tell is None or not self.rules):
            return None
        applying = self._applying.get(scope) or self._applies_to(scope)
        return applying if heard or applying.warns else None

    def _told(self, charge: Charge, applying: _Applying, tell: Tell | None, spent: list[Balance]) -> None:
        recorded = self._tell_listeners(charge, applying, spent)
        if tell is not None:
            for breach in recorded.breaches:
                if breach.rule.mode == "warn":
                    tell(_warning(breach.rule, breach.account))

    def _tell_listeners(self, charge: Charge, applying: _Applying, spent: list[Balance]) -> Recorded:
        totals = dict(zip(WINDOWS, spent, strict=False))
        breaches = [
            breach
            for (rule, dimension, value), now in zip(applying.rules, spent[len(WINDOWS) :], strict=True)
            for breach in breaches_of(rule, Account.at(dimension, value, rule.window, charge.at), now)
        ]
        recorded = Recorded(charge, cast("dict[str, Balance]", totals), tuple(breaches))
        self._emit("usage.recorded", recorded)
        if breaches:
            self._emit("usage.limitReached", recorded)
        return recorded

    # --- charges --------------------------------------------------------------------------------------------------

    def _charge(self, id: str, at: float, scope: Scope, usage: Usage, metadata: dict[str, Any]) -> Charge:
        if not self._prices.loaded:
            return Charge(id, at, scope, usage, None, "", metadata)
        cost = self._prices.cost_nanousd(scope.engine.partition(":")[0], scope.model, usage, at)
        return Charge(id, at, scope, usage, cost, "" if cost is None else self._prices.version, metadata)

    def _new_id(self) -> str:
        self._id_count += 1
        return f"{self._id_prefix}{self._id_count:x}"

    def _load_prices(self) -> asyncio.Future[None]:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._prices.load)
            self._loading.add_done_callback(self._loaded)
        return self._loading

    def _loaded(self, loading: asyncio.Future[None]) -> None:
        self._loading = None
        if not loading.cancelled() and (error := loading.exception()) is not None:
            log.warning("no prices are known, so no call has one: %s", error)
            self._prices = _NoPrices()
        waiting, self._unpriced = self._unpriced, []
        for keep in waiting:
            keep()

    def price_of(self, provider: str, model: str) -> tuple[Decimal | None, Decimal | None]:
        """What a million tokens in and out cost in dollars, in prompts of usual length; None where nobody knows, or the
        price lists are not at hand."""
        if not self._prices.loaded:
            return None, None
        now = self._clock.now()
        costs = (self._prices.cost_nanousd(provider, model, usage, now) for usage in (Usage(1_000), Usage(0, 1_000)))
        told, said = (None if cost is None else Decimal(cost) / 1_000_000 for cost in costs)
        return told, said

    def paid(self, engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
        """What an engine was paid, in dollars; None where nobody knows. A trace asks this."""
        return self._prices.paid(engine, model, usage, at)

    async def ready(self) -> None:
        """Have the price lists at hand before the first call; else they come while it is made."""
        if not self._prices.loaded:
            await asyncio.wait((self._load_prices(),))

    async def aclose(self) -> None:
        """Hand what waits for its price over to the store."""
        if self._loading is not None:
            await asyncio.wait((self._loading,))


class _NoPrices(Prices):
    def lists(self, provider: str) -> bool:
        return False


def _scope_of(scope: Scope | str) -> Scope:
    return Scope(model=scope) if isinstance(scope, str) else scope


def _watched(charge: Charge, applying: _Applying) -> list[Account]:
    """The accounts whose sums somebody wants to hear of, when it is written: the model's, and those of the rules."""
    windows = (Account.at("model", charge.scope.model, window, charge.at) for window in WINDOWS)
    rules = (Account.at(dimension, value, rule.window, charge.at) for rule, dimension, value in applying.rules)
    return [*windows, *rules]


def _warning(rule: Rule, account: Account) -> SpendingWarned:
    sentence = limit_sentence(rule, account, None)
    return SpendingWarned(sentence, account.window, account.key, account.dimension, account.value)


def _check_window(window: str) -> None:
    if window not in WINDOWS:
        raise RondelError(f"there is no window {window!r}{nearest(window, WINDOWS)}")


def _check_cursor(cursor: str) -> None:
    number = cursor.partition(":")[0].removeprefix("-")
    if cursor and not (number.isascii() and number.isdigit() and len(number) < 16):
        raise RondelError(f"{cursor!r} is no cursor of a page; give the one that the last page came with")
