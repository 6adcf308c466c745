"""Converts between OpenAI Responses' items and content parts, and our parts.

A reply is a list of items here: reasoning, messages with content parts, calls, and calls of server tools. Ours is one
message: every content part, reasoning item and call is a part of it. A text records its item in `opaque`, so that texts
of one item are written as one item again. Encrypted reasoning is kept whole in the opaque.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard, cast

import msgspec

from ...contracts.dialect import Json, seal, unseal
from ...text.attached import as_text, text_in
from ...values import Citation, Foreign, Media, Part, Text, Thinking, ToolCall, ToolResult
from .._images import Edit, edit_blocks, objects_in
from .._openai import AUDIO_FORMATS, AUDIO_MIMES, custom_input
from .._wire import (
    at,
    each,
    error_parts,
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

NAME = "openai-responses"

CUSTOM_CALL = "custom_tool_call"
PICTURE = "image_generation_call"


# --- reading: what a model gives --------------------------------------------------------------------------------------


def read_item(raw: Json) -> list[Part]:
    """Return the parts of an item on the assistant's side."""
    kind = text_field(raw, "type", "message")
    if kind == "message":
        return read_output_message(raw)
    if kind == "reasoning":
        return [_read_reasoning(raw)]
    if kind == "function_call":
        arguments, broken = read_arguments(text_field(raw, "arguments", ""))
        kept = opaque(NAME, _left(raw, "call_id", "name", "arguments"))
        return [ToolCall(text_field(raw, "call_id"), text_field(raw, "name"), arguments, broken, opaque=kept)]
    if kind == CUSTOM_CALL:
        kept = {"type": kind, **_left(raw, "call_id", "name", "input")}
        arguments = {"input": text_field(raw, "input", "")}
        return [ToolCall(text_field(raw, "call_id"), text_field(raw, "name"), arguments, opaque={NAME: kept})]
    return [Foreign({NAME: raw})]


def _left(raw: Json, *known: str) -> Json:
    """Return an item's other fields. `completed` is the default."""
    left = extras(raw, "type", *known)
    if left.get("status") == "completed":
        del left["status"]
    return left


def item_of(raw: Json) -> Json:
    return _left(raw, "role", "content")


def read_output_message(raw: Json) -> list[Part]:
    content, item = raw.get("content"), item_of(raw)
    if isinstance(content, str):
        return [Text(content, opaque=opaque(NAME, {"item": item} if item else {}))]
    return each(content, "content", lambda part: read_output_part(part, item))


def read_output_part(raw: Json, item: Json) -> Part:
    kind = text_field(raw, "type")
    kept: Json = {"item": item} if item else {}
    if kind == "refusal":
        kept |= extras(raw, "type", "refusal")
        return Text(text_field(raw, "refusal", ""), refusal=True, opaque=opaque(NAME, kept))
    if kind in ("output_text", "input_text", "text"):
        left = extras(raw, "type", "text", "annotations")
        kept |= {key: value for key, value in left.items() if value != []}
        citations = tuple(_read_citation(citation) for citation in objects(raw, "annotations"))
        return Text(text_field(raw, "text", ""), citations=citations, opaque=opaque(NAME, kept))
    return Foreign({NAME: {"item": item, "part": raw}})


def _read_reasoning(raw: Json) -> Thinking:
    mark = raw.get("encrypted_content")
    if isinstance(mark, str) and (carried := unseal(mark)) is not None:
        return Thinking(thinking_text(raw), opaque=carried)
    return Thinking(thinking_text(raw), opaque={NAME: extras(raw, "type")})


def thinking_text(raw: Json) -> str:
    """Return the text of a reasoning item: its content if the server shows it, otherwise its summaries."""
    shown = objects(raw, "content") or objects(raw, "summary")
    return "\n\n".join(text_field(piece, "text", "") for piece in shown)


def _read_citation(raw: Json) -> Citation:
    if raw.get("type") != "url_citation":
        name = text_field(raw, "filename", "")
        return Citation(title=name, path=name, opaque={NAME: raw})
    return Citation(
        url=text_field(raw, "url", ""),
        title=text_field(raw, "title", ""),
        start=maybe(raw, "start_index", int),
        end=maybe(raw, "end_index", int),
        opaque=opaque(NAME, extras(raw, "type", "url", "title", "start_index", "end_index")),
    )


# --- reading: what a model is given -----------------------------------------------------------------------------------


def read_input_content(content: object, where: str = "content") -> tuple[Part, ...]:
    """Return an input message's content, or a call's output: a text, or a list of parts."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(each(content, where, _read_input_part))


def _read_input_part(raw: Json) -> Part:
    kind = text_field(raw, "type")
    if kind in ("input_text", "output_text", "text"):
        return Text(text_field(raw, "text"), opaque=opaque(NAME, extras(raw, "type", "text", "annotations")))
    if kind == "input_image":
        return _read_image(raw)
    if kind == "input_file":
        return _read_file(raw)
    if kind == "input_audio":
        with at("input_audio"):
            inner = object_field(raw, "input_audio")
            form = text_field(inner, "format")
            data = read_base64(text_field(inner, "data"), "data")
            return Media(
                "audio", AUDIO_MIMES.get(form, f"audio/{form}"), data, opaque={NAME: extras(raw, "input_audio")}
            )
    return Foreign({NAME: raw})


def _read_image(raw: Json) -> Media:
    kept = extras(raw, "type", "image_url", "file_id")
    if kept.get("detail") == "auto":
        del kept["detail"]
    if file_id := text_field(raw, "file_id", ""):
        return Media("image", file_id=file_id, opaque=opaque(NAME, kept))
    url = text_field(raw, "image_url")
    with at("image_url"):
        mime, data = read_data_url(url) or ("", b"")
    return Media("image", mime, data, "" if data else url, opaque=opaque(NAME, kept))


def _read_file(raw: Json) -> Media:
    text = text_field(raw, "file_data", "")
    with at("file_data"):
        mime, data = read_data_url(text) or ("", read_base64(text))
    url, file_id, name = (text_field(raw, key, "") for key in ("file_url", "file_id", "filename"))
    media = Media("file", mime, data, url, file_id, name)
    kept = extras(raw, "file_data", "file_url", "file_id", "filename")
    if text_in(media) is None:  # else the caller knows that its server takes these files, so it stays a file
        del kept["type"]
    return msgspec.structs.replace(media, opaque=opaque(NAME, kept))


def read_result(raw: Json) -> ToolResult:
    kind, output = text_field(raw, "type"), raw.get("output")
    kept = _left(raw, "call_id", "output")
    if kind != "function_call_output":
        kept["type"] = kind
    parts = result_parts(output)
    if isinstance(output, list) and len(parts) < len(cast(list[Any], output)):
        kept["output"] = output
    return ToolResult(text_field(raw, "call_id"), parts, opaque=opaque(NAME, kept))


def result_parts(output: object) -> tuple[Text | Media, ...]:
    """Return the parts of an output that our values have; others stay in the result's opaque."""
    if output is None or output == "":
        return ()
    return tuple(part for part in read_input_content(output, "output") if isinstance(part, (Text, Media)))


# --- writing ----------------------------------------------------------------------------------------------------------


def write_content(parts: Sequence[Part]) -> str | list[Json] | None:
    """Return what a model gets of a message or of a call's output, or None if that is nothing. One plain text is
    written as a string."""
    if len(parts) == 1 and isinstance(part := parts[0], Text) and not part.opaque:
        return part.text
    wire = [raw for part in parts if (raw := write_input_part(part)) is not None]
    if len(wire) == 1 and wire[0]["type"] == "input_text" and len(wire[0]) == 2:
        return wire[0]["text"]
    return wire or None


def write_input_part(part: Part) -> Json | None:
    """Return a part of a user's or a system message, or of a call's output."""
    if isinstance(part, Text):
        kept = extras(own(part, NAME), "item", "logprobs") if part.opaque else {}
        return merge(kept, {"type": "input_text", "text": part.text})
    if isinstance(part, Media):
        return _write_media(part)
    return own(part, NAME) or None if isinstance(part, Foreign) else None


def _write_media(media: Media) -> Json:
    kept = own(media, NAME)
    if media.kind == "image":
        where = {"file_id": media.file_id} if media.file_id else {"image_url": media.url}
        if not media.file_id and not media.url:
            where = {"image_url": write_data_url(media, "image/png")}
        return {"type": "input_image", "detail": "auto", **kept, **where}
    if media.kind == "audio":
        if not media.data or kept.get("type") != "input_audio":
            # The API takes no sound yet, but a server may: one that came in this dialect is sent back.
            return {"type": "input_text", "text": mention(media)}
        form = AUDIO_FORMATS.get(media.mime, media.mime.rpartition("/")[2] or "wav")
        return merge(kept, {"type": "input_audio", "input_audio": {"data": write_base64(media.data), "format": form}})
    if not kept and (text := as_text(media)) is not None:
        return {"type": "input_text", "text": text}
    block: Json = {"type": "input_file"}
    if media.file_id:
        block["file_id"] = media.file_id
    elif media.url:
        block["file_url"] = media.url
    else:
        block["file_data"] = write_data_url(media, "application/octet-stream")
    if media.name or media.data:
        block["filename"] = media.name or "file"
    return merge(kept, block)


def carries(media: Media) -> bool:
    begin = msgspec.structs.replace(media, data=media.data[:1])
    return text_in(media) is not None or _write_media(begin)["type"] != "input_text"


def write_result(result: ToolResult, *, custom: bool) -> Json:
    kept = own(result, NAME) if result.opaque else {}
    kind = kept.get("type", "custom_tool_call_output" if custom else "function_call_output")
    item: Json = {"type": kind, "call_id": result.call_id}
    said = kept.get("output")
    if said is not None and not result.is_error and result_parts(said) == result.parts:
        return {**kept, **item}
    item["output"] = write_content(error_parts(result) if result.is_error else result.parts) or ""
    return merge(extras(kept, "output"), item) if kept else item


def write_output_part(part: Text | Foreign, *, replay: bool = False) -> Json:
    kept = own(part, NAME)
    if isinstance(part, Foreign):
        return kept["part"]
    left = extras(kept, "item")
    if part.refusal:
        return merge(left, {"type": "refusal", "refusal": part.text})
    return merge(left, {"type": "output_text", "text": part.text, "annotations": write_citations(part, replay=replay)})


def write_citations(text: Text, *, replay: bool = False) -> list[Json]:
    """Return the annotations of a text. A file that only we know is written for callers, not for a model's server."""
    written: list[Json] = []
    for citation in text.citations:
        kept = own(citation, NAME)
        if citation.url:
            start, end = citation.start or 0, len(text.text) if citation.end is None else citation.end
            base = {"type": "url_citation", "url": citation.url, "title": citation.title}
            written.append(merge(kept, {**base, "start_index": start, "end_index": end}))
        elif kept:
            written.append(kept)
        elif citation.path and not replay:
            index = len(text.text) if citation.end is None else citation.end
            name = {"file_id": citation.address, "filename": citation.path, "index": index}
            written.append({"type": "file_citation", **name})
    return written


def message_item(item: Json, id: str, content: list[Json], status: str = "completed") -> Json:
    base: Json = {"type": "message", "role": "assistant", "content": content}
    return merge(item, {**base, "id": item.get("id", id), "status": item.get("status", status)})


def call_item(call: ToolCall, id: str = "", name: str = "") -> Json:
    """Return a call as an item. A caller's has an id of its own and a status, a prompt's only if it came with them.
    `name` is its tool's name on this wire, if that differs."""
    kept = own(call, NAME)
    base: Json = {"type": "function_call", "call_id": call.id, "name": name or call.name}
    if kept.get("type") == CUSTOM_CALL:
        base |= {"type": CUSTOM_CALL, "input": custom_input(call)}
    else:
        base["arguments"] = write_arguments(call)
    if id:
        base |= {"id": kept.get("id", id), "status": kept.get("status", "completed")}
    return merge(kept, base)


def reasoning_item(part: Thinking, id: str) -> Json:
    kept = own(part, NAME)
    if kept:
        return {"summary": [], **kept, "type": "reasoning", "id": kept.get("id", id)}
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": seal(part.opaque, NAME)}


def picture_item(picture: Media, id: str) -> Json:
    """Return a picture in a reply, in the form of OpenAI's own image tool."""
    form = picture.mime.removeprefix("image/")
    return {
        "type": PICTURE,
        "id": id,
        "status": "completed",
        "output_format": form,
        "result": write_base64(picture.data),
    }


def is_picture(part: Part) -> TypeGuard[Media]:
    return isinstance(part, Media) and part.kind == "image" and bool(part.data)


# --- the images of a body that is relayed -----------------------------------------------------------------------------


def edit_images(messages: object, edit: Edit) -> None:
    edit_blocks(_image_parts(messages), edit, "input_image", lambda raw: read_input_content([raw])[0], write_input_part)


def _image_parts(messages: object) -> Iterator[Json]:
    for item in objects_in(messages):
        yield from objects_in(item.get("content"))
        yield from objects_in(item.get("output"))
