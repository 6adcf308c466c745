"""The contract of an image engine, which makes pictures from a prompt, or edits pictures that come with it. Knows no
model."""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from ..errors import PromptRejected
from ..files.media import IMAGE_KINDS, image_type
from ..values import Media, Usage, Value

PROMPT_CHARS_MAX = 32_000
COUNT_MAX = 10
SOURCES_MAX = 16
IMAGE_BYTES_MAX = 20_000_000
_SIZE = re.compile(r"auto|[1-9]\d{1,3}x[1-9]\d{1,3}")
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


class ImageRequest(Value, frozen=True):
    """What to draw. With `sources`, these pictures are edited; the transparent part of `mask` says where.

    `size` is `1024x1024` or `auto`, and the model's own default if it is empty. `options` are more fields of the
    model's API, such as `quality`. Raises PromptRejected for a request that no engine can answer.
    """

    prompt: str
    count: int = 1
    size: str = ""
    sources: tuple[Media, ...] = ()
    mask: Media | None = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise PromptRejected(problem, code="bad_image_request")

    def _problem(self) -> str:
        if not self.prompt.strip():
            return "the prompt is empty; describe the picture"
        if len(self.prompt) > PROMPT_CHARS_MAX:
            return f"the prompt has {len(self.prompt):,} characters; at most {PROMPT_CHARS_MAX:,} are allowed"
        if not 1 <= self.count <= COUNT_MAX:
            return f"{self.count} pictures cannot be made at once; ask for 1 to {COUNT_MAX}"
        if self.size and not _SIZE.fullmatch(self.size):
            return f"{self.size[:40]!r} is not a size; write it as 1024x1024, or auto"
        if len(self.sources) > SOURCES_MAX:
            return f"{len(self.sources)} pictures are too many to edit; send at most {SOURCES_MAX}"
        if self.mask is not None and not self.sources:
            return "there is a mask, but no picture to edit"
        for source in (*self.sources, *((self.mask,) if self.mask is not None else ())):
            if not image_type(source.data):
                return f"the file {source.name[:100] or 'to edit'!r} is not a picture ({IMAGE_KINDS})"
            if len(source.data) > IMAGE_BYTES_MAX:
                return f"the picture {source.name[:100]!r} is larger than {IMAGE_BYTES_MAX // 1_000_000} MB"
        return ""


class GeneratedImages(Value, frozen=True):
    """The pictures, as data, and what they cost. `model` is the upstream's own name for its model; it may be empty.
    `image_tokens_in` is how many tokens of the input are pictures: they may have another price."""

    images: tuple[Media, ...]
    usage: Usage = Usage()
    model: str = ""
    image_tokens_in: int = 0


@runtime_checkable
class ImageEngine(Protocol):
    """Makes and edits pictures. It may also be a `Closes` (engine.py)."""

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        """Return one picture or more, or raise an EngineError."""
        ...


def image_name(prompt: str, mime: str, number: int = 0) -> str:
    """Return a short name for a picture's file. It has no character that is special in any file system."""
    words = re.sub(r"[^a-z0-9]+", "-", prompt[:200].lower())[:40].strip("-") or "image"
    return f"{words}{f'-{number}' if number else ''}.{_SUFFIXES.get(mime, 'png')}"
