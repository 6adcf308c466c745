"""What is said without a person: schedules that wait for their time, one job each, and the turns that they start.

A schedule is a value on a shelf of the store, and whoever takes it off has cancelled it, in whatever process it waits.
Its next time is a job: when it comes, the text is said in the schedule's conversation, and the time after that is the
next job. Times that were missed while nothing ran are made up for once. Knows no surface and no command line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

import msgspec

from .agent import Agent
from .clock import Clock
from .errors import RondelError
from .job import Job, Runtime
from .schedule import Schedule
from .store import Store
from .values import Message, Value, user

logger = logging.getLogger("rondel.timetable")

SHELF = "schedules"
PLACES = "schedules-by-place"
"""The ids of schedules by conversation, and of those in agents' files: nobody reads all of them to find a few."""
FILES = "@files"
PER_CONVERSATION_MAX = 32
Maker: TypeAlias = Literal["agent", "file", "person"]


class Office(Protocol):
    """What schedules need of the app that runs them."""

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> Store: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def agents(self) -> tuple[Agent, ...]: ...

    def knows_agent(self, name: str) -> bool: ...

    def is_under_way(self, turn: str) -> bool: ...

    async def start_turn(
        self, conversation: str, agent: str, message: Message | None = None, *, turn: str = ""
    ) -> bool: ...


class Scheduled(Value, frozen=True):
    """A schedule with its place: who is spoken to, where, and when next."""

    id: str
    agent: str
    conversation: str
    schedule: Schedule
    next_at: float
    made_by: Maker = "person"
    made_at: float = 0.0
    last_turn: str = ""
    """The turn that it started last."""


class Timetable:
    """The schedules of an app."""

    def __init__(self, app: Office) -> None:
        self._app = app

    async def add(
        self, agent: str, schedule: Schedule, *, conversation: str, id: str, made_by: Maker = "person"
    ) -> Scheduled:
        """Let something be said when its time comes. The same id twice is once."""
        now = self._app.clock.now()
        if (known := await read_schedule(self._app.store, id)) is not None:
            return known
        next_at = schedule.next_after(now)
        if next_at is None:
            raise RondelError(f"the schedule {str(schedule)!r} is over: no time of it is left")
        if made_by != "file" and len(await self.schedules(conversation)) >= PER_CONVERSATION_MAX:
            raise RondelError(
                f"this conversation has {PER_CONVERSATION_MAX} schedules, which is the limit; "
                "cancel one that is not needed"
            )
        scheduled = Scheduled(id, agent, conversation, schedule, next_at, made_by, now)
        await self._arm(scheduled)
        return scheduled

    async def schedules(self, place: str = "") -> list[Scheduled]:
        """All of them, or those of a conversation; the one whose time comes first in front."""
        return await read_schedules(self._app.store, place)

    async def cancel(self, id: str) -> bool:
        """False when there is no such schedule, or no longer."""
        scheduled = await read_schedule(self._app.store, id)
        if scheduled is None:
            return False
        await forget_schedule(self._app.store, scheduled)
        await self._app.runtime.cancel(_job_id(scheduled))
        return True

    async def open(self) -> None:
        """Begin with what the agents' files say; forget what they no longer say."""
        wanted = {scheduled.id: scheduled for scheduled in self._of_files()}
        for known in await self.schedules(FILES):
            if known.id not in wanted:
                await self.cancel(known.id)
            else:
                wanted[known.id] = msgspec.structs.replace(wanted[known.id], last_turn=known.last_turn)
        for scheduled in wanted.values():
            await self._arm(scheduled)

    def _of_files(self) -> Iterable[Scheduled]:
        now = self._app.clock.now()
        for agent in self._app.agents:
            for schedule in agent.schedules:
                id = scheduled_id(agent.name, msgspec.json.encode(schedule).decode())
                place = schedule.conversation or f"schedule-{agent.name}"
                if (next_at := schedule.next_after(now)) is not None:
                    yield Scheduled(id, agent.name, place, schedule, next_at, "file", now)

    async def take_up(self, conversation: str) -> None:
        """Go on with the schedules of a conversation that a process which is gone has left."""
        for scheduled in await self.schedules(conversation):
            await self._app.runtime.recover(scheduled.id)

    # --- its time has come --------------------------------------------------------------------------------------------

    async def run(self, job: Job) -> None:
        """Say what is to be said, then wait for the next time."""
        scheduled = await read_schedule(self._app.store, job.key)
        if scheduled is None:
            return  # somebody has cancelled it
        if not self._app.knows_agent(scheduled.agent):
            logger.warning("schedule %s has ended: there is no agent %r any more", scheduled.id, scheduled.agent)
            await forget_schedule(self._app.store, scheduled)
            return
        if scheduled.made_by == "agent" and await self._app.store.info(scheduled.conversation) is None:
            await forget_schedule(self._app.store, scheduled)  # somebody deleted the conversation
            return
        now, schedule = self._app.clock.now(), scheduled.schedule
        if not schedule.is_active(now):  # it was missed, and now is no time for it either
            await self._arm(msgspec.structs.replace(scheduled, next_at=schedule.active_from(now)))
            return
        if not (scheduled.last_turn and self._app.is_under_way(scheduled.last_turn)):
            # The last one may take longer than the time between two: then they would only pile up.
            turn = f"t_{job.id}"
            await self._speak(scheduled, turn)
            scheduled = msgspec.structs.replace(scheduled, last_turn=turn)
        next_at = schedule.next_after(max(now, job.at))
        if next_at is None:
            await forget_schedule(self._app.store, scheduled)
        else:
            await self._arm(msgspec.structs.replace(scheduled, next_at=next_at))

    async def _speak(self, scheduled: Scheduled, turn: str) -> None:
        message = user(scheduled.schedule.say, id=f"say:{turn}", author=f"schedule:{scheduled.id}")
        await self._app.start_turn(scheduled.conversation, scheduled.agent, message, turn=turn)

    async def _arm(self, scheduled: Scheduled) -> None:
        for place in _places(scheduled):
            await self._app.store.put(PLACES, place, b"1")
        await self._app.store.put(SHELF, scheduled.id, msgspec.json.encode(scheduled))
        await self._app.runtime.submit(Job(_job_id(scheduled), "schedule", scheduled.id, at=scheduled.next_at))


def scheduled_id(*said: str) -> str:
    from hashlib import blake2s  # here, because it loads a library that few programs need

    return f"s_{blake2s(chr(0).join(said).encode(), digest_size=6).hexdigest()}"


async def read_schedule(store: Store, id: str) -> Scheduled | None:
    value = await store.get(SHELF, id)
    return None if value is None else msgspec.json.decode(value, type=Scheduled)


async def read_schedules(store: Store, place: str = "") -> list[Scheduled]:
    """The schedules of one place or of all, the one whose time comes first in front."""
    found: list[Scheduled] = []
    shelf, prefix, after = (PLACES, f"{place}/", "") if place else (SHELF, "", "")
    while keys := await store.keys(shelf, prefix, after=after):
        after = keys[-1]
        for key in keys:
            if (scheduled := await read_schedule(store, key.removeprefix(prefix))) is not None:
                found.append(scheduled)
    return sorted(found, key=lambda scheduled: (scheduled.next_at, scheduled.id))


async def forget_schedule(store: Store, scheduled: Scheduled) -> None:
    """Whoever waits for its time finds it gone."""
    await store.remove(SHELF, scheduled.id)
    for place in _places(scheduled):
        await store.remove(PLACES, place)


def _places(scheduled: Scheduled) -> list[str]:
    places = [scheduled.conversation, *([FILES] if scheduled.made_by == "file" else [])]
    return [f"{place}/{scheduled.id}" for place in places]


def _job_id(scheduled: Scheduled) -> str:
    return f"{scheduled.id}@{scheduled.next_at:.0f}"
