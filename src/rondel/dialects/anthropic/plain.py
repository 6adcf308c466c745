"""Messages of the shapes that nearly all have, decoded straight into them.

To take a message apart field by field takes several times as long as to decode it. So messages are decoded as if they
were plain; one with anything else in it, mistakes included, is read in full (`prompt.py`), and both give the same.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...values import Part, Text, ToolCall, ToolResult
from .parts import read_thinking


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    pass


class _Text(_Plain, tag="text"):
    text: str


class _Thinking(_Plain, tag="thinking"):
    thinking: str
    signature: str


class _Call(_Plain, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class _Result(_Plain, tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text]
    is_error: bool = False


class PlainMessage(_Plain):
    role: Literal["user", "assistant"]
    content: str | list[_Text | _Call | _Result | _Thinking]


_MESSAGES = msgspec.json.Decoder(list[PlainMessage])
_MESSAGE = msgspec.json.Decoder(PlainMessage)
_EACH = msgspec.json.Decoder(list[msgspec.Raw])


def decode_messages(data: bytes) -> list[Any]:
    """A list of messages: each a plain one, or what JSON says when it is not."""
    try:
        return _MESSAGES.decode(data)
    except msgspec.ValidationError:
        return [_decode_message(raw) for raw in _EACH.decode(data)]


def _decode_message(raw: msgspec.Raw) -> Any:
    try:
        return _MESSAGE.decode(raw)
    except msgspec.ValidationError:
        return msgspec.json.decode(raw)


def read_plain(message: PlainMessage) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, str):
        return (Text(content),)
    parts: list[Part] = []
    for block in content:
        if isinstance(block, _Text):
            parts.append(Text(block.text))
        elif isinstance(block, _Call):
            parts.append(ToolCall(block.id, block.name, block.input))
        elif isinstance(block, _Result):
            said = block.content
            given = (Text(said),) if isinstance(said, str) else tuple([Text(piece.text) for piece in said])
            parts.append(ToolResult(block.tool_use_id, given, is_error=block.is_error))
        else:
            parts.append(read_thinking(block.thinking, block.signature, {}))
    return tuple(parts)
