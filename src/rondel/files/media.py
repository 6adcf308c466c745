"""Reads a file that a person attaches to a message: text, an image, audio or a document."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from ..errors import ConfigError
from ..text.attached import decoded, looks_binary
from ..values import Media, MediaKind
from .regular import read_regular

FILE_BYTES_MAX = 32 << 20
IMAGE_KINDS = "PNG, JPEG, GIF and WebP"  # the kinds that models can see


def read_media(name: str) -> Media:
    path = Path(name).expanduser()
    try:
        data = read_regular(path, FILE_BYTES_MAX)
    except ConfigError as error:
        raise ConfigError(f"the file {name!r} {str(error).removeprefix(f'{path}: ')}") from None
    return media_of(data, path.name, f"the file {name!r}")


def media_of(data: bytes, name: str, what: str) -> Media:
    """Return bytes as media. Text is recognised by its content, other types by their first bytes or their name."""
    if not data:
        raise ConfigError(f"{what} is empty; there is nothing to send")
    guessed = mimetypes.guess_type(name)[0] or ""
    if decoded(data) is not None:
        return Media("file", guessed if guessed.startswith("text/") else "text/plain", data, name=name)
    mime = type_by_content(data) or guessed
    if mime.startswith("text/") and not looks_binary(data):
        raise ConfigError(f"{what} is not UTF-8; convert it first, for example with `iconv -f latin1 -t utf-8`")
    if not mime:
        way = "save it under" if what == "stdin" else "give it"
        raise ConfigError(f"{what} is neither text nor a known type; {way} a name with the right extension")
    family = mime.partition("/")[0]
    kind: MediaKind = "image" if family == "image" else "audio" if family == "audio" else "file"
    return Media(kind, mime, data, name=name)


def type_by_content(data: bytes) -> str:
    return image_type(data) or ("application/pdf" if data.startswith(b"%PDF-") else "")


def image_type(data: bytes) -> str:
    """Return the media type of an image that models can see, or an empty text. Its bytes decide, because a name or a
    header may lie."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return ""
