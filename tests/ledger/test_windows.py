"""Days, weeks, months, in every year."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.contracts.window import DAY_MAX, WINDOWS, day_of, end_of, key_of, start_of, start_of_key

from .conftest import at


def key(window: str, when: str) -> str:
    return key_of(window, start_of(window, day_of(at(when))))  # pyright: ignore[reportArgumentType]


def test_the_week_of_every_first_of_january_is_the_iso_week():
    """L03: week starts are right in every year."""
    for year in range(1971, 2100):
        first = date(year, 1, 1)
        monday = first - timedelta(days=first.weekday())
        start = start_of("week", (first - date(1970, 1, 1)).days)
        assert date(1970, 1, 1) + timedelta(days=start) == monday
        iso = first.isocalendar()
        assert key_of("week", start) == f"{iso.year:04d}-W{iso.week:02d}"


def test_week_53_the_leap_day_and_the_turn_of_the_year():
    assert key("week", "2020-12-31") == "2020-W53" == key("week", "2021-01-03")
    assert key("week", "2021-01-04") == "2021-W01"
    assert (key("day", "2024-02-29"), key("month", "2024-02-29")) == ("2024-02-29", "2024-02")
    february = start_of("month", day_of(at("2024-02-29")))
    assert end_of("month", february) - february == 29
    assert (key("day", "2026-12-31T23:59"), key("day", "2027-01-01")) == ("2026-12-31", "2027-01-01")


def test_a_night_on_which_clocks_are_set_is_a_day_like_any_other():
    """In Berlin the 25th of October 2026 has 25 hours. Days here are UTC's."""
    start = datetime.fromisoformat("2026-10-25T00:00+02:00").astimezone(UTC).timestamp()
    hours = [key_of("day", day_of(start + 3600 * hour)) for hour in range(25)]
    assert hours == ["2026-10-24"] * 2 + ["2026-10-25"] * 23


@pytest.mark.parametrize("when", [-1.0, -1e18, 1e18, float("inf"), float("-inf"), float("nan")])
def test_a_clock_that_tells_nonsense_still_has_windows(when: float):
    for window in WINDOWS:
        start = start_of(window, day_of(when))
        assert key_of(window, start)
        assert end_of(window, start) > start


@given(st.integers(0, DAY_MAX), st.sampled_from(WINDOWS))
def test_a_day_is_in_its_window_and_its_key_leads_back(day: int, window: str):
    start = start_of(window, day)  # pyright: ignore[reportArgumentType]
    end = end_of(window, start)  # pyright: ignore[reportArgumentType]
    assert start <= day < end
    assert start_of(window, end - 1) == start or window == "lifetime"  # pyright: ignore[reportArgumentType]
    assert start_of_key(window, key_of(window, start)) == start  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("window", "wrong"),
    [("day", "2026-02-30"), ("day", "yesterday"), ("day", "2026-2-3"), ("week", "2026-W54"), ("week", "2026-53"),
     ("month", "2026-13"), ("month", ""), ("lifetime", "x"), ("day", "0001-01-01"), ("week", "2021-W53")],
)  # fmt: skip
def test_a_key_that_is_none_is_told(window: str, wrong: str):
    with pytest.raises(ValueError, match="is no"):
        start_of_key(window, wrong)  # pyright: ignore[reportArgumentType]
