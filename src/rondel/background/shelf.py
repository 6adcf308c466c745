"""What other processes see of jobs: the state of each on a shelf of the store, a sign of life, the wish to cancel it.

Nobody but the process that works on a conversation writes into it: others read here, and ask here.
"""

from __future__ import annotations

import msgspec

from ..clock import Clock
from ..job import JobInfo
from ..store import Store
from .order import JOBS_AT_ONCE, ended, line_of

ALIVE_S = 10.0
"""A running job that was not heard of for so long has lost its process."""
KEEP_S = 30 * 86_400.0
"""How long a job that is over is listed."""
SHELF = "jobs"
ALIVE = "jobs-alive"
CANCELS = "job-cancels"


async def shelve(store: Store, info: JobInfo) -> None:
    """Let others see how far a job is. What is over is forgotten some weeks later."""
    if not info.is_over:
        await store.put(SHELF, info.id, msgspec.json.encode(info))
        return
    await store.put(SHELF, info.id, msgspec.json.encode(info), until=info.finished_at + KEEP_S)
    await store.remove(CANCELS, info.id)
    await store.remove(ALIVE, info.id)


async def is_alive(store: Store, id: str, now: float) -> None:
    await store.put(ALIVE, id, b"1", until=now + ALIVE_S)


async def ask_to_cancel(store: Store, id: str, now: float) -> None:
    await store.put(CANCELS, id, b"1", until=now + KEEP_S)


async def is_to_cancel(store: Store, id: str) -> bool:
    return await store.get(CANCELS, id) is not None


async def read_job(store: Store, id: str) -> JobInfo | None:
    value = await store.get(SHELF, id)
    return None if value is None else msgspec.json.decode(value, type=JobInfo)


async def read_jobs(store: Store) -> list[JobInfo]:
    """The jobs of all conversations, newest first; those that are over for some weeks."""
    infos: list[JobInfo] = []
    after = ""
    while keys := await store.keys(SHELF, after=after):
        after = keys[-1]
        for key in keys:
            if (info := await read_job(store, key)) is None:
                continue
            if info.status == "running" and await store.get(ALIVE, key) is None:
                info = msgspec.structs.replace(info, status="queued", text="cut off; it waits to be taken up")
            infos.append(info)
    return sorted(infos, key=lambda info: (info.started_at, info.id), reverse=True)


async def cancel_from_outside(store: Store, clock: Clock, info: JobInfo) -> bool:
    """Cancel a job without an app: at once when no process holds it, else the one that does is asked, and False.

    Its conversation learns of it when somebody talks in it again.
    """
    now = clock.now()
    await ask_to_cancel(store, info.id, now)
    for number in range(JOBS_AT_ONCE):
        if any(job.id == info.id for job in await store.orphaned_jobs(line_of(info.conversation, number))):
            await shelve(store, info.after(ended(info, "cancelled", "it was cancelled before it was done", now)))
            store.finish_job(info.id)
            return True
    return False
