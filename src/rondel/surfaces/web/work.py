"""Background work of routes: a sync, a download, a login. One at a time per key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from ...contracts.clock import Clock
from ...errors import RondelError
from ...values import Value
from .route import Problem

log = logging.getLogger("rondel.web")

WorkState: TypeAlias = Literal["running", "done", "failed", "cancelled"]


class WorkInfo(Value, frozen=True):
    """How far it is. `link` is where a person must go for it to continue; `result` is what it did, in one sentence."""

    state: WorkState
    started_at: float
    step: str = ""
    done: int = 0
    total: int = 0
    link: str = ""
    result: str = ""
    error: str = ""


class Work:
    """One running work. Its function reports with `step` and `at_link`."""

    def __init__(self, now: float) -> None:
        self.info = WorkInfo("running", now)
        self.task: asyncio.Task[None] | None = None

    def step(self, what: str, done: int, total: int) -> None:
        self.info = msgspec.structs.replace(self.info, step=what, done=done, total=total)

    def at_link(self, link: str) -> None:
        self.info = msgspec.structs.replace(self.info, link=link)

    def end(self, state: WorkState, *, result: str = "", error: str = "") -> None:
        self.info = msgspec.structs.replace(self.info, state=state, link="", result=result, error=error)


Run: TypeAlias = Callable[[Work], Awaitable[str]]
"""Does the work and returns what it did, in one sentence."""


class Works:
    """The last work of each key, such as `sync docs`. Keys are names of the configuration, so there are few."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._works: dict[str, Work] = {}
        self.group: asyncio.TaskGroup | None = None

    def start(self, key: str, run: Run) -> WorkInfo:
        assert self.group is not None, "the server runs"
        if (known := self._works.get(key)) is not None and known.info.state == "running":
            raise Problem(409, "this is running already")
        work = self._works[key] = Work(self._clock.now())
        work.task = self.group.create_task(_run(work, key, run))
        return work.info

    def info(self, key: str) -> WorkInfo | None:
        work = self._works.get(key)
        return None if work is None else work.info

    def cancel(self, key: str) -> None:
        work = self._works.get(key)
        if work is None or work.task is None or work.info.state != "running":
            raise Problem(409, "nothing is running here")
        work.task.cancel()

    def close(self) -> None:
        for work in self._works.values():
            if work.task is not None:
                work.task.cancel()


async def _run(work: Work, key: str, run: Run) -> None:
    try:
        work.end("done", result=await run(work))
    except asyncio.CancelledError:
        work.end("cancelled")
    except (RondelError, OSError) as error:
        work.end("failed", error=str(error))
    except Exception:
        log.exception("%s failed", key)
        work.end("failed", error="this failed; the log of the server says why")
