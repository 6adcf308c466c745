"""A conversation as a document: Markdown to read, or JSON for programs. What was undone is left out."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ..contracts.command import Document
from ..contracts.store import ConversationInfo, Log
from ..errors import RondelError, nearest
from ..files.media import image_type
from ..machine.transcript import Transcript
from ..text.attached import code_block
from ..values import Media, Message, ToolCall, ToolResult

Format: TypeAlias = Literal["markdown", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
_BRACKETS = str.maketrans("[]\\\r\n", "()/  ")
_SUFFIXES = {"markdown": "md", "json": "json"}


async def export(store: Log, conversation: str, format: str = "markdown") -> Document:
    """Return a conversation as a document."""
    if format not in FORMATS:
        raise RondelError(f"{format!r} is not a format{nearest(format, FORMATS)}")
    info = await store.info(conversation)
    if info is None:
        raise RondelError("nothing has been said here yet, so there is nothing to export")
    transcript = Transcript(entry.event for entry in await store.read(conversation))
    write = _markdown if format == "markdown" else _json
    return Document(f"rondel-{conversation[-10:]}.{_SUFFIXES[format]}", write(info, transcript))


def _json(info: ConversationInfo, transcript: Transcript) -> str:
    value: dict[str, Any] = {
        "id": info.id,
        "title": info.title,
        "agent": transcript.starting_agent,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "messages": transcript.messages,
    }
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n"


def _markdown(info: ConversationInfo, transcript: Transcript) -> str:
    day = datetime.fromtimestamp(info.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = [f"# {info.title or info.id}", f"{day} · agent {transcript.starting_agent} · {info.id}"]
    return "\n\n".join([*head, *(block for message in transcript.messages for block in _blocks(message, info))]) + "\n"


def _blocks(message: Message, info: ConversationInfo) -> Iterator[str]:
    who = message.author or (info.agent if message.role == "assistant" else message.role)
    said = message.text.strip()
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    media = [part for part in message.parts if isinstance(part, Media)]
    if message.role == "tool":
        for part in message.parts:
            if isinstance(part, ToolResult):
                outcome = "failed" if part.is_error else "returned"
                yield f"## {part.name or 'a tool'} {outcome}\n\n{code_block(part.text)}"
                yield from (_media(inner) for inner in part.parts if isinstance(inner, Media))
        return
    if said or calls or media:
        yield f"## {who}"
    if said:
        yield said
    yield from map(_media, media)
    for call in calls:
        arguments = msgspec.json.format(msgspec.json.encode(call.arguments, enc_hook=str), indent=2).decode()
        yield f"Calls `{call.name}`:\n\n{code_block(arguments, 'json')}"


def _media(part: Media) -> str:
    """A picture as a part of the document, so that it needs no other file; anything else by its name."""
    if not (mime := image_type(part.data)):
        return f"({part.kind} {part.name or part.mime})"
    named = part.name.translate(_BRACKETS)
    return f"![{named or part.kind}](data:{mime};base64,{base64.b64encode(part.data).decode()})"
