"""Writes replies as streams of Anthropic's Messages API: blocks one after the other, numbered from 0."""

from __future__ import annotations

from ...contracts.dialect import Json, seal
from ...errors import EngineError
from ...values import (
    Foreign,
    Handoff,
    Part,
    Reply,
    ReplyFinished,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from .._failures import status_of
from .._wire import encode_json, merge, own, streamed_tail
from .._writer import EventWriter
from .parts import NAME, clean_id, write_block, write_citation
from .reply import error_body, write_ending, write_reply, write_usage

_PIECE = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b}\n\n'
_TEXT_PIECE, _THINKING_PIECE, _CALL_PIECE = (
    _PIECE.replace(b"%b", shape)
    for shape in (
        b'{"type":"text_delta","text":%b}',
        b'{"type":"thinking_delta","thinking":%b}',
        b'{"type":"input_json_delta","partial_json":%b}',
    )
)
_START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":%b,"type":"message","role":"assistant",'
    b'"model":%b,"content":[],"stop_reason":null,"stop_sequence":null,"usage":%b}}\n\n'
)
_NO_USAGE = encode_json(write_usage(Usage(), {}))
_TEXT_START = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
_END = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def _event(raw: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (raw["type"].encode(), encode_json(raw))


class AnthropicWriter(EventWriter):
    """Writes blocks one after the other, numbered from 0, and leaves out what callers of this dialect cannot read."""

    keep_alive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, *, model: str, id: str) -> None:
        super().__init__()
        self._model, self._id = model, id
        self._index = -1
        self._open: Part | None = None
        self._shape = _TEXT_PIECE  # how a piece of the open part is written
        self._length = 0

    def write_whole(self, reply: Reply) -> Json:
        return write_reply(reply, model=self._model, id=self._id)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        status = status_of(error)
        return 529 if status == 503 else status, error_body(error)

    def _failure(self, error: EngineError) -> bytes:
        return _event(error_body(error))

    def _start(self, usage: Usage | None = None) -> bytes:
        if self._started:
            return b""
        self._started = True
        told = _NO_USAGE if usage is None else encode_json(write_usage(usage, {}))
        return _START % (encode_json(self._id), encode_json(self._model), told)

    def _start_part(self, index: int, part: Part) -> bytes:
        """Begin a block. The block of a text begins with its first piece, because an empty block is not valid."""
        self._open, self._length = None, 0
        kept = {} if isinstance(part, Handoff) else own(part, NAME)
        if isinstance(part, Text):
            self._open, self._shape = part, _TEXT_PIECE
            return self._piece(index, part.text)
        if isinstance(part, Thinking) and kept.get("type") != "redacted_thinking":
            begun = self._begin(merge(kept, {"type": "thinking", "thinking": "", "signature": ""}))
            self._open, self._shape = part, _THINKING_PIECE
            return begun + self._piece(index, part.text)
        if isinstance(part, ToolCall):
            self._open, self._shape = part, _CALL_PIECE
            block: Json = {"type": "tool_use", "id": clean_id(part.id), "name": part.name, "input": {}}
            return self._begin(merge(kept, block))
        return b""

    def _begin(self, block: Json) -> bytes:
        self._index += 1
        return _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _piece(self, index: int, text: str) -> bytes:
        part = self._open
        if not text or part is None:
            return b""
        begun = b"" if self._length or not isinstance(part, Text) else self._begin_text(part)
        self._length += len(text)
        return begun + self._shape % (self._index, encode_json(text))

    def _begin_text(self, part: Text) -> bytes:
        if kept := own(part, NAME):
            return self._begin(merge(kept, {"type": "text", "text": ""}))
        self._index += 1
        return _TEXT_START % self._index

    def _finish_part(self, index: int, part: Part) -> bytes:
        if self._open is None:
            block = write_block(part, replay=False) if isinstance(part, (Foreign, Thinking)) else None
            return b"" if block is None else self._begin(block) + self._end()
        tail = streamed_tail(part, self._length)
        if isinstance(part, ToolCall) and tail == "{}":
            tail = ""
        written = self._piece(index, tail) + self._last_pieces(part)
        if isinstance(part, Text) and not self._length:
            self._open = None
            return b""
        self._open = None
        return written + self._end()

    def _last_pieces(self, part: Part) -> bytes:
        """Write what only a finished part has, such as a signature and citations."""
        deltas: list[Json] = []
        if isinstance(part, Thinking):
            kept = own(part, NAME)
            if signature := kept["signature"] if "signature" in kept else seal(part.opaque, NAME):
                deltas.append({"type": "signature_delta", "signature": signature})
        if isinstance(part, Text) and self._length:
            raws = (write_citation(citation, replay=False) for citation in part.citations)
            deltas += [{"type": "citations_delta", "citation": raw} for raw in raws if raw is not None]
        return b"".join(_PIECE % (self._index, encode_json(delta)) for delta in deltas)

    def _end(self) -> bytes:
        return _END % self._index

    def _finish(self, end: ReplyFinished) -> bytes:
        written = b""
        if self._open is not None and (self._length or not isinstance(self._open, Text)):
            written += self._end()
        kept = own(end, NAME)
        ending = write_ending(end.stop, kept)
        usage = write_usage(end.usage, kept)
        written += _event({"type": "message_delta", "delta": ending, "usage": usage})
        return written + _STOP
