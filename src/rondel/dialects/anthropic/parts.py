"""Converts between Anthropic's content blocks and our parts.

A thinking block's signature and redacted thinking are kept in the part's opaque. A block of an unknown kind becomes a
Foreign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from ...contracts.dialect import SIGNED_BY, Json, seal, unseal
from ...text.attached import text_in
from ...values import Citation, Foreign, Handoff, Media, Part, Text, Thinking, ToolCall, ToolResult
from .._images import Edit, edit_blocks, objects_in
from .._names import name_sent
from .._wire import (
    as_object,
    at,
    each,
    extras,
    field,
    maybe,
    mention,
    merge,
    object_field,
    objects,
    opaque,
    own,
    read_base64,
    text_field,
    write_base64,
)

NAME = "anthropic"

TOOL_NAME_MAX = 128  # how long the name of a tool may be here

IMAGE_MIMES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_block(raw: Json) -> Part:
    kind = raw.get("type")
    if kind == "text":
        return read_text(raw)
    if kind == "tool_use":
        return _read_call(raw)
    if kind == "tool_result":
        return _read_result(raw)
    return _read_other(raw, text_field(raw, "type"))


def _read_thinking(raw: Json) -> Thinking:
    """Read thinking. Restore what another dialect's provider signed, if the caller sent it back."""
    text, signature = text_field(raw, "thinking", ""), text_field(raw, "signature", "")
    if (carried := unseal(signature)) is not None:
        return Thinking(text, opaque=carried)
    return Thinking(text, opaque={NAME: {"signature": signature, **extras(raw, "type", "thinking", "signature")}})


def _read_other(raw: Json, kind: str) -> Part:
    if kind == "thinking":
        return _read_thinking(raw)
    if kind == "redacted_thinking":
        return Thinking(opaque={NAME: raw})
    if kind in ("image", "document") and (media := _read_media(raw, kind)) is not None:
        return media
    # Search results, and documents that are made of texts, are texts to other dialects.
    words = _words_of(raw) if kind in ("search_result", "document") else ""
    return Text(words, opaque={NAME: raw}) if words else Foreign({NAME: raw})


def _read_call(raw: Json) -> ToolCall:
    id, name, arguments = raw.get("id"), raw.get("name"), raw.get("input")
    if len(raw) == 4 and type(id) is str and type(name) is str and type(arguments) is dict:  # the usual case
        return ToolCall(id, name, arguments)  # pyright: ignore[reportUnknownArgumentType]
    id, name, arguments = text_field(raw, "id"), text_field(raw, "name"), object_field(raw, "input")
    return ToolCall(id, name, arguments, opaque=opaque(NAME, extras(raw, "type", "id", "name", "input")))


def _words_of(raw: Json) -> str:
    """Return the text of a search result, or of a document that is made of texts; empty if there is none."""
    source = raw.get("source")
    content = raw.get("content") if isinstance(source, str) else as_object(source).get("content")
    found = [Text(content)] if isinstance(content, str) else read_content(content or [])
    texts = [part.text for part in found if isinstance(part, Text) and part.text.strip()]
    heads = [head for head in (raw.get("title"), source) if isinstance(head, str) and head]
    return "\n".join([*heads, *texts]) if texts else ""


def read_text(raw: Json) -> Text:
    text = raw.get("text")
    if len(raw) == 2 and type(text) is str:  # a type and a text, the most frequent block
        return Text(text)
    citations = tuple(_read_citation(citation) for citation in objects(raw, "citations"))
    kept = extras(raw, "type", "text", "citations")
    return Text(text_field(raw, "text"), citations=citations, opaque=opaque(NAME, kept))


def read_content(content: object) -> tuple[Part, ...]:
    """Return a message's content: a text, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(each(content, "content", read_block))


def _read_citation(raw: Json) -> Citation:
    source = text_field(raw, "source", "")
    return Citation(
        url=text_field(raw, "url", "") or (source if "://" in source else ""),
        title=text_field(raw, "title", "") or text_field(raw, "document_title", ""),
        quote=text_field(raw, "cited_text", ""),
        path="" if "://" in source else source,
        page=maybe(raw, "start_page_number", int),
        opaque={NAME: raw},
    )


def _read_media(raw: Json, kind: str) -> Media | None:
    """Return an image or a document; None if our values do not have its kind of source."""
    with at("source"):
        where = _read_source(object_field(raw, "source"))
    if where is None:
        return None
    kept = extras(raw, "type", "source", "title")
    name = text_field(raw, "title", "")
    return Media("image" if kind == "image" else "file", name=name, opaque=opaque(NAME, kept), **where)


def _read_source(source: Json) -> Json | None:
    """Return the fields of a Media that a source fills."""
    kind = text_field(source, "type")
    if kind == "base64":
        data = read_base64(text_field(source, "data"), "data")
        return {"mime": text_field(source, "media_type", ""), "data": data}
    if kind == "text":
        return {"mime": text_field(source, "media_type", "text/plain"), "data": text_field(source, "data").encode()}
    if kind == "url":
        return {"url": text_field(source, "url")}
    if kind == "file":
        return {"file_id": text_field(source, "file_id")}
    return None


def _read_result(raw: Json) -> ToolResult:
    id, content = raw.get("tool_use_id"), raw.get("content")
    if len(raw) == 3 and type(id) is str and type(content) is str and content:
        return ToolResult(id, (Text(content),))
    parts = _result_parts(content)
    kept = extras(raw, "type", "tool_use_id", "content", "is_error")
    if isinstance(content, list) and len(parts) < len(cast(list[object], content)):
        kept["content"] = content
    is_error = field(raw, "is_error", bool, False)
    return ToolResult(text_field(raw, "tool_use_id"), parts, is_error=is_error, opaque=opaque(NAME, kept))


def _result_parts(content: object) -> tuple[Text | Media, ...]:
    """Return the parts of a result's content that our values have; other blocks stay in the result's opaque."""
    if content is None:
        return ()
    return tuple(part for part in read_content(content) if isinstance(part, (Text, Media)))


# --- writing ----------------------------------------------------------------------------------------------------------


def write_block(part: Part, *, replay: bool) -> Json | None:
    """Return the block of a part, or None if there is none.

    With `replay` the block goes to a model in a prompt: thinking without a signature and text of white space would be
    refused, so they are left out. Without it, the block goes to a caller, who sees all thoughts and texts.
    """
    if isinstance(part, Text):
        if not (part.text.strip() if replay else part.text):
            return None
        return write_text(part, replay=replay) if part.citations or part.opaque else _plain_text(part.text)
    if isinstance(part, ToolCall):
        name = name_sent(part.name, TOOL_NAME_MAX) if replay else part.name
        block = {"type": "tool_use", "id": clean_id(part.id), "name": name, "input": part.arguments}
        return merge(own(part, NAME), block) if part.opaque else block
    if isinstance(part, ToolResult):
        return _write_result(part)
    return _write_other(part, replay=replay)


def _write_other(part: Thinking | Media | Handoff | Foreign, *, replay: bool) -> Json | None:
    if isinstance(part, Handoff):
        return None
    kept = own(part, NAME)
    if isinstance(part, Thinking):
        return _write_thinking(part, kept, replay=replay)
    if isinstance(part, Media):
        return write_media(part, kept) if replay else _plain_text(mention(part))
    return kept or None


def write_content(parts: Sequence[Part]) -> str | list[Json]:
    """Return the content of a message or a result; empty if there is none."""
    if len(parts) == 1 and isinstance(part := parts[0], Text) and not part.citations and not part.opaque:
        return part.text if part.text.strip() else ""
    return short(write_blocks(parts))


def write_blocks(parts: Iterable[Part]) -> list[Json]:
    return [block for part in parts if (block := write_block(part, replay=True)) is not None]


def write_text(part: Text, *, replay: bool) -> Json:
    kept = own(part, NAME)
    if "type" in kept:  # a block of another kind, unchanged unless its text was changed
        return kept if _words_of(kept) == part.text else _plain_text(part.text)
    block = _plain_text(part.text)
    citations = [raw for citation in part.citations if (raw := write_citation(citation, replay=replay)) is not None]
    if citations:
        block["citations"] = citations
    return merge(kept, block)


def write_citation(citation: Citation, *, replay: bool) -> Json | None:
    """Return a citation as it was read. One of another dialect is written for callers only: a model would miss its
    index."""
    if kept := own(citation, NAME):
        return None if replay and kept.get("encrypted_index") == "" else kept
    if replay or not citation.address:
        return None
    if not citation.url:
        return {
            "type": "search_result_location",
            "source": citation.address,
            "title": citation.title or None,
            "cited_text": citation.quote,
            "search_result_index": max(citation.number - 1, 0),
            "start_block_index": 0,
            "end_block_index": 1,
        }
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title or None,
        "cited_text": citation.quote,
        "encrypted_index": "",
    }


def clean_id(id: str) -> str:
    """Replace characters that Anthropic refuses in ids of other dialects, in the same way for a call and its result."""
    return id if id.isidentifier() and id.isascii() else _NOT_IN_ID.sub("_", id)


def write_media(media: Media, kept: Json) -> Json:
    source = _write_source(media)
    if source is None:
        return _plain_text(mention(media))
    block: Json = {"type": "image" if media.kind == "image" else "document", "source": source}
    if media.kind == "file" and media.name:
        block["title"] = media.name
    return merge(kept, block)


def carries(media: Media) -> bool:
    return text_in(media) is not None or _write_source(media) is not None


def _write_source(media: Media) -> Json | None:
    if media.kind == "audio":
        return None
    if media.url:
        return {"type": "url", "url": media.url}
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.kind == "image":
        mime = media.mime or "image/png"
        good = mime in IMAGE_MIMES
        return {"type": "base64", "media_type": mime, "data": write_base64(media.data)} if good else None
    if media.mime == "application/pdf" or (not media.mime and text_in(media) is None):
        return {"type": "base64", "media_type": "application/pdf", "data": write_base64(media.data)}
    text = media.data.decode("utf-8", "replace") if media.mime.startswith("text/") else text_in(media)
    return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}


def _write_thinking(part: Thinking, kept: Json, *, replay: bool) -> Json | None:
    if kept.get("type") == "redacted_thinking":
        return kept
    if "signature" not in kept and (replay or not (part.text or SIGNED_BY in part.opaque)):
        return None
    return {"signature": seal(part.opaque, NAME), **kept, "type": "thinking", "thinking": part.text}


def _write_result(part: ToolResult) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": clean_id(part.call_id)}
    if part.is_error:
        block["is_error"] = True
    kept = own(part, NAME) if part.opaque else {}
    said = kept.get("content")
    if said is not None and _result_parts(said) == part.parts:
        return {**kept, **block}
    if content := write_content(part.parts):
        block["content"] = content
    return merge(extras(kept, "content"), block) if kept else block


def short(blocks: list[Json]) -> str | list[Json]:
    if len(blocks) == 1 and blocks[0]["type"] == "text" and len(blocks[0]) == 2:
        return blocks[0]["text"]
    return blocks


def _plain_text(text: str) -> Json:
    return {"type": "text", "text": text}


# --- the images of a body that is relayed -----------------------------------------------------------------------------


def edit_images(messages: object, edit: Edit) -> None:
    edit_blocks(_image_blocks(messages), edit, "image", read_block, lambda media: write_block(media, replay=True))


def _image_blocks(messages: object) -> Iterator[Json]:
    for message in objects_in(messages):
        for block in objects_in(message.get("content")):
            yield block
            if block.get("type") == "tool_result":
                yield from objects_in(block.get("content"))
