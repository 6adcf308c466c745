"""Attachments: which ones are text, how text files look in a prompt, and the error if one cannot be sent. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable

from ..errors import PromptRejected
from ..values import Media, Message

_NEVER_TEXT = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def text_in(media: Media) -> str | None:
    """Return the text of a file whose content is text, whatever its declared type, or None."""
    if media.kind != "file" or not media.data or media.mime.lower().startswith(_NEVER_TEXT):
        return None
    return decoded(media.data)


def decoded(data: bytes) -> str | None:
    """Return bytes as text if they are UTF-8, or UTF-16 with a byte order mark, and contain no binary characters."""
    if data.startswith(b"%PDF-"):
        return None
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text.replace("\r\n", "\n")


def looks_binary(data: bytes) -> bool:
    return _BINARY.search(data.decode("latin-1")) is not None


def code_block(text: str, language: str = "") -> str:
    """Return a text between fences that it cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def fenced(what: str, text: str) -> str:
    """Return a text as a code block, under a line that says what it is."""
    return f"{what}:\n{code_block(text.rstrip(chr(10)))}"


def as_text(media: Media) -> str | None:
    """Return a text file as text for a model that takes no files, or None for any other attachment."""
    text = text_in(media)
    name = " ".join(media.name.split())
    return None if text is None else fenced(f"The file {name!r}" if name else "A file", text)


def check_attachments(newest_first: Iterable[Message], carries: Callable[[Media], bool], engine: str) -> None:
    """Raise PromptRejected if an attachment of the newest messages cannot be sent. Earlier ones were sent before,
    perhaps to another model, and must not end the conversation."""
    for message in newest_first:
        if message.role == "assistant":
            return
        for part in message.parts:
            if type(part) is Media and not carries(part):
                provider, _, model = engine.partition(":")
                what = " ".join((part.name or part.url or part.file_id).split())[:200]
                kind = f"{part.kind} {what!r}" if what else part.kind
                text = f"{engine} cannot take the {kind} ({part.mime or 'of unknown type'})"
                todo = "send it as text, or ask a model that reads it"
                raise PromptRejected(f"{text}; {todo}", provider=provider, model=model, code="unsupported_attachment")
