"""What is recorded, and what it adds up to."""

from __future__ import annotations

import asyncio

import pytest

from rondel.charge import Charge, Scope
from rondel.errors import RondelError
from rondel.values import Usage

from .conftest import Bench, at

MODEL = Scope("chat", "m", "scripted:m")


async def test_a_charge_counts_in_its_day_its_week_its_month_and_for_ever(bench: Bench):
    """L01: day, ISO week and month in UTC, and lifetime."""
    async with bench.ledger() as ledger:
        for when, tokens in (("2026-11-15T23:59", 10), ("2026-11-16", 20), ("2026-10-31", 40), ("2025-11-15", 80)):
            assert await ledger.record(MODEL, Usage(tokens, 1), at=at(when))
        seen = {
            window: [(row.key, row.totals.tokens_in, row.totals.tokens_out, row.totals.calls)
                     for row in (await ledger.summary(window=window)).rows]  # pyright: ignore[reportArgumentType]
            for window in ("day", "week", "month", "lifetime")
        }  # fmt: skip
        assert seen == {
            "day": [("2026-11-16", 20, 1, 1), ("2026-11-15", 10, 1, 1), ("2026-10-31", 40, 1, 1),
                    ("2025-11-15", 80, 1, 1)],
            "week": [("2026-W47", 20, 1, 1), ("2026-W46", 10, 1, 1), ("2026-W44", 40, 1, 1), ("2025-W46", 80, 1, 1)],
            "month": [("2026-11", 30, 2, 2), ("2026-10", 40, 1, 1), ("2025-11", 80, 1, 1)],
            "lifetime": [("lifetime", 150, 4, 4)],
        }  # fmt: skip


async def test_nothing_spent_and_no_model_is_nothing_recorded(bench: Bench):
    """L01: zero is ignored."""
    async with bench.ledger() as ledger:
        for scope, usage in (
            (MODEL, Usage()), (MODEL, Usage(-5, -7)), (MODEL, Usage(0.9, 0.2)),  # pyright: ignore[reportArgumentType]
            (Scope("chat"), Usage(5, 5)), (MODEL, Usage(2 * 10**9, 0)),
        ):  # fmt: skip
            assert await ledger.record(scope, usage) is None
        assert (await ledger.lifetime_totals()).calls == 0


async def test_counts_are_whole_and_never_negative(bench: Bench):
    async with bench.ledger() as ledger:
        recorded = await ledger.record(MODEL, Usage(10.9, -3, 99, -1, 50))  # pyright: ignore[reportArgumentType]
        assert recorded is not None
        assert recorded.charge.usage == Usage(10, 0, 10, 0, 0)


async def test_calls_at_the_same_time_add_up(bench: Bench):
    """L01: concurrent calls add up."""
    async with bench.ledger() as ledger:
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(ledger.record(Scope("chat", f"m{number % 3}"), Usage(number, 1)))
        totals = await ledger.lifetime_totals()
        assert (totals.calls, totals.tokens_in, totals.tokens_out) == (300, sum(range(300)), 300)
        assert (await ledger.lifetime_totals("m1")).calls == 100


async def test_the_same_id_is_charged_once(bench: Bench):
    async with bench.ledger() as ledger:
        for _ in range(3):
            await ledger.record(MODEL, Usage(7, 3), id="response-1")
        assert (await ledger.lifetime_totals("m")).tokens == 10


async def test_a_clock_that_jumps_back_moves_no_charge(bench: Bench):
    async with bench.ledger() as ledger:
        await ledger.record(MODEL, Usage(1, 0), at=at("2026-11-15"))
        await ledger.record(MODEL, Usage(2, 0), at=at("2026-11-14"))
        await ledger.record(MODEL, Usage(4, 0), at=-5.0)
        await ledger.record(MODEL, Usage(8, 0), at=float("1e30"))
        rows = (await ledger.summary()).rows
        assert [(row.key[:10], row.totals.tokens) for row in rows[1:]] == [
            ("2026-11-15", 1), ("2026-11-14", 2), ("1970-01-01", 4)]  # fmt: skip
        assert rows[0].totals.tokens == 8


async def test_the_charges_of_a_day_come_as_they_were_recorded(bench: Bench):
    """L04: entries of a day."""
    async with bench.ledger() as ledger:
        scope = Scope(
            "chat", "m", "scripted:m", "helper", "c1", "ada", ("admin", "free"), "general", "guild", "k", "desk"
        )
        await ledger.record(MODEL, Usage(1, 1), at=at("2026-11-14"))
        for number in range(5):
            await ledger.record(scope, Usage(number + 1, 2, 1, 0, 1), at=at("2026-11-15"), metadata={"n": [number]})
        page = await ledger.charges_of_day("2026-11-15", limit=3)
        rest = await ledger.charges_of_day("2026-11-15", cursor=page.cursor)
        charges = (*page.charges, *rest.charges)
        assert [charge.metadata for charge in charges] == [{"n": [number]} for number in range(5)]
        assert charges[4] == Charge(charges[4].id, at("2026-11-15"), scope, Usage(5, 2, 1, 0, 1), None, "", {"n": [4]})
        assert (rest.cursor, (await ledger.charges_of_day("2026-11-16")).charges) == ("", ())


async def test_what_people_call_themselves_is_data(bench: Bench):
    async with bench.ledger() as ledger:
        nasty = "'; drop table charges; --\x1f\x00\ud800" + "x" * 500
        await ledger.record(Scope("chat", "m", person=nasty, roles=(nasty, "", nasty)), Usage(5, 5))
        for by in ("person", "role", "person+role"):
            (row,) = (await ledger.summary(by=by)).rows
            assert all(len(value) == 200 and value.startswith("'; drop") for value in row.values)
            assert len(row.values) == (2 if "+" in by else 1)


def test_every_field_of_a_scope_is_cleaned_and_measured():
    for field in set(Scope.__struct_fields__) - {"roles"}:
        assert Scope(**{field: "a\x1fb"}).cleaned() == Scope(**{field: "a b"}), field
        assert Scope(**{field: "long" * 100}).chars == 400, field
    assert Scope(roles=("a\x1fb", "a b")).cleaned() == Scope(roles=("a b",))


async def test_each_dimension_and_several_together_are_counted(bench: Bench):
    async with bench.ledger() as ledger:
        for key, model, roles in (("a", "x", ("r1", "r2")), ("a", "y", ("r1",)), ("b", "x", ())):
            await ledger.record(Scope("chat", model, key=key, roles=roles), Usage(10, 0))

        async def seen(by: str) -> dict[tuple[str, ...], int]:
            return {row.values: row.totals.tokens for row in (await ledger.summary(by=by)).rows}

        assert await seen("key") == {("a",): 20, ("b",): 10}
        assert await seen("role") == {("r1",): 20, ("r2",): 10}
        assert await seen("model+key") == await seen("key,model") == {("x", "a"): 10, ("x", "b"): 10, ("y", "a"): 10}
        assert await seen("all") == {("",): 30}
        await ledger.record(Scope("chat", "x", key="a"), Usage(5, 0))
        assert (await seen("model+key"))["x", "a"] == 15
        assert await seen("guild") == {}


async def test_wrong_questions_are_told_with_the_nearest_word(bench: Bench):
    async with bench.ledger() as ledger:
        with pytest.raises(RondelError, match="did you mean 'model'"):
            await ledger.summary(by="modle")
        with pytest.raises(RondelError, match="did you mean 'month'"):
            await ledger.summary(window="months")  # pyright: ignore[reportArgumentType]
        with pytest.raises(RondelError, match="'x' is not the cursor"):
            await ledger.summary(cursor="x")
        with pytest.raises(ValueError, match="is not a day"):
            await ledger.charges_of_day("tomorrow")
        with pytest.raises(RondelError, match="metadata"):
            await ledger.record(MODEL, Usage(1, 1), metadata={"x": object()})
