"""The contracts of the runtime and of the job queue that it keeps pending jobs in.

A job is work with an id, a kind, a key and a time. Jobs with the same key run one at a time (or `slots` at a time), in
the order in which they were submitted, in all processes that share a store. Submitting the same id twice has no effect,
and submitted jobs survive a crash. Knows no turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ..events import JobFinished, JobMode, JobStatus
from ..values import Value

JobKind: TypeAlias = Literal["turn", "job", "schedule", "write"]
Claim: TypeAlias = Literal["granted", "waiting", "gone"]
"""`waiting`: other jobs of the key run, or an earlier one of another worker waits. `gone`: this worker does not hold
the job."""


class Job(Value, frozen=True):
    id: str
    kind: JobKind
    key: str
    payload: Any = {}
    """What the handler needs: plain data, or a value that becomes plain data when the job is read from the store."""
    at: float = 0.0  # do not run it before this time (seconds since the epoch); 0 means at once
    slots: int = 1
    """How many jobs of this key may run at the same time, in all processes. The same for all jobs of a key."""


class Signal(Value, frozen=True):
    """A request to a job that runs in any process: stop the turn, add a message to it, or cancel the job.

    An answer to a question is not a signal: the turn that asked has ended, and the answer is part of the job that
    continues it.
    """

    kind: Literal["stop", "steer", "cancel"]
    payload: dict[str, Any] = {}
    key: str = ""
    job: str = ""
    """The job that gets it, even if that job waits. If empty, the first job that runs under the key gets it."""


class JobInfo(Value, frozen=True):
    """A background job as people see it: what it is, its progress, and its result."""

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
    text: str = ""  # its last progress message
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
SignalHandler: TypeAlias = Callable[[Signal], Awaitable[bool]]  # returns whether it did what the signal asks


class JobQueue(Protocol):
    """The pending jobs that the workers of a store share. A worker is one open store: usually one process."""

    async def put_job(self, job: Job) -> bool:
        """Store a job until it is finished; this worker holds it. Return False if a job with this id is stored."""
        ...

    async def claim_job(self, id: str, *, patient: bool = True) -> Claim:
        """Claim the right to run a job that this worker holds.

        No other worker is granted a claim of the same key until the job is finished or this worker dies. Claims are
        granted in the order in which the jobs were put; one that is not `patient` overtakes jobs of other workers that
        wait. A worker may be granted several claims of a key: it runs those jobs one at a time. If the key has several
        `slots`, that many claims are granted in all, and the jobs run at the same time.
        """
        ...

    async def is_claimed(self, key: str) -> bool:
        """Return whether another living worker has a claim on a job of this key."""
        ...

    def finish_job(self, id: str) -> None:
        """Delete a job and release its claim, without waiting. After a crash before the deletion the job runs again, so
        its handler must recognize work that is done."""

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        """Take over the pending jobs that no other living worker holds, of one key or of all; return them in order."""
        ...

    async def signal_job(self, signal: Signal) -> bool:
        """Send a signal to the job that it names, or to the first job that runs under its key, if another living worker
        holds that job. Return False otherwise."""
        ...

    async def wait_for_others(self) -> list[Signal]:
        """Wait until other workers may have released a key or sent a signal, some tenths of a second at most. Return
        the signals for jobs of this worker, each once."""
        ...


class Runtime(Protocol):
    async def start(
        self, handlers: Mapping[str, Handler], *, recover: bool = True, on_signal: SignalHandler | None = None
    ) -> None:
        """Start running jobs, with one handler per kind. With `recover`, run those that a dead worker left first."""

    async def submit(self, job: Job) -> bool:
        """Submit a job, and return when it is stored; it starts when its key is free. False if it was submitted
        before."""
        ...

    async def recover(self, key: str) -> list[Job]:
        """Run the jobs that dead workers left, of one key, or of all if it is empty. Return those jobs."""
        ...

    async def cancel(self, id: str) -> bool:
        """Cancel a job that runs or waits in this runtime. Return False if there is none."""
        ...

    async def signal(self, signal: Signal) -> bool:
        """Send a signal to the job that runs under its key, here or in another process. Return False if none does."""
        ...

    def is_pending(self, key: str) -> bool:
        """Return whether a job of this key runs or waits here."""
        ...

    async def drain(self) -> None:
        """Wait until no job runs or is due; jobs for later may be pending."""

    async def stop(self) -> None:
        """Cancel the running jobs and wait for them. Pending jobs stay in the store."""
