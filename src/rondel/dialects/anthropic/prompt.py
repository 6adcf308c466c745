"""Converts between prompts and bodies of Anthropic's Messages API.

How thinking is asked for: `off` is `disabled`; a token limit is `enabled` with that budget; a level is `adaptive` with
`output_config.effort` (`minimal` becomes `low`, the lowest level). Read back, `adaptive` without an effort is `high`,
as in the API; efforts above `high` are `high` in our values and kept exactly in the opaque.

Leading system messages are the `system` field, one block each. A system message further down becomes a user message
between `<system>` tags; one that came in the `messages` of a request is written back where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, groupby
from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...contracts.fitting import THINKING_TOKENS_MIN
from ...prompt import Prompt
from ...values import (
    Message,
    ModelFacts,
    Opaque,
    Options,
    OutputSchema,
    Part,
    Text,
    ThinkingLevel,
    ToolResult,
    ToolSpec,
)
from .._names import choice_sent, name_sent
from .._wire import (
    WireError,
    each,
    extras,
    field,
    is_server_tool,
    list_field,
    maybe,
    merge,
    object_field,
    opaque,
    own,
    reading_prompt,
    shown,
    strings,
    text_field,
    write_tools,
)
from .parts import NAME, TOOL_NAME_MAX, read_content, read_text, short, write_blocks, write_content

TOKENS_MAX_DEFAULT = 8192
"""Written when the prompt sets no limit, because this API demands one; a thinking budget is added on top."""

_LEVELS: dict[str, ThinkingLevel] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_KNOWN = (
    *("model", "messages", "system", "tools", "tool_choice", "stream", "metadata", "thinking", "output_config"),
    *("max_tokens", "temperature", "top_p", "top_k", "stop_sequences"),
)
SERVER = "mcp_server"
"""The field of a toolset that contains its server: requests list servers and their tools separately."""
_CUSTOM = ("custom", None)  # the types of a tool that the caller runs
_PLAIN_TOOL = frozenset(("type", "name", "description", "input_schema"))
_SAMPLING = ("temperature", "top_p", "top_k")
_CHOICES = {"auto": "auto", "none": "none", "any": "required"}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_prompt(prompt: Prompt, *, model: str, stream: bool = True) -> Json:
    kept, options = own(prompt, NAME), prompt.options
    system, rest = _hoist(prompt.messages)
    body: Json = {
        "model": model,
        "max_tokens": options.tokens_max or TOKENS_MAX_DEFAULT + (options.thinking_tokens_max or 0),
        "messages": [wire for message in rest if (wire := _write_message(message)) is not None],
    }
    if system:
        body["system"] = short(system)
    if stream:
        body["stream"] = True
    tools, choice = write_tools(prompt.tools, options.tool_choice, _write_tool)
    if tools:
        body["tools"] = tools
        if (chosen := _write_choice(options, choice)) is not None:
            body["tool_choice"] = chosen
    if servers := _write_servers(prompt.tools, kept):
        body["mcp_servers"] = servers
    body |= _write_options(options)
    thinking, effort = _write_thinking(options, kept)
    if thinking is not None:
        body["thinking"] = thinking
    output: Json = {} if effort is None else {"effort": effort}
    if options.output is not None:
        output["format"] = {"type": "json_schema", "schema": options.output.schema}
    if output:
        body["output_config"] = output
    left = extras(kept, "thinking", "output_config")
    if config := extras(object_field(kept, "output_config"), "effort"):
        left["output_config"] = config
    return merge(left, body)


def _write_options(options: Options) -> Json:
    body: Json = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "stop_sequences": list(options.stop) or None,
        "metadata": {"user_id": options.user} if options.user else None,
    }
    return extras(body)


def _hoist(messages: tuple[Message, ...]) -> tuple[list[Json], list[Message]]:
    """Return the blocks of the leading system messages, and the messages after them."""
    at_rest = next((i for i, m in enumerate(messages) if m.role != "system" or _in_place(m)), len(messages))
    return [block for message in messages[:at_rest] for block in write_blocks(message.parts)], list(messages[at_rest:])


def _in_place(message: Message) -> bool:
    return own(message, NAME).get("role") == "system"


def _write_message(message: Message) -> Json | None:
    if message.role == "system":
        return _write_system(message)
    content = write_content(message.parts)
    if not content:
        return None
    wire: Json = {"role": "assistant" if message.role == "assistant" else "user", "content": content}
    return merge(own(message, NAME), wire) if message.opaque else wire


def _write_system(message: Message) -> Json | None:
    if not (blocks := write_blocks(message.parts)):
        return None
    in_place = _in_place(message)
    wire: Json = {"role": "system" if in_place else "user", "content": short(blocks if in_place else _tagged(blocks))}
    return merge(own(message, NAME), wire)


def _tagged(blocks: list[Json]) -> list[Json]:
    """Put tags around a system message in the middle, so that the model can distinguish it from the user's messages."""
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return [{**blocks[0], "text": f"<system>\n{blocks[0]['text']}\n</system>"}]
    return [{"type": "text", "text": "<system>"}, *blocks, {"type": "text", "text": "</system>"}]


def _write_tool(spec: ToolSpec) -> Json | None:
    kept = own(spec, NAME)
    if "type" in kept:
        return extras(kept, SERVER) if SERVER in kept else kept
    if is_server_tool(spec):
        return None
    name = name_sent(spec.name, TOOL_NAME_MAX)
    tool: Json = {"name": name, "input_schema": spec.schema or {"type": "object", "properties": {}}}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict is not None:
        tool["strict"] = spec.strict
    return merge(kept, tool)


def _write_servers(tools: tuple[ToolSpec, ...], kept: Json) -> list[Json]:
    """Return the MCP servers that the model's provider connects to: the prompt's own, and those of its tools."""
    servers = [server for spec in tools if (server := own(spec, NAME).get(SERVER))]
    given = kept.get("mcp_servers")
    return [*given, *servers] if servers and isinstance(given, list) else servers


def _write_choice(options: Options, choice: str | None) -> Json | None:
    if choice is None and options.parallel_calls is None:
        return None
    if choice == "none":
        return {"type": "none"}
    wire: Json = {"type": "any" if choice == "required" else "auto"}
    if choice and choice.startswith("tool:"):
        wire = {"type": "tool", "name": choice_sent(choice, TOOL_NAME_MAX)}
    if options.parallel_calls is not None:
        wire["disable_parallel_tool_use"] = not options.parallel_calls
    return wire


def _write_thinking(options: Options, kept: Json) -> tuple[Json | None, str | None]:
    """Return the `thinking` field and the effort: as they were read, if the options still mean the same."""
    said = kept.get("thinking"), object_field(kept, "output_config").get("effort")
    if _read_thinking(*said) == (options.thinking, options.thinking_tokens_max):
        return said
    return _plain_thinking(options.thinking, options.thinking_tokens_max)


def _plain_thinking(level: ThinkingLevel | None, tokens_max: int | None) -> tuple[Json | None, str | None]:
    if level == "off":
        return {"type": "disabled"}, None
    effort = "low" if level == "minimal" else level
    if tokens_max is not None:
        return {"type": "enabled", "budget_tokens": max(tokens_max, THINKING_TOKENS_MIN)}, effort
    return ({"type": "adaptive"}, effort) if effort else (None, None)


# --- reading ----------------------------------------------------------------------------------------------------------


@reading_prompt(NAME)
def read_prompt(body: Json) -> Prompt:
    kept = extras(body, *_KNOWN)
    read = each(list_field(body, "messages"), "messages", _read_message)
    messages = (*_read_system(body.get("system")), *chain.from_iterable(read))
    options = _read_options(body, kept)
    tools = tuple(each(body.get("tools"), "tools", _read_tool))
    return Prompt(messages, tools, options, text_field(body, "model"), opaque(NAME, kept))


def _read_system(system: object) -> list[Message]:
    if system is None:
        return []
    if isinstance(system, str):
        return [Message("system", (Text(system),))]
    return each(system, "system", lambda block: Message("system", (read_text(block),)))


def _read_message(raw: Json) -> list[Message]:
    """Read one message of the wire, which may become several of ours, or none."""
    role, content = raw.get("role"), raw.get("content")
    if content is None:
        raise WireError("content", "is missing: it must be a string or a list of blocks")
    parts = read_content(content)
    if len(raw) == 2:  # nearly all replies, user messages and results of tools
        if role == "assistant":
            return [Message("assistant", parts)]
        if role == "user" and len(parts) == 1:
            return [Message("tool" if type(parts[0]) is ToolResult else "user", parts)]
    kept = opaque(NAME, extras(raw, "role", "content"))
    if role == "assistant":
        return [Message("assistant", parts, opaque=kept)]
    if role == "user":
        return _user_messages(parts, kept)
    if role != "system":
        raise WireError("role", f"must be 'user' or 'assistant', got {shown(text_field(raw, 'role'))}")
    return [Message("system", parts, opaque={NAME: {"role": "system", **kept.get(NAME, {})}})]


def _user_messages(parts: tuple[Part, ...], kept: Opaque) -> list[Message]:
    """Split a user's message: results of tools become messages of their own, in the order of the blocks."""
    runs = groupby(parts, lambda part: type(part) is ToolResult)
    return [Message("tool" if are_results else "user", tuple(run), opaque=kept) for are_results, run in runs]


def _read_tool(raw: Json) -> ToolSpec:
    if raw.get("type", "custom") not in _CUSTOM:
        kind = text_field(raw, "type")
        return ToolSpec(text_field(raw, "name", kind), opaque={NAME: raw})
    name, description = text_field(raw, "name"), text_field(raw, "description", "")
    schema = object_field(raw, "input_schema")
    if _PLAIN_TOOL.issuperset(raw):  # as nearly all are
        return ToolSpec(name, description, schema)
    kept = extras(raw, "strict", *_PLAIN_TOOL)
    return ToolSpec(name, description, schema, maybe(raw, "strict", bool), opaque(NAME, kept))


def _read_options(body: Json, kept: Json) -> Options:
    """Read the options. Fields that they do not have are added to `kept`."""
    thinking, config = body.get("thinking"), object_field(body, "output_config")
    if thinking is not None:
        thinking = object_field(body, "thinking")
    effort = text_field(config, "effort", "") or None
    level, thinking_tokens_max = _read_thinking(thinking, effort)
    left = extras(config, "effort", "format")
    if _plain_thinking(level, thinking_tokens_max) != (thinking, effort):
        kept |= extras({"thinking": thinking})
        left |= extras({"effort": effort})
    output = _read_output(config, left)
    if left:
        kept["output_config"] = left
    metadata = object_field(body, "metadata")
    if others := extras(metadata, "user_id"):
        kept["metadata"] = others
    choice, parallel = _read_choice(body, kept)
    return Options(
        tokens_max=field(body, "max_tokens", int),
        temperature=maybe(body, "temperature", float),
        top_p=maybe(body, "top_p", float),
        top_k=maybe(body, "top_k", int),
        stop=strings(body, "stop_sequences"),
        thinking=level,
        thinking_tokens_max=thinking_tokens_max,
        tool_choice=choice,
        parallel_calls=parallel,
        output=output,
        user=text_field(metadata, "user_id", ""),
    )


def _read_thinking(thinking: Json | None, effort: str | None) -> tuple[ThinkingLevel | None, int | None]:
    level = _LEVELS.get(effort or "")
    kind = (thinking or {}).get("type")
    if kind == "disabled":
        return "off", None
    if kind == "enabled":
        budget = (thinking or {}).get("budget_tokens")
        return level, budget if isinstance(budget, int) else None
    return (level or "high" if kind == "adaptive" else level), None


def _read_output(config: Json, left: Json) -> OutputSchema | None:
    wanted = object_field(config, "format")
    if wanted.get("type") == "json_schema" and not extras(wanted, "type", "schema"):
        return OutputSchema(object_field(wanted, "schema"))
    if wanted:
        left["format"] = wanted
    return None


def _read_choice(body: Json, kept: Json) -> tuple[str | None, bool | None]:
    raw = object_field(body, "tool_choice")
    if not raw:
        return None, None
    kind = text_field(raw, "type")
    disabled = maybe(raw, "disable_parallel_tool_use", bool)
    parallel_calls = None if disabled is None else not disabled
    if kind == "tool":
        return f"tool:{text_field(raw, 'name')}", parallel_calls
    if kind in _CHOICES:
        return _CHOICES[kind], parallel_calls
    kept["tool_choice"] = raw
    return None, None


# --- passing on -------------------------------------------------------------------------------------------------------


class _Thinking(msgspec.Struct):
    type: str = ""


class _OutputConfig(msgspec.Struct):
    effort: Any = None


def takes(fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
    """Return whether a model accepts the request's form of thinking, and its sampling options."""
    if not facts.sampling and not fields.keys().isdisjoint(_SAMPLING):
        return False
    if facts.thinking_effort and facts.thinking_budget:
        return True
    try:
        kind = msgspec.json.decode(fields.get("thinking", b"{}"), type=_Thinking).type
        effort = msgspec.json.decode(fields.get("output_config", b"{}"), type=_OutputConfig).effort
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True  # the server will report what is wrong
    if not facts.thinking_effort:
        return kind != "adaptive" and effort is None
    return kind != "enabled"
