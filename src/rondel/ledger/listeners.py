"""Calls the functions that listen to a ledger's events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeAlias, cast, get_args

from ..calling.callbacks import is_awaitable
from ..errors import RondelError, nearest

log = logging.getLogger("rondel.ledger")

EventName: TypeAlias = Literal["usage.recorded", "usage.limitReached"]
Listener: TypeAlias = Callable[[Any], object]
WAITING_MAX = 10_000  # events that wait for async listeners


class Listeners:
    def __init__(self) -> None:
        self._listeners: dict[str, list[tuple[Listener, bool]]] = {name: [] for name in get_args(EventName)}
        self.count = 0
        self._waiting: deque[tuple[str, Coroutine[Any, Any, object]]] = deque()
        self._runner: asyncio.Task[None] | None = None

    def add(self, event: EventName, listener: Listener, *, once: bool) -> None:
        self._of(event).append((listener, once))
        self.count += 1

    def remove(self, event: EventName, listener: Listener) -> None:
        listeners = self._of(event)
        for one in [one for one in listeners if one[0] is listener or one[0] == listener]:
            listeners.remove(one)
            self.count -= 1

    def emit(self, event: EventName, value: object) -> None:
        listeners = self._of(event)
        for one in list(listeners):
            if one[1] and one in listeners:
                listeners.remove(one)
                self.count -= 1
            try:
                if is_awaitable(returned := one[0](value)):
                    self._wait_for(event, cast("Coroutine[Any, Any, object]", returned))
            except Exception:
                log.exception("a listener to %s failed", event)

    def _wait_for(self, event: str, returned: Coroutine[Any, Any, object]) -> None:
        """Run what async listeners returned, one after the other. `aclose` waits for the last one."""
        if len(self._waiting) >= WAITING_MAX:
            returned.close()
            raise RondelError(f"{WAITING_MAX} events wait for an async listener; this one is dropped")
        self._waiting.append((event, returned))
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run(), name="rondel-ledger-listeners")

    async def _run(self) -> None:
        try:
            while self._waiting:
                event, returned = self._waiting.popleft()
                try:
                    await returned
                except Exception:
                    log.exception("a listener to %s failed", event)
        finally:
            self._runner = None

    async def aclose(self) -> None:
        """Wait for the async listeners."""
        if self._runner is not None:
            await asyncio.wait((self._runner,))

    def _of(self, event: str) -> list[tuple[Listener, bool]]:
        if event not in self._listeners:
            raise RondelError(f"the ledger has no event {event!r}{nearest(event, list(self._listeners))}")
        return self._listeners[event]
