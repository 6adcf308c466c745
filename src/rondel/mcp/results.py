"""A server's answers as parts that a model can read: texts, images, resources. All of them are data."""

from __future__ import annotations

import base64
import binascii

import mcp_types as types
import msgspec

from ..contracts.source import QUOTE_CHARS_MAX
from ..files.media import IMAGE_KINDS, image_type
from ..tool import NoResult
from ..values import Citation, Media, Text, ToolResult

MEDIA_BYTES_MAX = 10 << 20  # of all images and sounds of one result
MIME_CHARS_MAX = 100
BLOCKS_MAX = 1_000  # of one result


def result_of(result: types.CallToolResult) -> ToolResult | NoResult:
    parts = parts_of(result.content)
    if not parts and result.structured_content is not None:
        parts = (Text(msgspec.json.encode(result.structured_content).decode()),)
    if not parts and not result.is_error:
        return NoResult("The tool answered with nothing.")
    return ToolResult("", parts or (Text("the tool failed and did not say why"),), is_error=result.is_error)


def parts_of(content: list[types.ContentBlock]) -> tuple[Text | Media, ...]:
    parts: list[Text | Media] = []
    left = MEDIA_BYTES_MAX
    for part in (*map(_part_of, content[:BLOCKS_MAX]), *_note_of_more(len(content) - BLOCKS_MAX)):
        if isinstance(part, Media):
            left -= len(part.data)
            if left < 0:
                part = Text(f"[{part.kind} left out: the result has more than {MEDIA_BYTES_MAX >> 20} MB of them]")
        elif parts and isinstance(parts[-1], Text):
            part = msgspec.structs.replace(part, text=f"\n{part.text}")
        parts.append(part)
    return tuple(parts)


def _note_of_more(count: int) -> tuple[Text, ...]:
    return (Text(f"[{count:,} more parts left out: a result has at most {BLOCKS_MAX:,}]"),) if count > 0 else ()


def _part_of(block: types.ContentBlock) -> Text | Media:
    if isinstance(block, types.TextContent):
        return Text(block.text)
    if isinstance(block, types.ImageContent):
        return _media("image", block.mime_type, block.data)
    if isinstance(block, types.AudioContent):
        return _media("audio", block.mime_type, block.data)
    if isinstance(block, types.ResourceLink):
        about = f": {block.description}" if block.description else ""
        return Text(f"[resource {block.title or block.name} at {block.uri}{about}]")
    return resource_part(block.resource)


def resource_part(resource: types.TextResourceContents | types.BlobResourceContents) -> Text | Media:
    if isinstance(resource, types.TextResourceContents):
        source = Citation(url=str(resource.uri), quote=" ".join(resource.text.split())[:QUOTE_CHARS_MAX])
        return Text(f"[resource {resource.uri}]\n{resource.text}", citations=(source,))
    mime = resource.mime_type or ""
    kind = mime.partition("/")[0]
    if kind in ("image", "audio"):
        return _media(kind, mime, resource.blob)
    return Text(f"[resource {resource.uri}: {len(resource.blob) * 3 // 4:,} bytes of {mime or 'unknown type'}]")


def _media(kind: str, mime: str, data: str) -> Text | Media:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{kind} left out: its data is not base64]")
    if kind == "image":
        # By its bytes: a provider refuses a picture whose type is wrong, and then every later prompt that contains it.
        found = image_type(decoded)
        return Media("image", found, decoded) if found else Text(f"[image left out: it is none of {IMAGE_KINDS}]")
    if not decoded or len(mime) > MIME_CHARS_MAX or not mime.startswith("audio/"):
        return Text("[audio left out: it has no data, or a type that does not fit]")
    return Media("audio", mime, decoded)
