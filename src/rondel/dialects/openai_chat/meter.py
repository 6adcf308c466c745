"""Meters answers of OpenAI's Chat Completions API that are relayed as bytes. See `_meter`.

A stream reports its usage only to callers who ask for it. If the caller did not, the meter asks, and does not pass on
the chunk that answers this (it has usage and no choices).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineError
from .._failures import error_in_stream
from .._meter import EventMeter, counted, struct_of
from .._sse import encode
from .._wire import WireError, as_object, encode_json, object_field, objects, parse_object
from .parts import NAME
from .reply import error_body, read_usage


class _Choice(msgspec.Struct):
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    """The fields of a chunk that make it more than a piece of text."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


class _Whole(msgspec.Struct):
    """The fields of a whole answer that show what it cost."""

    id: str | None = None
    model: str | None = None
    choices: list[msgspec.Raw] | None = None
    usage: Any = None
    error: Any = None


_WHOLE = msgspec.json.Decoder(_Whole)
_DONE = b"[DONE]"
_TRUE = msgspec.Raw(b"true")


def ask_for_usage(fields: dict[str, msgspec.Raw]) -> bool:
    """Make a streaming request ask for usage. Return True if its caller did not."""
    if fields.get("stream") != _TRUE:
        return False
    said = msgspec.json.decode(fields.get("stream_options", b"null"))
    options: Json = as_object(said) if isinstance(said, dict) else {}  # pyright: ignore[reportUnknownArgumentType]
    if options.get("include_usage") is True:
        return False
    fields["stream_options"] = msgspec.Raw(encode_json({**options, "include_usage": True}))
    return True


def _matters(chunk: _Chunk) -> bool:
    for choice in chunk.choices or ():
        if choice.finish_reason:
            return True
    return chunk.usage is not None or bool(chunk.error)


class Meter(EventMeter):
    name = NAME
    ends_with = "finish reason"
    end = encode("", _DONE)
    piece, pieces = msgspec.json.Decoder(_Chunk), msgspec.json.Decoder(list[_Chunk])

    def __init__(self, *, hides_usage: bool) -> None:
        super().__init__()
        self._hides_usage = hides_usage
        self._started = self._finish_seen = False

    def _that_matter(self, pieces: list[_Chunk | None]) -> list[int]:
        return [number for number, piece in enumerate(pieces) if piece is None or _matters(piece)]

    def _event(self, data: bytes) -> bool:
        if data.strip() == _DONE:
            if not self._started:
                raise WireError("", "is '[DONE]' before any chunk")
            return self._ends()
        raw = parse_object(data)
        if raw.get("error"):
            return self._fails(error_in_stream(raw["error"]))
        if not self._started:
            self._start(raw)
        choices = objects(raw, "choices")
        for choice in choices:
            if choice.get("finish_reason"):
                self._finish_seen = self.token_seen = True
            elif not self.token_seen:
                delta = object_field(choice, "delta")
                self.token_seen = any(value for name, value in delta.items() if name != "role")
        usage = raw.get("usage")
        if usage is None:
            return True
        self.usage = counted(read_usage, usage, self.usage)
        return bool(choices) or not self._hides_usage

    def _start(self, raw: Json) -> None:
        if "choices" not in raw:
            raise WireError("choices", "is missing: an answer is a stream of chunks with choices")
        self._started = True
        self.model, self.id = str(raw.get("model") or ""), str(raw.get("id") or "")

    def _missing_end(self) -> bytes | None:
        """Return the end that some servers leave out: with a finish reason, the answer is complete without `[DONE]`."""
        return encode("", _DONE) if self._finish_seen else None

    def _read_whole(self, body: bytes) -> None:
        whole = struct_of(_WHOLE, body)
        if whole.error:
            raise error_in_stream(whole.error)
        if not whole.choices:
            raise WireError("choices", "is empty: an answer has at least one")
        self.model, self.id = whole.model or "", whole.id or ""
        self.usage = counted(read_usage, whole.usage, self.usage)

    def _failure_event(self, error: EngineError) -> bytes:
        return encode("", encode_json(error_body(error)))
