"""Prices of your own, and what an unknown price means to a limit of money."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.errors import ConfigError, TokenLimitError
from rondel.ledger.prices import Price, Prices
from rondel.project.config import load, money_warnings
from rondel.project.lint import lint
from rondel.testing import say
from rondel.values import Usage
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.serving import Serving

from .conftest import Bench

MINE = Scope("chat", "big", "mine:big", key="team")
MONEY = Rule({"key": "team"}, "month", money=5.0, mode="block")
WHEN = 1_800_000_000.0


def few() -> tuple[int, int]:
    return 10, 10


# --- prices -----------------------------------------------------------------------------------------------------------


def test_an_own_price_is_what_a_call_costs():
    """Trust 23: input, output, and what was read from or written to a cache, for a million tokens each."""
    prices = Prices({"mine": {"big": Price(2.0, 10.0, 0.2, 2.5), "*": Price(1.0, 3.0)}})
    usage = Usage(1_000_000, 100_000, tokens_cached=400_000, tokens_cache_written=100_000)
    assert prices.charged("mine", "big", usage, WHEN) == (2_330_000_000, "own price")
    assert prices.charged("mine", "small", usage, WHEN) == (1_300_000_000, "own price")
    assert prices.charged("other", "big", usage, WHEN) == (None, "")


def test_an_own_price_wins_over_the_lists_and_needs_none():
    """Trust 23: a contract may be cheaper than the list."""
    prices = Prices({"openai": {"gpt-4o": Price(1.0, 2.0)}})
    assert prices.charged("openai", "gpt-4o", Usage(1_000_000, 0), WHEN) == (1_000_000_000, "own price")
    prices.load()
    assert prices.charged("openai", "gpt-4o", Usage(1_000_000, 0), WHEN) == (1_000_000_000, "own price")
    assert prices.charged("openai", "gpt-4o-mini", Usage(1_000_000, 0), WHEN)[0] == 150_000_000


def test_an_embedded_model_costs_nothing_and_that_is_known():
    """Trust 23: 0 is a price."""
    assert Prices().charged("local", "smollm2-135m", Usage(10, 10), WHEN) == (0, "embedded")


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_limit_of_money_holds_by_own_prices(bench: Bench):
    """Trust 23: an engine that is known only by its address is charged and blocked."""
    async with bench.ledger(MONEY) as ledger:
        ledger.prices.configure({"mine": {"*": Price(1.0, 4.0)}})
        ledger.settle(await ledger.reserve(MINE, tokens=few), Usage(1_000_000, 1_000_000))
        with pytest.raises(TokenLimitError, match=r"The month limit of \$5.00 for key team has been reached"):
            await ledger.reserve(MINE, tokens=few)


async def test_an_unknown_price_blocks_unless_something_else_is_set(bench: Bench):
    """Trust 23: a limit of money that cannot be counted does not let everything through."""
    async with bench.ledger(MONEY) as ledger:
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(MINE, tokens=few)
        assert str(caught.value) == (
            "The price of mine:big is unknown, so the month limit of $5.00 for key team cannot be enforced: "
            "give `prices` under [engines.mine], or set `unknown_price` under [ledger]."
        )
        await ledger.reserve(Scope("chat", "big", "mine:big", key="other"), tokens=few)  # no limit of money
        await ledger.reserve(Scope("count", "big", "mine:big", key="team"), tokens=lambda: (0, 0))  # spends nothing
        await ledger.reserve(Scope("chat", "x", "local:x", key="team"), tokens=few)
        ledger.configure([MONEY], unknown_price="allow")
        for _ in range(3):
            ledger.settle(await ledger.reserve(MINE, tokens=few), Usage(10_000_000, 0))


async def test_a_limit_of_tokens_and_one_that_warns_need_no_price(bench: Bench):
    """Trust 23: only a limit of money that blocks depends on a price."""
    async with bench.ledger(Rule({}, tokens=1_000, mode="block"), Rule({}, money=0.0, mode="warn")) as ledger:
        await ledger.reserve(MINE, tokens=few)


async def test_an_unknown_price_can_be_estimated(bench: Bench):
    """Trust 23: the estimate is charged, and the charge says so."""
    async with bench.ledger(MONEY) as ledger:
        ledger.prices.configure({}, estimate=Price(5.0, 25.0))
        recorded = await ledger.record(MINE, Usage(1_000_000, 0))
        assert recorded is not None
        assert (recorded.charge.cost_nanousd, recorded.charge.price) == (5_000_000_000, "estimated price")
        with pytest.raises(TokenLimitError, match="has been reached"):
            await ledger.reserve(MINE, tokens=few)
        known = await ledger.record(Scope("chat", "gpt-4o", "openai:gpt-4o"), Usage(1_000_000, 0))
        assert known is not None
        assert known.charge.cost_nanousd == 2_500_000_000


async def test_a_model_that_answers_under_another_name_is_charged_like_the_one_that_was_asked(bench: Bench):
    """Trust 23: what an upstream calls itself does not make a call free."""
    asked = Scope("chat", "gpt-4o", "openai:gpt-4o", key="team")
    async with bench.ledger(MONEY) as ledger:
        ledger.settle(await ledger.reserve(asked, tokens=few), Usage(2_000_000, 0), model="no-such-model")
        (state,) = await ledger.limit_state(asked)
        assert state.balance.cost_nanousd == 5_000_000_000
        with pytest.raises(TokenLimitError):
            await ledger.reserve(asked, tokens=few)


# --- the configuration ------------------------------------------------------------------------------------------------

CONFIG = """
engine = "mine"
[engines.mine]
base_url = "{url}"
dialect = "anthropic"
model = "big"
retry = {{attempts = 1}}
{prices}
[[ledger.limits]]
window = "month"
money = 1.00
mode = "block"
[ledger]
unknown_price = "{unknown}"
"""
PRICES = '[engines.mine.prices]\n"big*" = {input = 100.0, output = 500.0, cached = 10.0, cache_written = 120.0}'


def config(url: str = "http://127.0.0.1:1", prices: str = "", unknown: str = "block") -> str:
    return CONFIG.format(url=url, prices=prices, unknown=unknown)


def costs(place: Place) -> list[tuple[Any, Any]]:
    with closing(sqlite3.connect(place.project / "rondel.db")) as connection:
        return connection.execute("select cost, price from charges").fetchall()


@pytest.mark.parametrize(
    ("prices", "unknown", "statuses", "cost"),
    [
        (PRICES, "block", [200, 429], 1_500_000_000),
        ("", "block", [429, 429], None),
        ("", "estimate", [200, 200], 75_000_000),
        ("", "allow", [200, 200], None),
    ],
)
def test_a_budget_of_money_holds_for_an_engine_that_is_known_by_its_address(
    place: Place, server: ModelServer, prices: str, unknown: str, statuses: list[int], cost: int | None
):
    """Trust 23: through a real gateway, with each meaning of an unknown price."""
    place.write("rondel.toml", config(server.url, prices, unknown) + '[store]\npath = "rondel.db"\n')
    server.model = "big-2026"
    for _ in statuses:
        server.replies(say("Hello.", usage=Usage(10_000, 1_000)))
    with Serving(place, "serve", "--port", "0") as gateway:
        texts: list[str] = []
        for status in statuses:
            answer = gateway.ask("Hi", model="mine")
            texts.append(answer.rest())
            assert answer.status == status, texts
        if unknown == "block" and not prices:
            assert "The price of mine:big is unknown" in texts[0]
        told = "mine:big has no known price" in gateway.text
        assert told == (not prices)
        gateway.signal(signal.SIGTERM)
        gateway.wait_end()
    assert [found for found, _ in costs(place)] == [cost] * statuses.count(200)


CHAIN = """
engine = "mine"
[engines.mine]
base_url = "http://127.0.0.1:1"
dialect = "anthropic"
model = "big"
retry = {{attempts = 1}}
fallback = ["other"]
[engines.mine.prices]
"*" = {{input = 1.0, output = 1.0}}
[engines.other]
base_url = "{url}"
dialect = "anthropic"
model = "small"
[engines.other.prices]
"*" = {{input = 1000.0, output = 1000.0}}
[store]
path = "rondel.db"
"""


def test_an_answer_of_a_fallback_costs_what_its_own_engine_costs(place: Place, server: ModelServer):
    """Trust 23: in the ledger and in the trace."""
    place.write("rondel.toml", CHAIN.format(url=server.url))
    server.model = "small-20260101"
    server.replies(say("Hello.", usage=Usage(10_000, 1_000)))
    ran = place.spawn("run", "rondel", "Hi")
    assert ran.code == 0, ran.err
    assert costs(place) == [(11_000_000_000, "own price")]
    assert "other:small" in place.spawn("usage", "--by", "engine").out
    trace = place.spawn("trace").out
    assert "asked mine:big, answered by other:small (small-20260101)" in trace
    assert "$11.00" in trace


def warned(folder: Path, text: str) -> list[str]:
    (folder / "rondel.toml").write_text(text)
    return money_warnings(load(folder, {"HOME": str(folder)}))


def test_a_model_without_a_price_is_warned_of_when_money_is_limited(tmp_path: Path):
    """Trust 23: at the start, with what to do; and with what the setting makes of it."""
    (blocked,) = warned(tmp_path, config())
    assert blocked == (
        "mine:big has no known price, so calls to it are refused wherever a limit of money blocks: "
        "give `prices` under [engines.mine], or set `unknown_price` under [ledger]"
    )
    assert "so it is charged by an estimate" in warned(tmp_path, config(unknown="estimate"))[0]
    assert "so no limit of money holds for it" in warned(tmp_path, config(unknown="allow"))[0]
    assert warned(tmp_path, config(prices=PRICES)) == []
    assert warned(tmp_path, config().replace("money = 1.00", "tokens = 5")) == []
    assert warned(tmp_path, config().replace("money = 1.00", 'money = 1.00\nscope = {model = "gpt-4o"}')) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('engine = "openai:gpt-4o"', []),
        ('engine = "openai:no-such-model"', ["openai:no-such-model"]),
        ('engine = "local"', []),
        ('engine = "ollama:qwen3"', ["ollama:qwen3"]),
        ('engine = "local"\n[engines.local]\nbase_url = "http://127.0.0.1:1"\nmodel = "x"', ["local:x"]),
        ('engine = "local"\n[gateway.routes]\nthink = "ollama:qwen3"\n[gateway.fallback]\ndefault = ["vllm:x"]',
         ["ollama:qwen3", "vllm:x"]),
        ('engine = "local"\n[engines.a]\nbase_url = "http://127.0.0.1:1"\nmodels = ["x", "y"]', ["a:x", "a:y"]),
        ('engine = "local"\n[engines.a]\nprovider = "openai"\nmodel = "gpt-4o"\nfallback = ["vllm:x"]', ["vllm:x"]),
        ('engine = "local"\n[gateway.projects.p]\ndefault = "vllm:x"', ["vllm:x"]),
    ],
)  # fmt: skip
def test_every_model_that_the_configuration_names_is_looked_at(tmp_path: Path, text: str, named: list[str]):
    """Trust 23: the default, routes, fallbacks, projects and what engines list."""
    found = warned(tmp_path, f"{text}\n[[ledger.limits]]\nmoney = 1\n")
    assert sorted(sentence.partition(" ")[0] for sentence in found) == named


def test_lint_and_doctor_warn_of_it(place: Place):
    """Trust 23: where people look for mistakes before they start."""
    path = place.write("rondel.toml", config())
    assert [p.severity for p in lint([path]).problems if "no known price" in p.message] == ["warning"]
    assert "mine:big has no known price" in place.spawn("doctor").out.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ('[engines.a]\nbase_url = "http://x"\n[engines.a.prices]\nx = {input = -1, output = 1}', 4, "is -1"),
        (
            '[engines.a]\nbase_url = "http://x"\n[engines.a.prices]\nx = {input = 1}',
            4,
            "give it `input` and `output`, or",
        ),
        ('[engines.a]\nbase_url = "http://x"\n[engines.a.prices]\nx = {input = nan, output = 1}', 4, "is nan"),
        ("[ledger]\nestimated_price = {input = inf, output = 1}", 2, "is inf"),
        ('[ledger]\nunknown_price = "blok"', 2, "did you mean 'block'?"),
    ],
)
def test_a_mistake_in_a_price_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, sentence: str):
    """Trust 23: a wrong price is refused, not guessed."""
    (tmp_path / "rondel.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"HOME": str(tmp_path)})
    assert str(caught.value).startswith(f"{tmp_path / 'rondel.toml'}:{line}: ")
    assert sentence in str(caught.value)
