"""Pictures over HTTP: `POST /v1/images/generations` and `/v1/images/edits` in OpenAI's form.

What a server sends is not trusted: a picture's bytes decide its type, its size is limited, and an address is fetched by
a function that knows which addresses are public.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from ...contracts.images import IMAGE_BYTES_MAX, GeneratedImages, ImageRequest, image_name
from ...engine import close
from ...errors import EngineGarbled, RondelError
from ...files.media import IMAGE_KINDS, image_type
from ...text.multipart import FormPart, write_form
from ...values import Media, Usage

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
ANSWER_BYTES_MAX = 96 << 20  # of a whole answer: Base64 needs a third more than the pictures
ALWAYS_DATA = ("gpt-image-*", "chatgpt-image-*")
"""Models that always answer with data, and refuse the field `response_format`."""

_encode = msgspec.json.Encoder().encode


class Posts(Protocol):
    """An engine that also sends a body to another path of its server: HttpEngine, or Retry around it."""

    @property
    def name(self) -> str: ...

    async def post(self, path: str, body: bytes, content_type: str, *, bytes_max: int) -> bytes: ...


class _Item(msgspec.Struct):
    b64_json: bytes | None = None  # msgspec decodes Base64
    url: str | None = None


class _Details(msgspec.Struct):
    image_tokens: int = 0


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]
    model: str | None = None
    usage: _Usage | None = None


class HttpImageEngine:
    """An image model behind a server with OpenAI's API. `fetch` loads a picture if the server only sends its address,
    or raises a RondelError if it may not."""

    def __init__(self, engine: Posts, fetch: Callable[[str], Awaitable[Media]]) -> None:
        self._engine, self._fetch = engine, fetch

    @property
    def name(self) -> str:
        return self._engine.name

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        fields = self._fields(request)
        if request.sources:
            boundary = f"rondel-{os.urandom(16).hex()}"
            path, body, kind = EDITS, _form(request, fields, boundary), f"multipart/form-data; boundary={boundary}"
        else:
            path, body, kind = GENERATIONS, _encode(fields), "application/json"
        answer = self._read(await self._engine.post(path, body, kind, bytes_max=ANSWER_BYTES_MAX))
        images = [await self._image(item, request.prompt, n) for n, item in enumerate(answer.data[: request.count])]
        used = answer.usage or _Usage()
        details = used.input_tokens_details or _Details()
        usage = Usage(used.input_tokens, used.output_tokens or max(used.total_tokens - used.input_tokens, 0))
        return GeneratedImages(tuple(images), usage, answer.model or "", max(details.image_tokens, 0))

    async def aclose(self) -> None:
        await close(self._engine)

    def _fields(self, request: ImageRequest) -> dict[str, Any]:
        model = self.name.partition(":")[2]
        fields: dict[str, Any] = {"model": model, "prompt": request.prompt, "n": request.count}
        if request.size:
            fields["size"] = request.size
        if not any(fnmatchcase(model.lower().rpartition("/")[2], pattern) for pattern in ALWAYS_DATA):
            fields["response_format"] = "b64_json"
        return {name: value for name, value in (fields | request.options).items() if value is not None}

    def _read(self, data: bytes) -> _Answer:
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._garbled(f"the answer of {self.name!r} is not a list of pictures: {error}") from None
        if not answer.data:
            raise self._garbled(f"{self.name!r} sent no picture; ask again, or change the prompt")
        return answer

    async def _image(self, item: _Item, prompt: str, number: int) -> Media:
        data = item.b64_json or b""
        if not data and item.url:
            try:
                data = (await self._fetch(item.url)).data
            except RondelError as error:
                raise self._garbled(f"{self.name!r} made a picture, but {error}") from None
        if not data:
            raise self._garbled(f"{self.name!r} sent a picture without data")
        if len(data) > IMAGE_BYTES_MAX:
            limit = IMAGE_BYTES_MAX // 1_000_000
            raise self._garbled(f"{self.name!r} sent a picture of {len(data):,} bytes; at most {limit} MB are allowed")
        if not (mime := image_type(data)):
            raise self._garbled(f"{self.name!r} sent something that is not a picture ({IMAGE_KINDS})")
        return Media("image", mime, data, name=image_name(prompt, mime, number))

    def _garbled(self, message: str) -> EngineGarbled:
        provider, _, model = self.name.partition(":")
        error = EngineGarbled(message, code="garbled", provider=provider, model=model)
        error.retryable = False  # the pictures were made, and would be made and charged again
        return error


def _form(request: ImageRequest, fields: dict[str, Any], boundary: str) -> bytes:
    texts = [
        FormPart(name, value.encode() if isinstance(value, str) else _encode(value)) for name, value in fields.items()
    ]
    field = "image" if len(request.sources) == 1 else "image[]"
    return write_form((*texts, *(_file(field, source) for source in request.sources), *_mask(request)), boundary)


def _mask(request: ImageRequest) -> tuple[FormPart, ...]:
    return () if request.mask is None else (_file("mask", request.mask),)


def _file(field: str, media: Media) -> FormPart:
    mime = image_type(media.data)
    return FormPart(field, media.data, image_name(media.name.rpartition(".")[0] or field, mime), mime)
