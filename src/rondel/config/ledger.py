"""How much may be spent: the rules in `[[ledger.limits]]`, each with its line."""

from __future__ import annotations

from typing import Any

import msgspec

from ..charge import DIMENSIONS, Rule
from ..document import Checker, SaidAlready, going_on
from ..errors import RondelError, nearest
from ..settings import Config, LedgerSettings

PATH = ("ledger",)


class _Table(msgspec.Struct, frozen=True):
    limits: tuple[dict[str, Any], ...] = ()


def ledger_of(checker: Checker, table: dict[str, Any]) -> LedgerSettings:
    given = checker.struct(_Table, table, PATH)
    rules: list[Rule] = []
    for place, entry in enumerate(given.limits):
        if entry is not None:  # pyright: ignore[reportUnnecessaryComparison]
            with going_on(checker.mistakes):
                rules.append(_rule(checker, entry, place))
    return LedgerSettings(tuple(rules))


def _rule(checker: Checker, entry: dict[str, Any], place: int) -> Rule:
    path = (*PATH, "limits", place)
    given = checker.fields(Rule, entry, path)
    for dimension in given.get("scope", {}):
        if dimension not in DIMENSIONS:
            message = f"a limit's scope has no {dimension!r}{nearest(dimension, DIMENSIONS)}"
            raise checker.document.error((*path, "scope", dimension), message)
    if len(given) < len(entry):
        raise SaidAlready
    try:
        return Rule(**given)
    except RondelError as error:
        wrong = next((name for name in ("tokens", "money") if f" {name} is " in str(error)), "")
        raise checker.document.error((*path, wrong) if wrong else path, str(error)) from None


def rules_of(config: Config) -> list[Rule]:
    """All rules in force: those of the ledger, and the budgets of the gateway's keys."""
    budgets = [
        Rule({"key": name}, budget.window, budget.tokens, budget.money, budget.mode)
        for name, key in config.gateway.keys.items()
        if (budget := key.budget) is not None
    ]
    return [*config.ledger.limits, *budgets]
