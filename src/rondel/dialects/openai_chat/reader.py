"""Reads streamed replies of OpenAI's Chat Completions API.

A stream is chunks with a delta each, one with a finish reason, perhaps one with usage and no choices, then `[DONE]`.
Parts have no delimiters: a part begins with its first piece and ends when prose of another kind begins, or with the
reply. Nearly compatible servers are supported, too: no `[DONE]`, calls without an index, usage in every chunk.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from ...contracts.dialect import Json
from ...values import (
    Delta,
    Foreign,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
)
from .._failures import error_in_stream
from .._reader import EventReader
from .._wire import (
    WireError,
    each,
    encode_json,
    extras,
    object_field,
    objects,
    opaque,
    parse_object,
    read_arguments,
    text_field,
)
from .parts import DETAILS, NAME, THINKING_FIELDS, read_call, read_citations, thinking_of
from .reply import BODY_FIELDS, MESSAGE_FIELDS, read_ending, read_reply, read_usage

_KNOWN = frozenset((*BODY_FIELDS, "obfuscation"))
ProseKind: TypeAlias = Literal["thinking", "text", "refusal"]


class _Prose:
    """A text, a refusal or a thought while it streams."""

    def __init__(self, kind: ProseKind, index: int, name: str, base: int) -> None:
        self.kind, self.index, self.name, self.base = kind, index, name, base
        self.pieces: list[str] = []
        self.details: list[Json] = []
        self.annotations: list[Json] = []

    def part(self) -> Part:
        text = "".join(self.pieces)
        if self.kind == "thinking":
            return thinking_of(text, self.name, self.details)
        return Text(text, self.kind == "refusal", read_citations(self.annotations, self.base))


class _Call:
    """A call while it streams."""

    def __init__(self, index: int, id: str, name: str) -> None:
        self.index, self.id, self.name = index, id, name
        self.pieces: list[str] = []
        self.raw: Json = {}

    def part(self) -> ToolCall:
        if not self.raw:
            return ToolCall(self.id, self.name, *read_arguments("".join(self.pieces)))
        kind = self.raw.get("type", "function")
        inner = object_field(self.raw, kind)
        inner = {**inner, "name": self.name, "input" if kind == "custom" else "arguments": "".join(self.pieces)}
        return read_call({**self.raw, "id": self.id, kind: inner})


class OpenAIChatReader(EventReader):
    name = NAME
    ends_with = "finish reason"

    def __init__(self) -> None:
        super().__init__()
        self._next = 0
        self._prose: _Prose | None = None
        self._calls: dict[int, _Call] = {}
        self._parts: list[Part] = []
        self._fields: Json = {}
        self._kept: Json = {}
        self._usage: Json = {}
        self._ending: str | None = None
        self._content_length = 0
        self._started = False

    def _whole(self, body: Json) -> Reply:
        return read_reply(body)

    def _missing_end(self, out: list[Delta]) -> None:
        """Return the end that some servers leave out: a finish reason is enough without `[DONE]`."""
        if self._ending is None:
            super()._missing_end(out)
        self._stop(out)

    def _event(self, data: bytes, out: list[Delta]) -> None:
        if data == b"[DONE]":
            return self._stop(out)
        raw = parse_object(data if data.isascii() else data.decode("utf-8", "replace"))
        if raw.get("error"):
            raise error_in_stream(raw["error"])
        if not self._started:
            self._start(raw, out)
        if raw.get("usage") is not None:
            self._usage = object_field(raw, "usage")
        choices = objects(raw, "choices")
        for choice in choices:
            if choice.get("index"):  # only the first answer is read
                continue
            self._delta(object_field(choice, "delta"), out)
            if choice.get("finish_reason"):
                self._ending = text_field(choice, "finish_reason")
        if not choices or self._ending is not None:
            self._kept |= _left(raw)

    def _start(self, raw: Json, out: list[Delta]) -> None:
        if "choices" not in raw:
            raise WireError("choices", "is missing: an answer is a stream of chunks with choices")
        self._started = True
        self._kept = _left(raw)
        if raw.get("created"):
            self._kept["created"] = raw["created"]
        out.append(ReplyStarted(text_field(raw, "model", ""), text_field(raw, "id", "")))

    def _delta(self, delta: Json, out: list[Delta]) -> None:
        for key, value in delta.items():
            if not value and (value is None or value == ""):
                continue
            if key == "content":
                text = value if isinstance(value, str) else _text_of(value)
                self._piece("text", text, "", out)
                self._content_length += len(text)
            elif key in THINKING_FIELDS:
                if key == THINKING_FIELDS[0] or not delta.get(THINKING_FIELDS[0]):  # some servers send both
                    self._piece("thinking", text_field(delta, key), key, out)
            elif key == "tool_calls":
                self._calls_in(objects(delta, key), out)
            elif key == "refusal":
                self._piece("refusal", text_field(delta, key), "", out)
            elif key == "annotations":
                self._prose_of("text", "", out).annotations.extend(objects(delta, key))
            elif key == DETAILS:
                details = objects(delta, key)
                _grow_details(self._prose_of("thinking", "", out).details, details)
            elif key not in MESSAGE_FIELDS:
                _grow(self._fields, key, value)

    def _piece(self, kind: ProseKind, text: str, name: str, out: list[Delta]) -> None:
        prose = self._prose
        if prose is None or prose.kind != kind:
            prose = self._prose_of(kind, name, out)
        if not prose.name:
            prose.name = name
        prose.pieces.append(text)
        out.append(PartDelta(prose.index, text))

    def _prose_of(self, kind: ProseKind, name: str, out: list[Delta]) -> _Prose:
        """Return the open prose of this kind: the last one, or a new one after the previously open one."""
        if self._prose is not None and self._prose.kind == kind:
            return self._prose
        self._close_prose(out)
        self._prose = _Prose(kind, self._next, name, self._content_length)
        self._next += 1
        part = thinking_of("", name, []) if kind == "thinking" else Text("", kind == "refusal")
        out.append(PartStarted(self._prose.index, part))
        return self._prose

    def _close_prose(self, out: list[Delta]) -> None:
        if self._prose is not None:
            self._finish_part(self._prose.index, self._prose.part(), out)
            self._prose = None

    def _finish_part(self, index: int, part: Part, out: list[Delta]) -> None:
        self._parts.append(part)
        out.append(PartFinished(index, part))

    def _calls_in(self, pieces: list[Json], out: list[Delta]) -> None:
        self._close_prose(out)
        for position, piece in enumerate(pieces):
            if self._is_more(piece, out):
                continue
            kind = text_field(piece, "type", "") or ("custom" if "custom" in piece else "function")
            inner = object_field(piece, kind)
            number = piece.get("index")
            slot = number if isinstance(number, int) else position
            left = extras(piece, "index", "id", "type", kind)
            if inner_left := extras(inner, "name", "arguments", "input"):
                left[kind] = inner_left
            if kind == "custom":
                left["type"] = kind
            call = self._call_at(slot, text_field(piece, "id", ""), text_field(inner, "name", ""), left, out)
            text = inner.get("arguments" if kind == "function" else "input") or ""
            text = text if isinstance(text, str) else encode_json(text).decode()
            if text:
                call.pieces.append(text)
                if call.raw.get("type") != "custom":
                    out.append(PartDelta(call.index, text))

    def _is_more(self, piece: Json, out: list[Delta]) -> bool:
        """Read a piece that only adds to a call's arguments, as most pieces do. Return False for any other."""
        number = piece.get("index")
        call = self._calls.get(number) if type(number) is int and len(piece) == 2 else None
        if call is None or call.raw:
            return False
        inner = object_field(piece, "function")
        text = inner.get("arguments")
        if len(inner) != 1 or type(text) is not str:
            return False
        if text:
            call.pieces.append(text)
            out.append(PartDelta(call.index, text))
        return True

    def _call_at(self, slot: int, id: str, name: str, left: Json, out: list[Delta]) -> _Call:
        """Return the call that a piece belongs to, with the piece's other fields. A new id and name at an old index is
        a new call."""
        call = self._calls.get(slot)
        if call is not None and id and name and id != call.id:
            self._finish_part(call.index, call.part(), out)
            call = None
        if call is None:
            call = self._calls[slot] = _Call(self._next, id or f"call_{self._next}", name)
            self._next += 1
            out.append(PartStarted(call.index, ToolCall(call.id, name, opaque=opaque(NAME, left))))
        call.name = call.name or name
        for key, value in left.items():
            if key != "type":
                _grow(call.raw, key, value)
            else:
                call.raw[key] = value
        return call

    def _stop(self, out: list[Delta]) -> None:
        if not self._started:
            raise WireError("", "is '[DONE]' before any chunk")
        self._done = True
        self._close_prose(out)
        for call in sorted(self._calls.values(), key=lambda call: call.index):
            self._finish_part(call.index, call.part(), out)
        if self._fields:
            part = Foreign({NAME: self._fields})
            out.append(PartStarted(self._next, part))
            self._finish_part(self._next, part, out)
        stop, ending = read_ending(self._ending or "", self._usage, self._parts)
        out.append(ReplyFinished(stop, read_usage(self._usage), opaque(NAME, {**self._kept, **ending})))


def _left(raw: Json) -> Json:
    return {key: value for key, value in raw.items() if key not in _KNOWN and value is not None}


def _text_of(content: object) -> str:
    """Return the text of a delta's content that is a list of parts, as a few servers write it."""
    return "".join(each(content, "content", lambda part: text_field(part, "text", "")))


def _grow(fields: Json, key: str, value: Any) -> None:
    """Add a piece of an unknown field: texts and lists grow, objects merge, anything else is replaced."""
    old = fields.get(key)
    if isinstance(old, str) and isinstance(value, str):
        fields[key] = old + value
    elif isinstance(old, list) and isinstance(value, list):
        fields[key] = [*cast(list[Any], old), *cast(list[Any], value)]
    elif isinstance(old, dict) and isinstance(value, dict):
        inner = dict(cast(Json, old))
        for name, piece in cast(Json, value).items():
            _grow(inner, name, piece)
        fields[key] = inner
    elif value is not None:
        fields[key] = value


def _grow_details(details: list[Json], pieces: list[Json]) -> None:
    """Add reasoning details. Pieces with the same type and index belong together."""
    for piece in pieces:
        last = details[-1] if details else None
        if last is None or any(last.get(key) != piece.get(key) for key in ("type", "index")):
            details.append(dict(piece))
            continue
        for key, value in extras(piece, "type", "index", "id", "format").items():
            _grow(last, key, value)
