"""Calls an engine again after a temporary error; never after the first token, which cannot be taken back."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, Notice, ReplyStarted

RETRY_AFTER_MAX_S = 60.0  # if a server asks for a longer wait, there is no further attempt
DAY_S = 86_400.0


class Retry(Wrapper):
    """Calls an engine up to `attempts` times, with a notice before each wait. It waits as long as the server asks.
    Otherwise it waits a random time below `base_s`, then below twice that, four times that, and never above `cap_s`, so
    that calls that failed together are not repeated together."""

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
            raise ValueError(f"`attempts` is {attempts!r}; it must be at least 1")
        super().__init__(engine)
        self._attempts, self._base_s, self._cap_s = attempts, base_s, cap_s
        self._sleep, self._random = sleep, random

    def __repr__(self) -> str:
        return f"Retry({self._engine!r}, attempts={self._attempts})"

    @property
    def dialect(self) -> str:
        return dialect_of(self._engine)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        for attempt in range(1, self._attempts + 1):
            started: ReplyStarted | None = None
            shown = False
            deltas = self._engine.stream(prompt)
            try:
                async for delta in deltas:
                    # ReplyStarted is held back until there is content, so that no watcher sees a reply start twice.
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
                await close(deltas)
            wait_s = self._wait_s(failure, attempt)
            text = f"{failure} (attempt {attempt} of {self._attempts}; the next in {wait_s:.1f} s)"
            yield Notice(text, lost=failure.attempts_of(self.name))
            await self._sleep(wait_s)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        """Relay a request, with further attempts until an answer begins. An answer that breaks off later is not
        repeated."""
        engine, attempt, lost = cast(Relays, self._engine), 1, tuple[str, ...]()
        while True:
            try:
                relayed = await engine.relay(fields, headers, path=path)
                relayed.lost = lost + relayed.lost
                return relayed
            except EngineError as error:
                error.lost = lost + error.lost
                if not self._may_pass(error, attempt):
                    raise
                failure, lost = error, error.attempts_of(self.name)
            await self._sleep(self._wait_s(failure, attempt))
            attempt += 1

    async def post(self, path: str, body: bytes, content_type: str, *, bytes_max: int) -> bytes:
        """Send a body to another path of an engine's server. A request that may have reached the model is not sent
        again: these requests, such as for pictures, take long and cost much."""
        attempt = 1
        while True:
            try:
                return await cast(Any, self._engine).post(path, body, content_type, bytes_max=bytes_max)
            except EngineError as error:
                if error.may_have_spent or not self._may_pass(error, attempt):
                    raise
                failure = error
            await self._sleep(self._wait_s(failure, attempt))
            attempt += 1

    def _may_pass(self, error: EngineError, attempt: int) -> bool:
        """Return whether to try again. If not, the error says how many attempts there were, or how long to wait."""
        if not error.retryable:
            return False
        if error.retry_after_s is not None and error.retry_after_s > RETRY_AFTER_MAX_S:
            said = str(error).removesuffix("; try again later")
            error.args = (f"{said}. Try again in {_pause(error.retry_after_s)}.",)
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


def _pause(seconds: float) -> str:
    """Format a pause of more than a minute, rounded up to minutes, or to hours from a day on: `1 h 27 min`."""
    unit_min = 60 if seconds > DAY_S else 1
    hours, minutes = divmod(math.ceil(seconds / 60 / unit_min) * unit_min, 60)
    days, hours = divmod(hours, 24)
    return " ".join(f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if number)
