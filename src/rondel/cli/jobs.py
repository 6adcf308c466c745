"""`rondel jobs`: the background jobs and schedules of all conversations, and a process that runs them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from ..contracts.clock import SystemClock
from ..contracts.runtime import JobInfo
from ..contracts.store import Store
from ..errors import RondelError
from ..jobs.background import cancel_without_app, read_jobs
from ..jobs.timetable import Scheduled, forget_schedule, read_schedules, scheduled_id
from ..surfaces.commands import find_conversation
from ..surfaces.terminal.console import live
from ..surfaces.terminal.listing import Listing
from ..surfaces.terminal.signals import signals
from ..surfaces.terminal.views import state_text
from ..surfaces.views import short_id, status_text, when
from ..text.printable import clean, one_line
from ..text.schedule import parse
from ._options import CommandGroup, as_json, conversation, engine, flag, limit, string
from ._output import console, show, show_json, tell, write_json
from ._project import load_project, open_app, with_store

WATCH_S = 1.0


class Listed(msgspec.Struct, frozen=True):
    jobs: list[JobInfo]
    schedules: list[Scheduled]

    @property
    def is_quiet(self) -> bool:
        return all(job.is_over for job in self.jobs)


job = click.argument("id", help="the job or schedule: its id, or part of it")


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Manage background jobs and schedules."""


# --- list -------------------------------------------------------------------------------------------------------------


@jobs.command(name="list")
@limit(20)
@as_json
@flag("--watch", help="show changes until no job is queued or running")
def list_jobs(limit: int, as_json: bool, watch: bool) -> None:
    """List the jobs of all conversations, newest first, and the schedules."""
    if watch:
        with_store(partial(_watch, limit=limit, as_json=as_json))
        return
    listed = with_store(partial(_read, limit=limit))
    if as_json:
        show_json(listed)
    else:
        show(_tables(listed, time.time()))


async def _read(store: Store, limit: int) -> Listed:
    return Listed((await read_jobs(store))[:limit], (await read_schedules(store))[:limit])


async def _watch(store: Store, limit: int, *, as_json: bool) -> None:
    """Show changes until no job is queued or running: a live table, or a line for each change."""
    if sys.stdout.isatty() and not as_json:
        with live(console()) as shown:
            await _follow(store, limit, lambda listed: shown.update(_tables(listed, time.time()), refresh=True))
    else:
        await _follow(store, limit, _Lines(as_json=as_json))


async def _follow(store: Store, limit: int, picture: Callable[[Listed], None]) -> None:
    clock = SystemClock()
    while True:
        listed = await _read(store, limit)
        picture(listed)
        if listed.is_quiet:
            return
        await clock.sleep_until(clock.now() + WATCH_S)


class _Lines:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._seen: dict[str, JobInfo] = {}

    def __call__(self, listed: Listed) -> None:
        for job in reversed(listed.jobs):
            if self._seen.get(job.id) != job:
                self._seen[job.id] = job
                if self._as_json:
                    write_json(msgspec.json.encode(job).decode())
                else:
                    sys.stdout.write(" ".join(_cells(job)) + "\n")
        sys.stdout.flush()


def _tables(listed: Listed, now: float) -> RenderableType:
    if not listed.jobs and not listed.schedules:
        return Text("No background jobs and no schedules.")
    parts: list[RenderableType] = []
    if listed.jobs:
        made = Listing("job", "what", "status", "when", "conversation", "about")
        for job in listed.jobs:
            id, name, status, about = _cells(job)
            at = when(job.finished_at or job.started_at, now)
            made.add_row(id, name, state_text(status), at, _conversation_name(job.conversation), about)
        parts.append(made)
    if listed.schedules:
        made = Listing("schedule", "agent", "next", "when", "conversation", "says", growing=3)
        for one in listed.schedules:
            says = one_line(one.schedule.say, 80)
            conversation = _conversation_name(one.conversation)
            made.add_row(one.id, one.agent, _at(one.next_at), str(one.schedule), conversation, Text(says))
        parts += [Text(""), made] if parts else [made]
    return Group(*parts)


def _cells(job: JobInfo) -> tuple[str, str, str, str]:
    return job.id, one_line(job.name, 24), status_text(job), one_line(job.summary or job.text, 100)


def _conversation_name(conversation: str) -> str:
    return one_line(conversation, 24) if conversation.startswith("schedule-") else short_id(conversation)


def _at(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%d %b, %H:%M")


# --- one --------------------------------------------------------------------------------------------------------------


@jobs.command(name="show")
@job
@as_json
def show_job(id: str, as_json: bool) -> None:
    """Show the details of a job or a schedule."""
    found = with_store(partial(_find, id=id))
    if as_json:
        show_json(found)
        return
    made = Listing()
    for name, text in _details(found):
        made.add_row(Text(name, "bold"), Text(clean(text)))
    show(made)


async def _find(store: Store, id: str) -> JobInfo | Scheduled:
    known: Sequence[JobInfo | Scheduled] = (*await read_jobs(store), *await read_schedules(store))
    found = [one for one in known if one.id == id] or [
        one for one in known if id and (one.id.startswith(id) or one.id.endswith(id))
    ]
    if not found:
        raise RondelError(f"there is no job or schedule {id!r}; `rondel jobs` lists them")
    if len(found) > 1:
        raise RondelError(f"{id!r} matches {len(found)} jobs and schedules; give more characters of the id")
    return found[0]


def _details(found: JobInfo | Scheduled) -> list[tuple[str, str]]:
    if isinstance(found, Scheduled):
        rows = [
            ("schedule", found.id),
            ("says", found.schedule.say),
            ("to", found.agent),
            ("when", str(found.schedule)),
            ("next", _at(found.next_at)),
            ("made by", found.made_by),
            ("conversation", found.conversation),
        ]
    else:
        rows = [
            ("job", found.id),
            ("what", " → ".join(found.steps) or found.name),
            ("status", _cells(found)[2]),
            ("started", _at(found.started_at)),
            ("ended", _at(found.finished_at) if found.finished_at else ""),
            ("says", found.text if not found.is_over else ""),
            ("result", found.detail or found.summary),
            ("agent", found.agent),
            ("conversation", found.conversation),
            ("trace", f"rondel trace {found.conversation}/{found.id}"),
        ]
    return [(name, text) for name, text in rows if text]


@jobs.command()
@job
def cancel(id: str) -> None:
    """Cancel a job or a schedule."""
    tell(with_store(partial(_cancel, id=id)))


async def _cancel(store: Store, id: str) -> str:
    found = await _find(store, id)
    if isinstance(found, Scheduled):
        await forget_schedule(store, found)
        return f"Cancelled {found.id}."
    if found.is_over:
        return f"{found.id} has already ended: {found.status}."
    if await cancel_without_app(store, SystemClock(), found):
        return f"Cancelled {found.id}."
    return f"{found.id} is running in another process, which was asked to cancel it."


# --- later ------------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("agent", help="the agent to send the message to")
@click.argument("text", help="the message")
@string("--every", help="an interval: 15m, 2h, 1d")
@string("--at", help="one time: '2027-03-01 09:00', or 'in 20m'")
@string("--cron", help="a cron expression: '0 9 * * 1-5'")
@string("--zone", help="the time zone: Europe/Berlin")
@string("--hours", help="only within these hours: 09:00-17:00")
@conversation
def schedule(agent: str, text: str, conversation: str, **when: Any) -> None:
    """Schedule a message to an agent."""
    made = asyncio.run(_schedule(agent, conversation, {"say": text, **when}))
    sys.stdout.write(f"{made.id}: {made.schedule}; next {_at(made.next_at)}\n")
    tell("A Rondel process must be running then; `rondel jobs run` keeps one running.")


async def _schedule(agent: str, wanted: str, given: dict[str, str]) -> Scheduled:
    schedule = parse(given, now=SystemClock().now())
    async with open_app(load_project(), agent) as opened:
        id = await find_conversation(opened.app.store, wanted) if wanted else ""
        return await opened.app.timetable.add(
            opened.agent,
            schedule,
            conversation=id or f"schedule-{opened.agent}",
            id=scheduled_id(opened.app.new_id("s")),
        )


@jobs.command()
@engine
def run(engine: str) -> None:
    """Run pending jobs and schedules until Ctrl-C."""
    asyncio.run(_run(engine))


async def _run(engine: str) -> None:
    async with open_app(load_project(), "", engine, recover=True) as opened:
        app = opened.app
        schedules = len(await app.timetable.schedules())
        tell(f"{opened.model_line} Active schedules: {schedules}. Ctrl-C stops this; pending jobs are kept.")
        over = asyncio.Event()
        with signals(lambda _: over.set(), "SIGINT", "SIGTERM"):
            async with asyncio.TaskGroup() as group:
                keeping_up = group.create_task(app.keep_up())
                await over.wait()
                keeping_up.cancel()
