"""`time.now`, `time.today`, `time.add`, by the clock of the turn, which a test can set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from ..errors import ToolError
from ..text.zone import zone_of
from ..tool import CallContext

_UNITS = {"minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}


async def now(context: CallContext, zone: str = "UTC") -> str:
    """The date and the time now, as ISO 8601.

    Args:
        zone: the time zone, such as "Europe/Berlin"
    """
    return _now(context, zone).isoformat(timespec="seconds")


async def today(context: CallContext, zone: str = "UTC") -> str:
    """The date today, in words.

    Args:
        zone: the time zone, such as "Europe/Berlin"
    """
    moment = _now(context, zone)
    return f"{moment:%A}, {moment.day} {moment:%B %Y}"


async def add(context: CallContext, amount: float, unit: str = "days", zone: str = "UTC") -> str:
    """The date and the time that far from now, or ago for a negative amount, as ISO 8601.

    Args:
        amount: how many
        unit: minutes, hours, days or weeks
        zone: the time zone, such as "Europe/Berlin"
    """
    seconds = _UNITS.get(unit.strip().lower().rstrip("s") + "s")
    if seconds is None:
        raise ToolError(f"there is no unit {unit!r}; use {', '.join(_UNITS)}")
    try:
        moment = _now(context, "UTC") + timedelta(seconds=amount * seconds)
        return moment.astimezone(_zone(zone)).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        raise ToolError(f"{amount:g} {unit} from now is out of range; use a smaller amount") from None


def _now(context: CallContext, zone: str) -> datetime:
    return datetime.fromtimestamp(context.turn.now(), tz=_zone(zone))


def _zone(name: str) -> tzinfo:
    return UTC if name.strip().upper() in ("", "UTC") else zone_of(name.strip(), ToolError)


AGENTS = (now, today, add)
