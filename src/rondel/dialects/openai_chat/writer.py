"""Writes replies as streams of OpenAI's Chat Completions API: a chunk for each delta, usage, `[DONE]`."""

from __future__ import annotations

from ...contracts.dialect import Json
from ...errors import EngineError
from ...values import (
    Foreign,
    Part,
    Reply,
    ReplyFinished,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from .._openai import as_custom, error_status
from .._sse import encode
from .._wire import encode_json, extras, own, streamed_tail
from .._writer import EventWriter
from .parts import DETAILS, NAME, THINKING_FIELDS, message_fields, write_call, write_citations, write_thinking
from .reply import error_body, write_reply, write_stop, write_usage


class OpenAIChatWriter(EventWriter):
    """Writes deltas as chunks. Overlapping calls could be distinguished by their numbers, but clients consider a call
    complete when the next one begins, so each is written to its end first."""

    def __init__(
        self, *, model: str, id: str, created_s: int, with_usage: bool, customs: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._id, self._model, self._created_s, self._with_usage = id, model, created_s, with_usage
        self._customs = customs
        head = encode_json(self._chunk([]))
        self._head = b"data: " + head[: head.rindex(b"[]")] + b'[{"index":0,"delta":'
        self._shapes: dict[int, bytes] = {}  # how a piece of each part is written
        self._lengths: dict[int, int] = {}
        self._calls: dict[int, tuple[int, ToolCall]] = {}
        self._parts: list[Part] = []
        self._content_length = 0

    def write_whole(self, reply: Reply) -> Json:
        return write_reply(reply, model=self._model, id=self._id, created_s=self._created_s, customs=self._customs)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        return error_status(error), error_body(error)

    def _failure(self, error: EngineError) -> bytes:
        return encode("", encode_json(error_body(error)))

    def _for_caller(self, part: Part) -> Part:
        return as_custom(super()._for_caller(part), self._customs, NAME, "custom")

    def _chunk(self, choices: list[Json]) -> Json:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created_s,
            "model": self._model,
            "choices": choices,
        }

    def _delta(self, delta: bytes) -> bytes:
        return b'%b%b,"finish_reason":null}]}\n\n' % (self._head, delta)

    def _shape(self, delta: bytes) -> bytes:
        return b'%b%b,"finish_reason":null}]}\n\n' % (self._head.replace(b"%", b"%%"), delta)

    def _start(self, usage: Usage | None = None) -> bytes:
        if self._started:
            return b""
        self._started = True
        return self._delta(b'{"role":"assistant","content":""}')

    def _start_part(self, index: int, part: Part) -> bytes:
        self._lengths[index] = 0
        if isinstance(part, Text):
            name = "refusal" if part.refusal else "content"
            self._shapes[index] = self._shape(b'{"' + name.encode() + b'":%b}')
            return self._piece(index, part.text)
        if isinstance(part, Thinking):
            name = own(part, NAME).get("field", THINKING_FIELDS[0])
            self._shapes[index] = self._shape(b"{%b:%%b}" % encode_json(name).replace(b"%", b"%%"))
            return self._piece(index, part.text)
        return self._start_call(index, part) if isinstance(part, ToolCall) else b""

    def _start_call(self, index: int, part: ToolCall) -> bytes:
        raw, number = write_call(part), len(self._calls)
        self._calls[index] = number, part
        if raw["type"] == "custom":  # its input is not JSON, and is sent in one piece at the end
            raw["custom"]["input"] = ""
        else:
            raw["function"]["arguments"] = ""
            self._shapes[index] = self._shape(b'{"tool_calls":[{"index":%d,"function":{"arguments":%%b}}]}' % number)
        return self._delta(encode_json({"tool_calls": [{"index": number, **raw}]}))

    def _piece(self, index: int, text: str) -> bytes:
        shape = self._shapes.get(index)
        if shape is None or not text:
            return b""
        self._lengths[index] += len(text)
        return shape % encode_json(text)

    def _finish_part(self, index: int, part: Part) -> bytes:
        self._parts.append(part)
        written = self._piece(index, streamed_tail(part, self._lengths.get(index, 0)))
        fields: Json = {}
        if isinstance(part, Thinking):
            fields = extras({DETAILS: write_thinking([part], replay=False).get(DETAILS)})
        elif isinstance(part, Text) and not part.refusal:
            fields = extras({"annotations": write_citations(part, self._content_length) or None})
            self._content_length += len(part.text)
        elif isinstance(part, Foreign):
            fields = message_fields(part)
        elif isinstance(part, ToolCall):
            fields = self._late_call(index, part)
        return written + (self._delta(encode_json(fields)) if fields else b"")

    def _late_call(self, index: int, part: ToolCall) -> Json:
        """Return what is still to be written of a call: a custom tool's input, and fields that came after its start."""
        number, begun = self._calls[index]
        late = {key: value for key, value in own(part, NAME).items() if own(begun, NAME).get(key) != value}
        if index not in self._shapes:
            late["custom"] = {"input": write_call(part)["custom"]["input"]}
        return {"tool_calls": [{"index": number, **late}]} if late else {}

    def _finish(self, end: ReplyFinished) -> bytes:
        kept = own(end, NAME)
        choice: Json = {"index": 0, "delta": {}, "finish_reason": write_stop(end.stop, kept, self._parts)}
        left = extras(kept, "usage", "finish_reason", "choice", "created")
        written = encode("", encode_json({**left, **self._chunk([choice])}))
        if self._with_usage:
            written += encode("", encode_json({**self._chunk([]), "usage": write_usage(end.usage, kept)}))
        return written + encode("", b"[DONE]")
