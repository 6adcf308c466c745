"""Watchers of a log: this store's own look for what other processes write, and live events are written for those of
other processes.

Nothing here runs unless there is a watcher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...contracts.store import Live
from ...events import Entry, Event, Lagged
from . import live
from .log import End, ends, since
from .requests import Call

if TYPE_CHECKING:
    from .store import SqliteStore
    from .writer import SqliteWriter

logger = logging.getLogger("rondel.store")

LOOK_S = 0.05  # How often a watcher looks for what other processes wrote. There is no notification.
PUBLISH_S = 0.05  # how long live events are collected before they are written for watchers in other processes
EVENTS_MAX = 2_048  # live events that are collected; more are dropped, and the watchers get `Lagged`


class SqliteSubscription:
    def __init__(self, all: Subscriptions, conversation: str, on_change: Callable[[], None]) -> None:
        self._all, self._conversation, self.on_change = all, conversation, on_change
        self._position: int | None = None

    async def read(self, after: int) -> list[Entry | Live]:
        if self._position is None:
            self._position = await self._all.ask_for_live(self._conversation)
        found, self._position = await self._all.since(self._conversation, after, self._position)
        return found

    def close(self) -> None:
        self._all.remove(self._conversation, self)


class Subscriptions:
    def __init__(self, store: SqliteStore, writer: SqliteWriter) -> None:
        self._store, self._writer = store, writer
        self._here: dict[str, list[SqliteSubscription]] = {}
        self._looking = self._is_failing = False
        self._version = 0
        self._ends: dict[str, End] = {}  # the last entry and live event of each watched conversation, at the last look
        self.pending: dict[str, list[tuple[int, list[Event]]]] = {}
        self._written_at = 0.0
        self._expiring: asyncio.TimerHandle | None = None

    # --- watchers here ------------------------------------------------------------------------------------------------

    def add(self, conversation: str, on_change: Callable[[], None]) -> SqliteSubscription:
        subscription = SqliteSubscription(self, conversation, on_change)
        self._here.setdefault(conversation, []).append(subscription)
        if not self._looking:
            self._looking = True
            self._look_later()
        return subscription

    def remove(self, conversation: str, subscription: SqliteSubscription) -> None:
        subscriptions = self._here.get(conversation, [])
        if subscription not in subscriptions:
            return
        subscriptions.remove(subscription)
        if not subscriptions:
            del self._here[conversation]
            self._store.post_call(lambda c: live.unsubscribe(c, self._writer.worker_id, conversation))

    async def ask_for_live(self, conversation: str) -> int:
        return await self._store.call(lambda c: live.subscribe(c, self._writer.worker_id, conversation))

    async def since(self, conversation: str, after: int, position: int) -> tuple[list[Entry | Live], int]:
        await self._store.written(conversation)
        worker = await self._store.worker_id()
        return await self._store.reading(lambda c: since(c, conversation, after, position, worker))

    def changed(self, conversation: str) -> None:
        for subscription in tuple(self._here.get(conversation, ())):
            subscription.on_change()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = bool(self._here)
        if self._looking:
            # A conversation with a claim of this process is left out: no other one can write there.
            watched = [id for id in self._here if not self._store.has_claim(id)]
            self._store.read_later(Call(lambda c: ends(c, watched, self._version)), self._looked)

    def _looked(self, request: Call) -> None:
        if request.error is not None:
            if not self._is_failing:
                logger.warning("watchers cannot see what other processes write: %s", request.error)
        else:
            self._version, found = request.result
            before = self._ends
            if found is not None:
                self._ends = found
                for conversation in [id for id, end in found.items() if end != before.get(id)]:
                    self.changed(conversation)
        self._is_failing = request.error is not None
        self._look_later()

    # --- watchers elsewhere -------------------------------------------------------------------------------------------

    def publish(self, conversation: str, seq: int, event: Event) -> None:
        batches = self.pending.setdefault(conversation, [])
        if not batches or batches[-1][0] != seq:
            batches.append((seq, []))
        events = batches[-1][1]
        if len(events) >= EVENTS_MAX:
            events[:] = [Lagged(seq)]
        events.append(event)
        self._store.write_within(PUBLISH_S)

    def flush(self) -> None:
        """Write the collected events before whatever is appended next, because watchers read both in order."""
        pending, self.pending = self.pending, {}
        now = self._store.now()
        for conversation, batches in pending.items():
            for seq, events in batches:
                found = Live(seq, tuple(events))
                self._store.post_call(
                    lambda c, id=conversation, found=found: live.write(c, self._writer.worker_id, id, found, now)
                )
        if pending:
            self._written_at = now
            if self._expiring is None:
                self._expire_later()

    def _expire_later(self) -> None:
        self._expiring = asyncio.get_running_loop().call_later(live.KEEP_S, self._expire)

    def _expire(self) -> None:
        self._expiring = None
        now = self._store.now()
        self._store.post_call(lambda c: live.expire(c, self._writer.worker_id, now))
        if abs(now - self._written_at) < live.KEEP_S:  # some were written since; they stay until the next time
            self._expire_later()

    def close(self) -> None:
        used = self._here or self._expiring is not None
        if self._expiring is not None:
            self._expiring.cancel()
        self._here.clear()
        if used:
            self._store.post_call(lambda c: live.forget(c, self._writer.worker_id))
