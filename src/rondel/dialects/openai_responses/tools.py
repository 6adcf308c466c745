"""Tools as OpenAI's Responses API has them, and ours: functions, custom tools, namespaces, tools of the provider.

Tools also come inside others: a namespace has several, and so has an item of the input that adds tools. In this dialect
they stay where they came. To others each is a tool by itself, and its calls come back as calls into the namespace.
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
"""The mark of a tool that stands inside another one or inside an item: its name there, and its namespace."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tools(body: Json, messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """The tools of a body and those that its items add, each with a name of its own."""
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
    """Two namespaces may each have a tool of the same name; other dialects have no namespaces."""
    for spec in inner:
        if spec.name in taken:
            namespace = own(spec, NAME)[INSIDE].get("namespace", ADDED)
            spec = msgspec.structs.replace(spec, name=f"{namespace}__{spec.name}")
        if spec.name not in taken:
            taken.add(spec.name)
            yield spec


def with_names_of(tools: Iterable[ToolSpec], messages: list[Message]) -> list[Message]:
    """The messages with each call that was made into a namespace named as its tool is, where that is another name."""
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
    """The tools that an item adds, those in its namespaces among them."""
    specs: list[ToolSpec] = []
    for tool in _tools_of(item) if item.get("type") == ADDED else ():
        specs += _inside(tool) or [_marked(tool)]
    return specs


def _inside(tool: ToolSpec) -> list[ToolSpec]:
    raw = own(tool, NAME)
    return [_marked(inner, tool.name) for inner in _tools_of(raw)] if raw.get("type") == "namespace" else []


def _tools_of(raw: Json) -> list[ToolSpec]:
    """What is inside a thing that may be newer than we are: what cannot be read of it is its provider's business."""
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
    """Write a tool; None if it cannot be offered here, or is written as part of another one."""
    kept = own(spec, NAME)
    if is_inside(spec):
        return None
    if "type" in kept:
        return kept
    if is_server_tool(spec):
        return None
    # Left open, strict mode would be on: every optional argument would be required, and many schemas refused.
    strict = spec.strict or False
    name = name_sent(spec.name, TOOL_NAME_MAX)
    tool: Json = {"type": "function", "name": name, "parameters": spec.schema or None, "strict": strict}
    if spec.description:
        tool["description"] = spec.description
    return merge(kept, tool)


def call_name_sent(call: ToolCall) -> str:
    """The name in a call that was made; in a namespace and of a custom tool it is the one that the caller gave it."""
    kept = own(call, NAME)
    if "namespace" in kept or kept.get("type") == CUSTOM_CALL:
        return kept.get("name", call.name)
    return name_sent(call.name, TOOL_NAME_MAX)


class Called(NamedTuple):
    """How a caller wants to be called: what a model that only knows functions cannot say."""

    name: str
    fields: Json


def calls_wanted(prompt: Prompt | None) -> Mapping[str, Called]:
    """The tools of a caller whose calls differ from a function's, by the name that a model knows."""
    wanted: dict[str, Called] = {}
    for spec in () if prompt is None else prompt.tools:
        kept = own(spec, NAME)
        if kept.get("type") == "custom" or INSIDE in kept:
            inside: Json = kept.get(INSIDE, {})
            kind: Json = {"type": CUSTOM_CALL} if kept.get("type") == "custom" else {}
            wanted[spec.name] = Called(inside.get("name", spec.name), {**kind, **extras(inside, "name")})
    return wanted


def as_wanted(part: Part, wanted: Mapping[str, Called]) -> Part:
    """A call as its caller wants it, also when it comes from a model that took the tool for a function."""
    if not wanted or not isinstance(part, ToolCall) or part.name not in wanted:
        return part
    name, fields = wanted[part.name]
    return msgspec.structs.replace(part, name=name, opaque={**part.opaque, NAME: {**own(part, NAME), **fields}})
