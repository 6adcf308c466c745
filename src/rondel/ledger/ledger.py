"""The ledger: charges every engine call, and enforces limits.

    reserve -> extend* -> settle | void

A call is voided only if no model can have seen it. If no rule applies, charges are collected for a moment and written
together, so `kill -9` can lose those of that moment. If a rule blocks, the reservation is written before the call is
made, so at least its expected usage survives.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, cast

import msgspec

from ..charge import ALL, TEXT_CHARS_MAX, Charge, ImageUsage, Scope, Tell, clean, model_of
from ..contracts.clock import Clock, SystemClock
from ..contracts.embedder import Embedder
from ..contracts.images import ImageEngine
from ..contracts.ledger import (
    PAGE,
    PAGE_MAX,
    Account,
    Balance,
    ChargePage,
    LedgerStore,
    OnWriteFailure,
    Page,
    Reserved,
    Row,
    Rule,
    Totals,
    UnknownPrice,
    Unwritten,
    dimension_of,
    dimensions_in,
)
from ..contracts.window import WINDOWS, Window, day_number, day_of, start_of
from ..engine import Engine, EngineInfo, uncharged
from ..errors import RondelError, StoreFull, TokenLimitError, nearest
from ..events import SpendingWarned, UsageRecorded
from ..limits import ReplyBound
from ..values import Usage
from .admission import AppliedRules, Needed, Plan, Reservation
from .charging import ChargedEngine
from .listeners import EventName, Listener, Listeners
from .prices import ESTIMATED, Prices
from .spending import (
    LimitState,
    Recorded,
    breaches_of,
    credible,
    left,
    limit_sentence,
    named,
    retry_after_s,
    too_big_sentence,
    under_way,
    unpriced_sentence,
    with_own_spent,
)

log = logging.getLogger("rondel.ledger")

RESERVED_S = 6 * 3600.0  # a reservation that is not settled within this time counts as spent
UNSETTLED = {"unsettled": True}
"""The metadata of a charge whose call was never settled, because the program died or forgot it."""
SCOPES_MAX = 4096  # scopes whose rules are cached
SCOPE_CHARS_MAX = 4096  # a longer scope is not cached, because its names come from outside


class Ledger:
    """Admits and charges every engine call, and reports what was spent."""

    def __init__(
        self,
        ledger_store: LedgerStore,
        *,
        rules: Sequence[Rule] = (),
        clock: Clock | None = None,
        prices: Prices | None = None,
        on_write_failure: OnWriteFailure = "allow",
        unknown_price: UnknownPrice = "block",
        on_recorded: Listener | None = None,
        on_limit_reached: Listener | None = None,
    ) -> None:
        """`on_write_failure` says whether calls are allowed while charges cannot be written, for example because the
        disk is full. `unknown_price` says whether a blocking money limit refuses calls of unknown price."""
        self._store = ledger_store
        self._clock = clock or SystemClock()
        self.prices = prices or Prices()
        self._loading: asyncio.Future[None] | None = None
        self._unpriced: list[Callable[[], None]] = []
        self._applying: dict[Scope, AppliedRules] = {}
        self._listeners = Listeners()
        self._id_prefix = f"u_{int(self._clock.now() * 1000):011x}{os.urandom(5).hex()}"
        self._id_count = 0
        self.rules: tuple[Rule, ...] = ()
        self.configure(rules, on_write_failure=on_write_failure, unknown_price=unknown_price)
        if on_recorded is not None:
            self.on("usage.recorded", on_recorded)
        if on_limit_reached is not None:
            self.on("usage.limitReached", on_limit_reached)

    def configure(
        self,
        rules: Sequence[Rule],
        *,
        on_write_failure: OnWriteFailure = "allow",
        unknown_price: UnknownPrice = "block",
    ) -> None:
        """Replace the rules."""
        self.rules = tuple(rules)
        self.unknown_price: UnknownPrice = unknown_price
        self.on_write_failure: OnWriteFailure = on_write_failure
        self._applying.clear()

    @property
    def unwritten(self) -> Unwritten:
        """The charges that could not be written: they wait in memory, or were lost."""
        return self._store.unwritten

    def charge(
        self,
        engine: EngineInfo | Engine,
        scope: Scope | Callable[[], Scope],
        tell: Tell | None = None,
        bound: Callable[[], ReplyBound] | None = None,
    ) -> Engine:
        """Return the engine with every call charged to the scope. `tell` gets the ledger's events about these calls;
        `bound` returns how long the next reply may become. An engine that is charged already, or that calls no model,
        is returned as it is."""
        if isinstance(engine, EngineInfo):
            engine = uncharged(engine)
        if isinstance(engine, ChargedEngine) or getattr(engine, "without_model", False):
            return engine
        return ChargedEngine(engine, self, scope, tell, bound)

    def charge_embedder(
        self, embedder: Embedder, scope: Scope | Callable[[], Scope], tell: Tell | None = None
    ) -> Embedder:
        """Return the embedder with every call charged to the scope, as a call of the kind `embedding`."""
        from .whole import ChargedEmbedder

        return ChargedEmbedder(embedder, self, scope, tell)

    def charge_images(
        self, engine: ImageEngine, scope: Scope | Callable[[], Scope], tell: Tell | None = None
    ) -> ImageEngine:
        """Return the image engine with every call charged to the scope, as a call of the kind `image`."""
        from .whole import ChargedImageEngine

        return ChargedImageEngine(engine, self, scope, tell)

    # --- a call ---------------------------------------------------------------------------------------------------

    async def reserve(
        self,
        scope: Scope,
        *,
        tokens: Callable[[], tuple[int, int]],
        tell: Tell | None = None,
        images: ImageUsage | None = None,
    ) -> Reservation:
        """Admit a call, or raise TokenLimitError. `tokens` estimates the tokens in and out; it is called only if a rule
        applies. A call that makes `images` needs room for its whole cost, and others for their input."""
        if self.on_write_failure == "block" and self._store.unwritten.charges:
            # Without the reason, which names a path: gateways pass this on to callers.
            raise StoreFull(
                "the ledger cannot be written, and `on_write_failure` is 'block': "
                "calls are refused until the disk has space; see the log"
            )
        applying = (self._applying.get(scope) or self._applies_to(scope)) if self.rules else None
        reservation = Reservation(self._clock.now(), scope.cleaned() if applying is None else applying.scope, tell)
        if self.prices.needs_lists(scope.engine):
            self._load_prices()
        if applying is not None and applying.rules:
            plan = applying.plan(reservation.at)
            if applying.blocks:
                if self._loading is not None:
                    await asyncio.wait((self._loading,))
                usage = Usage(*tokens(), estimated=True)
                needed = self._needed(reservation, plan, usage, images)
                reservation.reserved = await self._claim(reservation, plan, usage, needed, images)
            if applying.warns and tell is not None:
                await self._warn(plan, tell)
        return reservation

    def _needed(self, reservation: Reservation, plan: Plan, usage: Usage, images: ImageUsage | None) -> Needed:
        """Return what a call needs room for: its input, or for image calls all that they are expected to spend."""
        tokens_out = 0 if images is None else usage.tokens_out
        if not plan.in_money:
            return Needed(usage.tokens_in + tokens_out, 0)
        charge = self._charge("", reservation.at, reservation.scope, Usage(usage.tokens_in, tokens_out), images=images)
        return Needed(charge.tokens, charge.cost_nanousd or 0)

    async def _warn(self, plan: Plan, tell: Tell) -> None:
        balances = await self._store.balances([account for _, account in plan.warned])
        for (rule, account), balance in zip(plan.warned, balances, strict=True):
            if left(rule, balance)[2]:
                tell(_warning(rule, account))

    async def _claim(
        self,
        reservation: Reservation,
        plan: Plan,
        usage: Usage,
        needed: Needed | None = None,
        images: ImageUsage | None = None,
        own: tuple[Reserved, ...] = (),
    ) -> Reserved:
        """Claim a usage on the accounts of all rules that block. `needed` must fit into what is left; if it is None,
        any room is enough. `own` is what the call has already reserved. Raises TokenLimitError."""
        charge = self._charge(self._new_id(), reservation.at, reservation.scope, usage, UNSETTLED, images)
        if plan.in_money and charge.cost_nanousd is None and charge.tokens and self.unknown_price == "block":
            self._refuse_unpriced(plan, charge.scope)
        until = reservation.at + RESERVED_S
        if needed is None:
            reserved = Reserved(charge, until)
        else:
            reserved = Reserved(charge, until, needed.tokens or 1, needed.cost_nanousd or 1)
        try:
            refusal = await self._store.reserve(reserved, plan.caps)
        except asyncio.CancelledError:
            self._store.settle(None, reserved=reserved)  # it may be written, but the call is not made
            raise
        if refusal is not None:
            rule, account = plan.capped[refusal.index]
            scope, balance = reservation.scope, with_own_spent(refusal.balance, own)
            raise self._error(rule, account, balance, scope.model, scope.kind, needed)
        return reserved

    async def extend(self, reservation: Reservation, tokens_out: int) -> None:
        """Reserve more for an answer that is longer than expected. Raises TokenLimitError if nothing is left."""
        if reservation.reserved is None or reservation.over:
            return
        applying = self._applying.get(reservation.scope) or self._applies_to(reservation.scope)
        usage = Usage(0, tokens_out, estimated=True)
        own = (reservation.reserved, *reservation.more)
        more = await self._claim(reservation, applying.plan(reservation.at), usage, own=own)
        if reservation.over:  # settled meanwhile: nothing else would release this
            self._store.settle(None, reserved=more)
        else:
            reservation.more += (more,)

    def _refuse_unpriced(self, plan: Plan, scope: Scope) -> None:
        for rule, account in plan.capped:
            if rule.money is not None:
                name = scope.engine or scope.model
                raise TokenLimitError(
                    unpriced_sentence(rule, account, name),
                    model=scope.model,
                    window=account.window,
                    window_key=account.key,
                    kind=scope.kind,
                    rule=rule,
                )

    def settle(
        self,
        reservation: Reservation,
        usage: Usage,
        *,
        engine: str = "",
        model: str = "",
        estimate: Callable[[], Usage] | None = None,
        whole: bool = True,
        lost: Mapping[str, Usage] | None = None,
        metadata: dict[str, Any] | None = None,
        images: ImageUsage | None = None,
    ) -> None:
        """Charge what a call spent, once, without waiting. `engine` and `model` are those that answered; empty means
        those that were asked. `estimate` is used if the upstream reported no credible usage. `whole` is False for an
        answer that was cut off. `lost` is what attempts that failed may have spent, by engine; those of other engines
        are charges of their own."""
        if reservation.over:
            return
        reservation.over = True
        usage = credible(usage, estimate, whole=whole)
        if lost:
            others = dict(lost)
            if (own := others.pop(engine, None)) is not None:
                usage += own
            for name, spent in others.items():
                self._keep_later(
                    Reservation(reservation.at, reservation.scope, reservation.tell),
                    self._scope_of(reservation.scope, name),
                    spent,
                )
        if not usage.tokens_in + usage.tokens_out:
            return self._release(reservation)
        scope = self._scope_of(reservation.scope, engine)
        model = model[:TEXT_CHARS_MAX]
        if model and model != scope.model and (answered := named(model, scope)) != scope.model:
            scope = msgspec.structs.replace(scope, model=clean(answered))
        if images is not None:
            metadata = {"images": images.made, **(metadata or {})}
        self._keep_later(reservation, scope, usage, metadata, images)

    def _scope_of(self, asked: Scope, engine: str) -> Scope:
        """Return the scope of a call for another engine than the one that was asked."""
        if not engine or engine == asked.engine:
            return asked
        scope = msgspec.structs.replace(asked, engine=clean(engine), model=clean(model_of(engine)))
        if self.prices.needs_lists(scope.engine):
            self._load_prices()
        return scope

    def _keep_later(
        self,
        reservation: Reservation,
        scope: Scope,
        usage: Usage,
        metadata: dict[str, Any] | None = None,
        images: ImageUsage | None = None,
    ) -> None:
        """Write a charge when the prices are loaded."""
        if self._loading is None:
            self._keep(reservation, scope, usage, metadata or {}, images)
        else:
            self._unpriced.append(partial(self._keep, reservation, scope, usage, metadata or {}, images))

    def void(self, reservation: Reservation) -> None:
        """Release a call that spent nothing: it was never sent, or the model's server refused it."""
        if not reservation.over:
            reservation.over = True
            self._release(reservation)

    def _release(self, reservation: Reservation) -> None:
        reservation.tell = None
        if reservation.reserved is not None:
            self._store.settle(None, reserved=reservation.reserved)
        for more in reservation.more:
            self._store.settle(None, reserved=more)

    def _keep(
        self,
        reservation: Reservation,
        scope: Scope,
        usage: Usage,
        metadata: dict[str, Any],
        images: ImageUsage | None = None,
    ) -> None:
        tell, reserved = reservation.tell, reservation.reserved
        reservation.tell = None  # it may refer to this call, and the cycle would wait for the garbage collector
        id = self._new_id() if reserved is None else reserved.charge.id
        charge = self._charge(id, reservation.at, scope, usage, metadata, images)
        if charge.cost_nanousd is None and reserved is not None and reserved.charge.cost_nanousd is not None:
            # The model that answered has no price, but the one that was called has: a limit of money counts by that.
            asked = self._charge(id, reservation.at, reserved.charge.scope, usage, metadata, images)
            charge = msgspec.structs.replace(charge, cost_nanousd=asked.cost_nanousd, price=asked.price)
        applying = self._watched_by(scope, tell)
        if applying is None:
            self._store.settle(charge, reserved=reserved)
        else:
            told = partial(self._tell_balances, charge, applying, tell)
            self._store.settle(charge, reserved=reserved, accounts=_watched(charge, applying), told=told)
        for more in reservation.more:
            self._store.settle(None, reserved=more)
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
        """Charge something that was spent elsewhere. Returns None and stores nothing if no tokens or no model is
        given."""
        usage = credible(usage, None, whole=True)
        applying = self._applying.get(scope) or self._applies_to(scope)
        if not usage.tokens_in + usage.tokens_out or not applying.scope.model:
            return None
        try:
            msgspec.json.encode(metadata)
        except (TypeError, ValueError, RecursionError) as error:
            text = f"the metadata of a charge cannot be written as JSON ({error}): use plain values"
            raise RondelError(text) from error
        now = self._clock.now() if at is None else at
        if self.prices.needs_lists(scope.engine):
            await self._load_prices()
        charge = self._charge(id or self._new_id(), now, applying.scope, usage, metadata or {})
        spent = await self._store.record(charge, _watched(charge, applying))
        return self._tell_listeners(charge, applying, spent)

    # --- rules ----------------------------------------------------------------------------------------------------

    def _applies_to(self, scope: Scope) -> AppliedRules:
        applying = AppliedRules(scope, self.rules)
        if self.rules and scope.chars <= SCOPE_CHARS_MAX:
            if len(self._applying) >= SCOPES_MAX:
                del self._applying[next(iter(self._applying))]
            self._applying[scope] = applying
        return applying

    async def limit_state(self, scope: Scope | str, *, at: float | None = None) -> list[LimitState]:
        """Return the state of each rule that applies to a scope, or to a model given by its name."""
        applying = self._applies_to(_scope_of(scope))
        now = self._clock.now() if at is None else at
        accounts = applying.accounts(now)
        states: list[LimitState] = []
        for (rule, _, _), account, spent in zip(
            applying.rules, accounts, await self._store.balances(accounts), strict=True
        ):
            tokens, nanousd, over = left(rule, spent)
            states.append(LimitState(rule, account, spent, tokens, nanousd, over and rule.mode == "block"))
        return states

    async def will_exceed(self, scope: Scope | str, tokens: int, window: Window | None = None) -> bool:
        """Return whether this many more tokens would exceed a limit of a scope or a model."""
        states = await self.limit_state(scope)
        return any(
            state.remaining_tokens is not None and tokens > state.remaining_tokens
            for state in states
            if window in (None, state.rule.window)
        )

    async def assert_within_limit(self, scope: Scope | str, kind: str = "") -> None:
        """Raise TokenLimitError if a limit blocks this scope, or this model."""
        scope = _scope_of(scope)
        for state in await self.limit_state(scope):
            if state.blocked:
                raise self._error(state.rule, state.account, state.balance, scope.model, kind or scope.kind)

    def _error(
        self, rule: Rule, account: Account, spent: Balance, model: str, kind: str, needed: Needed | None = None
    ) -> TokenLimitError:
        waits = under_way(rule, spent, needed)
        too_big = "" if waits or needed is None else too_big_sentence(rule, account, spent, needed)
        return TokenLimitError(
            too_big or limit_sentence(rule, account, spent, under_way=waits),
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
        """Return what each value of a dimension spent in each window, newest first. Only windows that begin between
        the dates `since` and `until` (`2026-02-28`) are included. `by` may name several dimensions: `key+model`.
        """
        _check_window(window)
        dimension = dimension_of(dimensions_in(by))
        first = day_number(since) if since and window != "lifetime" else -7
        last = day_number(until) if until and window != "lifetime" else 1 << 40
        _check_cursor(cursor)
        limit = min(max(limit, 1), PAGE_MAX)
        return await self._store.page(
            dimension, window, value=value, first=first, last=last, cursor=cursor, limit=limit
        )

    async def top(
        self, *, by: str = "model", window: Window = "day", at: float | None = None, limit: int = PAGE
    ) -> list[Row]:
        """Return the values that spent most in the current window, or in the window of another time."""
        _check_window(window)
        start = start_of(window, day_of(self._clock.now() if at is None else at))
        return await self._store.top(dimension_of(dimensions_in(by)), window, start, min(max(limit, 1), PAGE_MAX))

    async def totals(
        self, *, by: str = ALL, value: str = "", window: Window = "lifetime", at: float | None = None
    ) -> Totals:
        """Return what one value of a dimension spent in the current window; without one, the sum of everything."""
        _check_window(window)
        account = Account.at(dimension_of(dimensions_in(by)), value, window, self._clock.now() if at is None else at)
        return (await self._store.totals([account]))[0]

    async def lifetime_totals(self, model: str = "") -> Totals:
        """Return all that was ever spent, or only what one model spent."""
        return await self.totals(by="model" if model else ALL, value=model)

    async def charges_of_day(self, day: str, *, cursor: str = "", limit: int = PAGE_MAX) -> ChargePage:
        """Return the charges of a day (`2026-02-28`, in UTC) in the order in which they came."""
        number = day_number(day)
        _check_cursor(cursor)
        return await self._store.charges(number, number, cursor, min(max(limit, 1), PAGE_MAX))

    # --- listeners -------------------------------------------------------------------------------------------------

    def on(self, event: EventName, listener: Listener) -> None:
        """Call the listener for each event. If it is async, calls do not wait for it; closing the ledger does."""
        self._listeners.add(event, listener, once=False)

    def once(self, event: EventName, listener: Listener) -> None:
        """Call the listener for the next event only."""
        self._listeners.add(event, listener, once=True)

    def off(self, event: EventName, listener: Listener) -> None:
        """Stop calling the listener."""
        self._listeners.remove(event, listener)

    def _watched_by(self, scope: Scope, tell: Tell | None) -> AppliedRules | None:
        """Return the rules of a scope if something listens to the balances of their accounts, which is rare."""
        listened_to = self._listeners.count > 0
        if not listened_to and (tell is None or not self.rules):
            return None
        applying = self._applying.get(scope) or self._applies_to(scope)
        return applying if listened_to or applying.warns else None

    def _tell_balances(self, charge: Charge, applying: AppliedRules, tell: Tell | None, spent: list[Balance]) -> None:
        recorded = self._tell_listeners(charge, applying, spent)
        if tell is not None:
            for breach in recorded.breaches:
                if breach.rule.mode == "warn":
                    tell(_warning(breach.rule, breach.account))

    def _tell_listeners(self, charge: Charge, applying: AppliedRules, spent: list[Balance]) -> Recorded:
        totals = dict(zip(WINDOWS, spent, strict=False))
        breaches = [
            breach
            for (rule, _, _), account, now in zip(
                applying.rules, applying.accounts(charge.at), spent[len(WINDOWS) :], strict=True
            )
            for breach in breaches_of(rule, account, now)
        ]
        recorded = Recorded(charge, cast("dict[str, Balance]", totals), tuple(breaches))
        self._listeners.emit("usage.recorded", recorded)
        if breaches:
            self._listeners.emit("usage.limitReached", recorded)
        return recorded

    # --- charges --------------------------------------------------------------------------------------------------

    def _charge(
        self,
        id: str,
        at: float,
        scope: Scope,
        usage: Usage,
        metadata: dict[str, Any] | None = None,
        images: ImageUsage | None = None,
    ) -> Charge:
        cost, price = self.prices.charged(scope.engine.partition(":")[0], scope.model, usage, at, images)
        return Charge(id, at, scope, usage, cost, price, metadata or {})

    def _new_id(self) -> str:
        self._id_count += 1
        return f"{self._id_prefix}{self._id_count:x}"

    def _load_prices(self) -> asyncio.Future[None]:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self.prices.load)
            self._loading.add_done_callback(self._loaded)
        return self._loading

    def _loaded(self, loading: asyncio.Future[None]) -> None:
        self._loading = None
        if not loading.cancelled() and (error := loading.exception()) is not None:
            log.warning("the price lists could not be loaded, so all prices are unknown: %s", error)
            self.prices.without_lists = True
        waiting, self._unpriced = self._unpriced, []
        for keep in waiting:
            keep()

    def price_of(self, provider: str, model: str) -> tuple[Decimal | None, Decimal | None]:
        """Return the price in dollars of a million tokens in and out, for prompts of usual length; None if it is
        unknown or the price lists are not loaded."""
        now = self._clock.now()
        costs = (self.prices.charged(provider, model, usage, now) for usage in (Usage(1_000), Usage(0, 1_000)))
        per_in, per_out = (None if cost is None or by == ESTIMATED else Decimal(cost) / 1_000_000 for cost, by in costs)
        return per_in, per_out

    def paid(self, engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
        """Return what a call cost in dollars, for a trace; None if that is unknown."""
        return self.prices.paid(engine, model, usage, at)

    async def ready(self) -> None:
        """Load the price lists before the first call instead of during it."""
        if not self.prices.loaded and not self.prices.without_lists:
            await asyncio.wait((self._load_prices(),))

    async def aclose(self) -> None:
        """Pass charges that wait for their price to the store."""
        if self._loading is not None:
            await asyncio.wait((self._loading,))
        await self._listeners.aclose()


def _scope_of(scope: Scope | str) -> Scope:
    return Scope(model=scope) if isinstance(scope, str) else scope


def _watched(charge: Charge, applying: AppliedRules) -> list[Account]:
    """Return the accounts whose balances listeners get with a charge: those of the model, and those of the rules."""
    windows = (Account.at("model", charge.scope.model, window, charge.at) for window in WINDOWS)
    return [*windows, *applying.accounts(charge.at)]


def _warning(rule: Rule, account: Account) -> SpendingWarned:
    sentence = limit_sentence(rule, account, None)
    return SpendingWarned(sentence, account.window, account.key, account.dimension, account.value)


def _check_window(window: str) -> None:
    if window not in WINDOWS:
        raise RondelError(f"there is no window {window!r}{nearest(window, WINDOWS)}")


def _check_cursor(cursor: str) -> None:
    number = cursor.partition(":")[0].removeprefix("-")
    if cursor and not (number.isascii() and number.isdigit() and len(number) < 16):
        raise RondelError(f"{cursor!r} is not the cursor of a page; pass the one that the last page returned")
