"""Asks an engine again when it failed in a way that may pass: overloaded, unreachable, too slow, garbled.

Never after the first token: what somebody has seen is not taken back. Knows no network; time and chance are passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from ..engine import Engine, Relayed, RelayEngine, Wrapper
from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, Notice, ReplyStarted

RETRY_AFTER_MAX_S = 60.0
"""A server that asks for more patience than this is given up at once."""


class Retry(Wrapper):
    """An engine that is asked up to `attempts` times. Before each wait it says why, as a notice.

    It waits as long as the server asks for. Otherwise it waits a random time below `base_s`, then below twice that,
    four times that, and never above `cap_s`: many that failed together do not come back together.
    """

    def __init__(
        self,
        engine: Engine,
        attempts: int = 3,
        base_s: float = 1.0,
        cap_s: float = 30.0,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts is {attempts!r}; an engine is asked at least once")
        self._engine, self._attempts, self._base_s, self._cap_s = engine, attempts, base_s, cap_s
        self._sleep, self._random = sleep, random

    def __repr__(self) -> str:
        return f"Retry({self._engine!r}, attempts={self._attempts})"

    @property
    def dialect(self) -> str:
        return getattr(self._engine, "dialect", "")

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        for attempt in range(1, self._attempts + 1):
            started: ReplyStarted | None = None
            shown = False
            deltas: Any = self._engine.stream(prompt)
            try:
                async for delta in deltas:
                    # A reply that has only started is held back, so that no watcher sees one start twice.
                    if not shown and isinstance(delta, ReplyStarted):
                        started = delta
                        continue
                    if not shown and not isinstance(delta, Notice):
                        shown = True
                        if started is not None:
                            yield started
                    yield delta
                return
            except EngineError as error:
                if shown or not self._may_pass(error, attempt):
                    raise
                failure = error
            finally:
                if hasattr(deltas, "aclose"):
                    await deltas.aclose()
            wait_s = self._wait_s(failure, attempt)
            yield Notice(f"{failure} (attempt {attempt} of {self._attempts}; the next in {wait_s:.1f} s)")
            await self._sleep(wait_s)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        """An answer that is there has shown its first token: what breaks after that is not asked again."""
        engine, attempt = cast(RelayEngine, self._engine), 1
        while True:
            try:
                return await engine.relay(fields, headers, path=path)
            except EngineError as error:
                if not self._may_pass(error, attempt):
                    raise
                failure = error
            await self._sleep(self._wait_s(failure, attempt))
            attempt += 1

    def _may_pass(self, error: EngineError, attempt: int) -> bool:
        """Whether to ask again; an error that ends the attempts says how many there were, or how long to wait."""
        if not error.retryable:
            return False
        if error.retry_after_s is not None and error.retry_after_s > RETRY_AFTER_MAX_S:
            error.args = (f"{error}; it asks for a pause of {error.retry_after_s:.0f} s, so try again after that",)
            return False
        if attempt == self._attempts:
            if attempt > 1:
                error.add_note(f"{self.name} was asked {attempt} times")
            return False
        return True

    def _wait_s(self, error: EngineError, attempt: int) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s
        return self._random() * min(self._cap_s, self._base_s * 2 ** (attempt - 1))
