"""What the model reads: a conversation and its tools as plain text that any chat template takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...text.attached import as_text
from ...values import Media, Message, Options, Text, ToolCall, ToolResult, ToolSpec
from .schema import must_call


def note_on_tools(tools: Iterable[ToolSpec], options: Options) -> str:
    """Return the note that tells a model about its tools: it chooses better with "only for" than with "whenever it
    fits"."""
    lines = ["You have these tools, each only for what it says:", *map(_described, tools), ""]
    lines.append("Reply with one JSON object:")
    if not must_call(options):
        words = "<the answer as JSON>" if options.output is not None else '"..."'
        lines.append(f'- {{"say": {words}}} to answer. Most messages need no tool: just answer them.')
    lines.append('- {"tool": "<name>", "arguments": {...}} to use a tool, only if you cannot answer without it.')
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


def chat_messages(messages: Iterable[Message], note: str, examples: Iterable[Message] = ()) -> list[Json]:
    """Return the messages in the form that every chat template knows: one system message first, then user and assistant
    in turns."""
    instructions, rest, names = list[str](), list[tuple[str, str]](), dict[str, str]()
    leading, conversation = split(with_remarks(messages))
    for message in (*leading, *examples, *conversation):
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


def native_messages(messages: Iterable[Message]) -> list[Json]:
    """Return the conversation with its calls and results, which the runtime writes as the model's own template does."""
    leading, conversation = split(with_remarks(messages))
    system = "\n\n".join(message.text for message in leading)
    made: list[Json] = [{"role": "system", "content": system}] if system else []
    ids = dict[str, str]()  # some templates only take ids of nine letters and digits
    for message in conversation:
        ids |= {call.id: f"call{len(ids) + at:05}" for at, call in enumerate(message.calls)}
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        for result in results:
            text = f"Error: {result.text}" if result.is_error else result.text
            made.append({"role": "tool", "tool_call_id": ids.get(result.call_id, "call00000"), "content": text})
        others = tuple(part for part in message.parts if not isinstance(part, (ToolResult, ToolCall)))
        text = _written(msgspec.structs.replace(message, parts=others), {}, as_json=False)
        role = "assistant" if message.role == "assistant" else "user"
        if message.calls:
            made.append({"role": role, "content": text, "tool_calls": [_call(call, ids) for call in message.calls]})
        elif text and made and made[-1]["role"] == role and "tool_calls" not in made[-1]:
            made[-1]["content"] += f"\n{text}"  # many templates want turns that alternate
        elif text:
            made.append({"role": role, "content": text})
    return made


def _call(call: ToolCall, ids: dict[str, str]) -> Json:
    function = {"name": call.name, "arguments": _line(call.arguments)}
    return {"id": ids[call.id], "type": "function", "function": function}


def native_tools(tools: Iterable[ToolSpec]) -> list[Json]:
    empty: Json = {"type": "object", "properties": {}}
    functions = ({"name": t.name, "description": t.description, "parameters": empty | t.schema} for t in tools)
    return [{"type": "function", "function": function} for function in functions]


def with_remarks(messages: Iterable[Message]) -> list[Message]:
    """Put instructions that come after the conversation, such as the time, before the person's last message.

    At the end, a small model would answer them instead of the person; at the beginning, they would change the cached
    prefix.
    """
    every = list(messages)
    last = next((at for at in range(len(every) - 1, -1, -1) if every[at].role != "system"), -1)
    remarks = every[last + 1 :]
    asked = next((at for at in range(last, -1, -1) if every[at].role == "user"), -1)
    if not remarks or asked < 0:
        return every
    text = "\n".join(remark.text for remark in remarks)
    said = msgspec.structs.replace(every[asked], parts=(Text(f"{remark(text)}\n"), *every[asked].parts))
    return [*every[:asked], said, *every[asked + 1 : last + 1]]


def remark(text: str) -> str:
    return f"[{text}]"


def split(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the instructions at the beginning, and the conversation after them."""
    at = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
    return messages[:at], messages[at:]


def _written(message: Message, names: dict[str, str], *, as_json: bool) -> str:
    """Return a message as text that this model reads and would have written: the same bytes keep its prefix cache."""
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
