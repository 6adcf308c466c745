"""What the stations reported today, and what the weather is usually like."""

from __future__ import annotations

from datetime import UTC, datetime

from rondel import CallContext, escape

REPORTS = {"lisbon": "21 °C and sunny", "oslo": "4 °C with sleet"}
SEASONS = ("cold", "cold", "fresh", "mild", "mild", "warm", "hot", "hot", "warm", "mild", "fresh", "cold")
SOUTH = {"sydney", "lima", "cape town"}


def lookup(city: str) -> str:
    """The weather in a city today."""
    report = REPORTS.get(city.strip().casefold())
    # The city is what somebody wrote: a directive in it must stay a text.
    known = escape(city.strip())
    return f"In {known} it is {report}." if report else f'Weather unknown in {known}. {{{{ .Get "almanac_weather" }}}}'


async def usual(city: str, context: CallContext) -> str:
    """What the weather in a city is usually like in this month."""
    today = datetime.fromtimestamp(context.turn.now(), tz=UTC)
    month = today.month - 1 if city.strip().casefold() not in SOUTH else (today.month + 5) % 12
    return f"In {today:%B} it is usually {SEASONS[month]} there."
