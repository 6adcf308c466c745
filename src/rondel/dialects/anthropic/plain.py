"""Messages of the shapes that nearly all have, decoded straight into them.

To take a message apart field by field takes several times as long as to decode it. So messages are decoded as if they
were plain; one with anything else in it, mistakes included, is read in full (`prompt.py`), and both give the same.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Literal, final

import msgspec

from ...values import Message, Opaque, Part, Text, ToolCall, ToolResult
from .parts import read_thinking


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    pass


@final
class _Text(_Plain, tag="text"):
    text: str


@final
class _Thinking(_Plain, tag="thinking"):
    thinking: str
    signature: str


@final
class _Call(_Plain, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


@final
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


def read_plain(message: PlainMessage) -> Message | list[Message]:
    content, role = message.content, message.role
    if isinstance(content, str):
        return Message(role, (Text(content),))
    parts: list[Part] = []
    results = 0
    for block in content:  # `type` and not `isinstance`, which takes four times as long for a struct of another kind
        if type(block) is _Text:
            parts.append(Text(block.text))
        elif type(block) is _Call:
            parts.append(ToolCall(block.id, block.name, block.input))
        elif type(block) is _Result:
            said = block.content
            given = (Text(said),) if isinstance(said, str) else tuple([Text(piece.text) for piece in said])
            parts.append(ToolResult(block.tool_use_id, given, is_error=block.is_error))
            results += 1
        else:
            parts.append(read_thinking(block.thinking, block.signature, {}))
    if role == "assistant":
        return Message(role, tuple(parts))
    return of_user(tuple(parts), results, {})


def of_user(parts: tuple[Part, ...], results: int, kept: Opaque) -> Message | list[Message]:
    """What a user sent. Results of tools, of which there are so many, make messages of their own, in their order."""
    if not parts:
        return []
    if not results or results == len(parts):
        return Message("tool" if results else "user", parts, opaque=kept)
    runs = groupby(parts, lambda part: isinstance(part, ToolResult))
    return [Message("tool" if given else "user", tuple(run), opaque=kept) for given, run in runs]
