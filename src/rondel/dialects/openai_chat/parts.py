"""Converts between OpenAI Chat's content parts, tool calls and reasoning fields, and our parts.

Chat messages have fixed fields: reasoning, content, refusal, calls, in this order. OpenAI itself has no reasoning
field; compatible servers use `reasoning_content` or `reasoning`, and the opaque records which. A call of a custom tool,
whose input is free text, becomes a call with the single argument `input`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

import msgspec

from ...contracts.dialect import Json
from ...text.attached import as_text, text_in
from ...values import Citation, Foreign, Media, Part, Text, Thinking, ToolCall
from .._images import Edit, edit_blocks, objects_in
from .._openai import AUDIO_FORMATS, AUDIO_MIMES, custom_input
from .._wire import (
    WireError,
    at,
    each,
    extras,
    maybe,
    mention,
    merge,
    object_field,
    objects,
    opaque,
    own,
    read_arguments,
    read_base64,
    read_data_url,
    text_field,
    write_arguments,
    write_base64,
    write_data_url,
)

NAME = "openai-chat"

THINKING_FIELDS = ("reasoning_content", "reasoning")
DETAILS = "reasoning_details"


# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(content: object) -> tuple[Part, ...]:
    """Return a message's content: nothing, a text, or a list of parts."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(each(content, "content", read_part))


def read_part(raw: Json) -> Part:
    kind = text_field(raw, "type")
    kept = extras(raw, "type", kind)
    if kind == "text":
        return Text(text_field(raw, "text"), opaque=opaque(NAME, kept))
    if kind == "refusal":
        return Text(text_field(raw, "refusal"), refusal=True, opaque=opaque(NAME, kept))
    if kind not in ("image_url", "input_audio", "file"):
        return Foreign({NAME: raw})
    with at(kind):
        inner = object_field(raw, kind)
        if kind == "image_url":
            return _read_image(inner, kept)
        return _read_audio(inner, kept) if kind == "input_audio" else _read_file(inner, kept)


def _read_image(inner: Json, kept: Json) -> Media:
    if left := extras(inner, "url"):
        kept["image_url"] = left
    url = text_field(inner, "url")
    with at("url"):
        inline = read_data_url(url)
    if inline is not None:
        return Media("image", inline[0], inline[1], opaque=opaque(NAME, kept))
    return Media("image", url=url, opaque=opaque(NAME, kept))


def _read_audio(inner: Json, kept: Json) -> Media:
    form = text_field(inner, "format")
    if left := extras(inner, "data", "format"):
        kept["input_audio"] = left
    data = read_base64(text_field(inner, "data"), "data")
    return Media("audio", AUDIO_MIMES.get(form, f"audio/{form}"), data, opaque=opaque(NAME, kept))


def _read_file(inner: Json, kept: Json) -> Media:
    if left := extras(inner, "file_data", "file_id", "filename"):
        kept["file"] = left
    name, file_id = text_field(inner, "filename", ""), text_field(inner, "file_id", "")
    text = text_field(inner, "file_data", "")
    if not text and not file_id:
        raise WireError("", "must have 'file_data' or 'file_id'")
    with at("file_data"):
        mime, data = read_data_url(text) or ("", read_base64(text))
    media = Media("file", mime, data, file_id=file_id, name=name)
    if text_in(media) is not None:
        kept["type"] = "file"  # the caller knows that its server takes these files, so it stays a file
    return msgspec.structs.replace(media, opaque=opaque(NAME, kept))


def read_call(raw: Json) -> ToolCall:
    kind = text_field(raw, "type", "function")
    id, kept = text_field(raw, "id"), extras(raw, "type", "id", "function", "custom")
    if kind == "custom":
        with at("custom"):
            inner = object_field(raw, "custom")
            arguments = {"input": text_field(inner, "input", "")}
            return ToolCall(id, text_field(inner, "name"), arguments, opaque={NAME: {"type": "custom", **kept}})
    try:
        inner = object_field(raw, "function")
        if left := extras(inner, "name", "arguments"):
            kept["function"] = left
        arguments, broken = read_arguments(text_field(inner, "arguments", ""))
        return ToolCall(id, text_field(inner, "name"), arguments, broken, opaque=opaque(NAME, kept))
    except WireError as error:
        raise error.inside("function") from None


def read_thinking(raw: Json) -> tuple[Thinking, ...]:
    """Read the reasoning of a message, from the field that its server uses."""
    own_field, other_field = THINKING_FIELDS
    name = own_field if raw.get(own_field) else other_field if raw.get(other_field) else ""
    details = objects(raw, DETAILS)
    if not name and not details:
        return ()
    return (thinking_of(text_field(raw, name) if name else "", name, details),)


def thinking_of(text: str, name: str, details: list[Json]) -> Thinking:
    return Thinking(text, opaque={NAME: extras({"field": name or None, "details": details or None})})


def read_citations(annotations: Iterable[Json], base: int = 0) -> tuple[Citation, ...]:
    """Return the citations of a text that begins `base` characters into the message's content."""
    return tuple(_read_citation(raw, base) for raw in annotations)


def _read_citation(raw: Json, base: int) -> Citation:
    inner = raw.get("url_citation")
    if raw.get("type") != "url_citation" or not isinstance(inner, dict):
        return Citation(opaque={NAME: raw})
    inner = object_field(raw, "url_citation")
    start, end = maybe(inner, "start_index", int), maybe(inner, "end_index", int)
    kept = extras(raw, "type", "url_citation")
    if left := extras(inner, "url", "title", "start_index", "end_index"):
        kept["url_citation"] = left
    return Citation(
        url=text_field(inner, "url", ""),
        title=text_field(inner, "title", ""),
        start=None if start is None else max(0, start - base),
        end=None if end is None else max(0, end - base),
        opaque=opaque(NAME, kept),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def is_plain(part: Part) -> TypeGuard[Text]:
    return type(part) is Text and not part.opaque and not part.refusal


def write_content(parts: Sequence[Part]) -> str | list[Json] | None:
    """Return a message's content, or None if nothing of it can be written. One plain text is written as a string, which
    every server can read."""
    if len(parts) == 1 and is_plain(part := parts[0]):
        return part.text
    wire = [raw for part in parts if (raw := write_part(part)) is not None]
    if len(wire) == 1 and wire[0]["type"] == "text" and len(wire[0]) == 2:
        return wire[0]["text"]
    return wire or None


def write_part(part: Part) -> Json | None:
    """Return a part of a message's content, or None if content has no such part."""
    if isinstance(part, Text):
        kind = "refusal" if part.refusal else "text"
        wire = {"type": kind, kind: part.text}
        return merge(own(part, NAME), wire) if part.opaque else wire
    if isinstance(part, Media):
        return write_media(part)
    if isinstance(part, Foreign):
        kept = own(part, NAME)
        return kept if "type" in kept else None
    return None


def write_media(media: Media) -> Json:
    kept = own(media, NAME)
    if media.kind == "image" and (media.url or media.data):
        url = media.url or write_data_url(media, "image/png")
        return merge(kept, {"type": "image_url", "image_url": {"url": url}})
    if media.kind == "audio" and media.data:
        form = AUDIO_FORMATS.get(media.mime, media.mime.rpartition("/")[2] or "wav")
        return merge(kept, {"type": "input_audio", "input_audio": {"data": write_base64(media.data), "format": form}})
    if media.file_id:
        return merge(kept, {"type": "file", "file": extras({"file_id": media.file_id, "filename": media.name or None})})
    if media.kind == "file" and media.data:
        # OpenAI takes PDF files, other servers take none; a file that came in this dialect is sent as one.
        if not kept and (text := as_text(media)) is not None:
            return {"type": "text", "text": text}
        data = write_data_url(media, "application/octet-stream")
        return merge(kept, {"type": "file", "file": {"file_data": data, "filename": media.name or "file"}})
    return {"type": "text", "text": mention(media)}


def carries(media: Media) -> bool:
    """Return whether a medium is written as a medium or as text; its first byte is enough to decide."""
    begin = msgspec.structs.replace(media, data=media.data[:1])
    return text_in(media) is not None or write_media(begin)["type"] != "text"


def write_call(call: ToolCall, name: str = "") -> Json:
    """Return a call, with its tool's name on this wire if that differs."""
    kept = own(call, NAME) if call.opaque else None
    if kept and kept.get("type") == "custom":
        custom = {"name": call.name, "input": custom_input(call)}
        return merge(kept, {"id": call.id, "type": "custom", "custom": custom})
    function = {"name": name or call.name, "arguments": write_arguments(call)}
    wire: Json = {"id": call.id, "type": "function", "function": function}
    return merge(kept, wire) if kept else wire


def write_thinking(parts: Iterable[Part], *, replay: bool) -> Json:
    """Return the reasoning fields of a message. Only thoughts that came in this dialect go back to a model."""
    fields: Json = {}
    for part in parts:
        if not isinstance(part, Thinking) or (replay and NAME not in part.opaque):
            continue
        kept = own(part, NAME)
        name = kept.get("field", THINKING_FIELDS[0])
        if part.text:
            fields[name] = fields.get(name, "") + part.text
        if details := kept.get("details"):
            fields[DETAILS] = fields.get(DETAILS, []) + details
    return fields


def message_fields(part: Foreign) -> Json:
    """Return the message's own fields that a Foreign contains, such as `audio`; a Foreign with a type is a content
    part."""
    kept = own(part, NAME)
    return {} if "type" in kept else kept


def write_citations(text: Text, base: int) -> list[Json]:
    """Return the annotations of a text that begins `base` characters into the message's content."""
    written: list[Json] = []
    for citation in text.citations:
        kept = own(citation, NAME)
        if citation.address and (citation.url or not kept):  # this dialect has no other form for a file
            start = base + (citation.start or 0)
            end = base + (len(text.text) if citation.end is None else citation.end)
            inner = {"url": citation.address, "title": citation.title, "start_index": start, "end_index": end}
            written.append(merge(kept, {"type": "url_citation", "url_citation": inner}))
        elif kept:
            written.append(kept)
    return written


# --- the images of a body that is relayed -----------------------------------------------------------------------------


def edit_images(messages: object, edit: Edit) -> None:
    parts = (part for message in objects_in(messages) for part in objects_in(message.get("content")))
    edit_blocks(parts, edit, "image_url", read_part, write_part)
