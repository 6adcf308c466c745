"""A transcript as messages of AG-UI 1.0. Does no IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...machine.transcript import Transcript
from ...values import Media, Message, Part, Text, Thinking, ToolResult, arguments_json

Wire = dict[str, Any]
Address = Callable[[str, int], str]
"""Returns the address of the n-th part of a message or of a call's result."""


def thought_id(message: str, number: int) -> str:
    return f"{message}-thinking-{number}"


def result_id(call: str) -> str:
    return f"{call}-result"


def content_part(part: Text | Media, address: str) -> Wire:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind = "document" if part.kind == "file" else part.kind
    source = {"type": "url", "value": part.url or address}
    if part.mime:
        source["mimeType"] = part.mime
    return {"type": kind, "source": source, **({"metadata": {"filename": part.name}} if part.name else {})}


def content_of(parts: Iterable[Part], id: str, address: Address) -> str | list[Wire]:
    shown = [(index, part) for index, part in enumerate(parts) if isinstance(part, Text | Media)]
    if all(isinstance(part, Text) for _, part in shown):
        return "".join(part.text for _, part in shown if isinstance(part, Text))
    return [content_part(part, address(id, index)) for index, part in shown]


def messages_of(transcript: Transcript, address: Address, tool_ids: Mapping[str, str]) -> list[Wire]:
    """Return a transcript as messages of AG-UI. `tool_ids` are the ids that the client gave to results of its tools."""
    made: list[Wire] = []
    for message in transcript.messages:
        if not message.shown:
            continue
        if message.role in ("user", "system"):
            content = content_of(message.parts, message.id, address)
            made.append({"id": message.id, "role": message.role, "content": content})
        elif message.role == "assistant":
            made += _assistant(message, address)
        elif message.role == "tool":
            results = (part for part in message.parts if isinstance(part, ToolResult))
            made += (_tool(result, address, tool_ids) for result in results)
    open_calls = (call.result for call in transcript.calls.values())
    return [*made, *(_tool(result, address, tool_ids) for result in open_calls if result is not None)]


def _assistant(message: Message, address: Address) -> Iterable[Wire]:
    thoughts = [part.text for part in message.parts if isinstance(part, Thinking) and part.text]
    for number, text in enumerate(thoughts, 1):
        yield {"id": thought_id(message.id, number), "role": "reasoning", "content": text}
    said: Wire = {"id": message.id, "role": "assistant"}
    if message.text:
        said["content"] = message.text
    if message.calls:
        said["toolCalls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.broken or arguments_json(call.arguments)},
            }
            for call in message.calls
        ]
    if len(said) > 2:
        yield said
    for index, part in enumerate(message.parts):
        if isinstance(part, Media):
            content = {"parts": [content_part(part, address(message.id, index))]}
            yield {
                "id": f"{message.id}-media-{index}", "role": "activity", "activityType": "media", "content": content,
            }  # fmt: skip


def _tool(result: ToolResult, address: Address, tool_ids: Mapping[str, str]) -> Wire:
    made: Wire = {
        "id": tool_ids.get(result.call_id) or result_id(result.call_id),
        "role": "tool",
        "toolCallId": result.call_id,
        "content": content_of(result.parts, result.call_id, address),
    }
    return {**made, "error": result.text} if result.is_error else made
