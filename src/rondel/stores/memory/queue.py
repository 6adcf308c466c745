"""The queue of pending jobs that several workers share in one process, under the same rules as the one on disk."""

from __future__ import annotations

import asyncio

import msgspec

from ...contracts.runtime import Claim, Job, Signal

SIGNALS_MAX = 100  # signals that wait for one worker; more are refused
WAIT_S = 0.25  # how long a worker waits for others before it looks again: a closed worker does not wake them


class Worker:
    """One open store. It is alive until it is closed."""

    def __init__(self) -> None:
        self.alive = True
        self.signals: list[Signal] = []
        self.waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class Held:
    """A pending job, the worker that holds it, and its state."""

    def __init__(self, job: Job, worker: Worker) -> None:
        self.job, self.worker = job, worker
        self.in_line, self.claimed = not job.at, False


class Queue:
    def __init__(self) -> None:
        self._jobs: dict[str, Held] = {}
        self._by_key: dict[str, list[Held]] = {}

    def put(self, job: Job, worker: Worker) -> bool:
        if job.id in self._jobs:
            return False
        held = self._jobs[job.id] = Held(job, worker)
        line = self._by_key.setdefault(job.key, [])
        line.append(held)
        held.claimed = held.in_line and not _is_blocked(held, line, patient=True)
        return True

    def claim(self, id: str, worker: Worker, *, patient: bool) -> Claim:
        held = self._jobs.get(id)
        if held is None or held.worker is not worker:
            return "gone"
        if not held.claimed:
            held.in_line = True
            held.claimed = not _is_blocked(held, self._by_key[held.job.key], patient=patient)
        return "granted" if held.claimed else "waiting"

    def holder(self, key: str, worker: Worker, job: str = "") -> Held | None:
        """Return the first claimed job of this key, or the named job, if another living worker holds it."""
        for held in self._by_key.get(key, ()):
            wanted = held.job.id == job if job else held.claimed
            if wanted and held.worker is not worker and held.worker.alive:
                return held
        return None

    def is_running(self, key: str) -> bool:
        return any(held.claimed and held.worker.alive for held in self._by_key.get(key, ()))

    def finish(self, id: str, worker: Worker) -> None:
        held = self._jobs.get(id)
        if held is not None and held.worker is worker:
            self._remove(held)

    def forget_conversation(self, conversation: str) -> None:
        """Remove the turns and deadlines of a conversation that no living worker runs: none of them may bring it back.
        Background work ends by itself, with its status, when it finds no conversation."""
        keys = [key for key in self._by_key if key == conversation or key.startswith(f"{conversation}#")]
        for held in [held for key in keys for held in self._by_key[key]]:
            if not (held.claimed and held.worker.alive):
                self._remove(held)

    def _remove(self, held: Held) -> None:
        del self._jobs[held.job.id]
        line = self._by_key[held.job.key]
        line.remove(held)
        if not line:
            del self._by_key[held.job.key]
        for other in line:
            if other.worker is not held.worker:
                other.worker.wake()

    def take_orphans(self, key: str, worker: Worker) -> list[Job]:
        found: list[Job] = []
        for held in self._jobs.values():
            if (not key or held.job.key == key) and (held.worker is worker or not held.worker.alive):
                if held.worker is not worker:
                    held.worker, held.claimed = worker, False
                found.append(held.job)
        return found

    def send(self, signal: Signal, worker: Worker) -> bool:
        held = self.holder(signal.key, worker, signal.job)
        if held is None or len(held.worker.signals) >= SIGNALS_MAX:
            return False
        held.worker.signals.append(msgspec.structs.replace(signal, job=held.job.id))
        held.worker.wake()
        return True

    @property
    def pending_keys(self) -> list[str]:
        return list(self._by_key)

    def copy(self) -> Queue:
        queue, dead = Queue(), Worker()
        dead.alive = False
        for held in self._jobs.values():
            queue.put(held.job, dead)
        return queue


def _is_blocked(held: Held, line: list[Held], *, patient: bool) -> bool:
    """Return whether no slot is free, or (if `patient`) a job of another living worker waits before this one.

    A key with one slot is granted to a worker, which runs its own jobs one at a time.
    """
    slots, taken, before = held.job.slots, 0, True
    for other in line:
        if other is held:
            before = False
        elif not other.worker.alive:
            continue
        elif other.claimed:
            taken += slots > 1 or other.worker is not held.worker
        elif patient and before and other.in_line and other.worker is not held.worker:
            return True
    return taken >= slots


async def wait_for_others(worker: Worker) -> list[Signal]:
    if not worker.signals:
        waiter = asyncio.get_running_loop().create_future()
        worker.waiters.append(waiter)
        try:
            async with asyncio.timeout(WAIT_S):
                await waiter
        except TimeoutError:
            pass
        finally:
            worker.waiters.remove(waiter)
    signals, worker.signals = worker.signals, []
    return signals
