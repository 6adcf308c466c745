"""Reads streamed replies of Anthropic's Messages API.

    message_start, then for each block content_block_start, content_block_delta*, content_block_stop, then
    message_delta, message_stop; ping anywhere; error instead of the rest.

A block is rebuilt from its start and its deltas, in the form that it would have in a whole reply, and then read.
"""

from __future__ import annotations

import msgspec

from ...contracts.dialect import Json
from ...values import Delta, Part, PartDelta, PartFinished, PartStarted, Reply, ReplyFinished, ReplyStarted, ToolCall
from .._failures import error_in_stream
from .._reader import EventReader
from .._wire import WireError, at, extras, field, object_field, parse_object, read_arguments, text_field
from .parts import NAME, read_block
from .reply import read_ending, read_reply, read_usage

_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The pieces that only add to a block's text, and the field that contains it."""


class _Block:
    """A block while it streams: its start, and the pieces since."""

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        self.pieces: list[str] = []

    def part(self) -> Part:
        """Return the whole part, now that the block has ended."""
        kind, joined = self.raw["type"], "".join(self.pieces)
        if kind in ("text", "thinking"):
            return read_block({**self.raw, kind: joined})
        if not self.pieces:
            return read_block(self.raw)
        arguments, broken = read_arguments(joined)
        part = read_block({**self.raw, "input": arguments})
        return msgspec.structs.replace(part, broken=broken) if isinstance(part, ToolCall) and broken else part


class AnthropicReader(EventReader):
    name = NAME
    ends_with = "message_stop event"

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, _Block | None] = {}
        self._usage: Json = {}
        self._ending: Json = {}
        self._has_calls = self._started = False

    def _whole(self, body: Json) -> Reply:
        return read_reply(body)

    def _piece(self, raw: Json, out: list[Delta]) -> None:
        index, delta = field(raw, "index", int), object_field(raw, "delta")
        with at("delta"):
            kind = text_field(delta, "type")
        block = self._blocks.get(index)
        if block is None:
            raise WireError("index", f"names block {index}, which is not open")
        if (name := _PIECES.get(kind)) is not None:
            if text := text_field(delta, name, ""):
                block.pieces.append(text)
                out.append(PartDelta(index, text))
        elif kind == "citations_delta":
            block.raw["citations"] = [*(block.raw.get("citations") or []), object_field(delta, "citation")]
        else:
            # A signature, and pieces of unknown kinds: texts grow, anything else is replaced.
            for key, value in extras(delta, "type").items():
                old = block.raw.get(key)
                block.raw[key] = old + value if isinstance(old, str) and isinstance(value, str) else value

    def _event(self, data: bytes, out: list[Delta]) -> None:
        raw = parse_object(data.decode("utf-8", "replace"))
        kind = text_field(raw, "type")
        if kind == "content_block_start":
            self._start_block(field(raw, "index", int), object_field(raw, "content_block"), out)
        elif kind == "content_block_delta":
            self._piece(raw, out)
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
