"""The tool that tells the time, by the clock of the turn, which a test can set."""

from __future__ import annotations

from datetime import datetime

from ..errors import ToolError
from ..text.zone import zone_of
from ..tool import CallContext, tool


@tool(name="current_time", idempotent=True)
async def current_time(context: CallContext, timezone: str = "") -> str:
    """Tell the date and the time now.

    Args:
        timezone: such as "Europe/Berlin"; without it, the user's own
    """
    zone = zone_of(timezone, ToolError) if timezone else None
    moment = datetime.fromtimestamp(context.turn.now(), tz=zone).astimezone(zone)
    return moment.strftime("%A, %d %B %Y, %H:%M:%S %Z (UTC%z)")
