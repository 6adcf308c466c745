"""Numbers the images of a conversation and caches them.

An image is identified by its content and keeps its number, even if older images are no longer sent; in a gateway
session also after a restart.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from ...contracts.store import KeyValueStore
from ...values import Media

K = TypeVar("K")

NAMESPACE = "image_agent.numbers"
NUMBERS_MAX = 1_000
ALBUMS_MAX = 1_000
KEPT_S = 30 * 24 * 3600.0


def digest_of(image: Media) -> str:
    said = image.data or (f"id:{image.file_id}" if image.file_id else f"url:{image.url}").encode()
    return hashlib.sha256(said).hexdigest()[:32]


class Album:
    """The numbers of one conversation's images, by their content."""

    def __init__(self, conversation: str, numbers: dict[str, int] | None = None, *, kept: bool = False) -> None:
        self.conversation, self.numbers, self.kept = conversation, numbers or {}, kept
        self.changed = False

    def number(self, digest: str) -> int:
        known = self.numbers.get(digest)
        if known is None:
            known = self.numbers[digest] = max(self.numbers.values(), default=0) + 1
            self.changed = True
            if len(self.numbers) > NUMBERS_MAX:
                del self.numbers[next(iter(self.numbers))]
        return known


class Albums:
    """A cache of albums. Those that are `kept` are also in the store."""

    def __init__(self) -> None:
        self.store: KeyValueStore | None = None
        self._known: OrderedDict[str, Album] = OrderedDict()

    async def open(self, conversation: str, *, kept: bool) -> Album:
        if conversation not in self._known:
            numbers = await self._read(conversation) if kept else {}
            self._known.setdefault(conversation, Album(conversation, numbers, kept=kept))
            if len(self._known) > ALBUMS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(conversation)
        return self._known[conversation]

    async def _read(self, conversation: str) -> dict[str, int]:
        data = await self.store.get(NAMESPACE, conversation) if self.store is not None else None
        return {} if data is None else msgspec.json.decode(data, type=dict[str, int])

    async def save(self, album: Album, now: float) -> None:
        if album.changed and album.kept and self.store is not None:
            album.changed = False
            await self.store.put(NAMESPACE, album.conversation, msgspec.json.encode(album.numbers), until=now + KEPT_S)


class Pool(Generic[K]):
    """An LRU cache of images, limited in number, size and age."""

    def __init__(self, *, entries_max: int, bytes_max: int | None = None, seconds_max: float | None = None) -> None:
        self._entries_max, self._bytes_max, self._seconds_max = entries_max, bytes_max, seconds_max
        self._images: OrderedDict[K, tuple[Media, float]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._images)

    def put(self, key: K, image: Media, now: float) -> None:
        self._drop(key)
        self._images[key] = image, now
        self._bytes += len(image.data)
        while len(self._images) > self._entries_max or (self._bytes_max or self._bytes) < self._bytes:
            self._drop(next(iter(self._images)))
        while self._images and self._is_old(next(iter(self._images.values()))[1], now):
            self._drop(next(iter(self._images)))

    def get(self, key: K, now: float) -> Media | None:
        if key not in self._images:
            return None
        image, since = self._images[key]
        if self._is_old(since, now):
            self._drop(key)
            return None
        self._images.move_to_end(key)
        return image

    def _is_old(self, since: float, now: float) -> bool:
        return self._seconds_max is not None and now - since > self._seconds_max

    def _drop(self, key: K) -> None:
        if (dropped := self._images.pop(key, None)) is not None:
            self._bytes -= len(dropped[0].data)
