"""Fetching what an address on the web names: the contract, and prompts whose images are fetched.

Addresses come from callers, people and models, so whoever implements this trusts none of them: see http.py. Nothing is
fetched unless somebody asks. Knows no HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, cast

import msgspec

from ..errors import RondelError
from ..prompt import Prompt
from ..rewriting import rewrite_runs
from ..values import Media, Message, Part, Text, ToolResult


class FetchError(RondelError):
    """Something was not fetched: it may not be, or it could not be, or it is no image."""


class Fetcher(Protocol):
    async def image(self, url: str) -> Media:
        """The image at this address, as data; raises FetchError with one sentence that says why not."""
        ...


Found: TypeAlias = Mapping[str, Media | FetchError]
"""By its address, each image, or why it was not fetched."""


def not_fetched(url: str, why: str, what: str = "image") -> FetchError:
    """Names the address without its query, as addresses that are signed carry their keys there, and without a user."""
    shown = url.partition("?")[0].partition("#")[0]
    scheme, mark, rest = shown.partition("://")
    host, slash, path = rest.partition("/")
    shown = f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"
    return FetchError(f"the {what} at {shown[:200]!r} was not fetched: {why}")


def needs_fetching(part: object) -> bool:
    """Whether this is an image of which only the address is known."""
    return isinstance(part, Media) and part.kind == "image" and bool(part.url) and not part.data and not part.file_id


async def fetched(part: Media, fetcher: Fetcher) -> Media:
    """The same image with its data in the place of its address; what only a dialect knows of it stays."""
    return with_data(part, await fetcher.image(part.url))


def with_data(part: Media, found: Media) -> Media:
    return msgspec.structs.replace(part, data=found.data, mime=found.mime, url="")


# --- prompts ----------------------------------------------------------------------------------------------------------


def image_urls(prompt: Prompt) -> list[str]:
    """The addresses of images that would have to be fetched, each once, in their order."""
    urls: dict[str, None] = {}
    for message in prompt.messages:
        for part in message.parts:
            if type(part) is Media and needs_fetching(part):
                urls[part.url] = None
            elif type(part) is ToolResult:
                urls |= {inner.url: None for inner in part.parts if type(inner) is Media and needs_fetching(inner)}
    return list(urls)


def with_images(prompt: Prompt, found: Found) -> Prompt:
    """The prompt with the images that were found as data. One that was not becomes a sentence that says so: the rest of
    the prompt is still worth an answer."""

    def leaf(part: Part) -> Part:
        if not (isinstance(part, Media) and needs_fetching(part)) or (made := found.get(part.url)) is None:
            return part
        return with_data(part, made) if isinstance(made, Media) else Text(f"(An image stood here: {made}.)")

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
