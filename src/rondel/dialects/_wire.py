"""What the dialects share: reading untrusted JSON with clear errors, and the few shapes that all wire formats have.

How opaque data works: `opaque[dialect]` holds the wire fields that our values have no field for. Reading takes the
known fields and keeps the rest (`extras`); writing adds the rest again (`merge`), and our values win if both have a
field. A part of an unknown kind is a Foreign with the whole block as its opaque.

Knows no single wire format, no network and no clock.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import msgspec

from ..contracts.dialect import Json
from ..errors import EngineGarbled, PromptRejected
from ..values import (
    Delta,
    Media,
    Opaque,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)

decode_json: Callable[[str | bytes | msgspec.Raw], Any] = msgspec.json.Decoder().decode
encode_json: Callable[[Any], bytes] = msgspec.json.Encoder().encode

T = TypeVar("T")
_OBJECT: type[Json] = dict
_LIST: type[list[Any]] = list
_MISSING: Any = object()


class WireError(Exception):
    """Something on the wire is not what its dialect says. `path` grows while the error travels up."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def __str__(self) -> str:
        return f"{self.path!r} {self.problem}" if self.path else f"the body {self.problem}"

    def inside(self, step: str) -> WireError:
        """Return the same error, with its path from one level further out."""
        self.path = step + self.path if self.path.startswith("[") else f"{step}.{self.path}".removesuffix(".")
        return self


@contextmanager
def at(step: str) -> Generator[None]:
    """Add a step to the path of errors that are raised inside: `step.inner`."""
    try:
        yield
    except WireError as error:
        raise error.inside(step) from None


def each(raws: object, where: str, read: Callable[[Json], T]) -> list[T]:
    """Read each object of a list; none if it is missing. An error names the index."""
    values: list[T] = []
    if raws is None:
        return values
    if not isinstance(raws, list):
        raise WireError(where, f"must be a list, got {shown(raws)}")
    try:
        for raw in raws:  # pyright: ignore[reportUnknownVariableType]
            if type(raw) is not dict:  # pyright: ignore[reportUnknownArgumentType]
                raise WireError("", f"must be an object, got {shown(raw)}")  # pyright: ignore[reportUnknownArgumentType]
            values.append(read(raw))  # pyright: ignore[reportUnknownArgumentType]
    except WireError as error:
        raise error.inside(f"{where}[{len(values)}]") from None
    return values


@contextmanager
def reading_prompt(dialect: str) -> Generator[None]:
    """Turn errors into PromptRejected: the sender of the prompt made the mistake."""
    try:
        yield
    except WireError as error:
        raise PromptRejected(f"this is not a valid {dialect} request: {error}", code="invalid_request") from None


@contextmanager
def reading_reply(dialect: str) -> Generator[None]:
    """Turn errors into EngineGarbled: the model server made the mistake."""
    try:
        yield
    except WireError as error:
        raise EngineGarbled(f"the answer does not follow the {dialect} protocol: {error}") from None


def shown(value: object) -> str:
    """Return a value for an error message, cut to 80 characters."""
    text = repr(value[:80] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 80 else text[:77] + "..."


_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def field(raw: Json, key: str, kind: type[T], default: T = _MISSING) -> T:
    """Return `raw[key]`, checked. Missing and null give the default; without one they are an error that names the
    key."""
    value = raw.get(key)
    if value is None:
        if default is _MISSING:
            raise WireError(key, f"is missing: it must be {_NAMES[kind]}")
        return default
    if kind is float and type(value) is int:
        return cast(T, float(value))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise WireError(key, f"must be {_NAMES[kind]}, got {shown(value)}")
    return value


def text_field(raw: Json, key: str, default: str = _MISSING) -> str:
    value = raw.get(key)
    return value if type(value) is str else field(raw, key, str, default)


def object_field(raw: Json, key: str) -> Json:
    """Return `raw[key]` as an object; empty if it is missing."""
    value = raw.get(key)
    return value if type(value) is dict else field(raw, key, _OBJECT, {})  # pyright: ignore[reportUnknownVariableType]


def count_field(raw: Json, key: str) -> int:
    """Return a number of tokens: 0 if it is missing. Some servers write whole numbers as 3.0."""
    value = raw.get(key)
    if type(value) is int:
        return value
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return field(raw, key, int, 0)


def maybe(raw: Json, key: str, kind: type[T]) -> T | None:
    """Return `raw[key]`, checked; None if it is missing."""
    return None if raw.get(key) is None else field(raw, key, kind)


def list_field(raw: Json, key: str) -> list[Any]:
    return field(raw, key, _LIST)


def objects(raw: Json, key: str) -> list[Json]:
    """Return `raw[key]` as a list of objects; empty if it is missing."""
    given = raw.get(key)
    values = cast("list[Any]", given) if type(given) is list else field(raw, key, _LIST, [])
    for value in values:
        if type(value) is not dict:
            raise WireError(f"{key}[{values.index(value)}]", f"must be an object, got {shown(value)}")
    return values


def strings(raw: Json, key: str) -> tuple[str, ...]:
    """Return `raw[key]` as strings; empty if it is missing."""
    values = field(raw, key, _LIST, [])
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise WireError(f"{key}[{index}]", f"must be a string, got {shown(value)}")
    return tuple(values)


def as_object(value: object) -> Json:
    if not isinstance(value, dict):
        raise WireError("", f"must be an object, got {shown(value)}")
    return value  # pyright: ignore[reportUnknownVariableType]


def parse_object(data: str | bytes) -> Json:
    try:
        value = decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise WireError("", f"is not JSON: {shown(data)}") from None
    return value if type(value) is dict else as_object(value)  # pyright: ignore[reportUnknownVariableType]


# --- opaque -----------------------------------------------------------------------------------------------------------


def extras(raw: Mapping[str, Any], *known: str) -> Json:
    """Return the unknown fields of `raw`, without nulls: servers write null for an absent field."""
    left: Json = {}
    for key in raw:  # a comprehension would be a call of its own, and usually nothing is left
        if key not in known and (value := raw[key]) is not None:
            left[key] = value
    return left


def opaque(dialect: str, fields: Json) -> Opaque:
    return {dialect: fields} if fields else {}


def own(holder: Any, dialect: str) -> Json:
    kept = holder.opaque and holder.opaque.get(dialect)
    return cast(Json, kept) if type(kept) is dict else {}


def merge(kept: Mapping[str, Any], base: Json) -> Json:
    """Return `base` with the kept fields added, also in nested objects; `base` wins where both have a value."""
    if not kept:
        return base
    merged = dict(base)
    for key, value in kept.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict):
            merged[key] = merge(cast(Json, value), cast(Json, merged[key]))
    return merged


def is_server_tool(spec: ToolSpec) -> bool:
    """Return whether a provider runs this tool: it has no schema, but one dialect's own definition with a `type`."""
    if not spec.opaque or spec.schema:
        return False
    return any(isinstance(fields, dict) and "type" in fields for fields in spec.opaque.values())


def write_tools(
    tools: Iterable[ToolSpec], choice: str | None, write: Callable[[ToolSpec], Json | None]
) -> tuple[list[Json], str | None]:
    """Return the tools that can be offered, and the choice, unless it names a tool that cannot."""
    wire: list[Json] = []
    for spec in tools:
        if (tool := write(spec)) is not None:
            wire.append(tool)
        elif choice == f"tool:{spec.name}":
            choice = None
    return wire, choice


def exact_word(said: object, meant: T, means: Callable[[str], T], plain: Mapping[T, str]) -> str:
    """Return the wire word for `meant`: the one that was read if it still means the same, otherwise the usual one."""
    if isinstance(said, str) and means(said) == meant:
        return said
    return plain[meant]


# --- calls and media --------------------------------------------------------------------------------------------------


def read_arguments(text: str) -> tuple[Json, str]:
    """Return a call's arguments from their JSON text, or the text itself if it is not a JSON object."""
    if not text.strip():
        return {}, ""
    try:
        value = decode_json(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}, text
    return (cast(Json, value), "") if isinstance(value, dict) else ({}, text)


def write_arguments(call: ToolCall) -> str:
    return call.broken or encode_json(call.arguments).decode()


def read_data_url(url: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a base64 `data:` URL; None for any other URL."""
    if not url.startswith("data:"):
        return None
    head, _, body = url[5:].partition(",")
    mime, _, encoding = head.rpartition(";")
    return (mime, read_base64(body)) if encoding == "base64" else None


def write_data_url(media: Media, mime_default: str) -> str:
    return f"data:{media.mime or mime_default};base64,{write_base64(media.data)}"


def read_base64(text: str, where: str = "") -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise WireError(where, f"must be base64, got {shown(text)}") from None


def write_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def mention(media: Media) -> str:
    """Return a note in place of a medium that a wire format cannot carry, so that the model knows about it."""
    name = media.name or media.url or media.file_id or media.mime or "without a name"
    return f"[{media.kind} left out, it cannot be sent here: {name}]"


def moved_media_text(call_id: str) -> str:
    """Return the text before media of a tool's result that moved into a user message."""
    return f"The media of the result of tool call {call_id}:"


def error_parts(result: ToolResult) -> tuple[Text | Media, ...]:
    """Return the result of a failed call for wire formats without a field for failures: its text says so, once."""
    parts = tuple(part for part in result.parts if part != Text(""))
    if not parts or result.text.lstrip()[:5].lower() == "error":
        return parts or (Text("Error"),)
    if isinstance(first := parts[0], Text):
        return (msgspec.structs.replace(first, text=f"Error: {first.text}"), *parts[1:])
    return (Text("Error:"), *parts)


# --- streams ----------------------------------------------------------------------------------------------------------


def streamed_tail(part: object, length: int) -> str:
    """Return what a finished part has beyond the first `length` characters, which its deltas had."""
    if isinstance(part, (Text, Thinking)):
        return part.text[length:]
    if isinstance(part, ToolCall) and not length:
        return write_arguments(part)
    return ""


class PartsInOrder:
    """Puts parts that overlap in order, for wire formats that write one part after the other.

    The part that started first passes at once; the deltas of the others wait until it has finished.
    """

    def __init__(self) -> None:
        self.current: int | None = None  # the part that passes at once
        self._waiting: dict[int, list[Delta]] = {}

    def feed(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartDelta) and delta.index == self.current:
            return (delta,)
        if isinstance(delta, (PartStarted, PartDelta, PartFinished)):
            if self.current is None:
                self.current = delta.index
            if delta.index != self.current:
                self._waiting.setdefault(delta.index, []).append(delta)
                return ()
            return self._next(delta) if isinstance(delta, PartFinished) else (delta,)
        if isinstance(delta, ReplyFinished) and self._waiting:
            late = [waiting for deltas in self._waiting.values() for waiting in deltas]
            self._waiting.clear()
            return (*late, delta)
        return (delta,)

    def _next(self, finished: Delta) -> Iterable[Delta]:
        ready = [finished]
        self.current = None
        while self._waiting and self.current is None:
            index = next(iter(self._waiting))
            ready += self._waiting.pop(index)
            if not isinstance(ready[-1], PartFinished):
                self.current = index
        return ready
