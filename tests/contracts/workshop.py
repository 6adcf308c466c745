"""A job handler for tests: it tells what it does, and continues only when the test lets it."""

from __future__ import annotations

import asyncio

from rondel.contracts.runtime import Job, Signal


class Workshop:
    """A handler that tells what it does and goes on only when it is let."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, job: Job) -> None:
        await self._tell(f"{job.id} began")
        try:
            await self._gate(job.id).wait()
        except asyncio.CancelledError:
            await self._tell(f"{job.id} was cancelled")
            raise
        await self._tell(f"{job.id} ended")

    async def hear(self, signal: Signal) -> bool:
        await self._tell(f"{signal.job} heard {signal.kind}")
        return True

    def let(self, *ids: str) -> None:
        for id in ids:
            self._gate(id).set()

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: all(line in self.log for line in lines))

    async def _tell(self, line: str) -> None:
        async with self._changed:
            self.log.append(line)
            self._changed.notify_all()

    def _gate(self, id: str) -> asyncio.Event:
        return self._gates.setdefault(id, asyncio.Event())


def turn(id: str, key: str = "c", at: float = 0.0) -> Job:
    return Job(id, "turn", key, at=at)
