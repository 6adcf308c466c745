"""What a ledger believes and says: counts that can be true, how a limit stands, the sentence that people read. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from .charge import NANO, TOKENS_MAX, Account, Balance, Charge, Rule, Scope, Totals, dimensions_in
from .endpoint import PROVIDERS
from .values import Usage, Value
from .window import DAY_S

_DATED = re.compile(r"[-@:](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|latest)")


class Breach(Value, frozen=True):
    """A rule whose limit was passed: by how much, in tokens or in billionths of a dollar."""

    rule: Rule
    account: Account
    balance: Balance
    exceeded_by: int
    unit: Literal["tokens", "nanousd"]
    message: str


class Recorded(Value, frozen=True):
    """A charge that was kept, what its model has come to in each window, and the limits that are passed now."""

    charge: Charge
    totals: dict[str, Balance] = {}
    breaches: tuple[Breach, ...] = ()


class LimitState(Value, frozen=True):
    """How one rule stands. What is left counts what calls under way have reserved as spent."""

    rule: Rule
    account: Account
    balance: Balance
    remaining_tokens: int | None
    remaining_nanousd: int | None
    blocked: bool

    @property
    def window_key(self) -> str:
        return self.account.key


# --- how a limit stands -----------------------------------------------------------------------------------------------


def left(rule: Rule, spent: Balance) -> tuple[int | None, int | None, bool]:
    """What is left in tokens and in money, and whether nothing is."""
    tokens = None if rule.tokens is None else max(rule.tokens - spent.tokens - spent.reserved_tokens, 0)
    cost = rule.cost_nanousd
    nanousd = None if cost is None else max(cost - spent.cost_nanousd - spent.reserved_nanousd, 0)
    return tokens, nanousd, tokens == 0 or nanousd == 0


def breaches_of(rule: Rule, account: Account, spent: Balance) -> list[Breach]:
    found: list[Breach] = []
    cost = rule.cost_nanousd
    if rule.tokens is not None and spent.tokens > rule.tokens:
        sentence = limit_sentence(rule, account, spent)
        found.append(Breach(rule, account, spent, spent.tokens - rule.tokens, "tokens", sentence))
    if cost is not None and spent.cost_nanousd > cost:
        sentence = limit_sentence(rule, account, spent)
        found.append(Breach(rule, account, spent, spent.cost_nanousd - cost, "nanousd", sentence))
    return found


def under_way(rule: Rule, spent: Balance) -> bool:
    """Whether only calls that are under way leave no room: it may be there again in a moment."""
    return not left(rule, Balance(spent.tokens, spent.cost_nanousd))[2]


def retry_after_s(account: Account, now: float) -> float | None:
    """How long until the window is over; None when it never is."""
    return None if account.window == "lifetime" else max(account.end * DAY_S - now, 1.0)


def limit_sentence(rule: Rule, account: Account, spent: Balance | None, *, under_way: bool = False) -> str:
    """`The day token limit of 50,000 for model X has been reached.`, or the rule's own words."""
    if rule.message:
        return rule.message
    tokens = rule.tokens is not None and (rule.money is None or spent is None or left_of_tokens(rule, spent) <= 0)
    what = f"token limit of {rule.tokens:,}" if tokens else f"limit of {dollars(rule.cost_nanousd or 0)}"
    names, values = dimensions_in(account.dimension), account.value.split("\x1f")
    whom = " and ".join(f"{name} {value}" for name, value in zip(names, values, strict=False))
    limit = f"The {account.window} {what}{f' for {whom}' if whom else ''}"
    if under_way:
        return f"{limit} is taken up by calls that are under way; try again in a moment."
    return f"{limit} has been reached."


def left_of_tokens(rule: Rule, spent: Balance) -> int:
    return (rule.tokens or 0) - spent.tokens - spent.reserved_tokens


def dollars(nanousd: int) -> str:
    """`$5.00`, and as many digits as a small sum needs: `$0.0042`."""
    amount = nanousd / NANO
    if amount == 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.0001 else f"${amount:.2g}" if amount >= 1e-6 else "$0.000001 or less"


def cost_text(totals: Totals) -> str:
    """`$0.0042`, `at least $0.0042` when some calls have no known price, and `unknown` when none has."""
    if totals.unpriced and totals.unpriced == totals.calls:
        return "unknown"
    return f"{'at least ' if totals.unpriced else ''}{dollars(totals.cost_nanousd)}"


def cost_line(charges: Iterable[Charge]) -> str:
    """What some calls came to, on one line; empty when there were none."""
    totals = Totals()
    for charge in charges:
        totals = totals.plus(charge)
    if not totals.calls:
        return ""
    cached = f" ({totals.tokens_cached:,} cached)" if totals.tokens_cached else ""
    cost = "price unknown" if totals.unpriced == totals.calls else cost_text(totals)
    estimated = ", estimated" if totals.estimated else ""
    return f"{totals.tokens_in:,} tokens in{cached}, {totals.tokens_out:,} out, {cost}{estimated}"


# --- what can be true -------------------------------------------------------------------------------------------------


def credible(usage: Usage, estimate: Callable[[], Usage] | None, *, whole: bool) -> Usage:
    """What an upstream says was spent, where that can be; an estimate, marked as such, where it cannot.

    An answer that was not received as a whole has come to at least what was received of it.
    """
    if whole and _adds_up(usage):
        return usage
    tokens_in, tokens_out = _count(usage.tokens_in), _count(usage.tokens_out)
    said = tokens_in is not None and tokens_out is not None and tokens_in + tokens_out > 0
    estimated = usage.estimated
    if estimate is not None and not (said and whole):
        guess, estimated = estimate(), True
        tokens_in = tokens_in or guess.tokens_in
        tokens_out = max(tokens_out or 0, guess.tokens_out)
    tokens_in, tokens_out = tokens_in or 0, tokens_out or 0
    cached = min(_count(usage.tokens_cached) or 0, tokens_in)
    written = min(_count(usage.tokens_cache_written) or 0, tokens_in - cached)
    reasoning = min(_count(usage.tokens_reasoning) or 0, tokens_out)
    return Usage(tokens_in, tokens_out, cached, written, reasoning, estimated)


def _adds_up(usage: Usage) -> bool:
    """As nearly every upstream tells it: something was spent, and no part is more than its whole."""
    used, made = usage.tokens_in, usage.tokens_out
    return (
        type(used) is int
        and type(made) is int
        and used + made > 0
        and 0 <= used <= TOKENS_MAX
        and 0 <= made <= TOKENS_MAX
        and usage.tokens_cached >= 0
        and usage.tokens_cache_written >= 0
        and usage.tokens_cached + usage.tokens_cache_written <= used
        and 0 <= usage.tokens_reasoning <= made
    )


def _count(value: float) -> int | None:
    """A number of tokens; None for one that nobody can believe. Less than nothing is nothing."""
    if value < 0:
        return 0
    return int(value) if value <= TOKENS_MAX else None


def named(model: str, scope: Scope) -> str:
    """The model that answered, by the name under which it was asked where it is the same one."""
    head, colon, rest = model.partition(":")
    if colon and (head in PROVIDERS or model == scope.engine):
        model = rest
    return scope.model if is_same_model(scope.model, model) else model


def is_same_model(asked: str, answered: str) -> bool:
    """Whether an upstream only gave the full name, with its date, of the model that was asked."""
    if not asked or not answered.startswith(asked):
        return False
    return answered == asked or _DATED.fullmatch(answered[len(asked) :]) is not None
