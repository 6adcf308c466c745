"""The tasks of a bot that runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

log = logging.getLogger("rondel.discord")

P = ParamSpec("P")


class Tasks:
    """Tasks of one group. None of them ends the others, and none begins once they are stopped."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._has_stopped = False
        self.running: set[asyncio.Task[None]] = set()

    def spawn(
        self, name: str, work: Callable[P, Coroutine[Any, Any, None]], *given: P.args, **named: P.kwargs
    ) -> asyncio.Task[None] | None:
        if self._has_stopped:
            return None
        task = self._group.create_task(_logged(name, work, *given, **named), name=name)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    def stop(self) -> None:
        self._has_stopped = True
        for task in self.running:
            task.cancel()


async def _logged(name: str, work: Callable[P, Coroutine[Any, Any, None]], *given: P.args, **named: P.kwargs) -> None:
    try:
        await work(*given, **named)
    except Exception:  # of any kind: an error that left the task would end the whole group
        log.exception("%s cannot be finished", name)
