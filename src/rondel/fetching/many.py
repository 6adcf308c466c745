"""Fetches the images of one request: several at once, each address once, within limits for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..values import Media, Value
from . import Fetcher, FetchError, Found, not_fetched


class Bounds(Value, frozen=True):
    """The limits of one request. The fetcher limits each image."""

    images: int = 50
    size_bytes: int = 50_000_000
    seconds: float = 30.0
    at_once: int = 8


async def fetch_all(urls: Sequence[str], fetcher: Fetcher, bounds: Bounds | None = None) -> Found:
    """Fetch all addresses. If there are too many, only the last are fetched, which are the most recent."""
    return await _Batch(fetcher, bounds or Bounds()).fetch(list(dict.fromkeys(urls)))


class _Batch:
    def __init__(self, fetcher: Fetcher, bounds: Bounds) -> None:
        self._fetcher, self._bounds = fetcher, bounds
        self._room = asyncio.Semaphore(bounds.at_once)
        self._size_bytes = 0
        self._found: dict[str, Media | FetchError] = {}

    async def fetch(self, urls: list[str]) -> Found:
        bounds = self._bounds
        wanted = urls[max(0, len(urls) - bounds.images) :]
        try:
            async with asyncio.timeout(bounds.seconds), asyncio.TaskGroup() as group:
                for url in wanted:
                    group.create_task(self._one(url))
        except TimeoutError:
            late = f"the images of this request took longer than {bounds.seconds:g} seconds"
            self._found |= {url: not_fetched(url, late) for url in wanted if url not in self._found}
        many = f"this request has {len(urls):,} images as addresses, and at most {bounds.images:,} are fetched"
        return {url: self._found.get(url) or not_fetched(url, many) for url in urls}

    async def _one(self, url: str) -> None:
        async with self._room:
            try:
                image = await self._fetcher.image(url) if self._has_room() else None
            except FetchError as error:
                self._found[url] = error
                return
        self._size_bytes += len(image.data) if image is not None else 0
        full = f"the images of this request are larger than {self._bounds.size_bytes:,} bytes"
        self._found[url] = image if image is not None and self._has_room() else not_fetched(url, full)

    def _has_room(self) -> bool:
        return self._size_bytes <= self._bounds.size_bytes
