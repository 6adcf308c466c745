"""What the model reads: a conversation and its tools as plain text that any chat template takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...text.attached import as_text
from ...values import Media, Message, Options, ToolCall, ToolResult, ToolSpec
from .schema import must_call


def note_on_tools(tools: Iterable[ToolSpec], options: Options) -> str:
    """How a model is told of its tools. Of several wordings this one chose best in trials with both small models."""
    lines = ["You have these tools:", *(_described(tool) for tool in tools), "", "Reply with one JSON object:"]
    if not must_call(options):
        words = "<the answer as JSON>" if options.output is not None else '"..."'
        lines.append(
            f'- {{"say": {words}}} for a conversation (greetings, thanks, questions about you, jokes, explanations), '
            "and when you have the result of a tool"
        )
    lines.append(
        '- {"tool": "<name>", "arguments": {...}} whenever a tool fits the request: '
        "you cannot do what a tool does by yourself"
    )
    return "\n".join(lines)


def _described(tool: ToolSpec) -> str:
    required = tool.schema.get("required", ())
    fields: dict[str, Any] = tool.schema.get("properties", {})
    arguments = ", ".join(f"{key}{'' if key in required else '?'}: {_type(field)}" for key, field in fields.items())
    head = f"- {tool.name}({arguments}): {' '.join(tool.description.split())}"
    notes = [f"    {key}: {field['description']}" for key, field in fields.items() if _field(field, "description")]
    return "\n".join((head, *notes))


def _field(schema: Any, key: str) -> Any:
    return schema.get(key) if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _type(schema: Any) -> str:
    if values := _field(schema, "enum"):
        return "|".join(msgspec.json.encode(value).decode() for value in values)
    kind = _field(schema, "type")
    if kind == "array":
        return f"list of {_type(_field(schema, 'items'))}"
    return kind if isinstance(kind, str) else "any"


def chat_messages(messages: Iterable[Message], note: str) -> list[Json]:
    """What every chat template knows: one system message first, then user and assistant in turns."""
    instructions, rest, names = list[str](), list[tuple[str, str]](), dict[str, str]()
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        role = "assistant" if message.role == "assistant" else "user"
        text = _written(message, names, as_json=bool(note))
        if message.role == "system" and not rest:
            instructions.append(text)
        elif text and rest and rest[-1][0] == role:
            rest[-1] = (role, f"{rest[-1][1]}\n{text}")
        elif text:
            rest.append((role, text))
    system = "\n\n".join(filter(None, (*instructions, note)))
    return [
        *([{"role": "system", "content": system}] if system else []),
        *({"role": role, "content": text} for role, text in rest),
    ]


def _written(message: Message, names: dict[str, str], *, as_json: bool) -> str:
    """A message as the text that this model reads, and would have written: the same bytes keep its prefix cache."""
    lines = list[str]()
    if message.text:
        said = as_json and message.role == "assistant"
        lines.append(_line({"say": message.text}) if said else message.text)
    for part in message.parts:
        if isinstance(part, ToolCall):
            lines.append(_line({"tool": part.name, "arguments": part.arguments}))
        elif isinstance(part, ToolResult):
            name = part.name or names.get(part.call_id, "the tool")
            lines.append(f"{'Error' if part.is_error else 'Result'} of {name}: {part.text}")
        elif isinstance(part, Media) and (text := as_text(part)) is not None:
            lines.append(text)
        elif isinstance(part, Media):
            lines.append(f"[{part.kind}{f' {part.name}' if part.name else ''}: this model cannot see it]")
    return "\n".join(lines)


def _line(value: Json) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
