"""Converts between the tools of OpenAI's Responses API and ours: functions, custom tools, namespaces, tools of the
provider.

Tools also come inside others: a namespace has several, and so does an item of the input that adds tools. In this
dialect they stay in their places. For other dialects each is a separate tool, and its calls are returned as calls into
the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ...contracts.dialect import Json
from ...prompt import Prompt
from ...values import Foreign, Message, Part, ToolCall, ToolSpec
from .._names import name_sent
from .._openai import TOOL_NAME_MAX, custom_schema
from .._wire import (
    WireError,
    each,
    extras,
    is_server_tool,
    maybe,
    merge,
    object_field,
    opaque,
    own,
    text_field,
)
from .parts import CUSTOM_CALL, NAME

ADDED = "additional_tools"  # an item of the input that adds tools
INSIDE = "inside"
"""Marks a tool inside another one or inside an item, with its name there and its namespace."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tools(body: Json, messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Return the tools of a body and those that its items add, each with a unique name."""
    found = each(body.get("tools"), "tools", _read_with_inside)
    specs = [tools[0] for tools in found]
    inner = [tool for tools in found for tool in tools[1:]]
    for message in messages:
        if message.role == "system" and message.parts and type(message.parts[0]) is Foreign:
            inner += _added(own(message.parts[0], NAME))
    return (*specs, *_with_own_names(inner, {spec.name for spec in specs})) if inner else tuple(specs)


def _read_with_inside(raw: Json) -> list[ToolSpec]:
    tool = _read_tool(raw)
    return [tool, *_inside(tool)]


def _with_own_names(inner: list[ToolSpec], taken: set[str]) -> Iterable[ToolSpec]:
    """Give tools unique names: two namespaces may have a tool of the same name, and other dialects have no
    namespaces."""
    for spec in inner:
        if spec.name in taken:
            namespace = own(spec, NAME)[INSIDE].get("namespace", ADDED)
            spec = msgspec.structs.replace(spec, name=f"{namespace}__{spec.name}")
        if spec.name not in taken:
            taken.add(spec.name)
            yield spec


def with_names_of(tools: Iterable[ToolSpec], messages: list[Message]) -> list[Message]:
    """Return the messages with each call into a namespace renamed to its tool's unique name."""
    names = {
        (inside.get("namespace"), inside["name"]): spec.name
        for spec in tools
        if (inside := own(spec, NAME).get(INSIDE)) and inside["name"] != spec.name
    }
    return [_with_names(message, names) for message in messages] if names else messages


def _with_names(message: Message, names: Mapping[tuple[str | None, str], str]) -> Message:
    parts = tuple(_call_named(part, names) if isinstance(part, ToolCall) else part for part in message.parts)
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _call_named(call: ToolCall, names: Mapping[tuple[str | None, str], str]) -> ToolCall:
    kept = own(call, NAME)
    name = names.get((kept.get("namespace"), call.name))
    if name is None:
        return call
    return msgspec.structs.replace(call, name=name, opaque={**call.opaque, NAME: {**kept, "name": call.name}})


def _added(item: Json) -> list[ToolSpec]:
    """Return the tools that an item adds, including those in its namespaces."""
    specs: list[ToolSpec] = []
    for tool in _tools_of(item) if item.get("type") == ADDED else ():
        specs += _inside(tool) or [_marked(tool)]
    return specs


def _inside(tool: ToolSpec) -> list[ToolSpec]:
    raw = own(tool, NAME)
    return [_marked(inner, tool.name) for inner in _tools_of(raw)] if raw.get("type") == "namespace" else []


def _tools_of(raw: Json) -> list[ToolSpec]:
    """Return the tools inside an object that may be newer than this code. What cannot be read is left to its
    provider."""
    try:
        return each(raw.get("tools"), "tools", _read_tool)
    except WireError:
        return []


def _marked(tool: ToolSpec, namespace: str = "") -> ToolSpec:
    inside = {"name": tool.name, "namespace": namespace} if namespace else {"name": tool.name}
    return msgspec.structs.replace(tool, opaque={NAME: {**own(tool, NAME), INSIDE: inside}})


def _read_tool(raw: Json) -> ToolSpec:
    kind = text_field(raw, "type")
    if kind != "function":
        name = text_field(raw, "name", "") or text_field(raw, "server_label", kind)
        description = raw.get("description")
        schema = custom_schema(object_field(raw, "format")) if kind == "custom" else {}
        return ToolSpec(name, description if isinstance(description, str) else "", schema, opaque={NAME: raw})
    return ToolSpec(
        text_field(raw, "name"),
        text_field(raw, "description", ""),
        object_field(raw, "parameters"),
        maybe(raw, "strict", bool) or None,
        opaque(NAME, extras(raw, "type", "name", "description", "parameters", "strict")),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def is_inside(spec: ToolSpec) -> bool:
    return INSIDE in own(spec, NAME)


def write_tool(spec: ToolSpec) -> Json | None:
    """Return a tool in this dialect; None if it cannot be offered here, or is written as part of another one."""
    kept = own(spec, NAME)
    if is_inside(spec):
        return None
    if "type" in kept:
        return kept
    if is_server_tool(spec):
        return None
    # Without this, strict mode would be on: every optional argument would be required, and many schemas refused.
    strict = spec.strict or False
    name = name_sent(spec.name, TOOL_NAME_MAX)
    tool: Json = {"type": "function", "name": name, "parameters": spec.schema or None, "strict": strict}
    if spec.description:
        tool["description"] = spec.description
    return merge(kept, tool)


def call_name_sent(call: ToolCall) -> str:
    """Return the name in a call: for a tool of a namespace and for a custom tool, the one that the caller gave it."""
    kept = own(call, NAME)
    if "namespace" in kept or kept.get("type") == CUSTOM_CALL:
        return kept.get("name", call.name)
    return name_sent(call.name, TOOL_NAME_MAX)


class Called(NamedTuple):
    """The form of calls that a caller expects, which a model that only knows functions cannot write."""

    name: str
    fields: Json


def calls_wanted(prompt: Prompt | None) -> Mapping[str, Called]:
    """Return the tools of a caller whose calls differ from a function's, by the name that a model knows."""
    wanted: dict[str, Called] = {}
    for spec in () if prompt is None else prompt.tools:
        kept = own(spec, NAME)
        if kept.get("type") == "custom" or INSIDE in kept:
            inside: Json = kept.get(INSIDE, {})
            kind: Json = {"type": CUSTOM_CALL} if kept.get("type") == "custom" else {}
            wanted[spec.name] = Called(inside.get("name", spec.name), {**kind, **extras(inside, "name")})
    return wanted


def as_wanted(part: Part, wanted: Mapping[str, Called]) -> Part:
    """Return a call in the form that its caller expects, even if the model treated the tool as a function."""
    if not wanted or not isinstance(part, ToolCall) or part.name not in wanted:
        return part
    name, fields = wanted[part.name]
    return msgspec.structs.replace(part, name=name, opaque={**part.opaque, NAME: {**own(part, NAME), **fields}})
