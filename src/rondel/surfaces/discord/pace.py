"""How often an answer is edited, learned from Discord's rate-limit headers; and each channel's typing indicator."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import discord
from discord.http import HTTPClient, Route

from ...contracts.clock import Clock
from .tasks import Tasks

TYPING_S = 7.0  # Discord shows it for ten
AT_ONCE_S = 0.05  # an answer that is there by then needs no indicator: nobody would see it
TYPING_REQUESTS_MAX = 4  # at once: in a rush, requests with answers go first
EDIT_S_MAX = 10.0


class Pace:
    """The time between two edits in a channel, by the rate limit that discord.py has read from the last headers."""

    def __init__(self, edit_s: float, http: HTTPClient) -> None:
        self._edit_s, self._http = edit_s, http

    def wait_s(self, channel: int) -> float:
        route = Route("PATCH", "/channels/{channel_id}/messages/{message_id}", channel_id=channel, message_id=0)
        bucket: str = self._http._bucket_hashes.get(route.key, route.key)  # pyright: ignore[reportPrivateUsage]
        limit = self._http.get_ratelimit(f"{bucket}:{route.major_parameters}")
        return edit_wait_s(self._edit_s, limit.remaining, limit.reset_after)


def edit_wait_s(edit_s: float, remaining: int, reset_after_s: float) -> float:
    """Spread the edits that are left over the time until the rate limit is reset."""
    return max(edit_s, min(reset_after_s / max(remaining, 1), EDIT_S_MAX))


class Typing:
    """Shows 'is typing' in a channel while anything is going to be said there."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock, self._all = clock, tasks
        self._counts: dict[int, int] = {}
        self._soon: dict[int, asyncio.TimerHandle] = {}  # most answers are there before this timer ends
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._resting: set[int] = set()  # the channels whose task waits, and may be cancelled
        self._room = asyncio.Semaphore(TYPING_REQUESTS_MAX)

    def start(self, channel: discord.abc.Messageable, id: int) -> None:
        self._counts[id] = self._counts.get(id, 0) + 1
        if self._counts[id] == 1 and id not in self._tasks:
            self._soon[id] = asyncio.get_running_loop().call_later(AT_ONCE_S, self._begin, channel, id)

    def stop(self, id: int) -> None:
        self._counts[id] -= 1
        if not self._counts[id]:
            del self._counts[id]
            if (timer := self._soon.pop(id, None)) is not None:
                timer.cancel()
            if id in self._resting:  # a request that is under way ends by itself: cancelling it costs a connection
                self._tasks[id].cancel()

    def _begin(self, channel: discord.abc.Messageable, id: int) -> None:
        self._soon.pop(id, None)
        if (task := self._all.spawn(f"typing in channel {id}", self._type, channel, id)) is not None:
            self._tasks[id] = task

    async def _type(self, channel: Any, id: int) -> None:
        try:
            while id in self._counts:
                with contextlib.suppress(Exception):  # of any kind: an answer does not depend on it
                    async with self._room:
                        if id in self._counts:  # else the answer was there first
                            await channel.typing()  # awaited, it shows the indicator once
                if id in self._counts:
                    self._resting.add(id)
                    await self._clock.sleep_until(self._clock.now() + TYPING_S)
                    self._resting.discard(id)
        finally:
            self._resting.discard(id)
            del self._tasks[id]
            if id in self._counts:  # somebody came while this task was being cancelled
                self._begin(channel, id)
