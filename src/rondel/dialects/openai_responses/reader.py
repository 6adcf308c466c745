"""Reads streamed replies of OpenAI's Responses API.

    response.created, then for each item response.output_item.added, its pieces, response.output_item.done, then
    response.completed or response.incomplete; response.failed or error instead of the rest.

The item in `output_item.done` is complete and is the one that is read; the pieces before it are for watchers. Items
that a server does not announce are taken from the final response.
"""

from __future__ import annotations

import msgspec

from ...contracts.dialect import Json
from ...values import (
    Delta,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
)
from .._failures import error_in_stream
from .._reader import EventReader
from .._wire import WireError, at, field, object_field, objects, opaque, parse_object, text_field
from .parts import NAME, item_of, read_item, read_output_part
from .reply import read_ending, read_reply, read_usage

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_ARGUMENTS = "response.function_call_arguments.delta"
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_PIECES = frozenset((*_TEXT, _ARGUMENTS, *_THOUGHTS))


class OpenAIResponsesReader(EventReader):
    name = NAME
    ends_with = "response.completed event"

    def __init__(self) -> None:
        super().__init__()
        self._next = 0
        self._indexes: dict[tuple[int, int], int] = {}
        self._items: dict[int, Json | None] = {}
        self._thoughts: dict[int, str] = {}
        self._parts: dict[int, Part] = {}
        self._started = False

    def _whole(self, body: Json) -> Reply:
        return read_reply(body)

    def _piece(self, kind: str, raw: Json, out: list[Delta]) -> None:
        try:
            item, number = field(raw, "output_index", int), field(raw, "content_index", int, 0)
            text = text_field(raw, "delta")
        except WireError as error:
            raise WireError("", f"is not a delta event: {error}") from None
        if not text:
            return
        if kind in _TEXT:
            index = self._indexes.get((item, number))
            if index is None:
                index = self._start_text(item, number, {"type": kind.split(".")[1]}, out)
        else:
            index = self._indexes.get((item, 0))
            if index is None:
                raise WireError("output_index", f"names item {item}, which is not open")
            if kind != _ARGUMENTS and self._thoughts.setdefault(item, kind) != kind:
                return  # of a summary and the reasoning itself, only the first that arrives is shown
        out.append(PartDelta(index, text))

    def _event(self, data: bytes, out: list[Delta]) -> None:
        if data == b"[DONE]":
            return
        raw = parse_object(data.decode("utf-8", "replace"))
        kind = text_field(raw, "type")
        if kind in _PIECES:
            self._piece(kind, raw, out)
        elif kind == "response.output_item.added":
            self._start_item(field(raw, "output_index", int), object_field(raw, "item"), out)
        elif kind == "response.content_part.added":
            self._start_content(raw, out)
        elif kind == "response.reasoning_summary_part.added":
            index = self._indexes.get((field(raw, "output_index", int), 0))
            if index is not None and field(raw, "summary_index", int, 0) > 0:
                out.append(PartDelta(index, "\n\n"))
        elif kind == "response.output_item.done":
            self._finish_item(field(raw, "output_index", int), object_field(raw, "item"), out)
        elif kind == "response.created":
            self._start(object_field(raw, "response"), out)
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            self._stop(object_field(raw, "response"), out, incomplete=kind == "response.incomplete")
        elif kind == "error":
            raise error_in_stream(raw.get("error") or {**raw, "type": None})

    def _start(self, response: Json, out: list[Delta]) -> None:
        if not self._started:
            self._started = True
            out.append(ReplyStarted(text_field(response, "model", ""), text_field(response, "id", "")))

    def _start_item(self, item: int, raw: Json, out: list[Delta]) -> None:
        self._start({}, out)
        if item in self._items:
            raise WireError("output_index", f"names item {item}, which has already started")
        self._items[item] = raw
        if text_field(raw, "type") != "message":
            self._start_part((item, 0), read_item(raw)[0], out)

    def _start_part(self, key: tuple[int, int], part: Part, out: list[Delta]) -> int:
        index = self._indexes[key] = self._next
        self._next += 1
        if isinstance(part, (Text, Thinking)) and part.text:
            part = msgspec.structs.replace(part, text="")
        out.append(PartStarted(index, part))
        return index

    def _start_content(self, raw: Json, out: list[Delta]) -> None:
        item, number, part = (
            field(raw, "output_index", int),
            field(raw, "content_index", int),
            object_field(raw, "part"),
        )
        if part.get("type") != "reasoning_text" and (item, number) not in self._indexes:
            self._start_text(item, number, part, out)

    def _start_text(self, item: int, number: int, part: Json, out: list[Delta]) -> int:
        raw = self._items.get(item)
        if raw is None:
            raise WireError("output_index", f"names item {item}, which is not open")
        return self._start_part((item, number), read_output_part(part, item_of({**raw, "status": None})), out)

    def _finish_item(self, item: int, raw: Json, out: list[Delta]) -> None:
        if item in self._items and self._items[item] is None:
            raise WireError("output_index", f"names item {item}, which has already ended")
        self._start({}, out)
        self._items[item] = None
        with at("item"):
            parts = read_item(raw)
        for number, part in enumerate(parts):
            key = (item, number)
            index = self._indexes[key] if key in self._indexes else self._start_part(key, part, out)
            self._parts[index] = part
            out.append(PartFinished(index, part))

    def _stop(self, response: Json, out: list[Delta], *, incomplete: bool) -> None:
        stop, _ = read_ending(response, ())
        self._start(response, out)
        for number, raw in enumerate(objects(response, "output")):
            if self._items.get(number, raw) is not None:
                self._finish_item(number, raw, out)
        if late := [index for index in self._indexes.values() if index not in self._parts]:
            raise WireError("response.output", f"ends while part {late[0]} is open")
        self._done = True
        stop, kept = read_ending(response, self._parts.values(), incomplete=incomplete)
        out.append(ReplyFinished(stop, read_usage(object_field(response, "usage")), opaque(NAME, kept)))
