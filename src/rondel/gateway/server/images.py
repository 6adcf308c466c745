"""`POST /v1/images/generations` and `/v1/images/edits` in OpenAI's form, in front of every image engine."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from ...contracts.images import GeneratedImages, ImageEngine, ImageRequest
from ...errors import PromptRejected
from ...ledger.ledger import Ledger
from ...project.config import canonical_engine
from ...project.images import image_problem
from ...project.settings import Config
from ...text.multipart import FormPart, read_form
from ...values import Media
from ..bridge.services import scope_of
from ..relay.record import Record
from ..relay.request import GatewayRequest
from ..routing.outages import Outages
from .access import Permit
from .named import NamedEngines, noting

PASSED_ON = (
    *("quality", "style", "background", "moderation", "output_format", "output_compression", "input_fidelity"),
    "user",
)
"""Fields that the engine's server gets as they are."""
_NUMBERS = ("n", "output_compression", "partial_images")
_ANY = "default"  # the model of a request that names none


class ImageGenerations:
    """The image engines that callers may use: those that they name, or those of the route, or of `[images]`."""

    def __init__(self, config: Config, ledger: Ledger, outages: Outages, make: Callable[[str], ImageEngine]) -> None:
        self._ledger, gateway, images = ledger, config.gateway, config.images
        self._defaults = images.defaults
        self._own = {canonical_engine(name, config.engines) for name in (images.engine, *images.fallback)}
        self._engines = NamedEngines(
            "image engine",
            config,
            outages,
            make,
            partial(image_problem, engines=config.engines),
            route=(gateway.routes.image_generation or images.engine, "`engine` in [images]"),
            fallbacks=gateway.fallback.image_generation or images.fallback,
        )
        self.close = self._engines.close

    async def answer(self, request: GatewayRequest, record: Record, permit: Permit) -> dict[str, Any]:
        """Return the body of the answer. Raises Refused or an EngineError."""
        asked, as_url = _request(request), _is_url(request)

        def call(name: str, engine: ImageEngine) -> Awaitable[GeneratedImages]:
            wanted = asked
            if name in self._own:  # the settings of [images] are for the engines that are named there
                options = {**self._defaults, **asked.options}
                size = asked.size or str(options.get("size", ""))
                options.pop("size", None)
                wanted = msgspec.structs.replace(asked, size=size, options=options)
            return self._ledger.charge_images(engine, scope_of(request, name), noting(record)).generate(wanted)

        name, made = await self._engines.ask(request, record, permit, call)
        record.model, record.usage = made.model or name, made.usage
        return _body(made, int(request.at), as_url=as_url)


# --- what callers send ------------------------------------------------------------------------------------------------


def images_body(body: bytes, headers: Mapping[str, str], *, edits: bool) -> bytes:
    """Return the body of a request as JSON that names a model: forms become JSON, and `model` is optional here."""
    kind = headers.get("content-type", "")
    fields: Any
    try:
        if kind.lower().startswith("multipart/"):
            fields = _fields_of(read_form(kind, body))
        else:
            fields = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise PromptRejected(f"the body cannot be read: {error}", code="bad_body") from None
    if edits and not fields.get("images"):
        raise PromptRejected("there is no picture to edit; send it as `image`", code="bad_body")
    if not edits and (fields.get("images") or fields.get("mask")):
        raise PromptRejected("to edit a picture, use /v1/images/edits", code="bad_body")
    return msgspec.json.encode({"model": _ANY, **fields})


def _fields_of(parts: list[FormPart]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in parts:
        if part.filename or part.name in ("image", "image[]", "mask"):
            picture = {"data": base64.b64encode(part.data).decode(), "name": part.filename}
            if part.name == "mask":
                fields["mask"] = picture
            else:
                fields.setdefault("images", []).append(picture)
        else:
            text = part.data.decode("utf-8", "replace")
            fields[part.name] = int(text) if part.name in _NUMBERS and text.isdigit() and len(text) < 9 else text
    return fields


def _request(request: GatewayRequest) -> ImageRequest:
    if request.streams or request.field("stream") in ("true", True):
        raise PromptRejected("pictures cannot be streamed; leave out `stream`", code="bad_body")
    prompt, count, size = request.field("prompt"), request.field("n"), request.field("size")
    if not isinstance(prompt, str):
        raise PromptRejected("`prompt` is missing; describe the picture", code="bad_body")
    if count is not None and type(count) is not int:
        raise PromptRejected(f"`n` must be a number, not {str(count)[:40]!r}", code="bad_body")
    options = {name: value for name in PASSED_ON if (value := request.field(name)) is not None}
    given: Any = request.field("images")
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    sources = tuple(_picture(one) for one in listed)
    mask: Any = request.field("mask")
    return ImageRequest(
        prompt,
        1 if count is None else count,
        size if isinstance(size, str) else "",
        sources,
        None if mask is None else _picture(mask),
        options,
    )


def _picture(given: Any) -> Media:
    """Return a picture of a form, or one that a JSON body has as a data URL."""
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    data, url = fields.get("data"), fields.get("image_url")
    if not isinstance(data, str) and isinstance(url, str) and url.startswith("data:"):
        data = url.partition(",")[2]
    if not isinstance(data, str):
        raise PromptRejected("a picture to edit is not data; send a file, or a data: URL", code="bad_body")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise PromptRejected("a picture to edit is not Base64", code="bad_body") from None
    return Media("image", data=decoded, name=str(fields.get("name") or "")[:100])


def _is_url(request: GatewayRequest) -> bool:
    form = request.field("response_format")
    if form not in (None, "b64_json", "url"):
        raise PromptRejected(f"response_format must be b64_json or url, not {str(form)[:40]!r}", code="bad_body")
    return form == "url"


# --- what they get ----------------------------------------------------------------------------------------------------


def _body(made: GeneratedImages, created: int, *, as_url: bool) -> dict[str, Any]:
    data: list[dict[str, str]] = []
    for image in made.images:
        text = base64.b64encode(image.data).decode()
        data.append({"url": f"data:{image.mime};base64,{text}"} if as_url else {"b64_json": text})
    usage = made.usage
    details = {
        "image_tokens": min(made.image_tokens_in, usage.tokens_in),
        "text_tokens": max(usage.tokens_in - made.image_tokens_in, 0),
    }
    told = {
        "input_tokens": usage.tokens_in,
        "input_tokens_details": details,
        "output_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
    }
    output_format = made.images[0].mime.removeprefix("image/")
    return {"created": created, "data": data, "output_format": output_format, "usage": told}
