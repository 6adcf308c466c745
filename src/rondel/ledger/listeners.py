"""Calls the functions that listen to a ledger's events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from ..callbacks import check_returned, is_async
from ..errors import RondelError, nearest

log = logging.getLogger("rondel.ledger")

EventName: TypeAlias = Literal["usage.recorded", "usage.limitReached"]
Listener: TypeAlias = Callable[[Any], object]


class Listeners:
    def __init__(self) -> None:
        self._listeners: dict[str, list[tuple[Listener, bool]]] = {name: [] for name in get_args(EventName)}

    def __bool__(self) -> bool:
        return any(self._listeners.values())

    def add(self, event: EventName, listener: Listener, *, once: bool) -> None:
        if is_async(listener):
            raise RondelError(
                f"a listener to {event} cannot be async, because nothing waits for it; give a plain function, which "
                "may put what it is told into a queue"
            )
        self._of(event).append((listener, once))

    def remove(self, event: EventName, listener: Listener) -> None:
        listeners = self._of(event)
        listeners[:] = [one for one in listeners if one[0] is not listener and one[0] != listener]

    def emit(self, event: EventName, value: object) -> None:
        listeners = self._of(event)
        for one in list(listeners):
            if one[1] and one in listeners:
                listeners.remove(one)
            try:
                check_returned("a listener", one[0](value))
            except Exception:
                log.exception("a listener to %s failed", event)

    def _of(self, event: str) -> list[tuple[Listener, bool]]:
        if event not in self._listeners:
            raise RondelError(f"the ledger has no event {event!r}{nearest(event, list(self._listeners))}")
        return self._listeners[event]
