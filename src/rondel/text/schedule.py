"""When a scheduled message is sent: at an interval, once, or by a cron line, in a time zone. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

from ..errors import RondelError, nearest
from ..values import Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

EVERY_S_MIN = 60.0
EVERY_S_MAX = 366 * 86_400.0
SAY_CHARS_MAX = 4_000
OPENINGS_MAX = 9 * 366
"""How many days a cron line may miss the active hours: there are at most eight years between two 29ths of February."""
KEYS = ("every", "at", "cron", "zone", "hours", "say", "conversation")

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:min|[smhdw])\s*)+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])")
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_CHECKED_FROM = 946_684_800.0  # the year 2000: a leap year, like the next one four years later


class Schedule(Value, frozen=True):
    """One of `every_s`, `at` and `cron`. `hours` are the active hours, in the zone."""

    say: str = ""
    every_s: float = 0.0
    at: float = 0.0
    cron: str = ""
    zone: str = "UTC"
    hours: str = ""
    since: float = 0.0  # where `every_s` counts from: by default the epoch, so that a restart does not shift it
    conversation: str = ""  # where the message is sent; by default a conversation of the agent's own

    def next_after(self, moment: float) -> float | None:
        """Return the first time after a moment, both in seconds since the epoch, or None if none is left."""
        if self.at:
            return self.at if self.at > moment else None
        if self.every_s:
            next = self.since + (floor((moment - self.since) / self.every_s) + 1) * self.every_s
            next = next if next > moment else next + self.every_s  # floats may round both to the same number
            return next if self.is_active(next) else self._opening_after(next)
        for _ in range(OPENINGS_MAX):
            next = _next(self.cron, moment, self.zone)
            if next is None or self.is_active(next):
                return next
            opening = self._opening_after(next)
            assert opening is not None
            moment = opening - 1
        return None

    def is_active(self, moment: float) -> bool:
        """Return whether a moment is within `hours`."""
        if not self.hours:
            return True
        start, end = _minutes(self.hours)
        local = datetime.fromtimestamp(moment, _zone(self.zone))
        minute = local.hour * 60 + local.minute
        return start <= minute < end if start < end else minute >= start or minute < end

    def active_from(self, moment: float) -> float:
        """Return this moment, or the next one within `hours`."""
        return moment if self.is_active(moment) else self._opening_after(moment) or moment

    def _opening_after(self, moment: float) -> float | None:
        start, _ = _minutes(self.hours)
        return _next(f"{start % 60} {start // 60} * * *", moment, self.zone)

    def __str__(self) -> str:
        if self.at:
            when = f"at {datetime.fromtimestamp(self.at, _zone(self.zone)):%Y-%m-%d %H:%M} {self.zone}"
        elif self.every_s:
            when = f"every {span_text(self.every_s)}"
        else:
            when = f"{self.cron} {self.zone}"
        return f"{when}, {self.hours}{'' if self.cron else f' {self.zone}'}" if self.hours else when


def parse(settings: Mapping[str, Any], *, now: float | None = None) -> Schedule:
    """Return the schedule that a person or a model wrote. Raises a RondelError of one sentence. With `now`, `every`
    counts from there, and `at` may be a span from there (`in 20m`) and must not be in the past."""
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
        raise RondelError(f"the text of a schedule has {len(say):,} characters; shorten it to {SAY_CHARS_MAX:,}")
    zone = _text(said, "zone") or "UTC"
    _zone(zone)
    hours = _text(said, "hours")
    if hours:
        _minutes(hours)
        if kinds == ["at"]:
            raise RondelError(f"'hours' ({hours!r}) cannot be combined with 'at', which is one moment; leave it out")
    common: dict[str, Any] = {"say": say.strip(), "zone": zone, "hours": hours}
    common["conversation"] = _text(said, "conversation")
    if "every" in said:
        return Schedule(every_s=_every(said["every"]), since=now or 0.0, **common)
    if "at" in said:
        return Schedule(at=_at(said["at"], _zone(zone), now), **common)
    schedule = Schedule(cron=" ".join(_text(said, "cron").split()), **common)
    if _next(schedule.cron, _CHECKED_FROM, zone) is None:
        raise RondelError(f"cron {schedule.cron!r} names a day that never comes")
    if schedule.next_after(_CHECKED_FROM) is None:
        raise RondelError(f"cron {schedule.cron!r} never comes within the active hours {hours!r}")
    return schedule


def _next(line: str, moment: float, zone: str) -> float | None:
    from .cron import next_after  # few agents have a schedule

    return next_after(line, moment, _zone(zone))


def span_text(seconds: float) -> str:
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
    """Return seconds: from a number, or from numbers with units such as `1h 30m`."""
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
        raise RondelError(f"every {value!r} is not a duration; write seconds, or '15m', '2h', '1d'")
    if isinstance(value, str) and seconds < EVERY_S_MIN and value.strip().replace(".", "", 1).isdigit():
        raise RondelError(f"every {value!r} has no unit; write {value.strip()}m")
    if not EVERY_S_MIN <= seconds <= EVERY_S_MAX:
        raise RondelError(f"every {value!r} must be between {EVERY_S_MIN:g} seconds and 366 days")
    return seconds


def _at(value: Any, zone: ZoneInfo, now: float | None) -> float:
    if isinstance(value, str) and now is not None and value.strip().lower().startswith("in "):
        if (seconds := _span_s(value.strip()[3:])) is None:
            raise RondelError(f"at {value!r} is not a duration; write it as 'in 20m' or 'in 2h'")
        return now + max(seconds, 1.0)
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        from .cron import moment_of

        at = moment.timestamp() if moment.tzinfo is not None else moment_of(moment, zone)
    except (ValueError, OverflowError, OSError):
        raise RondelError(f"at {value!r} is not a time; write it as '2027-03-01 09:00'") from None
    if now is not None and at <= now:
        shown = f"{datetime.fromtimestamp(now, zone):%Y-%m-%d %H:%M} {zone.key}"
        raise RondelError(f"at {value!r} is in the past; it is now {shown}")
    return at


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    from .zone import zone_of  # few agents have a schedule

    return zone_of(name)


@lru_cache(maxsize=1_024)
def _minutes(hours: str) -> tuple[int, int]:
    """Return the active hours in minutes of the day; an end before the start is on the next day."""
    found = _HOURS.fullmatch(hours)
    start, end = (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (-1, -1)
    if found is None or int(found[2]) > 59 or int(found[4]) > 59 or not (0 <= start < 1_440 and 0 <= end <= 1_440):
        raise RondelError(f"hours {hours!r} are not hours of a day; write them as '09:00-17:00' or '22:00-06:00'")
    if start == end % 1_440:
        raise RondelError(f"hours {hours!r} start where they end; leave them out for the whole day")
    return start, end
