"""The contract of the runtime: who runs what, where and when. And what is known of a job in the background.

A job is work with an id, a kind, a key and a time. Jobs with equal keys run one at a time, first come first served;
submitting the same id twice is once; what was submitted survives a crash. Knows nothing of turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .events import JobFinished, JobMode, JobStatus
from .values import Value

JobKind: TypeAlias = Literal["turn", "job", "schedule"]


class Job(Value, frozen=True):
    id: str
    kind: JobKind
    key: str
    payload: dict[str, Any] = {}
    at: float = 0.0
    """Not before this point in time (seconds since the epoch); 0 is at once."""


class JobInfo(Value, frozen=True):
    """Work of a conversation in the background, as people see it: what it is, how far it is, what came of it."""

    id: str
    name: str
    agent: str = ""
    mode: JobMode = "background"
    status: JobStatus = "queued"
    conversation: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    steps: tuple[str, ...] = ()
    progress: float | None = None
    text: str = ""
    """What it said last of how far it is."""
    summary: str = ""
    detail: str = ""

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    def after(self, event: JobFinished) -> JobInfo:
        digest = event.digest
        return msgspec.structs.replace(
            self,
            status=event.status,
            finished_at=digest.at,
            progress=1.0 if digest.success else self.progress,
            summary=digest.summary,
            detail=digest.detail,
        )


Handler: TypeAlias = Callable[[Job], Awaitable[None]]


class JobStore(Protocol):
    """Where a runtime keeps what is pending."""

    async def put_job(self, job: Job) -> bool:
        """Keep a job until it is finished. False when a job with this id is already there."""
        ...

    def finish_job(self, id: str) -> None:
        """Forget a job. Does not wait: a job that is forgotten too late is run again, and its handler knows."""
        ...

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        """The pending jobs that no other living worker holds, of one key or of all, in the order in which they came.
        This worker holds them now."""
        ...


class Runtime(Protocol):
    async def start(self, handlers: Mapping[str, Handler], *, recover: bool = True) -> None:
        """Begin to run jobs, one handler per kind. With `recover`, first what a dead worker left."""
        ...

    async def submit(self, job: Job) -> bool:
        """Returns when the job is kept; it begins then. False when it was submitted before."""
        ...

    async def recover(self, key: str) -> list[Job]:
        """Run what dead workers left of one key, or of all for an empty one. What it took up."""
        ...

    async def cancel(self, id: str) -> bool:
        """Cancel the running job, or forget the pending one. False when there is none."""
        ...

    async def drain(self) -> None:
        """Wait until nothing runs and nothing is due; jobs whose time has not come may be pending."""
        ...

    async def stop(self) -> None:
        """Cancel what runs and wait for it. Pending jobs stay in the store."""
        ...
