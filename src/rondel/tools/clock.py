"""The tool that tells the time. Reads the clock of the turn that calls it, so a test can set it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import ToolError
from ..tool import CallContext, tool


@tool(name="current_time", idempotent=True)
async def current_time(context: CallContext, timezone: str = "") -> str:
    """Tell the date and the time now.

    Args:
        timezone: such as "Europe/Berlin"; without it, the user's own
    """
    try:
        zone = ZoneInfo(timezone) if timezone else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"there is no time zone {timezone!r}; write it as in 'Europe/Berlin' or 'UTC'") from None
    moment = datetime.fromtimestamp(context.turn.now(), tz=zone).astimezone(zone)
    return moment.strftime("%A, %d %B %Y, %H:%M:%S %Z (UTC%z)")
