"""A store in memory, as strict as the one on disk: the same fence, the same errors, values that could be written.

Nothing outlives the process. Knows no file and no thread; no call here ever suspends.
"""

from __future__ import annotations

import msgspec

from ...clock import Clock, SystemClock
from ...errors import StoreConflict, StoreError
from ...events import Entry, Kept
from ...job import Job
from ...store import KEYS_MAX, ConversationInfo, check_place
from .books import MemoryBooks

SWEEP_EVERY = 64
"""Values that are put on shelves between two looks for expired ones."""

_encode = msgspec.json.Encoder().encode


class MemoryStore:
    """Whoever opens a runtime on it gets every pending job: there is no other process that could hold one."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._shelves: dict[tuple[str, str], tuple[bytes, float | None]] = {}
        self._puts = 0
        self._entries: dict[str, list[Entry]] = {}
        self._infos: dict[str, ConversationInfo] = {}
        self._jobs: dict[str, Job] = {}
        self._closed = False
        self.books = MemoryBooks(self._clock)

    async def append(
        self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float, wait: bool = True
    ) -> None:
        if self._closed:
            raise _closed()
        if not events:
            raise StoreError(f"nothing to append to conversation {conversation!r}: give at least one event")
        entries = self._entries.get(conversation)
        last = len(entries) if entries else 0
        if seq != last + 1:
            raise StoreConflict(
                f"conversation {conversation!r} is at entry {last!r}, so entry {seq!r} cannot follow: "
                "another worker appended first; read it again and go on from there"
            )
        try:
            _encode(events)
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"an event for conversation {conversation!r} cannot be written as JSON ({error}): "
                "put only plain values into it"
            ) from error
        if entries is None:
            entries = self._entries[conversation] = []
        for event in events:
            entries.append(Entry(seq, at, event))
            seq += 1

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        self._check_open()
        return self._entries.get(conversation, [])[max(after, 0) :]

    async def conversations(self, *, limit: int = 50, before: ConversationInfo | None = None) -> list[ConversationInfo]:
        self._check_open()
        infos = [self._info(id) for id in self._entries if "/" not in id]
        shown = [i for i in infos if before is None or (i.updated_at, i.id) < (before.updated_at, before.id)]
        shown.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return shown[: max(limit, 0)]

    async def info(self, conversation: str) -> ConversationInfo | None:
        self._check_open()
        return self._info(conversation) if conversation in self._entries else None

    async def delete(self, conversation: str) -> bool:
        self._check_open()
        children = f"{conversation}/"
        doomed = [id for id in self._entries if id == conversation or id.startswith(children)]
        for id in doomed:
            del self._entries[id]
            self._infos.pop(id, None)
        return bool(doomed)

    async def put_job(self, job: Job) -> bool:
        self._check_open()
        if job.id in self._jobs:
            return False
        try:
            _encode(job.payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"the payload of job {job.id!r} cannot be written as JSON ({error}): put only plain values into it"
            ) from error
        self._jobs[job.id] = job
        return True

    def finish_job(self, id: str) -> None:
        self._jobs.pop(id, None)

    async def orphaned_jobs(self, key: str = "") -> list[Job]:
        self._check_open()
        return [job for job in self._jobs.values() if not key or job.key == key]

    async def put(self, shelf: str, key: str, value: bytes, *, until: float | None = None) -> None:
        self._check_open()
        check_place(shelf, key)
        self._puts += 1
        if self._puts % SWEEP_EVERY == 0:
            now = self._clock.now()
            for place in [place for place, (_, end) in self._shelves.items() if end is not None and end <= now]:
                del self._shelves[place]
        self._shelves[shelf, key] = (bytes(value), until)

    async def get(self, shelf: str, key: str) -> bytes | None:
        self._check_open()
        value, until = self._shelves.get((shelf, key), (None, None))
        return value if until is None or until > self._clock.now() else None

    async def remove(self, shelf: str, key: str) -> bool:
        there = await self.get(shelf, key) is not None
        self._shelves.pop((shelf, key), None)
        return there

    async def keys(self, shelf: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        self._check_open()
        now = self._clock.now()
        keys = [
            key
            for (name, key), (_, until) in self._shelves.items()
            if name == shelf and key.startswith(prefix) and key > after and (until is None or until > now)
        ]
        return sorted(keys)[: max(limit, 0)]

    async def aclose(self) -> None:
        self._closed = True

    def reopen(self) -> MemoryStore:
        """What a new process would find after this one died: the same content; the dead can no longer write."""
        self._closed = True
        store = MemoryStore(clock=self._clock)
        store._entries, store._infos, store._jobs = self._entries, self._infos, dict(self._jobs)
        store._shelves = dict(self._shelves)
        store.books = self.books.reopen()
        return store

    def _info(self, conversation: str) -> ConversationInfo:
        """The summary, brought forward only when somebody asks: an append must stay cheap."""
        entries = self._entries[conversation]
        info = self._infos.get(conversation) or ConversationInfo(conversation)
        for entry in entries[info.seq :]:
            info = info.after(entry)
        self._infos[conversation] = info
        return info

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> StoreError:
    return StoreError("this memory store is closed; make a new one")
