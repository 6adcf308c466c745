"""Pages that lose nothing."""

from __future__ import annotations

import pytest

from rondel.charge import Scope
from rondel.ledger.ledger import Ledger
from rondel.values import Usage

from .conftest import Bench, at

DAY_S = 86_400


async def fill(ledger: Ledger, days: int, models: int) -> None:
    for day in range(days):
        for model in range(models):
            await ledger.record(
                Scope("chat", f"m{model:02d}"), Usage(day + 1, model), at=at("2026-01-01") + day * DAY_S
            )


@pytest.mark.parametrize("limit", [1, 3, 7, 500])
async def test_pages_of_any_size_lose_nothing_with_several_models_in_a_window(bench: Bench, limit: int):
    """L03: newest first, and a cursor that loses nothing."""
    async with bench.ledger() as ledger:
        await fill(ledger, 5, 4)
        seen: list[tuple[str, str]] = []
        cursor = ""
        while True:
            page = await ledger.summary(limit=limit, cursor=cursor)
            seen += [(row.key, row.value) for row in page.rows]
            assert len(page.rows) <= limit
            if not (cursor := page.cursor):
                break
        assert seen == [(f"2026-01-0{5 - day}", f"m{model:02d}") for day in range(5) for model in range(4)]


async def test_a_page_has_from_1_to_500_rows(bench: Bench):
    """L03: limits of 1 to 500."""
    async with bench.ledger() as ledger:
        await fill(ledger, 2, 30)
        assert len((await ledger.summary(limit=0)).rows) == len((await ledger.summary(limit=-5)).rows) == 1
        assert len((await ledger.summary()).rows) == 50
        assert len((await ledger.summary(limit=10**9)).rows) == 60
        await fill(ledger, 9, 60)
        assert len((await ledger.summary(limit=10**9)).rows) == 500


async def test_a_summary_can_be_of_one_model_and_of_some_days(bench: Bench):
    async with bench.ledger() as ledger:
        await fill(ledger, 10, 3)
        rows = (await ledger.summary(value="m01", since="2026-01-03", until="2026-01-05")).rows
        assert [(row.key, row.value) for row in rows] == [(f"2026-01-0{day}", "m01") for day in (5, 4, 3)]
        weeks = (await ledger.summary(window="week", value="m01", since="2026-01-05")).rows
        assert [row.key for row in weeks] == ["2026-W02"]
        assert (await ledger.summary(value="nobody")).rows == ()
        assert len((await ledger.summary(window="lifetime", since="2026-01-09")).rows) == 3


async def test_charges_that_come_between_two_pages_shift_nothing(bench: Bench):
    async with bench.ledger() as ledger:
        await fill(ledger, 4, 2)
        first = await ledger.summary(limit=3)
        await ledger.record(Scope("chat", "a-new-one"), Usage(1, 1), at=at("2026-06-01"))
        second = await ledger.summary(limit=50, cursor=first.cursor)
        seen = [(row.key, row.value) for page in (first, second) for row in page.rows]
        assert seen == [(f"2026-01-0{4 - day}", f"m{model:02d}") for day in range(4) for model in range(2)]


async def test_the_top_of_a_window_is_who_spent_most(bench: Bench):
    async with bench.ledger() as ledger:
        for model, tokens in (("a", 5), ("b", 50), ("c", 20)):
            await ledger.record(Scope("chat", model), Usage(tokens, 0))
        assert [row.value for row in await ledger.top(limit=2)] == ["b", "c"]
        assert await ledger.top(at=at("2020-01-01")) == []
