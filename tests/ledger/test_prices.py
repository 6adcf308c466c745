"""What tokens cost: ours is what the price lists say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rondel.contracts.endpoint import PROVIDERS
from rondel.ledger.prices import LISTS, Prices
from rondel.ledger.spending import dollars
from rondel.values import Usage

from .conftest import at

WHEN = at("2026-11-15")


@pytest.fixture(scope="module")
def prices() -> Prices:
    prices = Prices()
    prices.load()
    return prices


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini", "xai"])
def test_a_cost_is_what_the_list_says_for_every_model_and_on_both_sides_of_every_step(prices: Prices, provider: str):
    from genai_prices import Usage as TheirUsage
    from genai_prices import calc_price
    from genai_prices.data_snapshot import get_snapshot

    listed = next(p for p in get_snapshot().providers if p.id == LISTS[provider])
    checked = 0
    for model in listed.models:
        for tokens in (1, 1_000, 200_000, 200_001, 272_001):
            ours = prices.charged(provider, model.id, Usage(tokens, 500, tokens // 3, tokens // 5), WHEN)[0]
            if ours is None:
                continue
            theirs = calc_price(
                TheirUsage(input_tokens=tokens, output_tokens=500, cache_read_tokens=tokens // 3,
                           cache_write_tokens=tokens // 5),
                model.id, provider_id=listed.id, genai_request_timestamp=datetime.fromtimestamp(WHEN, UTC),
            ).total_price  # fmt: skip
            assert abs(theirs * 10**9 - ours) <= 1, model.id
            checked += 1
    assert checked > 20


def test_the_default_model_of_every_hosted_provider_has_a_price(prices: Prices):
    """If a provider is new here, its row in PROVIDERS needs the name that the lists have for it."""
    for name, provider in PROVIDERS.items():
        if not provider.is_local:
            assert prices.charged(name, provider.model, Usage(10, 10), WHEN)[0], f"{name}:{provider.model}"


def test_what_no_list_knows_has_no_price(prices: Prices):
    for provider, model in (("openai", "no-such-model"), ("ollama", "gpt-4o"), ("openai", ""), ("nobody", "gpt-4o")):
        assert prices.charged(provider, model, Usage(10, 10), WHEN)[0] is None
    assert Prices().charged("openai", "gpt-4o", Usage(10, 10), WHEN)[0] is None
    assert prices.version.startswith("genai-prices ")


def test_a_model_is_looked_for_once_also_when_no_list_knows_it():
    prices = Prices()
    prices.load()
    lists, looked_for = prices._snapshot, list[str]()  # pyright: ignore[reportPrivateUsage]

    class Watched:
        def find_provider_model(self, model: str, *where: str | None) -> object:
            looked_for.append(model)
            return lists.find_provider_model(model, *where)

    prices._snapshot = Watched()  # pyright: ignore[reportPrivateUsage]
    for _ in range(3):
        assert prices.charged("openai", "no-such-model", Usage(10, 10), WHEN)[0] is None
        assert prices.charged("openai", "gpt-4o", Usage(10, 10), WHEN)[0]
    assert looked_for == ["no-such-model", "gpt-4o"]


@pytest.mark.parametrize(
    ("nanousd", "shown"),
    [(0, "$0.00"), (5 * 10**9, "$5.00"), (4_200_000, "$0.0042"), (16_000, "$0.000016"), (10, "$0.000001 or less")],
)
def test_an_amount_is_shown_without_an_exponent(nanousd: int, shown: str):
    assert dollars(nanousd) == shown
