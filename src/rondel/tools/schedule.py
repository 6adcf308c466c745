"""The tools with which an agent schedules messages to itself: once, at an interval, or by a cron line."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import RondelError, ToolError
from ..jobs.timetable import Scheduled, scheduled_id
from ..text.schedule import parse
from ..tool import CallContext, tool


@tool(name="schedule", idempotent=True)
async def schedule(
    say: str, context: CallContext, every: str = "", at: str = "", cron: str = "", zone: str = "", hours: str = ""
) -> str:
    """Schedule a message to yourself. Give exactly one of every, at and cron.

    Args:
        say: the message, with everything that you will need to know when it arrives
        every: an interval of at least 60 s, such as "15m", "2h" or "1d"
        at: one time, such as "2027-03-01 09:00" in the zone, or "in 20m"
        cron: five fields, such as "0 9 * * 1-5" for nine o'clock on weekdays
        zone: the time zone of at, cron and hours, such as "Europe/Berlin"; without it, UTC
        hours: only within these hours of the day, such as "09:00-17:00" or "22:00-06:00"
    """
    turn = context.turn
    if turn.path or "/" in turn.conversation:
        raise ToolError(
            "you work for one call only and will be gone when the time comes; say in your answer what should "
            "be scheduled, and let the agent that called you do it"
        )
    given = {"say": say, "every": every, "at": at, "cron": cron, "zone": zone, "hours": hours}
    try:
        made = await turn.services.timetable.add(
            turn.agent.name,
            parse(given, now=turn.now()),
            conversation=turn.conversation,
            id=scheduled_id(turn.conversation, turn.id, str(turn.transcript.rounds), context.call.id),
            made_by="agent",
            person=turn.person,
        )
    except RondelError as error:
        raise ToolError(str(error)) from error
    return f"scheduled as {made.id}: {_described(made)}"


@tool(name="list_schedules", idempotent=True)
async def list_schedules(context: CallContext) -> str:
    """List the schedules of this conversation."""
    lines = [f"{made.id}: {_described(made)}; says {made.schedule.say!r}" for made in await _here(context)]
    return "\n".join(lines) or "this conversation has no schedules"


@tool(name="cancel_schedule", idempotent=True)
async def cancel_schedule(schedule_id: str, context: CallContext) -> str:
    """Cancel a schedule of this conversation.

    Args:
        schedule_id: as `schedule` and `list_schedules` give it
    """
    if any(made.id == schedule_id for made in await _here(context)) and await context.turn.services.timetable.cancel(
        schedule_id
    ):
        return f"{schedule_id} is cancelled"
    raise ToolError(f"this conversation has no schedule {schedule_id!r}; list_schedules shows them")


async def _here(context: CallContext) -> list[Scheduled]:
    return await context.turn.services.timetable.schedules(context.turn.conversation.partition("/")[0])


def _described(made: Scheduled) -> str:
    return f"{made.schedule}; next {datetime.fromtimestamp(made.next_at, UTC):%Y-%m-%d %H:%M} UTC"
