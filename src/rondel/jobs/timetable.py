"""Schedules: messages that agents receive at set times, and the turns that they start.

A schedule is a value in the store; removing it cancels the schedule, in whichever process it waits. Its next time is a
job: when the job runs, the message starts a turn in the schedule's conversation, and the following time is submitted as
the next job. Missed times are made up for with one turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from ..contracts.runtime import Job
from ..contracts.store import Store
from ..errors import RondelError
from ..machine.services import Services
from ..text.schedule import Schedule
from ..values import Person, Value, user

logger = logging.getLogger("rondel.timetable")

NAMESPACE = "schedules"
BY_GROUP = "schedules-by-place"
"""An index: the ids of schedules by conversation, and of those from agent files under `FILES`."""
FILES = "@files"
PER_CONVERSATION_MAX = 32
Maker: TypeAlias = Literal["agent", "file", "person"]


class Scheduled(Value, frozen=True):
    """A schedule with its agent, its conversation and its next time."""

    id: str
    agent: str
    conversation: str
    schedule: Schedule
    next_at: float
    made_by: Maker = "person"
    last_turn: str = ""  # the turn that it started last
    person: Person = Person("")  # who made it, if known


class Timetable:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def add(
        self,
        agent: str,
        schedule: Schedule,
        *,
        conversation: str,
        id: str,
        made_by: Maker = "person",
        person: Person | None = None,
    ) -> Scheduled:
        """Add a schedule. Adding the same id again changes nothing."""
        now = self._services.clock.now()
        if (known := await read_schedule(self._services.store, id)) is not None:
            return known
        next_at = schedule.next_after(now)
        if next_at is None:
            raise RondelError(f"the schedule {str(schedule)!r} will never run: all its times are in the past")
        if made_by != "file" and len(await self.schedules(conversation)) >= PER_CONVERSATION_MAX:
            raise RondelError(
                f"this conversation has {PER_CONVERSATION_MAX} schedules, which is the limit; "
                "cancel one that is not needed"
            )
        whose = person or Person("")
        scheduled = Scheduled(id, agent, conversation, schedule, next_at, made_by, person=whose)
        await self._arm(scheduled)
        return scheduled

    async def schedules(self, group: str = "") -> list[Scheduled]:
        return await read_schedules(self._services.store, group)

    async def cancel(self, id: str) -> bool:
        """Cancel a schedule. Return False if there is no such schedule."""
        scheduled = await read_schedule(self._services.store, id)
        if scheduled is None:
            return False
        await forget_schedule(self._services.store, scheduled)
        await self._services.runtime.cancel(_job_id(scheduled))
        return True

    async def open(self) -> None:
        """Add the schedules of the agent files, and remove those that the files no longer have."""
        wanted = {scheduled.id: scheduled for scheduled in self._of_files()}
        for known in await self.schedules(FILES):
            if known.id not in wanted:
                await self.cancel(known.id)
            else:
                wanted[known.id] = msgspec.structs.replace(wanted[known.id], last_turn=known.last_turn)
        for scheduled in wanted.values():
            await self._arm(scheduled)

    def _of_files(self) -> Iterable[Scheduled]:
        now = self._services.clock.now()
        for agent in self._services.registry.agents:
            for schedule in agent.schedules:
                id = scheduled_id(agent.name, msgspec.json.encode(schedule).decode())
                conversation = schedule.conversation or f"schedule-{agent.name}"
                if (next_at := schedule.next_after(now)) is not None:
                    yield Scheduled(id, agent.name, conversation, schedule, next_at, "file")

    async def take_up(self, conversation: str) -> None:
        """Resume the schedules of a conversation that a dead process left."""
        for scheduled in await self.schedules(conversation):
            await self._services.runtime.recover(scheduled.id)

    # --- when a schedule is due ---------------------------------------------------------------------------------------

    async def run(self, job: Job) -> None:
        """Start the schedule's turn, then submit the job for its next time."""
        scheduled = await read_schedule(self._services.store, job.key)
        if scheduled is None:
            return  # it was cancelled
        if not self._services.registry.knows_agent(scheduled.agent):
            logger.warning("schedule %s has ended: agent %r no longer exists", scheduled.id, scheduled.agent)
            await forget_schedule(self._services.store, scheduled)
            return
        if scheduled.made_by == "agent" and await self._services.store.info(scheduled.conversation) is None:
            await forget_schedule(self._services.store, scheduled)  # the conversation was deleted
            return
        now, schedule = self._services.clock.now(), scheduled.schedule
        if not schedule.is_active(now):  # its time was missed, and it is outside of its active hours now
            await self._arm(msgspec.structs.replace(scheduled, next_at=schedule.active_from(now)))
            return
        if not (scheduled.last_turn and self._services.turns.is_under_way(scheduled.last_turn)):
            # If the last turn takes longer than the interval, turns would pile up.
            turn = f"t_{job.id}"
            await self._speak(scheduled, turn)
            scheduled = msgspec.structs.replace(scheduled, last_turn=turn)
        next_at = schedule.next_after(max(now, job.at))
        if next_at is None:
            await forget_schedule(self._services.store, scheduled)
        else:
            await self._arm(msgspec.structs.replace(scheduled, next_at=next_at))

    async def _speak(self, scheduled: Scheduled, turn: str) -> None:
        message = user(scheduled.schedule.say, id=f"say:{turn}", author=f"schedule:{scheduled.id}")
        conversation, person = scheduled.conversation, scheduled.person
        await self._services.turns.start(conversation, scheduled.agent, message, turn=turn, person=person)

    async def _arm(self, scheduled: Scheduled) -> None:
        # Submit the job first: a crash must not leave a schedule that is listed and never runs. A job that runs before
        # the schedule is stored finds none and ends, so it is submitted again afterwards.
        job = Job(_job_id(scheduled), "schedule", scheduled.id, at=scheduled.next_at)
        await self._services.runtime.submit(job)
        for key in _group_keys(scheduled):
            await self._services.store.put(BY_GROUP, key, b"1")
        await self._services.store.put(NAMESPACE, scheduled.id, msgspec.json.encode(scheduled))
        await self._services.runtime.submit(job)


def scheduled_id(*said: str) -> str:
    from hashlib import blake2s  # here, because it loads OpenSSL, which few programs need

    return f"s_{blake2s(chr(0).join(said).encode(), digest_size=6).hexdigest()}"


async def read_schedule(store: Store, id: str) -> Scheduled | None:
    value = await store.get(NAMESPACE, id)
    return None if value is None else msgspec.json.decode(value, type=Scheduled)


async def read_schedules(store: Store, group: str = "") -> list[Scheduled]:
    """Return the schedules of one group (a conversation or `FILES`) or all, the next one first."""
    found: list[Scheduled] = []
    namespace, prefix, after = (BY_GROUP, f"{group}/", "") if group else (NAMESPACE, "", "")
    while keys := await store.keys(namespace, prefix, after=after):
        after = keys[-1]
        for key in keys:
            if (scheduled := await read_schedule(store, key.removeprefix(prefix))) is not None:
                found.append(scheduled)
    return sorted(found, key=lambda scheduled: (scheduled.next_at, scheduled.id))


async def forget_schedule(store: Store, scheduled: Scheduled) -> None:
    # The job that waits for its time finds it gone, in whichever process.
    await store.remove(NAMESPACE, scheduled.id)
    for key in _group_keys(scheduled):
        await store.remove(BY_GROUP, key)


def _group_keys(scheduled: Scheduled) -> list[str]:
    groups = [scheduled.conversation, *([FILES] if scheduled.made_by == "file" else [])]
    return [f"{group}/{scheduled.id}" for group in groups]


def _job_id(scheduled: Scheduled) -> str:
    return f"{scheduled.id}@{scheduled.next_at:.0f}"
