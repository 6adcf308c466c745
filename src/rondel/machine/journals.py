"""The open journals of an app: one for each conversation in use, and a limited number of idle ones."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from ..contracts.runtime import Job
from ..errors import StoreConflict
from .journal import Journal

if TYPE_CHECKING:
    from .services import Services

T = TypeVar("T")
Change: TypeAlias = Callable[[Journal], Awaitable[T]]

JOURNALS_MAX = 1_000  # idle journals that stay open; an older one is read again when it is needed
SIZE_MAX = 256_000_000  # of all journals together: a conversation may have many pictures and files


class Journals:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._open: OrderedDict[str, Journal] = OrderedDict()
        self._sizes: dict[str, int] = {}  # of open journals, when they were last weighed
        self._size = 0
        # Closed here but still referenced elsewhere. A conversation must never have two journals in one app: each
        # would append at its own position.
        self._alive: WeakValueDictionary[str, Journal] = WeakValueDictionary()
        self._opening: dict[str, asyncio.Future[Journal]] = {}
        self._changes: dict[str, tuple[Change[Any], asyncio.Future[Any]]] = {}
        """Changes that wait until another process has finished its turn, by the ids of their jobs."""
        services.store.keep_open(self.__contains__)

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._open or conversation in self._alive or conversation in self._opening

    def get(self, conversation: str) -> Journal | None:
        return self._open.get(conversation)

    def create(self, conversation: str) -> None:
        """Open the journal of a conversation whose id was just made: the store has nothing to read."""
        self._open[conversation] = Journal(conversation, self._services.store, self._services.clock)
        self._close_idle(conversation)

    async def open(self, conversation: str) -> Journal:
        """Return the journal of a conversation, read from the store if it is not open."""
        journal = self._open.get(conversation)
        if journal is not None and not journal.broken:
            self._open.move_to_end(conversation)
            return journal
        if journal is None and (journal := self._alive.pop(conversation, None)) is not None and not journal.broken:
            self._open[conversation] = journal
            self.weigh(conversation)
            return journal
        if (opening := self._opening.get(conversation)) is not None:
            return await opening
        future = self._opening[conversation] = asyncio.get_running_loop().create_future()
        try:
            fresh = await Journal.open(conversation, self._services.store, self._services.clock)
            if journal is not None:
                fresh.take_watchers(journal)
            self._open[conversation] = fresh
            future.set_result(fresh)
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: perhaps nothing else waits for this future
            raise
        finally:
            del self._opening[conversation]
        self.weigh(conversation)
        return fresh

    async def current(self, conversation: str) -> Journal:
        """Return the journal of a conversation with everything that other processes have appended to it."""
        journal = await self.open(conversation)
        if self._is_running(conversation):
            return journal  # this process has the claim, so no other one appends
        if await journal.read_on(await self._services.store.last_seq(conversation)):
            return journal
        journal.broken = True
        return await self.open(conversation)

    async def change(self, conversation: str, change: Change[T]) -> T:
        """Append to a conversation outside of its turns: call `change` with its journal and return its result.

        If another process works on the conversation, `change` is called again when that one has finished.
        """
        try:
            return await self._changed(conversation, change)
        except StoreConflict:
            if self._is_running(conversation):
                raise  # this process had the claim and has lost it
        id, done = self._services.new_id("w"), asyncio.get_running_loop().create_future()
        self._changes[id] = change, done
        await self._services.runtime.submit(Job(id, "write", conversation))
        return await done

    async def _changed(self, conversation: str, change: Change[T]) -> T:
        result = await change(await self.current(conversation))
        self.weigh(conversation)
        return result

    def is_change(self, job: str) -> bool:
        return job in self._changes

    async def run_change(self, job: Job) -> None:
        change, done = self._changes.get(job.id, (None, None))
        if change is None or done is None:
            return  # the process that asked for the change has ended
        try:
            result = None if done.done() else await self._changed(job.key, change)
            if not done.done():  # else the task that wanted it was cancelled
                done.set_result(result)
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        finally:
            del self._changes[job.id]

    @property
    def waiting(self) -> list[asyncio.Future[Any]]:
        return [done for _, done in self._changes.values()]

    def close(self, conversation: str) -> None:
        """Close a journal that is neither watched nor in use. A turn that waits for a person, perhaps for days, need
        not stay in memory: it is in the store."""
        if conversation in self._open:
            self._close(conversation)

    def weigh(self, conversation: str) -> None:
        """Note how large a conversation has become, and close others if all of them are too large or too many."""
        if (journal := self._open.get(conversation)) is not None:
            size = journal.transcript.size
            self._size += size - self._sizes.get(conversation, 0)
            self._sizes[conversation] = size
        self._close_idle(conversation)

    def _close_idle(self, newest: str) -> None:
        looked_at = 0
        while self._size > SIZE_MAX or (len(self._open) > JOURNALS_MAX and looked_at < 4):
            oldest = next(iter(self._open))
            if oldest == newest or not self._close(oldest):
                self._open.move_to_end(oldest)
            looked_at += 1
            if looked_at >= len(self._open):
                return  # all others are in use

    def _close(self, conversation: str) -> bool:
        journal = self._open[conversation]
        if journal.is_watched or self._is_running(conversation):
            return False
        self._alive[conversation] = self._open.pop(conversation)
        self._size -= self._sizes.pop(conversation, 0)
        return True

    def _is_running(self, conversation: str) -> bool:
        return self._services.turns.running(conversation) is not None
