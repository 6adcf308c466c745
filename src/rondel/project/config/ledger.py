"""Reads `[ledger]` and the rules of `[[ledger.limits]]`, sets up the ledger and its prices, warns of unknown prices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ...charge import DIMENSIONS, EACH
from ...contracts.endpoint import known_provider
from ...contracts.ledger import LedgerStore, Rule, UnknownPrice
from ...errors import RondelError, nearest
from ...ledger.prices import EMBEDDED, OwnPrices, Price, Prices
from ...text.document import AlreadyReported, Checker, collecting
from ...values import Usage
from ..settings import SCENARIOS, Config, EngineSettings, LedgerSettings, RouteSettings
from .engines import canonical_engine, price_mistakes
from .gateway import SAME

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger


PATH = ("ledger",)


def ledger_of(checker: Checker, table: dict[str, Any]) -> LedgerSettings:
    entries: Any = table.get("limits", [])
    listed = {name: value for name, value in table.items() if name != "limits"}
    settings = LedgerSettings(**checker.fields(LedgerSettings, listed, PATH))
    rules: list[Rule] = []
    listed_rules: tuple[dict[str, Any] | None, ...] = ()
    with collecting(checker.mistakes):
        listed_rules = checker.build(tuple[dict[str, Any], ...], entries, (*PATH, "limits"))
    for index, entry in enumerate(listed_rules):
        if entry is not None:  # one that was left out for a mistake in it
            with collecting(checker.mistakes):
                rules.append(_rule(checker, entry, index))
    checker.report(*price_mistakes(checker.document, (*PATH, "estimated_price"), settings.estimated_price))
    return msgspec.structs.replace(settings, limits=tuple(rules))


def _rule(checker: Checker, entry: dict[str, Any], index: int) -> Rule:
    path = (*PATH, "limits", index)
    if isinstance(scope := entry.get("scope"), dict):  # Discord's ids may be numbers, as in [[discord.rules]]
        named = cast("dict[str, Any]", scope).items()
        entry = {**entry, "scope": {key: str(id) if type(id) is int else id for key, id in named}}
    given = checker.fields(Rule, entry, path)
    for dimension in given.get("scope", {}):
        if dimension not in DIMENSIONS:
            message = f"a limit's scope has no {dimension!r}{nearest(dimension, DIMENSIONS)}"
            raise checker.document.error((*path, "scope", dimension), message)
    if len(given) < len(entry):
        raise AlreadyReported
    try:
        return Rule(**given)
    except RondelError as error:
        wrong = next((name for name in ("tokens", "money") if f" {name} is " in str(error)), "")
        raise checker.document.error((*path, wrong) if wrong else path, str(error)) from None


def rules_of(config: Config) -> list[Rule]:
    """Return all rules: those of the ledger, and the budgets of the gateway's keys."""
    budgets = [
        Rule({"key": name}, budget.window, budget.tokens, budget.money, budget.mode)
        for name, key in config.gateway.keys.items()
        if (budget := key.budget) is not None and (budget.tokens is not None or budget.money is not None)
    ]
    return [*config.ledger.limits, *budgets]


WARNED_MAX = 8
MEANS: dict[UnknownPrice, str] = {
    "block": "so calls to it are refused wherever a limit of money blocks",
    "estimate": "so it is charged by an estimate",
    "allow": "so no limit of money holds for it",
}


def make_ledger(ledger_store: LedgerStore, config: Config) -> Ledger:
    from ...ledger.ledger import Ledger

    ledger = Ledger(ledger_store)
    configure_ledger(ledger, config)
    return ledger


def configure_ledger(ledger: Ledger, config: Config) -> None:
    """Apply a configuration to a ledger, also over an earlier one."""
    settings = config.ledger
    ledger.configure(rules_of(config), on_write_failure=settings.on_write_failure, unknown_price=settings.unknown_price)
    configure_prices(ledger.prices, config)


def prices_of(config: Config) -> Prices:
    prices = Prices()
    configure_prices(prices, config)
    return prices


def configure_prices(prices: Prices, config: Config) -> None:
    settings = config.ledger
    prices.configure(
        _own_prices(config),
        estimate=settings.estimated_price if settings.unknown_price == "estimate" else None,
        embedded=_has_embedded(config),
    )


def _has_embedded(config: Config) -> bool:
    # `local` may also be the name of a configured server.
    return not any(engine.base_url for name, engine in config.engines.items() if EMBEDDED in (name, engine.provider))


def _own_prices(config: Config) -> OwnPrices:
    """Return prices by the name that engines are charged under: the provider's, or else their own."""
    own: dict[str, dict[str, Price]] = {}
    for name, engine in config.engines.items():
        for key in dict.fromkeys((name, engine.provider or name)):
            if engine.prices:
                own[key] = {**own.get(key, {}), **engine.prices}
    return own


def money_warnings(config: Config, engines: Iterable[str] = ()) -> list[str]:
    """Return a warning for each model without a known price that the configuration or these engines can use."""
    rules = [rule for rule in rules_of(config) if rule.money is not None]
    if not rules:
        return []
    prices = Prices()
    prices.configure(_own_prices(config), embedded=_has_embedded(config))  # an estimate is not a known price
    try:
        prices.load()
    except ImportError:
        prices.without_lists = True
    unknown: dict[str, str] = {}
    for name in _named(config, engines):
        head, _, model = name.partition(":")
        settings = config.engines.get(head, EngineSettings())
        provider = settings.provider or head
        model = model or settings.model or known_provider(provider).model
        known = prices.charged(provider, model, Usage(1, 1), time.time())[0] is not None
        if not known and any(_may_count(rule, provider, model) for rule in rules):
            unknown[f"{head}:{model}" if model else head] = head
    means = MEANS[config.ledger.unknown_price]
    told = [
        f"{name} has no known price, {means}: "
        f"give `prices` under [engines.{head}], or set `unknown_price` under [ledger]"
        for name, head in list(unknown.items())[:WARNED_MAX]
    ]
    more = len(unknown) - len(told)
    return [*told, f"{more} more models have no known price"] if more else told


def _may_count(rule: Rule, provider: str, model: str) -> bool:
    return rule.scope.get("model", EACH) in (EACH, model) and rule.scope.get("engine", EACH) in (
        EACH,
        f"{provider}:{model}",
    )


def _named(config: Config, engines: Iterable[str]) -> dict[str, None]:
    names = [*engines, config.engine]
    for name, engine in config.engines.items():
        names += [name] if engine.model or not engine.models else []
        names += [f"{name}:{model}" for model in engine.models]
        names += engine.fallback
    names += (config.images.engine, *config.images.fallback)
    names += _routed(config)
    found = (canonical_engine(name, config.engines) for name in names if name and name not in SAME)
    return dict.fromkeys(name for name in found if not name.startswith("agent:"))


def _routed(config: Config) -> Iterator[str]:
    gateway = config.gateway
    tables: list[RouteSettings] = [gateway.routes, *gateway.projects.values(), *gateway.sessions.values()]
    for scenario in SCENARIOS:
        yield from (route for table in tables if (route := getattr(table, scenario)))
        yield from getattr(gateway.fallback, scenario)
