"""Reads a file that a person attaches to a message: text, an image, audio or a document."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from ..errors import ConfigError
from ..text.attached import decoded, looks_binary
from ..values import Media, MediaKind
from .regular import read_regular

FILE_BYTES_MAX = 32 << 20
_BEGINNINGS = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


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
    return next((mime for begin, mime in _BEGINNINGS if data.startswith(begin)), "")
