"""Converts between prompts and bodies of OpenAI's Chat Completions API.

On this wire, each result of a tool is a text-only message: consecutive results are one message of ours, and images of
results move into the user message after them. A failure is part of the text (`Error: …`), which is not read back.
`top_k` is written although OpenAI refuses it, because people set it for compatible servers that know it. Thinking `off`
is the effort `none`; efforts above `high` are `high` in our values, and kept exactly in the opaque.

A streamed prompt asks for usage. If a caller does not want usage, `stream_options.include_usage: false` is kept in the
prompt's opaque, for the writer of the reply.
"""

from __future__ import annotations

from ...contracts.dialect import Json
from ...prompt import Prompt
from ...values import (
    Foreign,
    Media,
    Message,
    Options,
    OutputSchema,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from .._names import name_sent
from .._openai import (
    TOOL_NAME_MAX,
    custom_schema,
    read_choice,
    read_effort,
    read_schema,
    read_user,
    write_choice,
    write_effort,
    write_plain,
    write_schema,
    write_user,
)
from .._wire import (
    WireError,
    as_object,
    at,
    each,
    error_parts,
    extras,
    field,
    is_server_tool,
    list_field,
    maybe,
    merge,
    moved_media_text,
    object_field,
    opaque,
    own,
    reading_prompt,
    shown,
    strings,
    text_field,
    write_tools,
)
from .parts import (
    DETAILS,
    NAME,
    THINKING_FIELDS,
    is_plain,
    message_fields,
    read_call,
    read_content,
    read_thinking,
    write_call,
    write_content,
    write_media,
    write_thinking,
)

_KNOWN = (
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "n", "user"),
    *("response_format", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed"),
    "reasoning_effort",
)

_NOTHING = Text("")
_ASSISTANT = ("role", "content", "refusal", "tool_calls", DETAILS, *THINKING_FIELDS)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_prompt(prompt: Prompt, *, model: str, stream: bool, tokens_max_field: str) -> Json:
    kept, options = own(prompt, NAME), prompt.options
    body: Json = {"model": model, "messages": _write_messages(prompt.messages)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    tools, choice = write_tools(prompt.tools, options.tool_choice, _write_tool)
    if tools:
        body["tools"] = tools
        body |= write_choice(options, choice, nested=True)
    body |= _write_options(options, tokens_max_field)
    body |= extras({"user": write_user(options.user, kept.get("user"))})
    effort = write_effort(options, kept.get("reasoning_effort"))
    if effort is not None:
        body["reasoning_effort"] = effort
    return merge(extras(kept, "reasoning_effort", *(() if stream else ("stream_options",))), body)


def _write_options(options: Options, tokens_max_field: str) -> Json:
    body: Json = {
        tokens_max_field: options.tokens_max,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "stop": list(options.stop) or None,
        "seed": options.seed,
    }
    if (output := options.output) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": write_schema(output)}
    return extras(body)


def _write_tool(spec: ToolSpec) -> Json | None:
    kept: Json = {}
    if spec.opaque:
        kept = own(spec, NAME)
        if "type" in kept:
            return kept
        if is_server_tool(spec):
            return None
    function: Json = {"name": name_sent(spec.name, TOOL_NAME_MAX)}
    if spec.description:
        function["description"] = spec.description
    if schema := spec.schema:
        function["parameters"] = schema
    if spec.strict is not None:
        function["strict"] = spec.strict
    return merge(kept, {"type": "function", "function": function})


def _write_messages(messages: tuple[Message, ...]) -> list[Json]:
    wire: list[Json] = []
    moved: list[Json] = []
    for message in messages:
        if moved and message.role in ("assistant", "system"):
            wire.append({"role": "user", "content": moved})
            moved = []
        if message.role == "assistant":
            if (raw := _write_assistant(message)) is not None:
                wire.append(raw)
            continue
        others: list[Part] = []
        for part in message.parts:
            if type(part) is ToolResult:
                wire.append(_write_result(part, moved))
            else:
                others.append(part)
        if others and (content := write_content(others)) is not None:
            if moved:  # as one message of the user, not two in a row
                content = [*moved, *([{"type": "text", "text": content}] if isinstance(content, str) else content)]
                moved = []
            wire.append(write_plain(message, content, NAME))
    if moved:
        wire.append({"role": "user", "content": moved})
    return wire


def _write_assistant(message: Message) -> Json | None:
    """Return a reply, or None if nothing of it can be written. Nearly all are one text, calls, or both."""
    text: str | None = None
    calls: list[Json] = []
    for part in message.parts:
        if type(part) is ToolCall:
            calls.append(write_call(part, name_sent(part.name, TOOL_NAME_MAX)))
        elif text is None and is_plain(part):
            text = part.text
        else:
            return _write_mixed(message)
    if message.opaque or (text is None and not calls):
        return _write_mixed(message)
    wire: Json = {"role": "assistant", "content": text}
    if calls:
        wire["tool_calls"] = calls
    return wire


def _write_mixed(message: Message) -> Json | None:
    """Return any reply, like `_write_assistant`."""
    said: list[Part] = []
    calls: list[Json] = []
    fields: Json = {}
    thinks = False
    for part in message.parts:
        if isinstance(part, ToolCall):
            calls.append(write_call(part, name_sent(part.name, TOOL_NAME_MAX)))
        elif isinstance(part, Text):
            said.append(part)
        elif isinstance(part, Thinking):
            thinks = True
        elif isinstance(part, Foreign):
            said.append(part)
            fields |= _fields_of(part)
    content = write_content(said) if said else None
    if content is None and not calls and not fields:
        return None
    wire: Json = {"role": "assistant", "content": content}
    if thinks:
        wire |= write_thinking(message.parts, replay=True)
    if calls:
        wire["tool_calls"] = calls
    return merge({**own(message, NAME), **fields}, wire) if message.opaque or fields else wire


def _fields_of(part: Foreign) -> Json:
    """Return the fields of a message that a Foreign of a reply holds, such as `audio`; only its id is sent back."""
    fields = message_fields(part)
    return {**fields, "audio": {"id": object_field(fields, "audio").get("id")}} if "audio" in fields else fields


def _write_result(result: ToolResult, moved: list[Json]) -> Json:
    """Return a result's message. Its media are added to `moved`, for a user message after all results."""
    parts = error_parts(result) if result.is_error else result.parts
    if len(parts) == 1 and is_plain(part := parts[0]) and not result.opaque:
        return {"role": "tool", "tool_call_id": result.call_id, "content": part.text}
    texts = [part for part in parts if isinstance(part, Text)]
    content = write_content(texts) if texts else None
    if len(texts) < len(parts):
        media = [write_media(part) for part in parts if isinstance(part, Media)]
        moved += [{"type": "text", "text": moved_media_text(result.call_id)}, *media]
        content = "(its media follow in the next user message)" if content is None else content
    wire: Json = {"role": "tool", "tool_call_id": result.call_id, "content": content or ""}
    return merge(own(result, NAME), wire) if result.opaque else wire


# --- reading ----------------------------------------------------------------------------------------------------------


@reading_prompt(NAME)
def read_prompt(body: Json) -> Prompt:
    kept = extras(body, *_KNOWN)
    messages: list[Message] = []
    for message in each(list_field(body, "messages"), "messages", _read_message):
        if message.role == "tool" and messages and messages[-1].role == "tool":
            messages[-1] = Message("tool", messages[-1].parts + message.parts)
        else:
            messages.append(message)
    tools = tuple(each(body.get("tools"), "tools", _read_tool))
    options = _read_options(body, kept)
    return Prompt(tuple(messages), tools, options, text_field(body, "model"), opaque(NAME, kept))


def _read_message(raw: Json) -> Message:
    role = text_field(raw, "role")
    if role == "assistant":
        return _read_assistant(raw)
    if role == "tool":
        return Message("tool", (_read_result(raw),))
    content = read_content(raw.get("content"))
    kept = extras(raw, "role", "content") if len(raw) > 2 else {}
    if raw.get("content") is None:
        raise WireError("content", "is missing: it must be a string or a list of parts")
    if role in ("system", "developer"):
        kept = {"role": role, **kept} if role == "developer" else kept
        return Message("system", content, opaque=opaque(NAME, kept))
    if role != "user":
        raise WireError("role", f"must be system, developer, user, assistant or tool, got {shown(role)}")
    return Message("user", content, opaque=opaque(NAME, kept))


def _read_result(raw: Json) -> ToolResult:
    id, content = text_field(raw, "tool_call_id"), read_content(raw.get("content"))
    parts = tuple([part for part in content if isinstance(part, (Text, Media)) and part != _NOTHING])
    kept = extras(raw, "role", "content", "tool_call_id") if len(raw) > 3 else {}
    return ToolResult(id, parts, opaque=opaque(NAME, kept))


def _read_assistant(raw: Json) -> Message:
    if len(raw) == 2 and isinstance(raw.get("content"), str):
        return Message("assistant", (Text(raw["content"]),))
    parts: list[Part] = [*read_thinking(raw), *read_content(raw.get("content"))]
    if refusal := text_field(raw, "refusal", ""):
        parts.append(Text(refusal, refusal=True))
    parts += each(raw.get("tool_calls"), "tool_calls", read_call)
    kept = extras(raw, *_ASSISTANT)
    return Message("assistant", tuple(parts), opaque=opaque(NAME, kept))


def _read_tool(raw: Json) -> ToolSpec:
    kind = text_field(raw, "type")
    if kind != "function":
        inner = object_field(raw, kind) if isinstance(raw.get(kind), dict) else {}
        schema = custom_schema(_grammar(inner)) if kind == "custom" else {}
        name, description = text_field(inner, "name", kind), text_field(inner, "description", "")
        return ToolSpec(name, description, schema, opaque={NAME: raw})
    with at("function"):
        inner = object_field(raw, "function")
        kept = extras(raw, "type", "function")
        if left := extras(inner, "name", "description", "parameters", "strict"):
            kept["function"] = left
        return ToolSpec(
            text_field(inner, "name"),
            text_field(inner, "description", ""),
            object_field(inner, "parameters"),
            maybe(inner, "strict", bool),
            opaque(NAME, kept),
        )


def _grammar(custom: Json) -> Json:
    form = custom.get("format")
    inner = as_object(form).get("grammar") if isinstance(form, dict) else None  # pyright: ignore[reportUnknownArgumentType]
    return as_object(inner) if isinstance(inner, dict) else {}  # pyright: ignore[reportUnknownArgumentType]


def _read_options(body: Json, kept: Json) -> Options:
    """Read the options. Fields that they do not have are added to `kept`."""
    if field(body, "n", int, 1) != 1:
        raise WireError("n", f"must be 1, got {body['n']!r}: only one reply per prompt is supported")
    streaming = object_field(body, "stream_options")
    if left := extras(streaming, "include_usage"):
        kept["stream_options"] = left
    if body.get("stream") and streaming.get("include_usage") is not True:
        kept["stream_options"] = {**left, "include_usage": False}
    stop = body.get("stop")
    return Options(
        tokens_max=maybe(body, "max_completion_tokens", int) or maybe(body, "max_tokens", int),
        temperature=maybe(body, "temperature", float),
        top_p=maybe(body, "top_p", float),
        top_k=maybe(body, "top_k", int),
        stop=(stop,) if isinstance(stop, str) else strings(body, "stop"),
        seed=maybe(body, "seed", int),
        thinking=read_effort(body, "reasoning_effort", kept),
        tool_choice=read_choice(body, kept, nested=True),
        parallel_calls=maybe(body, "parallel_tool_calls", bool),
        output=_read_output(body, kept),
        user=read_user(body, kept),
    )


def _read_output(body: Json, kept: Json) -> OutputSchema | None:
    wanted = object_field(body, "response_format")
    if wanted.get("type") != "json_schema":
        kept |= {"response_format": wanted} if wanted else {}
        return None
    with at("response_format.json_schema"):
        return read_schema(object_field(wanted, "json_schema"))
