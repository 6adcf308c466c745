"""Fetches images that a prompt contains as addresses, for models that only take images as data.

If an image cannot be fetched, a gateway's caller gets an error. A conversation of our own continues with a sentence
instead: otherwise an address that no longer works would end it for good.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec

from ..contracts.dialect import Dialect, Passthrough
from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import PromptRejected
from ..prompt import Prompt
from ..values import Delta, Media, Notice
from . import Fetcher, FetchError, Found, image_urls, needs_fetching, with_data, with_images
from .many import Bounds, fetch_all

_BY_ADDRESS = re.compile(rb'"(?:image_)?url"\s*:\s*"(?!data:)')
"""In the body of every image by address, in all dialects. In texts the quotes are escaped, so they never match."""


class FetchImages(Wrapper):
    """Wraps an engine so that it gets no image by its address. `dialect` is the engine's."""

    def __init__(self, engine: Engine, dialect: Dialect, fetcher: Fetcher, bounds: Bounds | None = None) -> None:
        self._engine, self._dialect, self._fetcher, self._bounds = engine, dialect, fetcher, bounds

    def __repr__(self) -> str:
        return f"FetchImages({self._engine!r})"

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
