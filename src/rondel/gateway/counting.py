"""How many tokens a request has: estimated, and corrected by what providers counted before.

Thinking, images, documents, tools' schemas and what only one dialect understands are counted, too. Knows no tokenizer
and no network.
"""

from __future__ import annotations

import re
from collections import OrderedDict

import msgspec

from ..prompt import Prompt
from ..tokens import MEDIA_TOKENS, estimate_tokens, part_tokens, tools_tokens
from ..values import Foreign, Media, Part, Thinking, ToolResult
from .request import Request

TOKENIZER = "estimate"
CALIBRATED = "estimate, corrected by observed usage"
ENGINES_MAX = 200
RATIO_MIN, RATIO_MAX = 0.5, 2.5
"""An estimate that is wronger than this is wrong for another reason: a proxy's own prompt, a broken count."""
WEIGHT = 0.2
"""How much the newest observation counts."""
OBSERVED_MIN = 200
"""Of shorter prompts the overhead says more than the text."""

BYTES_PER_TOKEN_MIN = 3
"""No text of a body has more tokens than its bytes divided by this, by our estimate: Chinese has three bytes a
character."""
_MEDIA_WORDS = {
    "anthropic": (b'"image"', b'"document"'),
    "openai-chat": (b'"image_url"', b'"file"', b'"input_audio"'),
    "openai-responses": (b'"input_image"', b'"input_file"', b'"input_audio"'),
}
"""What a body has for each image, document or sound in it. Searching takes longer than all else of most decisions."""

IMAGE_TOKENS_MIN, IMAGE_TOKENS_MAX = 85, 1_600
PIXELS_PER_TOKEN = 750
PAGE_TOKENS = 2_000
PAGE_BYTES = 50_000
_PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")


def estimate(request: Request) -> int:
    """The tokens of a request, by estimate."""
    return prompt_tokens(request.prompt)


def tokens_at_most(request: Request) -> int | None:
    """What the estimate cannot exceed, without reading anything; None when only reading tells."""
    media = request.count(*_MEDIA_WORDS[request.dialect.name])
    if media and request.holds(b"application/pdf"):
        return None
    return request.size_bytes // BYTES_PER_TOKEN_MIN + IMAGE_TOKENS_MAX * media


def prompt_tokens(prompt: Prompt) -> int:
    tokens = sum(_part(part) for message in prompt.messages for part in message.parts) + tools_tokens(prompt.tools)
    for spec in prompt.tools:
        if spec.opaque:
            tokens += _json(spec.opaque)
    if prompt.options.output is not None:
        tokens += _json(prompt.options.output.schema)
    return tokens


class Calibration:
    """What providers count for what we estimate: a running ratio for each engine."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, float] = OrderedDict()

    def observe(self, engine: str, estimated: int, real: int) -> None:
        """An engine counted so many tokens for a prompt that was estimated at so many."""
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

    def correct(self, engine: str, estimated: int) -> int:
        return round(estimated * self.ratio(engine))

    def count(self, request: Request, engine: str) -> tuple[int, str]:
        """The tokens of a request as this engine would count them, and how that was found out."""
        return self.correct(engine, estimate(request)), CALIBRATED if engine in self._ratios else TOKENIZER


# --- parts ------------------------------------------------------------------------------------------------------------


def _part(part: Part) -> int:
    if isinstance(part, Media):
        return _media(part)
    if isinstance(part, ToolResult):
        return sum(_part(inner) for inner in part.parts)
    if isinstance(part, Foreign) or (isinstance(part, Thinking) and not part.text):
        return _json(part.opaque)
    return part_tokens(part)


def _json(value: object) -> int:
    return estimate_tokens(msgspec.json.encode(value).decode())


def _media(media: Media) -> int:
    data = media.data
    if not data:
        return MEDIA_TOKENS
    if media.kind == "image":
        size = image_size(data)
        if size is None:
            return MEDIA_TOKENS
        return min(max(size[0] * size[1] // PIXELS_PER_TOKEN, IMAGE_TOKENS_MIN), IMAGE_TOKENS_MAX)
    if media.mime.startswith("text/"):
        return estimate_tokens(data.decode("utf-8", "replace"))
    if media.mime == "application/pdf":
        return PAGE_TOKENS * (len(_PAGE.findall(data)) or 1 + len(data) // PAGE_BYTES)
    return MEDIA_TOKENS


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, a GIF, a JPEG or a WebP, from its head; None of anything else."""
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
