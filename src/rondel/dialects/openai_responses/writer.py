"""Writes replies as streams of OpenAI's Responses API: items with running numbers, the whole response at the end."""

from __future__ import annotations

from functools import cached_property

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineError
from ...prompt import Prompt
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
from .._openai import error_fields, error_status
from .._sse import encode
from .._wire import encode_json, extras, own, streamed_tail
from .._writer import EventWriter
from .parts import (
    CUSTOM_CALL,
    NAME,
    call_item,
    is_picture,
    message_item,
    picture_item,
    reasoning_item,
    write_citations,
    write_output_part,
)
from .reply import failure, finish, head_of, item_id, write_reply
from .tools import as_wanted, calls_wanted


class OpenAIResponsesWriter(EventWriter):
    """Writes items one after the other, with running numbers, and the whole response at the end."""

    def __init__(self, *, model: str, id: str, prompt: Prompt | None, created_s: int) -> None:
        super().__init__()
        self._model, self._id, self._prompt, self._created_s = model, id, prompt, created_s
        self._wanted = calls_wanted(prompt)
        self._sequence = 0
        self._output: list[Json] = []
        self._parts: list[Part] = []
        self._message: Json | None = None
        self._message_of: Json = {}
        self._open: Part | None = None
        self._shape = b""
        self._length = 0

    @cached_property
    def _head(self) -> Json:
        head = head_of(model=self._model, id=self._id, prompt=self._prompt, created_s=self._created_s)
        return {**head, "tools": msgspec.Raw(encode_json(head["tools"]))}  # three events repeat them

    def write_whole(self, reply: Reply) -> Json:
        return write_reply(reply, model=self._model, id=self._id, prompt=self._prompt, created_s=self._created_s)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        return error_status(error), {"error": error_fields(error)}

    def _failure(self, error: EngineError) -> bytes:
        response = {**self._head, "status": "failed", "error": failure(error), "output": self._output}
        return self._start() + self._event("response.failed", response=response)

    def _for_caller(self, part: Part) -> Part:
        return part if is_picture(part) else as_wanted(super()._for_caller(part), self._wanted)

    def _event(self, kind: str, **fields: object) -> bytes:
        raw = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return encode(kind, encode_json(raw))

    def _start(self, usage: Usage | None = None) -> bytes:
        if self._started:
            return b""
        self._started = True
        created = self._event("response.created", response=self._head)
        return created + self._event("response.in_progress", response=self._head)

    # An item's number is that of the last one in `_output`; a message item stays open for texts of the same item.

    def _begin(self, item: Json) -> bytes:
        closed = self._close_message()
        self._output.append(item)
        return closed + self._event("response.output_item.added", output_index=len(self._output) - 1, item=item)

    def _end(self, item: Json) -> bytes:
        self._output[-1] = item
        return self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _at_item(self) -> Json:
        return {"item_id": self._output[-1].get("id", ""), "output_index": len(self._output) - 1}

    def _new_id(self, part: Part) -> str:
        return item_id(part, self._id, len(self._output))

    def _shape_of(self, kind: str, **at: object) -> bytes:
        """Return the bytes of a delta event, with placeholders for its number and its text."""
        raw = encode_json({"type": kind, **self._at_item(), **at}).replace(b"%", b"%%")
        return b"event: %b\ndata: %b" % (kind.encode(), raw[:-1]) + b',"sequence_number":%d,"delta":%b}\n\n'

    def _start_part(self, index: int, part: Part) -> bytes:
        self._open, self._length, self._shape = part, 0, b""
        if isinstance(part, Text):
            return self._start_text(part) + self._piece(index, part.text)
        if isinstance(part, Thinking):
            item = extras(reasoning_item(part, self._new_id(part)), "content", "encrypted_content", "summary")
            return self._begin({**item, "summary": list[Json]()}) + self._piece(index, part.text)
        if isinstance(part, ToolCall) and own(part, NAME).get("type") != CUSTOM_CALL:
            item = {**call_item(part, self._new_id(part)), "arguments": "", "status": "in_progress"}
            begun = self._begin(item)
            self._shape = self._shape_of("response.function_call_arguments.delta")
            return begun
        self._open = None
        return b""

    def _open_message(self, part: Text | Foreign) -> bytes:
        """Return the message item that a content part belongs to: the open one, or a new one."""
        item: Json = own(part, NAME).get("item") or {}
        if self._message is not None and item and item.get("id") == self._message["id"]:
            return b""
        message = message_item(item, self._new_id(part), [], "in_progress")
        begun = self._begin(message)
        self._message, self._message_of = message, item
        return begun

    def _start_text(self, part: Text) -> bytes:
        begun = self._open_message(part)
        assert self._message is not None
        at = {**self._at_item(), "content_index": len(self._message["content"])}
        raw = write_output_part(Text("", part.refusal))
        begun += self._event("response.content_part.added", **at, part=raw)
        number = at["content_index"]
        if part.refusal:
            self._shape = self._shape_of("response.refusal.delta", content_index=number)
        else:
            self._shape = self._shape_of("response.output_text.delta", content_index=number, logprobs=list[Json]())
        return begun

    def _piece(self, index: int, text: str) -> bytes:
        if not text or self._open is None:
            return b""
        begun = b""
        if isinstance(self._open, Thinking) and not self._length:
            part = {"type": "summary_text", "text": ""}
            begun = self._event("response.reasoning_summary_part.added", **self._at_item(), summary_index=0, part=part)
            self._shape = self._shape_of("response.reasoning_summary_text.delta", summary_index=0)
        self._length += len(text)
        written = self._shape % (self._sequence, encode_json(text))
        self._sequence += 1
        return begun + written

    def _finish_part(self, index: int, part: Part) -> bytes:
        self._parts.append(part)
        written = self._piece(index, streamed_tail(part, self._length))
        was_open, self._open = self._open is not None, None
        if isinstance(part, Text) and was_open:
            return written + self._finish_text(part)
        if isinstance(part, Thinking) and was_open:
            return written + self._finish_thinking(part)
        if isinstance(part, ToolCall):
            item = call_item(part, self._output[-1]["id"] if was_open else self._new_id(part))
            if not was_open:
                return self._begin(item) + self._end(item)
            done = "response.function_call_arguments.done"
            written += self._event(done, **self._at_item(), name=part.name, arguments=item["arguments"])
            return written + self._end(item)
        if is_picture(part):
            return self._picture(picture_item(part, self._new_id(part)))
        return self._foreign(part) if isinstance(part, Foreign) and own(part, NAME) else b""

    def _picture(self, item: Json) -> bytes:
        written = self._begin({**item, "status": "in_progress", "result": None})
        return written + self._event("response.image_generation_call.completed", **self._at_item()) + self._end(item)

    def _finish_text(self, part: Text) -> bytes:
        assert self._message is not None
        content: list[Json] = self._message["content"]
        at = {**self._at_item(), "content_index": len(content)}
        raw, written = write_output_part(part), b""
        if part.refusal:
            written += self._event("response.refusal.done", **at, refusal=part.text)
        else:
            for number, annotation in enumerate(write_citations(part)):
                kind = "response.output_text.annotation.added"
                written += self._event(kind, **at, annotation_index=number, annotation=annotation)
            written += self._event("response.output_text.done", **at, text=part.text, logprobs=[])
        content.append(raw)
        self._message_of = own(part, NAME).get("item") or {}
        return written + self._event("response.content_part.done", **at, part=raw)

    def _finish_thinking(self, part: Thinking) -> bytes:
        written, at = b"", self._at_item()
        if self._length:
            done = "response.reasoning_summary_text.done"
            written += self._event(done, **at, summary_index=0, text=part.text)
            raw = {"type": "summary_text", "text": part.text}
            written += self._event("response.reasoning_summary_part.done", **at, summary_index=0, part=raw)
        return written + self._end(reasoning_item(part, at["item_id"]))

    def _foreign(self, part: Foreign) -> bytes:
        raw = own(part, NAME)
        if "part" not in raw:
            return self._begin(raw) + self._end(raw)
        begun = self._open_message(part)
        assert self._message is not None
        at = {**self._at_item(), "content_index": len(self._message["content"])}
        begun += self._event("response.content_part.added", **at, part=raw["part"])
        self._message["content"].append(raw["part"])
        return begun + self._event("response.content_part.done", **at, part=raw["part"])

    def _close_message(self) -> bytes:
        if self._message is None:
            return b""
        content: list[Json] = self._message["content"]
        item = message_item(self._message_of, self._message["id"], content)
        self._message = None
        return self._end(item)

    def _finish(self, end: ReplyFinished) -> bytes:
        written = self._close_message()
        response = finish(self._head, self._output, self._parts, end)
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return written + self._event(kind, response=response)
