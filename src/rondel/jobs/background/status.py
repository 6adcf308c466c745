"""What other processes see of background jobs: the status of each, and a heartbeat.

Only the process that works on a conversation writes to its journal; others read a job's status here.
"""

from __future__ import annotations

import msgspec

from ...contracts.clock import Clock
from ...contracts.runtime import JobInfo, Signal
from ...contracts.store import Store
from .job import ended, key_of

ALIVE_S = 10.0  # a running job without a heartbeat for this long has lost its process
KEEP_S = 30 * 86_400.0  # how long a finished job is listed
NAMESPACE = "jobs"
ALIVE = "jobs-alive"


async def publish(store: Store, info: JobInfo) -> None:
    """Let other processes see a job's status. A finished job expires after 30 days."""
    if not info.is_over:
        await store.put(NAMESPACE, info.id, msgspec.json.encode(info))
        return
    await store.put(NAMESPACE, info.id, msgspec.json.encode(info), until=info.finished_at + KEEP_S)
    await store.remove(ALIVE, info.id)


async def mark_alive(store: Store, id: str, now: float) -> None:
    await store.put(ALIVE, id, b"1", until=now + ALIVE_S)


async def read_job(store: Store, id: str) -> JobInfo | None:
    value = await store.get(NAMESPACE, id)
    return None if value is None else msgspec.json.decode(value, type=JobInfo)


async def read_jobs(store: Store) -> list[JobInfo]:
    """Return the jobs of all conversations, newest first; finished ones for 30 days."""
    infos: list[JobInfo] = []
    after = ""
    while keys := await store.keys(NAMESPACE, after=after):
        after = keys[-1]
        for key in keys:
            if (info := await read_job(store, key)) is None:
                continue
            if info.status == "running" and await store.get(ALIVE, key) is None:
                info = msgspec.structs.replace(info, status="queued", text="interrupted; waiting to resume")
            infos.append(info)
    return sorted(infos, key=lambda info: (info.started_at, info.id), reverse=True)


async def cancel_without_app(store: Store, clock: Clock, info: JobInfo) -> bool:
    """Cancel a job without an app. If no process holds the job, cancel it at once and return True; its conversation
    learns of it at its next turn. Otherwise ask the process that holds it and return False."""
    key = key_of(info.conversation)
    if any(job.id == info.id for job in await store.orphaned_jobs(key)):
        await publish(store, info.after(ended(info, "cancelled", "it was cancelled before it finished", clock.now())))
        store.finish_job(info.id)
        return True
    await store.signal_job(Signal("cancel", key=key, job=info.id))
    return False
