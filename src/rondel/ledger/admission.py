"""Which rules apply to a call, and what an admitted call holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..charge import Scope, Tell
from ..contracts.ledger import Account, Cap, Reserved, Rule
from ..contracts.window import day_of
from ..values import Value


class Reservation(msgspec.Struct, eq=False):
    """An admitted call in progress. It is settled or voided once; later attempts do nothing."""

    at: float
    scope: Scope
    tell: Tell | None = None
    reserved: Reserved | None = None  # what the store holds for the call; None if no rule blocks
    more: tuple[Reserved, ...] = ()
    """What the store holds in addition, for an answer that became longer than expected."""
    over: bool = False

    @property
    def tokens_out(self) -> int | None:
        """How long the answer may become before more must be reserved; None if no rule blocks."""
        if self.reserved is None:
            return None
        return sum([held.charge.usage.tokens_out for held in (self.reserved, *self.more)])


class Needed(Value, frozen=True):
    """What the input of a call will spend. The cost is 0 if no limit is in money or the price is unknown."""

    tokens: int
    cost_nanousd: int


class Plan(NamedTuple):
    """The accounts of one day that the rules for a scope count on, in the order of the rules."""

    capped: tuple[tuple[Rule, Account], ...]  # the rules that block, and their accounts; `caps` has the same order
    caps: tuple[Cap, ...]
    warned: tuple[tuple[Rule, Account], ...]
    in_money: bool  # whether a rule that blocks limits money


_NO_PLAN = Plan((), (), (), False)


class AppliedRules:
    """The rules that apply to the calls of one scope, and the scope in texts that can be stored."""

    def __init__(self, scope: Scope, rules: Sequence[Rule]) -> None:
        self.scope = scope.cleaned()
        self.rules = tuple([(rule, *account) for rule in rules for account in rule.accounts_of(self.scope)])
        modes = [rule.mode for rule, _, _ in self.rules]
        self.blocks, self.warns = "block" in modes, "warn" in modes
        self._day, self._plan = -1, _NO_PLAN

    def accounts(self, at: float) -> list[Account]:
        return [Account.at(dimension, value, rule.window, at) for rule, dimension, value in self.rules]

    def plan(self, at: float) -> Plan:
        if (day := day_of(at)) != self._day:
            pairs = [(rule, account) for (rule, _, _), account in zip(self.rules, self.accounts(at), strict=True)]
            capped = tuple(pair for pair in pairs if pair[0].mode == "block")
            self._day = day
            self._plan = Plan(
                capped,
                tuple(Cap(account, rule.tokens, rule.cost_nanousd) for rule, account in capped),
                tuple(pair for pair in pairs if pair[0].mode == "warn"),
                any(rule.money is not None for rule, _ in capped),
            )
        return self._plan
