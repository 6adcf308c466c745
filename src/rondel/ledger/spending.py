"""Checks reported usage, computes how much of a limit is left, and writes the sentences that people read. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from ..charge import NANO, TOKENS_MAX, Charge, Scope
from ..contracts.endpoint import PROVIDERS
from ..contracts.ledger import Account, Balance, Reserved, Rule, Totals, dimensions_in
from ..contracts.window import DAY_S
from ..values import Usage, Value
from .admission import Needed

_DATED = re.compile(r"[-@:](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|latest)")


class Breach(Value, frozen=True):
    """A rule whose limit was exceeded: by how much, in tokens or in billionths of a dollar."""

    rule: Rule
    account: Account
    balance: Balance
    exceeded_by: int
    unit: Literal["tokens", "nanousd"]
    message: str


class Recorded(Value, frozen=True):
    charge: Charge
    totals: dict[str, Balance] = {}
    breaches: tuple[Breach, ...] = ()


class LimitState(Value, frozen=True):
    """The state of one rule. What calls in progress have reserved counts as spent."""

    rule: Rule
    account: Account
    balance: Balance
    remaining_tokens: int | None
    remaining_nanousd: int | None
    blocked: bool

    @property
    def window_key(self) -> str:
        return self.account.key


def left(rule: Rule, spent: Balance) -> tuple[int | None, int | None, bool]:
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


def under_way(rule: Rule, spent: Balance, needed: Needed | None = None) -> bool:
    """Return whether only calls in progress use up the limit, so that there may be room again in a moment."""
    tokens, nanousd, over = left(rule, Balance(spent.tokens, spent.cost_nanousd))
    return not over and fits(tokens, nanousd, needed)


def with_own_spent(spent: Balance, own: Iterable[Reserved]) -> Balance:
    """Return the balance for a call that has used what it had reserved, which no wait will free."""
    charges = [reserved.charge for reserved in own]
    tokens = min(sum(charge.tokens for charge in charges), spent.reserved_tokens)
    nanousd = min(sum(charge.cost_nanousd or 0 for charge in charges), spent.reserved_nanousd)
    return Balance(
        spent.tokens + tokens,
        spent.cost_nanousd + nanousd,
        spent.reserved_tokens - tokens,
        spent.reserved_nanousd - nanousd,
    )


def fits(tokens: int | None, nanousd: int | None, needed: Needed | None) -> bool:
    if needed is None:
        return True
    return (tokens is None or needed.tokens <= tokens) and (nanousd is None or needed.cost_nanousd <= nanousd)


def too_big_sentence(rule: Rule, account: Account, spent: Balance, needed: Needed) -> str:
    """Return `The day token limit of 1,000 has 600 left, and this request needs about 50,000.`; empty if nothing is
    left or the rule has its own message."""
    tokens, nanousd, over = left(rule, Balance(spent.tokens, spent.cost_nanousd))
    if rule.message or over or fits(tokens, nanousd, needed):
        return ""
    if tokens is not None and needed.tokens > tokens:
        what, room, wanted = f"token limit of {rule.tokens:,}", f"{tokens:,}", f"{needed.tokens:,}"
    else:
        what, room = f"limit of {dollars(rule.cost_nanousd or 0)}", dollars(nanousd or 0)
        wanted = dollars(needed.cost_nanousd)
    return f"{_limit_of(account, what)} has {room} left, and the input of this request needs about {wanted}."


def retry_after_s(account: Account, now: float) -> float | None:
    return None if account.window == "lifetime" else max(account.end * DAY_S - now, 1.0)


def limit_sentence(rule: Rule, account: Account, spent: Balance | None, *, under_way: bool = False) -> str:
    """Return `The day token limit of 50,000 for model X has been reached.`, or the rule's own message."""
    if rule.message:
        return rule.message
    tokens = rule.tokens is not None and (rule.money is None or spent is None or left(rule, spent)[0] == 0)
    what = f"token limit of {rule.tokens:,}" if tokens else f"limit of {dollars(rule.cost_nanousd or 0)}"
    limit = _limit_of(account, what)
    if under_way:
        return f"{limit} is used up by calls in progress; try again in a moment."
    return f"{limit} has been reached."


def unpriced_sentence(rule: Rule, account: Account, engine: str) -> str:
    limit = _limit_of(account, f"limit of {dollars(rule.cost_nanousd or 0)}").removeprefix("The ")
    return (
        f"The price of {engine} is unknown, so the {limit} cannot be enforced: give `prices` under "
        f"[engines.{engine.partition(':')[0]}], or set `unknown_price` under [ledger]."
    )


def _limit_of(account: Account, what: str) -> str:
    names, values = dimensions_in(account.dimension), account.value.split("\x1f")
    whom = " and ".join(f"{name} {value}" for name, value in zip(names, values, strict=False))
    return f"The {account.window} {what}{f' for {whom}' if whom else ''}"


def dollars(nanousd: int) -> str:
    """Format an amount: `$5.00`, with more digits for a small one: `$0.0042`."""
    amount = nanousd / NANO
    if amount == 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.0001 else f"${amount:.6f}" if amount >= 1e-6 else "$0.000001 or less"


def cost_text(totals: Totals) -> str:
    """Format a cost: `$0.0042`, `at least $0.0042` if some calls have no known price, `unknown` if none has."""
    if totals.unpriced and totals.unpriced == totals.calls:
        return "unknown"
    return f"{'at least ' if totals.unpriced else ''}{dollars(totals.cost_nanousd)}"


def cost_line(charges: Iterable[Charge]) -> str:
    """Return the tokens and the cost of some calls on one line; empty if there were none."""
    totals = sum(map(Totals.of, charges), Totals())
    if not totals.calls:
        return ""
    cached = f" ({totals.tokens_cached:,} cached)" if totals.tokens_cached else ""
    cost = "price unknown" if totals.unpriced == totals.calls else cost_text(totals)
    estimated = ", estimated" if totals.estimated else ""
    unit = "token" if totals.tokens_in == 1 else "tokens"
    return f"{totals.tokens_in:,} {unit} in{cached}, {totals.tokens_out:,} out, {cost}{estimated}"


def credible(usage: Usage, estimate: Callable[[], Usage] | None, *, whole: bool) -> Usage:
    """Return the usage that an upstream reported if it is credible, otherwise an estimate, marked as such. An answer
    that broke off spent at least its received part."""
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
    """Return whether something was spent and no part is more than its whole, as nearly every upstream reports it."""
    used, made = usage.tokens_in, usage.tokens_out
    return (
        type(used) is int
        and type(made) is int
        and 0 < used + made <= TOKENS_MAX
        and usage.tokens_cached >= 0
        and usage.tokens_cache_written >= 0
        and usage.tokens_cached + usage.tokens_cache_written <= used
        and 0 <= usage.tokens_reasoning <= made
    )


def _count(value: float) -> int | None:
    """Return a number of tokens of at least 0; None for one that is not credible."""
    if value < 0:
        return 0
    return int(value) if value <= TOKENS_MAX else None


def named(model: str, scope: Scope) -> str:
    """Return the model that answered, under the name by which it was called if it is the same."""
    head, colon, rest = model.partition(":")
    if colon and (head in PROVIDERS or model == scope.engine):
        model = rest
    asked = scope.model
    if not asked or not model.startswith(asked):
        return model
    # Many upstreams return the full name, with its date, of the model that was called.
    return asked if model == asked or _DATED.fullmatch(model[len(asked) :]) else model
