"""Fetches the images that stand in a prompt by their address only, for models that take images as data.

A foreign program is told when one cannot be fetched, as its vendor would tell it. A conversation of our own goes on
with a sentence in the image's place: an address that has died since would otherwise end it for good. A request that is
passed on as bytes still is, with nothing but its images changed. Knows no network: fetching/ decides what may be
fetched.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from ..dialect import Dialect
from ..engine import Engine, Relayed, RelayEngine, Wrapper
from ..errors import PromptRejected
from ..fetching import Fetcher, FetchError, Found, image_urls, needs_fetching, with_data, with_images
from ..fetching.many import Bounds, fetch_all
from ..prompt import Prompt
from ..values import Delta, Media, Notice

_BY_ADDRESS = re.compile(rb'"(?:image_)?url"\s*:\s*"(?!data:)')
"""What every image by address has in a body, in all dialects. What people and models say is escaped, and never fits."""


class FetchImages(Wrapper):
    """An engine that is given no image by its address. `dialect` is what it speaks."""

    def __init__(self, engine: Engine, dialect: Dialect, fetcher: Fetcher, bounds: Bounds | None = None) -> None:
        self._engine, self._dialect, self._fetcher, self._bounds = engine, dialect, fetcher, bounds

    def __repr__(self) -> str:
        return f"FetchImages({self._engine!r})"

    @property
    def dialect(self) -> str:
        return getattr(self._engine, "dialect", "")

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        if urls := image_urls(prompt):
            found = await self._fetched(urls, strict=bool(prompt.model))
            for missing in found.values():
                if isinstance(missing, FetchError):
                    yield Notice(str(missing))
            prompt = with_images(prompt, found)
        deltas: Any = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                yield delta
        finally:
            if hasattr(deltas, "aclose"):
                await deltas.aclose()

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        field = self._dialect.messages_field
        said = bytes(fields.get(field, b""))
        if b'url"' in said and _BY_ADDRESS.search(said):  # to look for a text is far cheaper than for a pattern
            fields = {**fields, field: await self._filled(fields[field])}
        return await cast(RelayEngine, self._engine).relay(fields, headers, path=path)

    async def _filled(self, raw: msgspec.Raw) -> msgspec.Raw:
        """The messages of a body with their images as data."""
        try:
            messages = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw  # the caller's mistake: the model's server says so
        urls: list[str] = []

        def note(image: Media) -> Media:
            if needs_fetching(image):
                urls.append(image.url)
            return image

        self._dialect.edit_images(messages, note)
        if not urls:
            return raw
        found = await self._fetched(urls, strict=True)

        def fill(image: Media) -> Media:
            data = found.get(image.url) if needs_fetching(image) else None
            return with_data(image, data) if isinstance(data, Media) else image

        self._dialect.edit_images(messages, fill)
        return msgspec.Raw(msgspec.json.encode(messages))

    async def _fetched(self, urls: list[str], *, strict: bool) -> Found:
        found = await fetch_all(urls, self._fetcher, self._bounds)
        if strict and (why := next((each for each in found.values() if isinstance(each, FetchError)), None)):
            provider, _, model = self.name.partition(":")
            raise PromptRejected(
                f"{why}; {self.name} takes images as data only",
                provider=provider,
                model=model,
                code="invalid_image_url",
            )
        return found
