"""An agent's inputs: named and typed, checked and converted, from a call's arguments or from a text. Pure.

`inputs` are the properties of a JSON schema, each with one additional key: `required`, false by default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import ToolError, cut, nearest
from ..tool import tool

Fields: TypeAlias = Mapping[str, Any]  # inputs by name, each a property of a JSON schema with `required`

TEXT_INPUT: Fields = {"input": {"type": "string", "description": "what the agent should do", "required": True}}
"""The input of an agent that declares none."""

_INT = re.compile(r"[-+]?\d{1,400}")
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPED = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")


def typed(field: Mapping[str, Any]) -> dict[str, Any]:
    return dict(field) if any(key in field for key in _TYPED) else {"type": "string", **field}


def is_required(field: Mapping[str, Any]) -> bool:
    return field.get("required") is True


def schema_of(fields: Fields) -> dict[str, Any]:
    properties = {name: {k: v for k, v in typed(field).items() if k != "required"} for name, field in fields.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, field in fields.items() if is_required(field)],
    }


def check(agent: str, fields: Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for an agent, each as its declared type, with defaults. `null` counts as missing, and so does a
    blank text for a required input. Raises a ToolError that says what is wrong or missing."""
    for name in given:
        if name not in fields:
            raise ToolError(f"agent {agent!r} has no input {name!r}{nearest(name, tuple(fields))}")
    values: dict[str, Any] = {}
    missing: list[str] = []
    for name, field in fields.items():
        value = given.get(name)
        if value is None:
            value = field.get("default")
        if is_required(field) and (value is None or (isinstance(value, str) and not value.strip())):
            missing.append(name)
        elif value is not None:
            values[name] = coerce(f"input {name!r} of agent {agent!r}", value, field)
    if missing:
        raise ToolError(f"{agent!r} still needs {', '.join(missing)}")
    return values


def described_by(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    made = tool(function)
    schema = inlined(made.schema)
    required = cast("list[str]", schema.get("required", []))
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    inputs = {name: {**field, **({"required": True} if name in required else {})} for name, field in properties.items()}
    return made.description, inputs


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its definitions inlined, so that each input can be used alone."""
    found = cast("dict[str, Any]", schema.get("$defs", {}))

    def put(value: Any, around: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [put(item, around) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, Any]", value)
        name = str(table.get("$ref", "")).removeprefix("#/$defs/")
        if name in found and name not in around:
            return put(found[name], (*around, name))
        return {key: put(item, around) for key, item in table.items() if key != "$defs"}

    return put(schema, ())


def validator(agent: str, fields: Fields) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda given: check(agent, fields, given)


def from_text(fields: Fields, text: str) -> dict[str, Any] | None:
    """Return the values if the text is a JSON object of these inputs, or if there is only one input. None if a model
    has to extract them."""
    from .lenient import parse_object  # which compiles many patterns

    if not fields:
        return {}
    if (found := parse_object(text)) is not None and found.keys() <= fields.keys():
        return found
    if len(fields) > 1 or not text.strip():
        return None if text.strip() else {}
    ((name, field),) = fields.items()
    try:
        return {name: coerce(name, text if _types(field) == ["string"] else text.strip(), field)}
    except ToolError:
        return None


def coerce(what: str, value: Any, field: Mapping[str, Any]) -> Any:
    """Return a value as the type of a property, or raise a ToolError that starts with `what`."""
    types = _types(field)
    made = _first_fitting(value, types, field) if types else value
    if made is _NO:
        wanted = " or ".join(dict.fromkeys(_KINDS[kind][1] if kind in _KINDS else repr(kind) for kind in types))
        raise ToolError(f"{what} must be {wanted}, not {cut(value)}")
    choices = cast("list[Any] | None", field.get("enum"))
    if choices is not None and made not in choices:
        folded = {str(choice).casefold(): choice for choice in choices if isinstance(choice, str)}
        if not isinstance(made, str) or made.strip().casefold() not in folded:
            raise ToolError(f"{what} must be one of {', '.join(map(cut, choices))}, not {cut(value)}")
        made = folded[made.strip().casefold()]
    return made


_NO = object()


def _first_fitting(value: Any, types: list[str], field: Mapping[str, Any]) -> Any:
    """Return the value as the first type that it already has, or else that it can be converted to."""
    for kind in types:
        if _is(kind, value):
            return _inner(value, kind, field)
    for kind in types:
        if (made := _made(kind, value)) is not _NO:
            return _inner(made, kind, field)
    return _NO


def _types(field: Mapping[str, Any]) -> list[str]:
    kind = typed(field).get("type")
    return [kind] if isinstance(kind, str) else cast("list[str]", kind or [])


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind not in _KINDS or isinstance(value, _KINDS[kind][0])


def _made(kind: str, value: Any) -> Any:
    """Convert a value to this type, such as a number in a text."""
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else _NO
    if isinstance(value, float) and kind == "integer":
        return int(value) if value.is_integer() else _NO
    if not isinstance(value, str):
        return _NO
    text = value.strip()
    if kind == "integer":
        return int(text) if _INT.fullmatch(text) else _NO
    if kind == "number":
        return _number(text)
    if kind == "boolean":
        return _TRUTHS.get(text.lower(), _NO)
    if kind in ("array", "object"):
        try:
            decoded = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return _NO
        return decoded if _is(kind, decoded) else _NO
    return _NO


def _number(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return _NO
    if not math.isfinite(number):
        return _NO
    return int(text) if _INT.fullmatch(text) else number


def _inner(value: Any, kind: str, field: Mapping[str, Any]) -> Any:
    items = field.get("items")
    if kind != "array" or not isinstance(items, dict):
        return value
    return [
        coerce(f"item {index}", item, cast("dict[str, Any]", items))
        for index, item in enumerate(cast("list[Any]", value), 1)
    ]


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "a table of keys and values"),
    "null": (type(None), "nothing"),
}
