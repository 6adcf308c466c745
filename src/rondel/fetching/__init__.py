"""Fetching what an address on the web names: the contract, and prompts whose images are fetched.

Addresses come from callers, people and models, so whoever implements this trusts none of them: see http.py. Nothing is
fetched unless somebody asks. Knows no HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, cast

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


def needs_fetching(part: object) -> bool:
    """Whether this is an image of which only the address is known."""
    return isinstance(part, Media) and part.kind == "image" and bool(part.url) and not part.data and not part.file_id


async def fetched(part: Media, fetcher: Fetcher) -> Media:
    """The same image with its data in the place of its address; what only a dialect knows of it stays."""
    return _with_data(part, await fetcher.image(part.url))


async def with_images_fetched(prompt: Prompt, fetcher: Fetcher) -> Prompt:
    """The prompt with every image as data, for models that cannot take addresses. One that cannot be fetched becomes a
    sentence that says so: the rest of the prompt is still worth an answer."""
    found: dict[str, Media | Text] = {}
    for part in _leaves(prompt.messages):
        if isinstance(part, Media) and needs_fetching(part) and part.url not in found:
            try:
                found[part.url] = await fetcher.image(part.url)
            except FetchError as error:
                found[part.url] = Text(f"(An image stood here: {error}.)")
    if not found:
        return prompt

    def leaf(part: Part) -> Part:
        if not (isinstance(part, Media) and needs_fetching(part) and part.url in found):
            return part
        made = found[part.url]
        return made if isinstance(made, Text) else _with_data(part, made)

    return rewrite_runs(prompt, lambda run: tuple(_mapped(message, leaf) for message in run))


def _leaves(messages: Iterable[Message]) -> Iterator[Part]:
    for message in messages:
        for part in message.parts:
            yield from part.parts if isinstance(part, ToolResult) else (part,)


def _mapped(message: Message, leaf: Callable[[Part], Part]) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            inner = tuple(cast("Text | Media", leaf(one)) for one in part.parts)
            part = msgspec.structs.replace(part, parts=inner) if inner != part.parts else part
        parts.append(leaf(part))
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else msgspec.structs.replace(message, parts=tuple(parts))


def _with_data(part: Media, found: Media) -> Media:
    return msgspec.structs.replace(part, data=found.data, mime=found.mime, url="")
