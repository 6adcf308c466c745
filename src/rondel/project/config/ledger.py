"""Reads `[ledger]`, with the rules of `[[ledger.limits]]` and their lines."""

from __future__ import annotations

from typing import Any

import msgspec

from ...charge import DIMENSIONS
from ...contracts.ledger import OnWriteFailure, Rule, UnknownPrice
from ...errors import RondelError, nearest
from ...ledger.prices import Price
from ...text.document import AlreadyReported, Checker, collecting
from ..settings import Config, LedgerSettings
from .engines import price_mistakes

PATH = ("ledger",)


class _Table(msgspec.Struct, frozen=True):
    limits: tuple[dict[str, Any], ...] = ()
    on_write_failure: OnWriteFailure = "allow"
    unknown_price: UnknownPrice = "block"
    estimated_price: Price = LedgerSettings().estimated_price


def ledger_of(checker: Checker, table: dict[str, Any]) -> LedgerSettings:
    given = checker.struct(_Table, table, PATH)
    rules: list[Rule] = []
    for index, entry in enumerate(given.limits):
        if entry is not None:  # pyright: ignore[reportUnnecessaryComparison]
            with collecting(checker.mistakes):
                rules.append(_rule(checker, entry, index))
    for mistake in price_mistakes(checker.document, (*PATH, "estimated_price"), given.estimated_price):
        with collecting(checker.mistakes):
            raise mistake
    return LedgerSettings(tuple(rules), given.on_write_failure, given.unknown_price, given.estimated_price)


def _rule(checker: Checker, entry: dict[str, Any], index: int) -> Rule:
    path = (*PATH, "limits", index)
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
        if (budget := key.budget) is not None
    ]
    return [*config.ledger.limits, *budgets]
