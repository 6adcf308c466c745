"""Rules, how they stand, and limits that hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rondel.charge import Scope
from rondel.contracts.ledger import Cap, Refusal, Reserved, Rule
from rondel.dialects import DIALECTS
from rondel.errors import EngineOverloaded, LimitReached, RondelError, TokenLimitError
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage

from .conftest import Bench, at

X = Scope("chat", "X", "scripted:X")


def few() -> tuple[int, int]:
    return 10, 10


def least() -> tuple[int, int]:
    return 1, 10


async def spend(ledger: Ledger, scope: Scope, tokens: int) -> None:
    assert await ledger.record(scope, Usage(tokens, 0))


async def test_a_limit_of_a_model_blocks_with_a_sentence_for_people(bench: Bench):
    """L02: block, with the error's data and thousands separators."""
    rule = Rule({"model": "X"}, "day", tokens=50_000, mode="block")
    async with bench.ledger(rule) as ledger:
        await spend(ledger, X, 49_999)
        await ledger.assert_within_limit("X")
        await spend(ledger, X, 1)
        with pytest.raises(TokenLimitError) as caught:
            await ledger.assert_within_limit("X", "voice")
        error = caught.value
        assert str(error) == "The day token limit of 50,000 for model X has been reached."
        assert (error.model, error.window, error.window_key, error.kind) == ("X", "day", "2026-11-15", "voice")
        assert (error.rule, error.name, error.retry_after_s) == (rule, "ledger.limits", 12 * 3600.0)
        assert isinstance(error, LimitReached)
        assert isinstance(error, EngineOverloaded)
        with pytest.raises(TokenLimitError):
            await ledger.reserve(X, tokens=few)
        await ledger.assert_within_limit("Y")
        bench.clock.advance(12 * 3600)
        await ledger.assert_within_limit("X")
        ledger.void(await ledger.reserve(X, tokens=few))


async def test_a_rule_that_warns_lets_calls_through_and_tells(bench: Bench):
    """L02: warn, with what was passed and by how much."""
    rule = Rule({"model": "X"}, "month", tokens=100)
    async with bench.ledger(rule) as ledger:
        first = await ledger.record(X, Usage(60, 40))
        second = await ledger.record(X, Usage(5, 0))
        assert first is not None
        assert second is not None
        assert first.breaches == ()
        (breach,) = second.breaches
        assert (breach.rule, breach.exceeded_by, breach.unit, breach.account.key) == (rule, 5, "tokens", "2026-11")
        assert breach.message == "The month token limit of 100 for model X has been reached."
        await ledger.assert_within_limit("X")
        ledger.void(await ledger.reserve(X, tokens=few))
        (state,) = await ledger.limit_state("X")
        assert (state.remaining_tokens, state.blocked, state.window_key) == (0, False, "2026-11")


async def test_several_rules_of_one_scope_all_hold(bench: Bench):
    """L02: several rules."""
    rules = (
        Rule({"model": "X"}, "day", tokens=100, mode="block", message="Enough of X for today."),
        Rule({"model": "X"}, "lifetime", tokens=150, mode="block"),
        Rule({"model": "X"}, "week", tokens=120),
    )
    async with bench.ledger(*rules) as ledger:
        await spend(ledger, X, 100)
        with pytest.raises(TokenLimitError, match=r"^Enough of X for today\.$"):
            await ledger.reserve(X, tokens=few)
        bench.clock.advance(86_400)
        recorded = await ledger.record(X, Usage(60, 0))
        assert recorded is not None
        assert [(b.rule.window, b.exceeded_by) for b in recorded.breaches] == [("lifetime", 10)]  # a new week began
        with pytest.raises(TokenLimitError, match="The lifetime token limit of 150 for model X") as caught:
            await ledger.reserve(X, tokens=few)
        assert caught.value.retry_after_s is None
        states = await ledger.limit_state("X")
        assert [(s.rule.window, s.remaining_tokens, s.blocked) for s in states] == [
            ("day", 40, False), ("lifetime", 0, True), ("week", 60, False)]  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "whom"),
    [({"person": "ada"}, " for person ada"), ({"role": "free"}, " for role free"), ({}, ""),
     ({"key": "k", "model": "X"}, " for model X and key k"),
     ({"role": "*", "person": "*"}, " for person ada and role free")],
)  # fmt: skip
async def test_a_rule_may_be_of_any_scope(bench: Bench, scope: dict[str, str], whom: str):
    async with bench.ledger(Rule(scope, tokens=500, mode="block")) as ledger:
        ada = Scope("chat", "X", person="ada", roles=("free",), key="k")
        await spend(ledger, ada, 500)
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(ada, tokens=few)
        assert str(caught.value) == f"The day token limit of 500{whom} has been reached."
        other = Scope("chat", "Y", person="bob", roles=("paid",), key="other")
        if scope:
            ledger.void(await ledger.reserve(other, tokens=few))


async def test_what_a_call_has_reserved_itself_is_no_call_under_way(bench: Bench):
    """Trust 16: an answer that has used up the limit cannot wait for itself."""
    async with bench.ledger(Rule({"key": "k"}, tokens=100, mode="block")) as ledger:
        scope = Scope("chat", "X", key="k")
        alone = await ledger.reserve(scope, tokens=lambda: (10, 90))
        with pytest.raises(TokenLimitError, match="has been reached") as caught:
            await ledger.extend(alone, 50)
        assert caught.value.retry_after_s == 12 * 3600.0
        ledger.void(alone)
        one, other = [await ledger.reserve(scope, tokens=lambda: (10, 40)) for _ in range(2)]
        with pytest.raises(TokenLimitError, match="used up by calls in progress") as caught:
            await ledger.extend(one, 50)
        assert caught.value.retry_after_s == 1.0
        ledger.void(one)
        ledger.void(other)


async def test_a_star_gives_everybody_as_much(bench: Bench):
    async with bench.ledger(Rule({"person": "*"}, tokens=100, mode="block")) as ledger:
        ada, bob, nobody = (Scope("chat", "X", person=name) for name in ("ada", "bob", ""))
        await spend(ledger, ada, 100)
        await spend(ledger, nobody, 1000)
        with pytest.raises(TokenLimitError, match="person ada"):
            await ledger.reserve(ada, tokens=few)
        for scope in (bob, nobody):
            ledger.void(await ledger.reserve(scope, tokens=few))


async def test_a_rule_that_is_new_counts_what_was_spent_before(bench: Bench):
    async with bench.ledger() as ledger:
        await spend(ledger, Scope("chat", "X", key="k"), 100)
        ledger.configure([Rule({"model": "X", "key": "k"}, tokens=100, mode="block")])
        with pytest.raises(TokenLimitError):
            await ledger.reserve(Scope("chat", "X", key="k"), tokens=few)


async def test_will_exceed_looks_ahead(bench: Bench):
    """L04: will_exceed."""
    async with bench.ledger(Rule({"model": "X"}, tokens=100), Rule({"model": "X"}, "month", tokens=1_000)) as ledger:
        await spend(ledger, X, 60)
        assert not await ledger.will_exceed("X", 40)
        assert await ledger.will_exceed("X", 41)
        assert await ledger.will_exceed("X", 41, "day")
        assert not await ledger.will_exceed("X", 41, "month")
        assert not await ledger.will_exceed("Y", 10**9)


async def test_money_is_limited_where_a_price_is_known(bench: Bench):
    gpt = Scope("chat", "gpt-4o", "openai:gpt-4o", key="team")
    async with bench.ledger(Rule({"key": "team"}, "month", money=5.0, mode="block")) as ledger:
        recorded = await ledger.record(gpt, Usage(1_000_000, 0))
        assert recorded is not None
        assert recorded.charge.cost_nanousd == 2_500_000_000
        assert recorded.charge.price.startswith("genai-prices ")
        await ledger.assert_within_limit(gpt)
        await ledger.record(gpt, Usage(0, 250_000))
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(gpt, tokens=few)
        assert str(caught.value) == "The month limit of $5.00 for key team has been reached."
        (state,) = await ledger.limit_state(gpt)
        assert (state.remaining_tokens, state.remaining_nanousd, state.blocked) == (None, 0, True)


async def test_a_price_that_nobody_knows_is_unknown_and_not_nothing(bench: Bench):
    async with bench.ledger() as ledger:
        recorded = await ledger.record(Scope("chat", "no-such-model", "openai:no-such-model"), Usage(10, 10))
        assert recorded is not None
        assert (recorded.charge.cost_nanousd, recorded.charge.price) == (None, "")
        totals = await ledger.lifetime_totals()
        assert (totals.cost_nanousd, totals.unpriced, totals.calls) == (0, 1, 1)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scope": {"modle": "X"}, "tokens": 1}, "a limit's scope has no 'modle'; did you mean 'model'?"),
        ({"window": "dya", "tokens": 1}, "a limit's window cannot be 'dya'; did you mean 'day'?"),
        ({"mode": "blok", "tokens": 1}, "a limit's mode cannot be 'blok'; did you mean 'block'?"),
        ({}, "a limit needs `tokens`, `money` (in dollars), or both"),
        ({"tokens": -1}, "a limit's tokens is -1; it must be 0 or more"),
        ({"money": float("nan")}, "a limit's money is nan; it must be 0 or more"),
    ],
)
def test_a_wrong_rule_is_told_with_the_nearest_word(fields: dict[str, object], sentence: str):
    with pytest.raises(RondelError) as caught:
        Rule(**fields)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == sentence


async def test_a_limit_of_nothing_lets_nothing_through(bench: Bench):
    async with bench.ledger(Rule(tokens=0, mode="block")) as ledger:
        with pytest.raises(TokenLimitError, match="The day token limit of 0 has been reached"):
            await ledger.reserve(X, tokens=few)


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_every_dialect_tells_it_as_429(bench: Bench, dialect: str):
    async with bench.ledger(Rule(tokens=0, mode="block")) as ledger:
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(X, tokens=few)
        status, body = DIALECTS[dialect]().reply_writer().write_error(caught.value)
        assert status == 429
        assert "The day token limit of 0 has been reached." in str(body)


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_200_calls_at_once_at_one_below_the_limit_let_exactly_one_through(bench: Bench):
    async def call(ledger: Ledger) -> bool:
        try:
            reservation = await ledger.reserve(X, tokens=least)
        except TokenLimitError:
            return False
        await asyncio.sleep(0)
        ledger.settle(reservation, Usage(1, 0))
        return True

    async with bench.ledger(Rule({"model": "X"}, tokens=1_000, mode="block")) as ledger:
        await spend(ledger, X, 999)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(ledger)) for _ in range(200)]
        assert sum(task.result() for task in calls) == 1
        assert (await ledger.lifetime_totals("X")).tokens == 1_000
        assert not await call(ledger)


async def test_two_stores_on_one_file_share_one_limit(tmp_path: Path):
    rule = Rule({"model": "X"}, tokens=1_000, mode="block")
    stores = [SqliteStore(tmp_path / "rondel.db") for _ in range(4)]
    ledgers = [Ledger(store.ledger_store, rules=[rule]) for store in stores]
    await spend(ledgers[0], X, 999)

    async def call(ledger: Ledger) -> bool:
        try:
            await ledger.reserve(X, tokens=least)
        except TokenLimitError:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call(ledgers[n % 4])) for n in range(80)]
    assert sum(task.result() for task in calls) == 1
    for store in stores:
        await store.aclose()


async def test_a_call_whose_input_does_not_fit_into_what_is_left_is_refused(bench: Bench):
    """Trust 11: what a call certainly needs is taken against the limit before it is made; its answer need not fit."""
    async with bench.ledger(Rule({"model": "X"}, tokens=1_000, mode="block")) as ledger:
        await spend(ledger, X, 400)
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(X, tokens=lambda: (601, 0))
        assert str(caught.value) == (
            "The day token limit of 1,000 for model X has 600 left, and the input of this request needs about 601."
        )
        assert caught.value.retry_after_s == 12 * 3600.0
        first = await ledger.reserve(X, tokens=lambda: (600, 4_096))
        with pytest.raises(TokenLimitError, match="is used up by calls in progress"):
            await ledger.reserve(X, tokens=few)
        ledger.void(first)
        ledger.void(await ledger.reserve(X, tokens=few))


async def test_an_answer_that_is_longer_than_was_expected_reserves_more_as_long_as_anything_is_left(bench: Bench):
    """Trust 16: a limit holds while a reply streams."""
    async with bench.ledger(Rule({"model": "X"}, tokens=1_000, mode="block")) as ledger:
        first = await ledger.reserve(X, tokens=lambda: (100, 200))
        await ledger.extend(first, 600)
        await ledger.extend(first, 600)
        assert first.tokens_out == 1_400
        with pytest.raises(TokenLimitError):
            await ledger.extend(first, 600)
        (state,) = await ledger.limit_state("X")
        assert state.balance.reserved_tokens == 1_500
        ledger.settle(first, Usage(100, 800))
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (900, 0)
        second = await ledger.reserve(X, tokens=few)
        await ledger.extend(second, 50)
        ledger.void(second)
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (900, 0)


async def test_a_call_that_is_settled_while_more_is_reserved_for_it_leaves_nothing_reserved(bench: Bench):
    """Trust 16: what is reserved too late is let go of, not kept for hours."""
    async with bench.ledger(Rule({"model": "X"}, tokens=1_000, mode="block")) as ledger:
        first = await ledger.reserve(X, tokens=lambda: (100, 200))
        async with asyncio.TaskGroup() as group:
            group.create_task(ledger.extend(first, 600))
            reserve = ledger._store.reserve  # pyright: ignore[reportPrivateUsage]

            async def settling(reserved: Reserved, caps: Sequence[Cap]) -> Refusal | None:
                refusal = await reserve(reserved, caps)
                ledger.settle(first, Usage(100, 50))  # its answer ends in the very moment in which this is written
                return refusal

            ledger._store.reserve = settling  # pyright: ignore[reportPrivateUsage]
        ledger._store.reserve = reserve  # pyright: ignore[reportPrivateUsage]
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (150, 0)


async def test_a_caller_that_leaves_while_its_call_is_admitted_leaves_nothing_reserved(bench: Bench):
    """Trust 11: such a call was never made, so it costs nothing, and nothing stays reserved for it."""
    async with bench.ledger(Rule({"model": "X"}, tokens=1_000, mode="block")) as ledger:
        for _ in range(5):
            task = asyncio.create_task(ledger.reserve(X, tokens=lambda: (300, 0)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                ledger.void(task.result())
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (0, 0)


async def test_what_is_reserved_counts_until_it_is_settled_or_voided(bench: Bench):
    async with bench.ledger(Rule({"model": "X"}, tokens=100, mode="block")) as ledger:
        first = await ledger.reserve(X, tokens=lambda: (80, 20))
        with pytest.raises(TokenLimitError) as caught:
            await ledger.reserve(X, tokens=few)
        assert str(caught.value) == (
            "The day token limit of 100 for model X is used up by calls in progress; try again in a moment."
        )
        assert caught.value.retry_after_s == 1.0
        ledger.void(first)
        second = await ledger.reserve(X, tokens=few)
        ledger.settle(second, Usage(30, 0))
        ledger.settle(second, Usage(30, 0))
        ledger.void(second)
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens, state.remaining_tokens) == (30, 0, 70)


async def test_a_call_over_midnight_belongs_to_the_day_on_which_it_began(bench: Bench):
    async with bench.ledger(Rule({"model": "X"}, tokens=100, mode="block")) as ledger:
        bench.clock.advance(12 * 3600 - 1)
        reservation = await ledger.reserve(X, tokens=few)
        bench.clock.advance(2)
        ledger.settle(reservation, Usage(100, 0))
        assert [(row.key, row.totals.tokens) for row in (await ledger.summary()).rows] == [("2026-11-15", 100)]
        assert [s.remaining_tokens for s in await ledger.limit_state("X")] == [100]
        assert [s.remaining_tokens for s in await ledger.limit_state("X", at=at("2026-11-15"))] == [0]


async def test_a_reservation_that_nobody_settles_counts_as_spent_in_the_end(bench: Bench):
    async with bench.ledger(Rule({"model": "X"}, tokens=100, mode="block")) as ledger:
        lost = await ledger.reserve(X, tokens=lambda: (60, 0))
        bench.clock.advance(7 * 3600)
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (60, 0)
        ledger.settle(lost, Usage(5, 5))
        assert (await ledger.lifetime_totals("X")).tokens == 60
        (charge,) = (await ledger.charges_of_day("2026-11-15")).charges
        assert (charge.usage.estimated, charge.metadata) == (True, {"unsettled": True})


async def test_a_fallback_lets_go_of_the_model_that_was_asked_and_charges_the_one_that_answered(bench: Bench):
    async with bench.ledger(Rule({"model": "X"}, tokens=100, mode="block")) as ledger:
        reservation = await ledger.reserve(X, tokens=few)
        ledger.settle(reservation, Usage(30, 0), model="anthropic:Y")
        assert [(r.value, r.totals.tokens) for r in await ledger.top()] == [("Y", 30)]
        (state,) = await ledger.limit_state("X")
        assert (state.balance.tokens, state.balance.reserved_tokens) == (0, 0)


@pytest.mark.parametrize("answered", ["X-2026-11-15", "X-20261115", "X-latest", "X@20261115", "scripted:X"])
async def test_a_model_that_answers_under_its_full_name_is_the_one_that_was_asked(bench: Bench, answered: str):
    async with bench.ledger() as ledger:
        ledger.settle(await ledger.reserve(X, tokens=few), Usage(30, 0), model=answered)
        assert [r.value for r in await ledger.top()] == ["X"]
