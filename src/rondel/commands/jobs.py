"""`rondel jobs`: work in the background and schedules of all conversations; and a process that does what is pending."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..background import cancel_from_outside, read_jobs
from ..clock import SystemClock
from ..config import load
from ..errors import RondelError
from ..job import JobInfo
from ..schedule import parse
from ..store import Store
from ..surfaces.terminal.clean import clean, one_line
from ..surfaces.terminal.listing import Listing
from ..surfaces.terminal.slash import find_conversation
from ..surfaces.terminal.views import short_id, when
from ..timetable import Scheduled, forget_schedule, read_schedules, scheduled_id
from ._output import console, show, show_json, tell
from ._project import load_project, open_app, open_store

WATCH_S = 1.0
_STYLES = {"done": "green", "failed": "red", "cancelled": "yellow", "running": "cyan"}


class Listed(msgspec.Struct, frozen=True):
    jobs: list[JobInfo]
    schedules: list[Scheduled]

    @property
    def is_quiet(self) -> bool:
        return all(job.is_over for job in self.jobs)


class Wish(msgspec.Struct, frozen=True):
    """What somebody wants to be said later, as it was typed."""

    agent: str
    text: str
    every: str = ""
    at: str = ""
    cron: str = ""
    zone: str = ""
    hours: str = ""
    conversation: str = ""


@contextlib.asynccontextmanager
async def _store() -> AsyncGenerator[Store]:
    store = open_store(load())
    try:
        yield store
    finally:
        await store.aclose()


# --- list -------------------------------------------------------------------------------------------------------------


def list_jobs(*, limit: int, as_json: bool, watch: bool) -> None:
    if watch:
        asyncio.run(_watch(limit, as_json=as_json))
        return
    listed = asyncio.run(_list(limit))
    if as_json:
        show_json(listed)
    else:
        show(_tables(listed, time.time()))


async def _list(limit: int) -> Listed:
    async with _store() as store:
        return await _read(store, limit)


async def _read(store: Store, limit: int) -> Listed:
    return Listed((await read_jobs(store))[:limit], (await read_schedules(store))[:limit])


async def _watch(limit: int, *, as_json: bool) -> None:
    """Show what changes until no job is queued or at work: a picture that moves, or a line for each change."""
    async with _store() as store:
        if sys.stdout.isatty() and not as_json:
            with Live(console=console(), auto_refresh=False) as live:
                await _follow(store, limit, lambda listed: live.update(_tables(listed, time.time()), refresh=True))
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
    """A line for each job that has changed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._seen: dict[str, JobInfo] = {}

    def __call__(self, listed: Listed) -> None:
        for job in reversed(listed.jobs):
            if self._seen.get(job.id) != job:
                self._seen[job.id] = job
                said = msgspec.json.encode(job).decode() if self._as_json else " ".join(_cells(job))
                sys.stdout.write(said + "\n")
        sys.stdout.flush()


def _tables(listed: Listed, now: float) -> RenderableType:
    if not listed.jobs and not listed.schedules:
        return Text("Nothing works in the background, and nothing is scheduled.")
    parts: list[RenderableType] = []
    if listed.jobs:
        made = Listing("job", "what", "status", "when", "conversation", "about")
        for job in listed.jobs:
            id, name, status, about = _cells(job)
            at = when(job.finished_at or job.started_at, now)
            made.add_row(id, name, Text(status, _STYLES.get(job.status, "")), at, _place(job.conversation), about)
        parts.append(made)
    if listed.schedules:
        made = Listing("schedule", "agent", "next", "when", "conversation", "says", growing=3)
        for one in listed.schedules:
            says = one_line(one.schedule.say, 80)
            made.add_row(one.id, one.agent, _at(one.next_at), str(one.schedule), _place(one.conversation), Text(says))
        parts += [Text(""), made] if parts else [made]
    return Group(*parts)


def _cells(job: JobInfo) -> tuple[str, str, str, str]:
    done = f" {job.progress:.0%}" if job.progress is not None and not job.is_over else ""
    return job.id, one_line(job.name, 24), f"{job.status}{done}", one_line(job.summary or job.text, 100)


def _place(conversation: str) -> str:
    return one_line(conversation, 24) if conversation.startswith("schedule-") else short_id(conversation)


def _at(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%d %b, %H:%M")


# --- one --------------------------------------------------------------------------------------------------------------


def show_job(id: str, *, as_json: bool) -> None:
    found = asyncio.run(_show(id))
    if as_json:
        show_json(found)
        return
    made = Listing()
    for name, text in _details(found):
        made.add_row(Text(name, "bold"), Text(clean(text)))
    show(made)


async def _show(id: str) -> JobInfo | Scheduled:
    async with _store() as store:
        return await _find(store, id)


async def _find(store: Store, id: str) -> JobInfo | Scheduled:
    """A job or a schedule by its id, or by the beginning or the end of it."""
    known: Sequence[JobInfo | Scheduled] = (*await read_jobs(store), *await read_schedules(store))
    found = [one for one in known if one.id == id] or [
        one for one in known if id and (one.id.startswith(id) or one.id.endswith(id))
    ]
    if not found:
        raise RondelError(f"there is no job and no schedule {id!r}; `rondel jobs` lists them")
    if len(found) > 1:
        raise RondelError(f"{id!r} fits {len(found)} jobs and schedules; give more characters of the id")
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


def cancel_job(id: str) -> None:
    tell(asyncio.run(_cancel(id)))


async def _cancel(id: str) -> str:
    async with _store() as store:
        found = await _find(store, id)
        if isinstance(found, Scheduled):
            await forget_schedule(store, found)
            return f"{found.id} is cancelled."
        if found.is_over:
            return f"{found.id} is over already: {found.status}."
        if await cancel_from_outside(store, SystemClock(), found):
            return f"{found.id} is cancelled."
        return f"{found.id} is at work in another process, which was asked to cancel it."


# --- later ------------------------------------------------------------------------------------------------------------


def schedule_job(wish: Wish) -> None:
    made = asyncio.run(_schedule(wish))
    sys.stdout.write(f"{made.id}: {made.schedule}; next {_at(made.next_at)}\n")
    tell("It is said by whichever process runs then: `rondel jobs run` is one that stays.")


async def _schedule(wish: Wish) -> Scheduled:
    given = {"say": wish.text, "every": wish.every, "at": wish.at, "cron": wish.cron}
    clock = SystemClock()
    schedule = parse({**given, "zone": wish.zone, "hours": wish.hours}, now=clock.now())
    async with open_app(load_project(), wish.agent) as opened:
        id = await find_conversation(opened.app.store, wish.conversation) if wish.conversation else ""
        return await opened.app.timetable.add(
            opened.agent,
            schedule,
            conversation=id or f"schedule-{opened.agent}",
            id=scheduled_id(opened.app.new_id("s")),
        )


def run_jobs(engine: str) -> None:
    asyncio.run(_run(engine))


async def _run(engine: str) -> None:
    """Do what is pending and what comes, until somebody ends this."""
    async with open_app(load_project(), "", engine, recover=True) as opened:
        app = opened.app
        waiting = len(await app.timetable.schedules())
        tell(f"{opened.model_line}. Schedules that wait: {waiting}. Ctrl-C ends this; what is pending is kept.")
        over = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, over.set)
        async with asyncio.TaskGroup() as group:
            keeping_up = group.create_task(app.keep_up())
            await over.wait()
            keeping_up.cancel()
