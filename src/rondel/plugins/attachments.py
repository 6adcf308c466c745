"""Lets models read attachments: the text of files goes into the message under a heading, images stay images.

Only files below an allowed folder are read: a message may come from anyone, so naming a path must not be enough.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import ConfigError, RondelError
from ..files.regular import read_regular
from ..machine.prefix_cache import PrefixCache
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Prompt
from ..values import Media, Message, Part, Text

READ_MAX = 1_000  # how many files are cached: an attachment must not change while its message is still sent
BYTES_MAX = 20_000_000

_TEXT_MIMES = frozenset(
    f"application/{kind}"
    for kind in ("json", "jsonl", "x-ndjson", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-sh", "csv")
)
_TEXT_SUFFIXES = (
    *(".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".html", ".css", ".yaml", ".yml", ".toml"),
    *(".ini", ".cfg", ".log", ".py", ".js", ".ts", ".tsx", ".jsx", ".java", ".c", ".h", ".cpp", ".rs", ".go", ".rb"),
    *(".php", ".sh", ".sql", ".tex", ".diff", ".patch"),
)

Key: TypeAlias = tuple[str, str, str]  # the conversation, the message and the file


class Attachments(Plugin):
    """Appends each text file of a message to its text under a heading, at most `chars_max` characters. A sentence
    replaces a file that cannot be read. Other files stay as they are, for models that can read them.

    Args:
        heading: the heading above each file's text
        folders: folders that files may be read from; attachments that contain their data need none
        chars_max: how many characters of each file are sent
    """

    name = "attachments"

    def __init__(self, *, heading: str = "Attachment", folders: Sequence[str] = (), chars_max: int = 50_000) -> None:
        if chars_max < 1:
            raise RondelError(f"chars_max is {chars_max!r}; it must be at least 1")
        self._heading, self._chars_max = heading, chars_max
        self._folders = tuple(Path(folder).expanduser().resolve() for folder in folders)
        self._read: dict[Key, bytes | str] = {}
        self._attached = PrefixCache[tuple[int, tuple[int, ...]]]((0, ()), _indexes)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        history = prompt.history
        _, attached = self._attached.of(history, turn.transcript.size)
        if not attached:
            return prompt
        messages = list(history)
        for index in attached:
            messages[index] = await self._written_out(messages[index], turn.conversation)
        return prompt.with_history(messages)

    async def _written_out(self, message: Message, conversation: str) -> Message:
        parts: list[Part] = []
        added: list[str] = []
        for part in message.parts:
            if not isinstance(part, Media):
                parts.append(part)
                continue
            loaded = await self._loaded(part, (conversation, message.id, part.url)) if _is_path(part) else part
            if isinstance(loaded, str):
                added.append(f"(The attachment {_name(part)!r} could not be read: {loaded}.)")
            elif not _is_text(loaded):
                parts.append(loaded)
            else:
                added.append(self._under_heading(loaded))
        return msgspec.structs.replace(message, parts=_with_text(parts, added))

    def _under_heading(self, media: Media) -> str:
        name, text = _name(media), _decoded(media.data)
        if text is None:
            return f"(The attachment {name!r} could not be read: it is not text in UTF-8.)"
        if len(text) > self._chars_max:
            text = (
                f"{text[: self._chars_max]}\n\n"
                f"[... cut: the attachment has {len(text):,} characters, the first {self._chars_max:,} are shown]"
            )
        return f'---\n**{self._heading} "{name}":**\n{text}'

    async def _loaded(self, media: Media, key: Key) -> Media | str:
        if key not in self._read:
            while len(self._read) >= READ_MAX:
                del self._read[next(iter(self._read))]
            self._read[key] = await asyncio.to_thread(self._content, media.url)
        content = self._read[key]
        if isinstance(content, str):
            return content
        return msgspec.structs.replace(media, data=content, url="", name=_name(media))

    def _content(self, url: str) -> bytes | str:
        try:
            path = Path(unquote(urlsplit(url).path)).resolve()
            if not any(path.is_relative_to(folder) for folder in self._folders):
                return "it is not in a folder that may be read"
            if not path.exists():
                return "there is no such file"
            # SQLite may have this file open in this process; opening and closing it would release SQLite's locks.
            if path.name.endswith(("-wal", "-shm")) or path.with_name(f"{path.name}-wal").exists():
                return "it is a database that is in use"
            return read_regular(path, BYTES_MAX)
        except ConfigError as error:
            return f"it {str(error).partition(': ')[2] or error}"
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or "its path is not valid"


def _indexes(known: tuple[int, tuple[int, ...]], messages: tuple[Message, ...]) -> tuple[int, tuple[int, ...]]:
    count, indexes = known
    more = [n for n, message in enumerate(messages, count) if message.role == "user" and _has_attachment(message)]
    return count + len(messages), (*indexes, *more)


def _has_attachment(message: Message) -> bool:
    return any(type(part) is Media and (_is_path(part) or _is_text(part)) for part in message.parts)


def _is_path(media: Media) -> bool:
    return not media.data and media.url.startswith("file:")


def _is_text(media: Media) -> bool:
    """Return whether a file is text by its type, or by its name if it has no type."""
    if media.kind != "file" or not media.data:
        return False
    mime = media.mime.partition(";")[0].strip().lower()
    if mime and mime != "application/octet-stream":
        return mime.startswith("text/") or mime in _TEXT_MIMES or mime.endswith(("+json", "+xml"))
    return media.name.lower().endswith(_TEXT_SUFFIXES)


def _name(media: Media) -> str:
    # On one line, because it is part of a heading.
    name = media.name or Path(unquote(urlsplit(media.url).path)).name or media.kind
    return " ".join(name.split())


def _decoded(data: bytes) -> str | None:
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.strip("\n")


def _with_text(parts: list[Part], added: list[str]) -> tuple[Part, ...]:
    if not added:
        return tuple(parts)
    more = "\n\n".join(added)
    for at in range(len(parts) - 1, -1, -1):
        if isinstance(part := parts[at], Text):
            text = f"{part.text}\n\n{more}" if part.text.strip() else more
            return (*parts[:at], msgspec.structs.replace(part, text=text), *parts[at + 1 :])
    return (*parts, Text(more))
