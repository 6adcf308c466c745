"""Cron lines in a time zone: `0 9 * * 1-5`, `@daily`, and `L` and `#` for the last and the n-th weekday of a month.

A line that names its minute and hour means a time of day: if the time is skipped in spring, it comes when the clock
jumps, and if it occurs twice in autumn, only the first one counts. A line with `*` for its minute or hour follows the
wall clock: it skips the missing hour in spring and runs in both hours in autumn. (cronsim has these rules, too, but is
wrong where clocks change by half an hour or at midnight, so it is only used to list the wall-clock times of a line.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError

from ..errors import RondelError, nearest

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)
_TO_SUNDAY = re.compile(r"([1-6]|mon|tue|wed|thu|fri|sat)-(?:0|sun)\b", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time


def next_after(line: str, moment: float, zone: ZoneInfo) -> float | None:
    """Return the first time after a moment that a line names, both in seconds since the epoch, or None if none is left.
    Raises a RondelError of one sentence for a line that cannot be read."""
    times, fields = _parse(line)
    local = datetime.fromtimestamp(moment, zone)
    wall = local.replace(tzinfo=None)
    if not (fields[0].startswith("*") or fields[1].startswith("*")):
        return next((at for time in _after(times, wall) if (at := moment_of(time, zone)) > moment), None)
    found = _on_the_wall(times, wall, moment, zone)
    again = local.replace(fold=1).utcoffset()
    if (shift := (local.utcoffset() or timedelta()) - (again or timedelta())) > timedelta():
        # This is the first of two passes over an hour: its earlier minutes come again.
        found = min(found, _on_the_wall(times, wall - shift, moment, zone))
    return None if found == float("inf") else found


def _after(times: CronSim, wall: datetime) -> Iterator[datetime]:
    found = copy(times)
    found.dt = wall.replace(microsecond=0, fold=0)
    return found


def _on_the_wall(times: CronSim, wall: datetime, moment: float, zone: ZoneInfo) -> float:
    """Return when the wall clock first shows one of these times after a moment. A time that is skipped never comes."""
    for time in _after(times, wall):
        if not _is_skipped(time, zone):
            for fold in (0, 1):
                if (at := time.replace(tzinfo=zone, fold=fold).timestamp()) > moment:
                    return at
    return float("inf")


@lru_cache(maxsize=1_024)
def _parse(text: str) -> tuple[CronSim, list[str]]:
    fields = _MACROS.get(text.lower(), text).split()
    if len(fields) != len(_FIELDS):
        if text.startswith("@"):
            raise RondelError(f"cron {text!r} is unknown{nearest(text, tuple(_MACROS))}")
        raise RondelError(f"cron {text!r} has {len(fields)} fields; it needs five: minute, hour, day, month, weekday")
    fields[4] = _TO_SUNDAY.sub(r"\1-7", fields[4])  # the week ends with its other Sunday
    for index, field in enumerate(fields):
        for item in field.split(","):
            if not _is_valid(item, index):
                raise RondelError(f"cron {text!r}: {_mistake(item, index)}")
    try:
        return CronSim(" ".join(fields), _EPOCH), fields
    except CronSimError:
        raise RondelError(f"cron {text!r} names a day that never comes") from None


def _is_valid(item: str, index: int) -> bool:
    fields = ["*"] * len(_FIELDS)
    fields[index] = item
    try:
        CronSim(" ".join(fields), _EPOCH)
    except (CronSimError, ValueError):  # a ValueError for a number of thousands of digits
        return False
    return True


def _mistake(item: str, index: int) -> str:
    """Return what is wrong with an item of a field, and what to write instead."""
    name, low, high, words = _FIELDS[index]
    span, _, step = item.partition("/")
    first, _, last = span.partition("-")
    if _is_valid(span, index):
        return f"{step!r} is not a step for the {name}; use 1 to {high}"
    if _is_valid(first, index) and _is_valid(last, index):
        return f"{span!r} runs backwards; write it as {first}-{high},{low}-{last}"
    word = last if _is_valid(first, index) else first
    hint = nearest(word.lower(), words) if words and word.isalpha() else f"; use {low} to {high}"
    return f"{word!r} is not a {name}{hint}"


def moment_of(wall: datetime, zone: ZoneInfo) -> float:
    """Return when a time of day comes: the first time if it occurs twice, and when the clock jumps if it is skipped."""
    if not _is_skipped(wall, zone):
        return wall.replace(tzinfo=zone, fold=0).timestamp()
    before, after = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (1, 0))
    earlier = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:  # the clock jumps somewhere between the two
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == earlier:
            before = middle
        else:
            after = middle
    return float(after)


def _is_skipped(wall: datetime, zone: ZoneInfo) -> bool:
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    return moment.astimezone(zone).replace(tzinfo=None) != wall
