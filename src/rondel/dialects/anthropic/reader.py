"""Reads streamed replies of Anthropic's Messages API.

    message_start, then for each block content_block_start, content_block_delta*, content_block_stop, then
    message_delta, message_stop; ping anywhere; error instead of the rest.

A block is rebuilt from its start and its deltas as the block that a whole reply would have had, and read as that.
"""

from __future__ import annotations

import msgspec

from ...dialect import Json
from ...errors import EngineGarbled
from ...sse import SseDecoder, SseEvent
from ...values import (
    Delta,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    ToolCall,
)
from .._failures import error_in_stream
from .._wire import (
    WireError,
    extras,
    field,
    object_field,
    parse_object,
    read_arguments,
    text_field,
)
from .parts import NAME, read_block
from .reply import read_ending, read_usage


class _Piece(msgspec.Struct, gc=False):
    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""


class _BlockDelta(msgspec.Struct):
    """The event of which a stream has thousands; all others are read as plain JSON."""

    type: str
    index: int
    delta: _Piece


_decode_delta = msgspec.json.Decoder(_BlockDelta).decode


class _Block:
    """A block while it streams: what it started with, and the pieces since."""

    __slots__ = ("pieces", "raw")

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        self.pieces: list[str] = []

    def part(self) -> Part:
        """The whole part, now that the block has ended."""
        kind, joined = self.raw["type"], "".join(self.pieces)
        if kind in ("text", "thinking"):
            return read_block({**self.raw, kind: joined})
        if not self.pieces:
            return read_block(self.raw)
        arguments, broken = read_arguments(joined)
        part = read_block({**self.raw, "input": arguments})
        return msgspec.structs.replace(part, broken=broken) if isinstance(part, ToolCall) and broken else part


class Reader:
    __slots__ = ("_blocks", "_done", "_ending", "_has_calls", "_sse", "_started", "_usage")

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._blocks: dict[int, _Block | None] = {}
        self._usage: Json = {}
        self._ending: Json = {}
        self._has_calls = self._started = self._done = False

    def feed(self, data: bytes) -> list[Delta]:
        return self._read(self._sse.feed(data))

    def finish(self) -> list[Delta]:
        deltas = self._read(self._sse.finish())
        if not self._done:
            raise EngineGarbled("the answer broke off before its message_stop event; ask again")
        return deltas

    def _read(self, events: list[SseEvent]) -> list[Delta]:
        out: list[Delta] = []
        try:
            for event in events:
                if self._done:  # whatever comes after the end is no part of the answer
                    break
                if event.event == "content_block_delta":
                    self._piece(event.data, out)
                else:
                    self._event(parse_object(event.data), event.data, out)
        except WireError as error:
            raise EngineGarbled(f"the answer does not follow the {NAME} protocol: {error}") from None
        return out

    def _piece(self, data: str, out: list[Delta]) -> None:
        try:
            event = _decode_delta(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError("", f"is no content_block_delta event: {error}") from None
        index, piece = event.index, event.delta
        block = self._blocks.get(index)
        if block is None:
            raise WireError("index", f"names block {index}, which is not open")
        text = piece.text or piece.thinking or piece.partial_json
        if piece.type in ("text_delta", "thinking_delta", "input_json_delta"):
            if text:
                block.pieces.append(text)
                out.append(PartDelta(index, text))
        elif piece.type == "signature_delta":
            block.raw["signature"] = block.raw.get("signature", "") + piece.signature
        else:
            self._rare_piece(block.raw, object_field(parse_object(data), "delta"))

    @staticmethod
    def _rare_piece(raw: Json, delta: Json) -> None:
        """Citations, and pieces of kinds that are not known here: texts grow, anything else is set."""
        if delta.get("type") == "citations_delta":
            raw["citations"] = [*(raw.get("citations") or []), object_field(delta, "citation")]
            return
        for key, value in extras(delta, "type").items():
            old = raw.get(key)
            raw[key] = old + value if isinstance(old, str) and isinstance(value, str) else value

    def _event(self, raw: Json, data: str, out: list[Delta]) -> None:
        kind = text_field(raw, "type")
        if kind == "content_block_start":
            self._start_block(field(raw, "index", int), object_field(raw, "content_block"), out)
        elif kind == "content_block_delta":  # from a server that does not name its events
            self._piece(data, out)
        elif kind == "content_block_stop":
            self._stop_block(field(raw, "index", int), out)
        elif kind == "message_start":
            self._start(object_field(raw, "message"), out)
        elif kind == "message_delta":
            self._ending |= extras(object_field(raw, "delta"))
            self._usage |= extras(object_field(raw, "usage"))
        elif kind == "message_stop":
            self._stop(out)
        elif kind == "error":
            raise error_in_stream(raw.get("error"))

    def _start(self, message: Json, out: list[Delta]) -> None:
        if self._started:
            raise WireError("type", "is 'message_start' for the second time")
        self._started = True
        self._usage = extras(object_field(message, "usage"))
        usage = read_usage(self._usage)
        out.append(ReplyStarted(text_field(message, "model", ""), text_field(message, "id", ""), usage))

    def _start_block(self, index: int, raw: Json, out: list[Delta]) -> None:
        if not self._started:
            self._start({}, out)
        if index in self._blocks:
            raise WireError("index", f"names block {index}, which has already started")
        block = self._blocks[index] = _Block(dict(raw))
        kind = text_field(raw, "type")
        if kind == "tool_use":
            self._has_calls = True
        if kind not in ("text", "thinking"):
            out.append(PartStarted(index, read_block(raw)))
            return
        out.append(PartStarted(index, read_block({**raw, kind: ""})))
        if first := text_field(raw, kind, ""):
            block.pieces.append(first)
            out.append(PartDelta(index, first))

    def _stop_block(self, index: int, out: list[Delta]) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise WireError("index", f"names block {index}, which is not open")
        self._blocks[index] = None
        out.append(PartFinished(index, block.part()))

    def _stop(self, out: list[Delta]) -> None:
        if still := [index for index, block in self._blocks.items() if block is not None]:
            raise WireError("type", f"is 'message_stop' while block {still[0]} is open")
        if not self._started:
            raise WireError("type", "is 'message_stop' before any 'message_start'")
        self._done = True
        stop, kept = read_ending(self._ending, self._usage, has_calls=self._has_calls)
        out.append(ReplyFinished(stop, read_usage(self._usage), kept))
