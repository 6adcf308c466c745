"""Estimates how many tokens a request has, corrected by what providers counted before.

Thinking, images, documents, tool schemas and fields of a single dialect count, too. Bodies are counted as they come, in
any dialect: parsing them into prompts would take twice as long, and most are relayed without being parsed. Has no
tokenizer.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import OrderedDict
from typing import Any, cast

import msgspec

from ...machine.tokens import MEDIA_TOKENS, estimate_tokens
from ..relay.request import GatewayRequest

TOKENIZER = "estimate"
CALIBRATED = "estimate, corrected by observed usage"
ENGINES_MAX = 200
RATIO_MIN, RATIO_MAX = 0.5, 2.5
"""A ratio outside of this range has another cause, such as a proxy's own prompt or a wrong count."""
WEIGHT = 0.2  # the weight of the newest observation
OBSERVED_MIN = 200  # in shorter prompts the overhead outweighs the text

BYTES_PER_TOKEN_MIN = 3
"""Our estimate never gives a text more tokens than its bytes divided by this: Chinese has three bytes a character."""
_IMAGE_WORDS = {"anthropic": b'"image"', "openai-chat": b'"image_url"', "openai-responses": b'"input_image"'}
_OTHER_WORDS = {
    "anthropic": (b'"document"',),
    "openai-chat": (b'"file"', b'"input_audio"'),
    "openai-responses": (b'"input_file"', b'"input_audio"', b'"computer_screenshot"'),
}
"""A body contains one of these for each image, document or audio clip."""
_ANY_IMAGE = tuple(_IMAGE_WORDS.values())

IMAGE_TOKENS_MIN, IMAGE_TOKENS_MAX = 85, 1_600
PIXELS_PER_TOKEN = 750
DEEP_TOKENS = 1_000
PAGE_TOKENS = 2_000
PAGE_BYTES = 50_000
_PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")
_HEAD_CHARS = 64 * 1024  # how much of an image is decoded to find its size

_COUNTED = ("system", "instructions", "messages", "input", "tools", "functions")
_SCHEMAS = ("output_config", "response_format", "text")
_AS_JSON = frozenset(("input_schema", "parameters", "input", "schema", "arguments"))
"""Fields that a model sees as JSON, with their keys."""
_UNSEEN = frozenset(
    ("type", "role", "id", "call_id", "tool_use_id", "tool_call_id", "status", "signature", "cache_control")
)
"""Fields that a model does not see."""
_MEDIA = frozenset(
    ("image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "computer_screenshot")
)


def estimate(request: GatewayRequest) -> int:
    tokens = sum(_count(request.field(name)) for name in _COUNTED if name in request.fields)
    return tokens + sum(
        _json(request.field(name)) for name in _SCHEMAS if b'"schema"' in bytes(request.fields.get(name, b""))
    )


def tokens_at_most(request: GatewayRequest) -> int | None:
    """Return an upper bound of the estimate without parsing anything; None if the body must be parsed."""
    said, dialect = request.without_tools, request.dialect.name
    media = sum(map(said.count, _OTHER_WORDS[dialect]))
    # Searching is the slowest part of most decisions. The image agent asks the same question, and `holds` caches it.
    if request.holds(*_ANY_IMAGE):
        media += said.count(_IMAGE_WORDS[dialect])
    if media and request.holds(b"application/pdf"):
        return None
    return request.size_bytes // BYTES_PER_TOKEN_MIN + IMAGE_TOKENS_MAX * media


class Calibration:
    """A running ratio of counted to estimated tokens for each engine."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, float] = OrderedDict()

    def observe(self, engine: str, estimated: int, real: int) -> None:
        """Record how many tokens an engine really counted for an estimate."""
        if estimated < OBSERVED_MIN or real <= 0:
            return
        ratio = min(max(real / estimated, RATIO_MIN), RATIO_MAX)
        known = self._ratios.get(engine)
        self._ratios[engine] = ratio if known is None else known + WEIGHT * (ratio - known)
        self._ratios.move_to_end(engine)
        if len(self._ratios) > ENGINES_MAX:
            self._ratios.popitem(last=False)

    def ratio(self, engine: str) -> float:
        return self._ratios.get(engine, 1.0)

    def has_at_most(self, tokens: int, request: GatewayRequest, engine: str) -> bool:
        """Return whether the request is so small that this engine cannot count more than `tokens`."""
        ratio = self._ratios.get(engine, 1.0)
        if request.size_bytes / BYTES_PER_TOKEN_MIN * ratio > tokens:
            return False
        most = tokens_at_most(request)
        return most is not None and most * ratio <= tokens

    def correct(self, engine: str, estimated: int) -> int:
        return round(estimated * self.ratio(engine))

    def count(self, request: GatewayRequest, engine: str) -> tuple[int, str]:
        """Return the tokens of a request as this engine would count them, and the method."""
        return self.correct(engine, estimate(request)), CALIBRATED if engine in self._ratios else TOKENIZER


# --- what is in a body ------------------------------------------------------------------------------------------------


def _count(value: Any) -> int:
    # Not recursive: the sender decides how deep a body is nested.
    tokens, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            tokens += estimate_tokens(item) if not item.startswith("data:") else _data_url(item)
        elif isinstance(item, list):
            pending += cast("list[Any]", item)
        elif isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            if fields.get("type") in _MEDIA:
                tokens += _media(fields, pending)
                continue
            for key, inner in fields.items():
                if key in _AS_JSON and not isinstance(inner, str):
                    tokens += _json(inner)
                elif key not in _UNSEEN:
                    pending.append(inner)
    return tokens


def _json(value: Any) -> int:
    try:
        return estimate_tokens(msgspec.json.encode(value).decode())
    except RecursionError:  # nested just as deep as the decoder allows
        return DEEP_TOKENS


def _media(block: dict[str, Any], pending: list[Any]) -> int:
    """Count an image, a document or audio. Texts in it are added to `pending`."""
    source: Any = block.get("source") or block.get("image_url") or block.get("file") or block
    fields = cast("dict[str, Any]", source) if isinstance(source, dict) else {"url": source}
    if fields.get("type") in ("text", "content"):
        pending += [fields.get("data"), fields.get("content"), block.get("title"), block.get("context")]
        return 0
    data = fields.get("data") or fields.get("file_data") or fields.get("url")
    if not isinstance(data, str):
        return MEDIA_TOKENS
    if data.startswith("data:"):
        kind, _, data = data.removeprefix("data:").partition(",")
        return _encoded(kind.partition(";")[0], data)
    return _encoded(str(fields.get("media_type", "")), data)


def _data_url(text: str) -> int:
    # A data URL in a field that we do not know.
    kind, _, data = text.removeprefix("data:").partition(",")
    if ";base64" not in kind:
        return estimate_tokens(text)
    return min(_encoded(kind.partition(";")[0], data), len(text) // BYTES_PER_TOKEN_MIN)


def _encoded(mime: str, data: str) -> int:
    if mime.startswith("image/"):
        size = image_size(_decoded(data[:_HEAD_CHARS]))
        if size is None:
            return MEDIA_TOKENS
        return min(max(size[0] * size[1] // PIXELS_PER_TOKEN, IMAGE_TOKENS_MIN), IMAGE_TOKENS_MAX)
    if mime.startswith("text/"):
        return estimate_tokens(_decoded(data).decode("utf-8", "replace"))
    if mime == "application/pdf":
        found = _decoded(data)
        return PAGE_TOKENS * (len(_PAGE.findall(found)) or 1 + len(found) // PAGE_BYTES)
    return MEDIA_TOKENS


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data[: len(data) // 4 * 4])
    except ValueError:
        return b""


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, GIF, JPEG or WebP from its first bytes; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None
