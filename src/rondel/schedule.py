"""When something is said without a person: every so often, once at a time, or as a cron line says, in a time zone.

    Schedule = parse({"cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "say": "What is new?"})
    schedule.next_after(now)

A clock that is set for daylight saving moves cron as the cron of most systems does it. A line whose minute and hour are
both fixed is about a time of day: one that is skipped in spring comes at the moment of the skip, and one that comes
twice in autumn is taken once, the first time. A line with `*` for its minute or its hour is about intervals: it follows
the clock on the wall, so in spring nothing of it falls into the skipped hour and in autumn it comes in both.

Pure: knows no clock, no job and no agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

from .errors import RondelError, nearest
from .values import Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

EVERY_S_MIN = 60.0
EVERY_S_MAX = 366 * 86_400.0
SAY_CHARS_MAX = 4_000
DAYS_MAX = 9 * 366
"""How far ahead a day is looked for: between two 29ths of February lie at most eight years."""
OPENINGS_MAX = DAYS_MAX
KEYS = ("every", "at", "cron", "zone", "hours", "say", "conversation")

MIDNIGHT = time()
SHIFT_S_MAX = 4 * 3_600
"""Clocks are not set by more, but where a whole day is left out."""
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:min|[smhdw])\s*)+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])")
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_CHECKED_FROM = 946_684_800.0  # the year 2000, from where every date that there is comes within DAYS_MAX


class Schedule(Value, frozen=True):
    """One of `every_s`, `at` and `cron`. `hours` are the active ones, in the zone: outside of them nothing is said."""

    say: str = ""
    every_s: float = 0.0
    at: float = 0.0
    cron: str = ""
    zone: str = "UTC"
    hours: str = ""
    since: float = 0.0
    """Where `every_s` counts from. From the epoch, where nobody says: so a restart does not shift it."""
    conversation: str = ""
    """Where it is said; by default a conversation of the agent's own."""

    def next_after(self, moment: float) -> float | None:
        """The first time behind a moment, both in seconds since the epoch. None when there is none any more."""
        if self.at:
            return self.at if self.at > moment else None
        if self.every_s:
            next = self.since + (floor((moment - self.since) / self.every_s) + 1) * self.every_s
            next = next if next > moment else next + self.every_s  # where floats cannot tell them apart
            return next if self.is_active(next) else self._opening_after(next)
        line = _line(self.cron)
        for _ in range(OPENINGS_MAX):
            next = line.next_after(moment, _zone(self.zone))
            if next is None or self.is_active(next):
                return next
            opening = self._opening_after(next)
            assert opening is not None
            moment = opening - 1
        return None

    def is_active(self, moment: float) -> bool:
        """Whether something may be said at this moment, by the active hours."""
        if not self.hours:
            return True
        start, end = _minutes(self.hours)
        local = datetime.fromtimestamp(moment, _zone(self.zone))
        minute = local.hour * 60 + local.minute
        return start <= minute < end if start < end else minute >= start or minute < end

    def active_from(self, moment: float) -> float:
        """This moment, or the next one at which something may be said."""
        return moment if self.is_active(moment) else self._opening_after(moment) or moment

    def _opening_after(self, moment: float) -> float | None:
        start, _ = _minutes(self.hours)
        return _line(f"{start % 60} {start // 60} * * *").next_after(moment, _zone(self.zone))

    def __str__(self) -> str:
        if self.at:
            when = f"at {datetime.fromtimestamp(self.at, _zone(self.zone)):%Y-%m-%d %H:%M} {self.zone}"
        elif self.every_s:
            when = f"every {span_text(self.every_s)}"
        else:
            when = f"{self.cron} {self.zone}"
        return f"{when}, {self.hours}{'' if self.cron else f' {self.zone}'}" if self.hours else when


def parse(settings: Mapping[str, Any], *, now: float | None = None) -> Schedule:
    """A schedule from what a person or a model wrote. Raises a RondelError of one sentence.

    With `now`, `every` counts from there, and `at` may be a span from there (`in 20m`) and must not be over.
    """
    for key in settings:
        if key not in KEYS:
            raise RondelError(f"a schedule has no key {key!r}{nearest(str(key), KEYS)}")
    said = {key: value for key, value in settings.items() if value not in (None, "")}
    kinds = [key for key in ("every", "at", "cron") if key in said]
    if len(kinds) != 1:
        found = f"it has {' and '.join(kinds)}" if kinds else "it has none"
        raise RondelError(f"a schedule has exactly one of every, at and cron; {found}")
    say = said.get("say", "")
    if not isinstance(say, str) or not say.strip():
        raise RondelError("a schedule needs a text to say; give it as `say`")
    if len(say) > SAY_CHARS_MAX:
        raise RondelError(f"the text of a schedule has {len(say):,} characters; say it in at most {SAY_CHARS_MAX:,}")
    zone = _text(said, "zone") or "UTC"
    _zone(zone)
    hours = _text(said, "hours")
    if hours:
        _minutes(hours)
        if kinds == ["at"]:
            raise RondelError(f"'at' is one moment, so 'hours' ({hours!r}) has no meaning beside it; leave it out")
    common: dict[str, Any] = {"say": say.strip(), "zone": zone, "hours": hours}
    common["conversation"] = _text(said, "conversation")
    if "every" in said:
        return Schedule(every_s=_every(said["every"]), since=now or 0.0, **common)
    if "at" in said:
        return Schedule(at=_at(said["at"], _zone(zone), now), **common)
    schedule = Schedule(cron=" ".join(_text(said, "cron").split()), **common)
    if _line(schedule.cron).next_after(_CHECKED_FROM, _zone(zone)) is None:
        raise RondelError(f"cron {schedule.cron!r} names a day that never comes")
    if schedule.next_after(_CHECKED_FROM) is None:
        raise RondelError(f"cron {schedule.cron!r} never comes within the active hours {hours!r}")
    return schedule


# --- what people write ------------------------------------------------------------------------------------------------


def span_text(seconds: float) -> str:
    """`1 h 30 min`, as people say it."""
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:g} {unit}")
    return " ".join(parts) or "0 s"


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key, "")
    if not isinstance(value, str):
        raise RondelError(f"{key} is a text, not {value!r}")
    return value.strip()


def _span_s(value: Any) -> float | None:
    """Seconds: a number, or numbers with units such as `1h 30m`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if isfinite(value) else None
    if isinstance(value, str):
        text = value.strip().lower()
        if re.fullmatch(r"\d{1,12}(?:\.\d+)?", text):
            return float(text)
        if len(text) <= 40 and _SPAN.fullmatch(text):
            return sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    return None


def _every(value: Any) -> float:
    seconds = _span_s(value)
    if seconds is None:
        raise RondelError(f"every {value!r} is no span of time; write seconds, or '15m', '2h', '1d'")
    if not EVERY_S_MIN <= seconds <= EVERY_S_MAX:
        raise RondelError(f"every {value!r} must be between {EVERY_S_MIN:g} seconds and 366 days")
    return seconds


def _at(value: Any, zone: ZoneInfo, now: float | None) -> float:
    if isinstance(value, str) and now is not None and value.strip().lower().startswith("in "):
        if (seconds := _span_s(value.strip()[3:])) is None:
            raise RondelError(f"at {value!r} is no span of time; write it as 'in 20m' or 'in 2h'")
        return now + max(seconds, 1.0)
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        at = moment.timestamp() if moment.tzinfo is not None else _fixed(moment, zone)
    except (ValueError, OverflowError, OSError):
        raise RondelError(f"at {value!r} is no time; write it as '2027-03-01 09:00'") from None
    if now is not None and at <= now:
        raise RondelError(f"at {value!r} is over: it is {datetime.fromtimestamp(now, zone):%Y-%m-%d %H:%M} {zone.key}")
    return at


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # few agents have a schedule

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = nearest(name, sorted(available_timezones()))
        hint = hint if "did you mean" in hint else "; write it as in 'Europe/Berlin' or 'UTC'"
        raise RondelError(f"there is no time zone {name!r}{hint}") from None


@lru_cache(maxsize=1_024)
def _minutes(hours: str) -> tuple[int, int]:
    """Active hours in minutes of the day; an end before the start is on the next day."""
    found = _HOURS.fullmatch(hours)
    start, end = (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (-1, -1)
    if found is None or int(found[2]) > 59 or int(found[4]) > 59 or not (0 <= start < 1_440 and 0 <= end <= 1_440):
        raise RondelError(f"hours {hours!r} are no hours of a day; write them as '09:00-17:00' or '22:00-06:00'")
    if start == end % 1_440:
        raise RondelError(f"hours {hours!r} begin where they end; leave them out for the whole day")
    return start, end


# --- cron -------------------------------------------------------------------------------------------------------------

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


class _Line:
    """A cron line, read. As cron has it, a day fits when its date or its weekday does, if both are restricted."""

    def __init__(self, text: str) -> None:
        fields = _MACROS.get(text.lower(), text).split()
        if len(fields) != len(_FIELDS):
            if text.startswith("@"):
                raise RondelError(f"cron {text!r} is unknown{nearest(text, tuple(_MACROS))}")
            raise RondelError(
                f"cron {text!r} has {len(fields)} fields; it needs five: minute, hour, day, month, weekday"
            )
        sets = [_field(text, field, *known) for field, known in zip(fields, _FIELDS, strict=True)]
        self.minutes, self.hours = sorted(sets[0]), sorted(sets[1])
        self.days, self.months, self.weekdays = sets[2], sets[3], {day % 7 for day in sets[4]}
        self.either = not fields[2].startswith("*") and not fields[4].startswith("*")
        self.follows_the_wall = fields[0].startswith("*") or fields[1].startswith("*")

    def next_after(self, moment: float, zone: ZoneInfo) -> float | None:
        local = datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
        day = local.date() - timedelta(days=1)  # a clock that is set back at midnight repeats the end of a day
        for _ in range(DAYS_MAX):
            if self._fits(day) and (found := self._in_day(day, moment, local, zone)) is not None:
                return found
            day = day + timedelta(days=1) if day.month in self.months else _month_after(day)
        return None

    def _fits(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either else by_date and by_weekday

    def _in_day(self, day: date, moment: float, local: datetime, zone: ZoneInfo) -> float | None:
        midnight = datetime.combine(day, MIDNIGHT)
        if _offset(midnight, zone) == _offset(midnight + timedelta(days=1), zone):
            if day < local.date():
                return None
            begin = local if day == local.date() else None
            wall = next((wall for wall in self._times(midnight, begin) if begin is None or wall > begin), None)
            return None if wall is None else _at_offset(wall, zone, fold=0)
        if self.follows_the_wall:
            return self._on_the_wall(midnight, moment, zone)
        moments = (_fixed(wall, zone) for wall in self._times(midnight, None))
        return min((at for at in moments if at > moment), default=None)

    def _times(self, midnight: datetime, begin: datetime | None) -> Iterator[datetime]:
        for hour in self.hours:
            if begin is None or hour >= begin.hour:
                for minute in self.minutes:
                    yield midnight.replace(hour=hour, minute=minute)

    def _on_the_wall(self, midnight: datetime, moment: float, zone: ZoneInfo) -> float | None:
        """On a day when clocks are set: look at the clock every minute."""
        at = (max(moment, _at_offset(midnight, zone, fold=0) - SHIFT_S_MAX) // 60 + 1) * 60
        end = _at_offset(midnight + timedelta(days=1), zone, fold=1) + SHIFT_S_MAX
        while at < end:
            wall = datetime.fromtimestamp(at, zone)
            if wall.minute in self.minutes and wall.hour in self.hours and wall.date() == midnight.date():
                return at
            at += 60
        return None


@lru_cache(maxsize=1_024)
def _line(text: str) -> _Line:
    return _Line(text)


def _field(line: str, field: str, name: str, low: int, high: int, words: tuple[str, ...]) -> set[int]:
    values: set[int] = set()
    for item in field.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, 6 if high == 7 else high
        else:
            begin = _number(line, first, name, low, high, words)
            end = _number(line, last, name, low, high, words) if dash else high if slash else begin
        if end < begin and high == 7 and end == 0:
            end = 7  # `fri-sun`: the week ends with its other Sunday
        if end < begin:
            raise RondelError(f"cron {line!r}: {span!r} runs backwards; write it as {first}-{high},{low}-{last}")
        if slash and not (step.isdecimal() and 1 <= int(step) <= high):
            raise RondelError(f"cron {line!r}: {step!r} is no step for the {name}; use 1 to {high}")
        values.update(range(begin, end + 1, int(step) if slash else 1))
    return values


def _number(line: str, word: str, name: str, low: int, high: int, words: tuple[str, ...]) -> int:
    if word.isascii() and word.isdecimal() and len(word) <= 4 and low <= int(word) <= high:
        return int(word)
    if word.lower() in words:
        return words.index(word.lower()) + (low if high != 7 else 0)
    hint = nearest(word.lower(), words) if words and word.isalpha() else f"; use {low} to {high}"
    raise RondelError(f"cron {line!r}: {word!r} is no {name}{hint}")


# --- local times ------------------------------------------------------------------------------------------------------


def _month_after(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def _offset(wall: datetime, zone: ZoneInfo) -> timedelta | None:
    return wall.replace(tzinfo=zone).utcoffset()


def _at_offset(wall: datetime, zone: ZoneInfo, *, fold: int) -> float:
    return wall.replace(tzinfo=zone, fold=fold).timestamp()


def _is_skipped(wall: datetime, zone: ZoneInfo) -> bool:
    """Whether no clock in this zone ever shows this."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    return moment.astimezone(zone).replace(tzinfo=None) != wall


def _fixed(wall: datetime, zone: ZoneInfo) -> float:
    """When a time of day comes: the first time when it comes twice, and with the skip when it is skipped."""
    if not _is_skipped(wall, zone):
        return _at_offset(wall, zone, fold=0)
    before, after = int(_at_offset(wall, zone, fold=1)), int(_at_offset(wall, zone, fold=0))
    earlier = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:  # the clock is set somewhere between the two
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == earlier:
            before = middle
        else:
            after = middle
    return float(after)
