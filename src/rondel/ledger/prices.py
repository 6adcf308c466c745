"""Prices of tokens: those of the configuration, else those of genai-prices, which is imported on demand.

Prices are whole numbers, so that a call's cost is always the same. A model in no list has no price: None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from ..charge import NANO, ImageUsage
from ..contracts.endpoint import PROVIDERS
from ..values import Usage, Value

LISTS = {name: one.price_list or name for name, one in PROVIDERS.items() if not one.is_local}
"""The list's name for each provider."""

MODELS_MAX = 1_024  # models whose entries in the lists are cached
FINE = 10**12  # rates for a million tokens are stored in this fraction of a dollar: some prices have that many digits


class Rates(NamedTuple):
    """The price of a million tokens in units of 1/FINE dollars, in prompts of more than `above` tokens."""

    above: int
    input: int
    output: int
    cached: int
    cache_written: int
    image_in: int | None = None  # tokens of pictures in the input, if they have a price of their own
    image_out: int | None = None  # tokens of pictures that a model made
    image: int | None = None  # one picture that a model made, which then costs no tokens


class Price(Value, frozen=True):
    """The price of a million tokens, or of one picture, in dollars. By default, cached tokens cost as much as
    others."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None
    cache_written: float | None = None
    image: float | None = None

    @property
    def rates(self) -> Rates:
        plain = _fine(self.input or 0.0)
        cached, written = (plain if one is None else _fine(one) for one in (self.cached, self.cache_written))
        image = None if self.image is None else _fine(self.image)
        return Rates(0, plain, _fine(self.output or 0.0), cached, written, image=image)


EMBEDDED = "local"  # the provider of models that run in this process: they cost nothing
_FREE_RATES = (Rates(0, 0, 0, 0, 0),)
_UNKNOWN = None, ""
ESTIMATED = "estimated price"  # the price list of a charge whose price was unknown and was estimated
OwnPrices: TypeAlias = Mapping[str, Mapping[str, Price]]
"""By the name of the engine or its provider, then by patterns of model names; the first match counts."""


class Prices:
    """Own prices, and the price lists once they are loaded. Loading takes a moment: do it in a thread."""

    def __init__(self, own: OwnPrices | None = None, *, estimate: Price | None = None) -> None:
        self.version = ""
        self._snapshot: Any = None
        self.without_lists = False
        self._own: dict[str, tuple[tuple[str, Rates], ...]] = {}
        self._own_found: dict[tuple[str, str], tuple[Rates, ...] | None] = {}
        self._estimate: tuple[Rates, ...] | None = None
        self._has_embedded = True
        self.configure(own or {}, estimate=estimate)
        self._models: dict[tuple[str, str], Any] = {}
        self._rates: dict[int, tuple[Any, tuple[Rates, ...] | None]] = {}

    def configure(self, own: OwnPrices, *, estimate: Price | None = None, embedded: bool = True) -> None:
        """Use these prices from now on. `estimate` is the price of tokens whose own is unknown; `embedded` is False if
        a remote engine has the name of the embedded one."""
        self._own = {name: tuple((pattern, price.rates) for pattern, price in of.items()) for name, of in own.items()}
        self._own_found = {}
        self._estimate = None if estimate is None else (estimate.rates,)
        self._has_embedded = embedded

    @property
    def loaded(self) -> bool:
        return self._snapshot is not None

    def lists(self, provider: str) -> bool:
        return not self.without_lists and provider in LISTS

    def needs_lists(self, engine: str) -> bool:
        """Return whether the prices of this engine are in lists that are not loaded."""
        return self._snapshot is None and not self.without_lists and engine.partition(":")[0] in LISTS

    def load(self) -> None:
        from genai_prices import __version__
        from genai_prices.data_snapshot import get_snapshot

        self._snapshot = get_snapshot()
        self.version = f"genai-prices {__version__}"

    def charged(
        self, provider: str, model: str, usage: Usage, at: float, images: ImageUsage | None = None
    ) -> tuple[int | None, str]:
        """Return the cost of a call, in billionths of a dollar, and the name of the price list; None if unknown."""
        if provider in self._own and (rates := self._own_rates(provider, model)) is not None:
            return _cost(rates, usage, images), "own price"
        if provider == EMBEDDED and self._has_embedded:
            return _cost(_FREE_RATES, usage, images), "embedded"
        if provider in LISTS and not self.without_lists:
            if self._snapshot is None:
                return _UNKNOWN
            if (rates := self._listed_rates(provider, model, at)) is not None:
                return _cost(rates, usage, images), self.version
        return _UNKNOWN if self._estimate is None else (_cost(self._estimate, usage, images), ESTIMATED)

    def _own_rates(self, provider: str, model: str) -> tuple[Rates, ...] | None:
        key = provider, model
        if key not in self._own_found:
            if len(self._own_found) >= MODELS_MAX:
                del self._own_found[next(iter(self._own_found))]
            found = (rates for pattern, rates in self._own[provider] if fnmatchcase(model.lower(), pattern.lower()))
            self._own_found[key] = None if (first := next(found, None)) is None else (first,)
        return self._own_found[key]

    def _listed_rates(self, provider: str, model: str, at: float) -> tuple[Rates, ...] | None:
        if not model or (info := self._model(provider, model)) is None:
            return None
        try:
            price = info.get_prices(datetime.fromtimestamp(at, UTC))
        except (LookupError, ValueError, OverflowError, OSError):
            return None
        known = self._rates.get(id(price))
        if known is None or known[0] is not price:
            known = self._rates[id(price)] = (price, _rates(price))
        return known[1]

    def paid(self, engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
        """Return what a call cost in dollars, by the prices of that day; None if that is unknown. `model` is the one
        that answered, if the upstream said which. Loads the lists when they are first needed."""
        provider, _, asked = engine.partition(":")
        if self.lists(provider) and not self.loaded:
            self.load()
        cost = self.charged(provider, model or asked, usage, at)[0]
        return None if cost is None else Decimal(cost) / NANO

    def _model(self, provider: str, model: str) -> Any:
        """Return a model's entry in the lists, or None. Cached, because a search takes long, above all for a model in
        no list."""
        key = provider, model
        if key not in self._models:
            if len(self._models) >= MODELS_MAX:
                del self._models[next(iter(self._models))]
            try:
                self._models[key] = self._snapshot.find_provider_model(model, None, LISTS[provider], None)[1]
            except (LookupError, ValueError):
                self._models[key] = None
        return self._models[key]


def _cost(rates: tuple[Rates, ...], usage: Usage, images: ImageUsage | None = None) -> int:
    rate, more = rates[0], 0
    for step in rates:
        if step.above < usage.tokens_in:
            rate = step
    output = rate.output
    if images is not None:
        if rate.image is not None:
            return (rate.image * images.made + 500) // 1_000
        output = output if rate.image_out is None else rate.image_out
        if rate.image_in is not None:
            more = min(images.tokens_in, usage.tokens_in) * (rate.image_in - rate.input)
    plain = max(usage.tokens_in - usage.tokens_cached - usage.tokens_cache_written, 0)
    cost = (
        more
        + plain * rate.input
        + usage.tokens_cached * rate.cached
        + usage.tokens_cache_written * rate.cache_written
        + usage.tokens_out * output
    )
    return (cost + 500_000_000) // 1_000_000_000


def _fine(dollars: float) -> int:
    return round(Decimal(str(dollars)) * FINE)


def _rates(price: Any) -> tuple[Rates, ...] | None:
    given = [getattr(price, f"{key}_mtok") for key in ("input", "output", "cache_read", "cache_write")]
    drawn = [getattr(price, f"{key}_image_mtok", None) for key in ("input", "output")]
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
        cached, written = rate(given[2], above, plain), rate(given[3], above, plain)
        images = (None if one is None else rate(one, above) for one in drawn)
        rates.append(Rates(above, plain, out, cached, written, *images))
    return tuple(rates)
