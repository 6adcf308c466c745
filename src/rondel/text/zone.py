"""Finds a time zone by the name that a person or a model gave it."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ..errors import RondelError, nearest


def zone_of(name: str, error: type[RondelError] = RondelError) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = nearest(name, sorted(available_timezones()))
        hint = hint if "did you mean" in hint else "; use a name such as 'Europe/Berlin' or 'UTC'"
        raise error(f"there is no time zone {name!r}{hint}") from None
