"""Meters answers of Anthropic's Messages API that are relayed as bytes. See `_meter`."""

from __future__ import annotations

from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineError
from .._failures import error_in_stream
from .._meter import NOTHING, EventMeter, Typed, counted, event_of, struct_of
from .._sse import encode
from .._wire import WireError, as_object, encode_json, extras, parse_object
from .parts import NAME
from .reply import error_body, read_usage


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: Any = None


class _Event(msgspec.Struct):
    """The fields of an event that show who answered and what it cost."""

    type: str = ""
    message: _Message | None = None
    usage: Any = None


class _Whole(msgspec.Struct):
    """The fields of a whole answer that show what it cost."""

    type: str = ""
    id: str | None = None
    model: str | None = None
    content: msgspec.Raw = NOTHING
    usage: Any = None
    error: Any = None


_EVENT, _WHOLE = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Whole)
_BEFORE = ("message_start", "ping")
_PIECES = frozenset(("content_block_start", "content_block_delta", "content_block_stop", "ping"))


class Meter(EventMeter):
    name = NAME
    ends_with = "message_stop event"
    piece, pieces = msgspec.json.Decoder(Typed), msgspec.json.Decoder(list[Typed])

    def __init__(self) -> None:
        super().__init__()
        self._usage: Json = {}

    def _that_matter(self, pieces: list[Typed]) -> list[int]:
        return [number for number, piece in enumerate(pieces) if piece.type not in _PIECES]

    def _event(self, data: bytes) -> bool:
        event = event_of(_EVENT, _Event, data)
        kind = event.type
        if kind == "message_stop":
            return self._ends()
        if kind == "error":
            return self._fails(error_in_stream(parse_object(data).get("error")))
        if kind == "message_start":
            message = event.message or _Message()
            self.model, self.id = message.model or "", message.id or ""
            self._count(message.usage)
        elif kind == "message_delta":
            self._count(event.usage)
        elif not kind:
            raise WireError("type", "is missing: it must be a string")
        if kind not in _BEFORE:
            self.token_seen = True
        return True

    def _count(self, raw: object) -> None:
        """Add counts. Those in `message_delta` are totals, and replace those of `message_start`."""
        if isinstance(raw, dict):
            self._usage |= extras(as_object(raw))  # pyright: ignore[reportUnknownArgumentType]
            self.usage = counted(read_usage, self._usage, self.usage)

    def _read_whole(self, body: bytes) -> None:
        whole = struct_of(_WHOLE, body)
        if whole.type == "error" or whole.error:
            raise error_in_stream(whole.error)
        if whole.content == NOTHING:
            raise WireError("content", "is missing: it must be a list")
        self.model, self.id = whole.model or "", whole.id or ""
        self._count(whole.usage)

    def _failure_event(self, error: EngineError) -> bytes:
        return encode("error", encode_json(error_body(error)))
