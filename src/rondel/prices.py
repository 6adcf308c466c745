"""What tokens cost, by the price lists of genai-prices, which is imported with the first question that it can answer.

Prices become whole numbers, so that a call's cost is computed in microseconds and always the same. A model that no list
knows has no price: that is None, never 0. Knows no network: the lists are in the package.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from .charge import NANO
from .values import Usage

LISTS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openrouter": "openrouter",
    "groq": "groq",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "together": "together",
    "fireworks": "fireworks",
    "gemini": "google",
    "xai": "x-ai",
}
"""Our providers that have a price list, and what it is called there."""

MODELS_MAX = 1_024
"""Models whose places in the lists are kept at hand."""
FINE = 10**12
"""A rate is kept as so many parts of a dollar for a million tokens: some prices have that many digits."""


class Rates(NamedTuple):
    """What a token costs, in the finest parts, in prompts of more than `above` tokens."""

    above: int
    input: int
    output: int
    cached: int
    cache_written: int


class Prices:
    """Price lists, once they are loaded. Loading takes a moment: do it where nobody waits."""

    def __init__(self) -> None:
        self.version = ""
        self._snapshot: Any = None
        self._models: dict[tuple[str, str], Any] = {}
        self._rates: dict[int, tuple[Any, tuple[Rates, ...] | None]] = {}

    @property
    def loaded(self) -> bool:
        return self._snapshot is not None

    def lists(self, provider: str) -> bool:
        """Whether there is a list for this provider."""
        return provider in LISTS

    def load(self) -> None:
        from genai_prices import __version__
        from genai_prices.data_snapshot import get_snapshot

        self._snapshot = get_snapshot()
        self.version = f"genai-prices {__version__}"

    def cost_nanousd(self, provider: str, model: str, usage: Usage, at: float) -> int | None:
        """What a call cost, in billionths of a dollar; None when nobody knows."""
        if self._snapshot is None or not model or provider not in LISTS:
            return None
        info = self._model(provider, model)
        if info is None:
            return None
        try:
            price = info.get_prices(datetime.fromtimestamp(at, UTC))
        except (LookupError, ValueError, OverflowError, OSError):
            return None
        rates = self._rates_of(price)
        if rates is None:
            return None
        rate = rates[0]
        for step in rates:
            if step.above < usage.tokens_in:
                rate = step
        plain = max(usage.tokens_in - usage.tokens_cached - usage.tokens_cache_written, 0)
        cost = (
            plain * rate.input
            + usage.tokens_cached * rate.cached
            + usage.tokens_cache_written * rate.cache_written
            + usage.tokens_out * rate.output
        )
        return (cost + 500_000_000) // 1_000_000_000

    def paid(self, engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
        """What an engine was paid, in dollars, by the prices of that day; None when nobody knows. `model` is the one
        that answered, where it said which. The lists are loaded when the first of them is needed."""
        provider, _, asked = engine.partition(":")
        if not self.lists(provider):
            return None
        if not self.loaded:
            self.load()
        cost = self.cost_nanousd(provider, model or asked, usage, at)
        return None if cost is None else Decimal(cost) / NANO

    def _model(self, provider: str, model: str) -> Any:
        """What a list says of a model, or None. The lists do not change, and to find out takes long: most of all for a
        model that is in none."""
        key = provider, model
        if key not in self._models:
            if len(self._models) >= MODELS_MAX:
                del self._models[next(iter(self._models))]
            try:
                self._models[key] = self._snapshot.find_provider_model(model, None, LISTS[provider], None)[1]
            except (LookupError, ValueError):
                self._models[key] = None
        return self._models[key]

    def _rates_of(self, price: Any) -> tuple[Rates, ...] | None:
        known = self._rates.get(id(price))
        if known is None or known[0] is not price:
            known = self._rates[id(price)] = (price, _rates(price))
        return known[1]


def _rates(price: Any) -> tuple[Rates, ...] | None:
    given = [getattr(price, f"{key}_mtok") for key in ("input", "output", "cache_read", "cache_write")]
    if given[0] is None and given[1] is None:
        return None  # priced by the picture, or by the minute
    steps = sorted({0, *(tier.start for one in given for tier in getattr(one, "tiers", ()))})

    def rate(one: Any, above: int, other: int = 0) -> int:
        if one is None:
            return other
        if not hasattr(one, "tiers"):
            return round(one * FINE)
        reached = [tier.price for tier in one.tiers if tier.start <= above]
        return round((reached[-1] if reached else one.base) * FINE)

    rates: list[Rates] = []
    for above in steps:
        plain, out = rate(given[0], above), rate(given[1], above)
        rates.append(Rates(above, plain, out, rate(given[2], above, plain), rate(given[3], above, plain)))
    return tuple(rates)
