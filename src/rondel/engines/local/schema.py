"""What the model may write: JSON schemas with a limit on every string and list, and the grammar of one. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...contracts.dialect import Json
from ...values import Options, ToolSpec

STRING_CHARS_MAX = 2000
"""The limit on every string of constrained output: small models do not always find the closing quote."""
ITEMS_MAX = 64

_STRING: Json = {"type": "string", "maxLength": STRING_CHARS_MAX}
_SCALAR: Json = {"anyOf": [_STRING, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]}
_ANY: Json = {
    "anyOf": [
        *_SCALAR["anyOf"],
        {"type": "array", "items": _SCALAR, "maxItems": ITEMS_MAX},
        {"type": "object", "additionalProperties": _SCALAR},
    ]
}
_STYLE: Json = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
"""Written as `json.dumps` writes: no tokens for white space, and the same bytes when it comes back as history."""
_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})


def must_call(options: Options) -> bool:
    """Return whether the model must call a tool."""
    return (options.tool_choice or "auto") not in ("auto", "none")


def document_schema(schema: Json) -> Json:
    return {"x-guidance": _STYLE, "$defs": {"output": _bounded(schema, "#/$defs/output")}, "$ref": "#/$defs/output"}


def union_schema(tools: Sequence[ToolSpec], options: Options) -> Json:
    """Return the schema of one JSON object: say something, or call one of the tools. Without tools, only the former."""
    defs, cases = dict[str, Json](), list[Json]()
    if not must_call(options):
        say = _STRING
        if options.output is not None:
            defs["output"], say = _bounded(options.output.schema, "#/$defs/output"), {"$ref": "#/$defs/output"}
        cases.append(_object({"say": say}))
    for number, tool in enumerate(tools):
        key = f"tool{number}"
        defs[key] = _bounded({"type": "object", "properties": {}, **tool.schema}, f"#/$defs/{key}")
        cases.append(_object({"tool": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/{key}"}}))
    return {"x-guidance": _STYLE, "$defs": defs, "anyOf": cases}


def grammar_of(schema: Json) -> str:
    """Return a schema of this module as the grammar that the decoder follows.

    The words of a `say` may have bare quotes, newlines and tabs in them, which JSON does not allow: a small model
    forgets to escape those of code and poems, and its answer would end there. Only the limit on tokens applies to them:
    an answer that the grammar cuts off would look whole.
    """
    if "anyOf" not in schema:
        return f"%llguidance {{}}\nstart: %json {json.dumps(schema)}"
    # Every case begins after the same `{"`: the lexer matches the longest literal, and would lose the cases with JSON.
    rules = [f"start: {_literal(_OPEN)} ({' | '.join(f'case{n}' for n in range(len(schema['anyOf'])))})"]
    for number, case in enumerate(schema["anyOf"]):
        head, value = "", case["properties"].get("say")
        if value is None:
            name, value = case["properties"]["tool"]["const"], case["properties"]["arguments"]
            head = f'tool": {_literal(name)}, "arguments": '
        if "$ref" in value:
            key = value["$ref"].removeprefix("#/$defs/")
            document = {"x-guidance": _STYLE, "$defs": {key: schema["$defs"][key]}, **value}
            rules.append(f"case{number}: {_literal(head or _SAY)} value{number} {_literal('}')}")
            rules.append(f"value{number}: %json {json.dumps(document)}")
        else:
            rules.append(f"case{number}: {_literal(_SAY + _QUOTE)} WORDS")
    return "\n".join(("%llguidance {}", *rules, f"WORDS: /{_WORDS}/"))


_ESCAPED = r"\\[^NO]"  # a quote after a backslash is text, whatever follows
_WORDS = (
    # Anything, with newlines and tabs; a newline after `"}` is the end.
    rf"""([^"\\NO]|{_ESCAPED}|("+\}})*"+([^"\}}\\NO]|{_ESCAPED})|("+\}})+([^"\n\\NO]|{_ESCAPED}))*"""
    r"""(("+\})*"*|("+\})+\n)"""
).replace("NO", r"\x00-\x08\x0b-\x1f")
_OPEN, _SAY, _QUOTE = '{"', 'say": ', '"'


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _bounded(schema: Any, base: str) -> Json:
    """Return the schema with a maximum for every string and list, and only with keywords that the decoder knows: it
    silently drops a grammar with any other. `base` is the path of the schema in the whole document."""
    if not isinstance(schema, dict):
        return _ANY
    known: Json = schema  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in known:
        ref = str(known["$ref"])
        return {"$ref": base + ref[1:]} if ref.startswith("#") else _ANY
    kept: Json = {key: known[key] for key in ("enum", "const") if key in known}
    for key in ("$defs", "definitions"):
        if key in known:
            kept[key] = {name: _bounded(each, base) for name, each in known[key].items()}
    if "enum" in known or "const" in known:
        return kept
    for key, ours in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if key in known:
            return kept | {ours: [_bounded(each, base) for each in known[key]]}
    kind: Any = known.get("type", "object" if "properties" in known else None)
    kinds: list[Any] = kind if isinstance(kind, list) else [kind]  # pyright: ignore[reportUnknownVariableType]
    if not _TYPES.issuperset(kinds):
        return kept | _ANY
    cases = [_typed(each, known, base) for each in kinds]
    return kept | (cases[0] if len(cases) == 1 else {"anyOf": cases})


def _typed(kind: str, schema: Json, base: str) -> Json:
    kept: Json = {"type": kind}
    if kind == "string":
        kept["maxLength"] = min(schema.get("maxLength", STRING_CHARS_MAX), STRING_CHARS_MAX)
        kept["minLength"] = min(schema.get("minLength", 0), kept["maxLength"])
    elif kind in ("number", "integer"):
        limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        kept |= {key: schema[key] for key in limits if key in schema}
    elif kind == "array":
        if "prefixItems" in schema:
            kept["prefixItems"] = [_bounded(each, base) for each in schema["prefixItems"]]
        kept["items"] = False if schema.get("items") is False else _bounded(schema.get("items"), base)
        kept["maxItems"] = min(schema.get("maxItems", ITEMS_MAX), ITEMS_MAX)
        kept["minItems"] = min(schema.get("minItems", 0), kept["maxItems"])
    elif kind == "object":
        properties: Json = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        kept["properties"] = {key: _bounded(each, base) for key, each in properties.items()}
        kept["required"] = [key for key in schema.get("required", ()) if key in properties]
        kept["additionalProperties"] = (
            _bounded(others, base) if isinstance(others, dict) else _SCALAR if others and not properties else False
        )
    return kept
