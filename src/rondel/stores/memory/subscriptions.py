"""Watchers of a log in memory: they are informed of each append, and get the live events of other workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ...contracts.store import Live
from ...events import Entry, Event, Lagged
from .queue import Worker

LIVE_EVENTS_MAX = 4_096  # live events that wait for one watcher; more are dropped, and it gets `Lagged`


class MemorySubscription:
    def __init__(
        self,
        all: Subscriptions,
        conversation: str,
        read: Callable[[str, int], Awaitable[list[Entry]]],
        worker: Worker,
        on_change: Callable[[], None],
    ) -> None:
        self._all, self._conversation, self._read = all, conversation, read
        self.worker, self.on_change = worker, on_change
        self._live: list[tuple[int, Event]] = []
        all.setdefault(conversation, []).append(self)

    def put(self, seq: int, event: Event) -> None:
        if len(self._live) >= LIVE_EVENTS_MAX:
            self._live, event = [], Lagged(seq)
        self._live.append((seq, event))
        self.on_change()

    async def read(self, after: int) -> list[Entry | Live]:
        live, self._live = self._live, []
        found: list[Entry | Live] = list(await self._read(self._conversation, after))
        found += [Live(seq, (event,)) for seq, event in live if seq >= after]
        # The sort is stable: entry 3 comes before the events after it, and those keep their order.
        return sorted(found, key=lambda one: (one.seq, isinstance(one, Live)))

    def close(self) -> None:
        subscriptions = self._all.get(self._conversation, [])
        if self in subscriptions:
            subscriptions.remove(self)
            if not subscriptions:
                del self._all[self._conversation]


Subscriptions: TypeAlias = dict[str, list[MemorySubscription]]
