"""Fetches images that a prompt contains as addresses, for models that only take images as data.

If an image cannot be fetched, a gateway's caller gets an error. A conversation of our own continues with a sentence
instead: otherwise an address that no longer works would end it for good. The images of one request are fetched
concurrently, each address once, within limits for all of them together.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

import msgspec

from ..contracts.dialect import Dialect, Passthrough
from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import PromptRejected
from ..prompt import Prompt
from ..values import Delta, Media, Notice, Value
from . import Fetcher, FetchError, Found, image_urls, needs_fetching, not_fetched, with_data, with_images

_BY_ADDRESS = re.compile(rb'"(?:image_)?url"\s*:\s*"(?!data:)')
"""In the body of every image by address, in all dialects. In texts the quotes are escaped, so they never match."""


class FetchImages(Wrapper):
    """Wraps an engine so that it never gets images by address. `dialect` is the engine's."""

    def __init__(self, engine: Engine, dialect: Dialect, fetcher: Fetcher, bounds: Bounds | None = None) -> None:
        super().__init__(engine)
        self._dialect, self._fetcher, self._bounds = dialect, fetcher, bounds

    @property
    def dialect(self) -> str:
        return dialect_of(self._engine)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        if urls := image_urls(prompt):
            found = await self._fetched(urls, strict=bool(prompt.model))
            for missing in found.values():
                if isinstance(missing, FetchError):
                    yield Notice(str(missing))
            prompt = with_images(prompt, found)
        deltas = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await close(deltas)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        field = self._dialect.messages_field
        said = bytes(fields.get(field, b""))
        if b'url"' in said and _BY_ADDRESS.search(said):  # searching for a text is far cheaper than for a pattern
            fields = {**fields, field: await self._filled(fields[field])}
        return await cast(Relays, self._engine).relay(fields, headers, path=path)

    async def _filled(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Return the messages of a body with their images as data."""
        try:
            messages = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw  # the caller's mistake, which the model's server reports
        urls: list[str] = []

        def note(image: Media) -> Media:
            if needs_fetching(image):
                urls.append(image.url)
            return image

        cast(Passthrough, self._dialect).edit_images(messages, note)
        if not urls:
            return raw
        found = await self._fetched(urls, strict=True)

        def fill(image: Media) -> Media:
            data = found.get(image.url) if needs_fetching(image) else None
            return with_data(image, data) if isinstance(data, Media) else image

        cast(Passthrough, self._dialect).edit_images(messages, fill)
        return msgspec.Raw(msgspec.json.encode(messages))

    async def _fetched(self, urls: list[str], *, strict: bool) -> Found:
        found = await fetch_all(urls, self._fetcher, self._bounds)
        if strict and (why := next((each for each in found.values() if isinstance(each, FetchError)), None)):
            provider, _, model = self.name.partition(":")
            text = f"{why}; {self.name} takes images as data only"
            raise PromptRejected(text, provider=provider, model=model, code="invalid_image_url")
        return found


class Bounds(Value, frozen=True):
    """The limits of one request. The fetcher limits each image."""

    images: int = 50
    size_bytes: int = 50_000_000
    seconds: float = 30.0
    at_once: int = 8


async def fetch_all(urls: Sequence[str], fetcher: Fetcher, bounds: Bounds | None = None) -> Found:
    """Fetch all addresses. If there are too many, only the last ones are fetched, which are the most recent."""
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
