"""Example turns for small models, which follow what they have seen rather than what they are told. Pure.

They come between the instructions and the conversation, and depend on the tools only: a constant prefix stays in the
runtime's cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from ...values import Example, Message, Options, Text, ToolCall, ToolResult, ToolSpec, assistant, user
from .schema import must_call

PER_TOOL_MAX = 2
TOOLS_MAX = 12  # more tools than this are only described
DEPTH_MAX = 4
FIELDS_MAX = 4  # with more properties, an example has only the required ones

_SAID = (
    ("Hi there!", "Hello! What can I do for you?"),
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    (
        "Write a Python function that doubles a number.",
        "```python\ndef double(x):\n    return 2 * x\n```",
        "Now one that halves it.",
        "```python\ndef halve(x):\n    return x / 2\n```",
    ),
    ("How do I list the branches in git?", "Use `git branch`; with `-a` it also lists remote ones."),
    (
        "Write a rhyme about rain.",
        "The rain falls soft on roof and tree,\nand sings a quiet song for me.",
        "And a note to my boss that I am ill.",
        "Hello,\n\nI am ill and cannot come to work today.\n\nBest regards",
    ),
    ("Wie viele Tage hat eine Woche?", "Eine Woche hat sieben Tage.", "Und ein Jahr?", "Ein Jahr hat 365 Tage."),
    ("Book me a table for tonight.", "I am sorry, I cannot do that: I am only a program."),
    ("Thanks!", "You are welcome!"),
)
"""Questions and answers without a tool. If it saw none, a small model would call a tool for everything."""
_REMARKED = (
    ("[It is Monday, 05 January 2026, 08:10 (UTC).]\nGood morning!", "Good morning! How can I help?"),
    ("[It is Friday, 09 January 2026, 17:45 (UTC).]\nHow late is it now?", "It is 17:45."),
)
"""The same for prompts that give the time, or something else, before what the person says."""


def example_turns(tools: Sequence[ToolSpec], options: Options, *, remarks: bool = False) -> Iterator[Message]:
    """Yield turns that show when to answer and when to call, in the form of the conversation that follows them.
    `remarks` says whether the conversation has remarks before what the person says."""
    calls = [(tool, example) for tool in tools[:TOOLS_MAX] for example in _examples_of(tool, len(tools))]
    if must_call(options) or options.output is not None:  # then words alone are not an answer
        for tool, example in calls:
            yield from _called(tool, example)[:2]
        return
    whole = [(tool, example) for tool, example in calls if example.asked and example.said] or calls[:2]
    said = (*_SAID, *(_REMARKED if remarks else ()))
    every = max(1, len(said) // max(1, len(calls)))  # calls are spread among the answers
    for at, texts in enumerate(said, 1):
        yield from (assistant(text) if number % 2 else user(text) for number, text in enumerate(texts))
        if at % every == 0 and calls:
            yield from _called(*calls.pop(0))
    for tool, example in calls:
        yield from _called(tool, example)
    if len(whole) > 1:
        yield from _both(whole[0], whole[-1])
    if (made := next((tool for tool, example in whole if not example.asked), None)) and (twice := _twice(made)):
        yield from twice


def _examples_of(tool: ToolSpec, tools: int) -> tuple[Example, ...]:
    own = tool.examples[: PER_TOOL_MAX if tools <= 3 else 1]
    return own or (Example(_arguments(tool.schema)),)


def _called(tool: ToolSpec, example: Example) -> tuple[Message, ...]:
    call = ToolCall("example", tool.name, example.arguments)
    asked = user(example.asked or _request(tool, example.arguments))
    first = next((_text(value) for value in example.arguments.values()), tool.name)
    result = example.result or f"{first}: ready"
    return asked, assistant(call), _result(call, result), assistant(example.said or f"{result}.")


def _both(first: tuple[ToolSpec, Example], second: tuple[ToolSpec, Example]) -> Iterator[Message]:
    """Yield one turn of two steps."""
    (asked, *one, this), (then, *two, that) = _called(*first), _called(*second)
    joined = f"{asked.text} {then.text}" if first[1].asked else f"{asked.text}, and then: {then.text}"
    yield from (user(joined), *one, *two, assistant(f"{this.text} {that.text}"))


def _twice(tool: ToolSpec) -> tuple[Message, ...]:
    """Return one turn of two calls of the same tool; nothing if the schema gives no second value."""
    first, second = (_arguments(tool.schema, turn) for turn in (0, 1))
    if first == second:
        return ()
    (asked, *one, this), (then, *two, that) = (_called(tool, Example(arguments)) for arguments in (first, second))
    about, _, values = then.text.partition(": ")
    joined = f"{asked.text} and {values}" if about and values else f"{asked.text} {then.text}"
    return user(joined), *one, *two, assistant(f"{this.text} {that.text}")


def _result(call: ToolCall, text: str) -> Message:
    return Message("tool", (ToolResult(call.id, (Text(text),), call.name),))


# --- made from a tool's schema ----------------------------------------------------------------------------------------


def _request(tool: ToolSpec, arguments: dict[str, Any]) -> str:
    """Return what a person might say before this call: what the tool does, and the values."""
    about = re.split(r"(?<=[.!?])\s", " ".join(tool.description.split()), maxsplit=1)[0].rstrip(".")
    about = about or tool.name.replace("_", " ")
    values = [_text(value) for value in arguments.values()]
    if len(values) == 1:
        return f"{about}: {values[0]}"
    named = (f"{key.replace('_', ' ')} {value}" for key, value in zip(arguments, values, strict=True))
    return f"{about}: {', '.join(named)}" if values else f"{about}."


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _arguments(schema: dict[str, Any], turn: int = 0) -> dict[str, Any]:
    value = _value(schema | {"type": "object"}, "", schema, 0, turn)
    return cast("dict[str, Any]", value)


_STRINGS = {
    "city|town|place|location": ("Turin", "Ghent"),
    "country": ("Norway", "Chile"),
    "email|recipient|^to$": ("anna@example.com", "ben@example.com"),
    "name|person|who": ("Anna", "Ben"),
    "path|file": ("notes.txt", "list.csv"),
    "url|link|address": ("https://example.com", "https://example.org"),
    "date|day|when": ("2026-03-14", "2026-05-02"),
    "time": ("09:30", "16:45"),
    "lang": ("French", "Polish"),
    "currency": ("EUR", "USD"),
    "_id$|^id$|number|code": ("A17", "C58"),
    "title|subject|topic": ("Holiday", "Garden"),
    "room": ("hall", "attic"),
    "body|message|text|note|content": ("See you on Monday.", "The parcel is here."),
}
"""Values for strings whose schema gives none, by patterns of the property's name."""
_OTHERS = ("tea", "soap")
_NUMBERS = (3, 8)


def _value(schema: Any, name: str, root: dict[str, Any], depth: int, turn: int = 0) -> Any:
    """Return a value that the schema allows, and that a person might have meant; another one in each `turn`."""
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return _OTHERS[turn % 2]
    known: dict[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
    if isinstance(ref := known.get("$ref"), str):
        return _value(_resolve(ref, root), name, root, depth + 1, turn)
    for key in ("examples", "enum"):
        if isinstance(known.get(key), list) and known[key]:
            return known[key][turn % len(known[key])]
    if "const" in known:
        return known["const"]
    for key in ("anyOf", "oneOf"):
        if isinstance(known.get(key), list) and known[key]:
            return _value(known[key][0], name, root, depth + 1, turn)
    kind: Any = known.get("type")
    if isinstance(kind, list):
        kind = cast("list[Any]", kind)[0] if kind else None
    if kind == "object":
        properties: dict[str, Any] = known.get("properties", {})
        needed = [*properties] if len(properties) <= FIELDS_MAX else known.get("required") or [*properties][:1]
        fields = [key for key in properties if key in needed]
        # The property's place counts only for enums: two currencies of one call are different ones.
        turns = {key: turn + at if _has_choices(properties[key]) else turn for at, key in enumerate(fields)}
        return {key: _value(properties[key], key, root, depth + 1, turns[key]) for key in fields}
    if kind == "array":
        return [_value(known.get("items"), name, root, depth + 1, turn)]
    if kind in ("integer", "number"):
        number = _NUMBERS[turn % 2]
        return min(max(number, known.get("minimum", number)), known.get("maximum", 10**9))
    return {"boolean": True, "null": None}.get(str(kind), _string(known, name, turn))


def _has_choices(schema: Any) -> bool:
    return isinstance(schema, dict) and ("enum" in schema or "examples" in schema)


def _string(schema: dict[str, Any], name: str, turn: int) -> str:
    if found := re.search(r'"([^"]{1,60})"', str(schema.get("description", ""))):
        return found[1]
    formats = {
        "date": "2026-03-14",
        "time": "09:30:00",
        "date-time": "2026-03-14T09:30:00Z",
        "uri": "https://example.com",
    }
    if (made := formats.get(str(schema.get("format", "")))) is not None:
        return made
    values = next((values for pattern, values in _STRINGS.items() if re.search(pattern, name.lower())), _OTHERS)
    return values[turn % 2]


def _resolve(ref: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for key in ref.removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return found  # pyright: ignore[reportUnknownVariableType]
