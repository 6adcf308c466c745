"""Windows of time in which spending is counted: days, ISO weeks and months in UTC, and the lifetime. Pure.

A window is identified by its first day, counted from 1970-01-01; the lifetime begins with day 0. Knows no clock.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from math import inf
from typing import Literal, TypeAlias

Window: TypeAlias = Literal["day", "week", "month", "lifetime"]
WINDOWS: tuple[Window, ...] = ("day", "week", "month", "lifetime")

DAY_S = 86_400
DAY_MAX = (date.max - date(1970, 1, 1)).days - 31  # the last day whose month and week are within the calendar
LIFETIME = "lifetime"

_END_S = (DAY_MAX + 1) * DAY_S

_EPOCH = date(1970, 1, 1)


def day_of(at: float) -> int:
    """Return the day of a point in time, clamped to the calendar: clocks can be wrong."""
    if 0 <= at < _END_S:
        return int(at // DAY_S)
    return DAY_MAX if _END_S <= at < inf else 0


@lru_cache(maxsize=1024)
def start_of(window: Window, day: int) -> int:
    if window == "lifetime":
        return 0
    when = _EPOCH + timedelta(days=day)
    if window == "week":
        return day - when.weekday()
    return day - when.day + 1 if window == "month" else day


@lru_cache(maxsize=1024)
def end_of(window: Window, start: int) -> int:
    if window == "lifetime":
        return DAY_MAX + 1
    if window == "month":
        return start_of("month", start + 31)
    return start + (7 if window == "week" else 1)


@lru_cache(maxsize=4096)
def key_of(window: Window, start: int) -> str:
    """Return the key of a window: `2026-02-28`, `2026-W09`, `2026-02`, or `lifetime`."""
    if window == "lifetime":
        return LIFETIME
    when = _EPOCH + timedelta(days=start)
    if window == "week":
        year, week, _ = when.isocalendar()
        return f"{year:04d}-W{week:02d}"
    return when.isoformat()[:7] if window == "month" else when.isoformat()


def start_of_key(window: Window, key: str) -> int:
    """Return the first day of the window with this key. Raises ValueError if there is none."""
    if window == "lifetime":
        if key != LIFETIME:
            raise ValueError(f"{key!r} is not a key of the window 'lifetime'; use {LIFETIME!r}")
        return 0
    try:
        if window == "week":
            year, _, week = key.partition("-W")
            when = date.fromisocalendar(int(year), int(week), 1)
        else:
            when = date.fromisoformat(f"{key}-01" if window == "month" else key)
        start = (when - _EPOCH).days
    except ValueError:
        start = -1
    if not -3 <= start <= DAY_MAX or key_of(window, start) != key:
        example = {"day": "2026-02-28", "week": "2026-W09", "month": "2026-02"}[window]
        raise ValueError(f"{key!r} is not a {window}; write it as {example}")
    return start


def day_number(text: str) -> int:
    """Return the day of a date such as `2026-02-28`. Raises ValueError if it is not a date."""
    return start_of_key("day", text)
