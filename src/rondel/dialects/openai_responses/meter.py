"""Meters answers of OpenAI's Responses API that are relayed as bytes. See `_meter`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...errors import EngineError
from .._failures import error_in_stream
from .._meter import NOTHING, EventMeter, Typed, counted, event_of, struct_of
from .._sse import encode
from .._wire import WireError, encode_json, parse_object
from .parts import NAME
from .reply import FAILED, failure, head_of, read_usage


class _Response(msgspec.Struct):
    """The fields of a response that show what it cost; it repeats the whole request and answer."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: msgspec.Raw = NOTHING
    usage: Any = None
    error: Any = None


class _Piece(Typed):
    response: msgspec.Raw = NOTHING


class _Event(msgspec.Struct):
    type: str = ""
    response: _Response | None = None


_EVENT, _WHOLE = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Response)
_ENDS = ("response.completed", "response.incomplete")
_FAILS = {f"response.{status}": words for status, words in FAILED.items()}
_BEFORE = ("response.created", "response.in_progress", "response.queued", "keepalive", "ping")
_NUMBER = re.compile(rb'"sequence_number":\s*(\d{1,12})')


class Meter(EventMeter):
    name = NAME
    ends_with = "response.completed event"
    piece, pieces = msgspec.json.Decoder(_Piece), msgspec.json.Decoder(list[_Piece])

    def _that_matter(self, pieces: list[_Piece]) -> list[int]:
        return [n for n, piece in enumerate(pieces) if piece.response is not NOTHING or piece.type == "error"]

    def _event(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":  # some servers end with it, after the last event
            return True
        event = event_of(_EVENT, _Event, data)
        kind, response = event.type, event.response
        if response is not None:
            self._read(response)
        if kind in _ENDS:
            return self._ends()
        if kind in _FAILS:
            told = response.error if response is not None else None
            return self._fails(error_in_stream(told, fallback=f"the response {_FAILS[kind]}"))
        if kind == "error":
            raw = parse_object(data)
            return self._fails(error_in_stream(raw.get("error") or {**raw, "type": None}))
        if not kind:
            raise WireError("type", "is missing: it must be a string")
        if kind not in _BEFORE:
            self.token_seen = True
        return True

    def _read(self, response: _Response) -> None:
        self.model, self.id = response.model or self.model, response.id or self.id
        if response.usage is not None:
            self.usage = counted(read_usage, response.usage, self.usage)

    def _read_whole(self, body: bytes) -> None:
        whole = struct_of(_WHOLE, body)
        if whole.error or whole.status in FAILED:
            raise error_in_stream(whole.error, fallback=f"the response {FAILED.get(whole.status or '', 'failed')}")
        if whole.output == NOTHING:
            raise WireError("output", "is missing: it must be a list")
        self._read(whole)

    def _failure_event(self, error: EngineError) -> bytes:
        """Return the event with which the API itself ends a failed response: clients look for it, but few look for a
        bare error."""
        numbers = _NUMBER.findall(self._last)
        head = head_of(model=self.model or error.model, id=self.id or "resp_failed", prompt=None, created_s=0)
        response = {**head, "status": "failed", "error": failure(error)}
        number = int(numbers[-1]) + 1 if numbers else 0
        raw = {"type": "response.failed", "sequence_number": number, "response": response}
        return encode("response.failed", encode_json(raw))
