"""Fetches images and pages from web addresses: the contract, and replacing addresses in prompts by data.

Addresses come from callers, people and models, so implementations must not trust them: see http.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, cast

import msgspec

from ..errors import RondelError
from ..machine.rewriting import rewrite_runs
from ..prompt import Prompt
from ..text.redaction import shown_url
from ..values import Media, Message, Part, Text, ToolResult


class FetchError(RondelError):
    """Fetching was not allowed, failed, or returned something that is not an image."""


class Fetcher(Protocol):
    async def image(self, url: str) -> Media:
        """Return the image at this address as data, or raise a FetchError of one sentence."""
        ...


Found: TypeAlias = Mapping[str, Media | FetchError]  # each image, or why it was not fetched, by its address


def not_fetched(url: str, why: str, what: str = "image") -> FetchError:
    return FetchError(f"the {what} at {shown_url(url)[:200]!r} was not fetched: {why}")


def needs_fetching(part: object) -> bool:
    return isinstance(part, Media) and part.kind == "image" and bool(part.url) and not part.data and not part.file_id


async def fetched(part: Media, fetcher: Fetcher) -> Media:
    return with_data(part, await fetcher.image(part.url))


def with_data(part: Media, found: Media) -> Media:
    return msgspec.structs.replace(part, data=found.data, mime=found.mime, url="")


def image_urls(prompt: Prompt) -> list[str]:
    urls: dict[str, None] = {}
    for message in prompt.messages:
        for part in message.parts:
            if type(part) is Media and needs_fetching(part):
                urls[part.url] = None
            elif type(part) is ToolResult:
                urls |= {inner.url: None for inner in part.parts if type(inner) is Media and needs_fetching(inner)}
    return list(urls)


def with_images(prompt: Prompt, found: Found) -> Prompt:
    """Return the prompt with the fetched images as data. A sentence replaces an image that could not be fetched, so
    that the rest of the prompt can still be answered."""

    def leaf(part: Part) -> Part:
        if not (isinstance(part, Media) and needs_fetching(part)) or (made := found.get(part.url)) is None:
            return part
        return with_data(part, made) if isinstance(made, Media) else Text(f"(There was an image here: {made}.)")

    return rewrite_runs(prompt, lambda run: tuple(_mapped(message, leaf) for message in run))


def _mapped(message: Message, leaf: Callable[[Part], Part]) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            inner = tuple(cast("Text | Media", leaf(one)) for one in part.parts)
            part = msgspec.structs.replace(part, parts=inner) if inner != part.parts else part
        parts.append(leaf(part))
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else msgspec.structs.replace(message, parts=tuple(parts))
