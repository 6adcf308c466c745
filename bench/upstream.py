"""A loopback server that plays a model in all three dialects, in a process of its own: its CPU is nobody's.

The model's name says what it does: `burst-N` sends its N pieces of text together, `paced-N` one by one with a pause
between them, as tokens come; `idle-N` sends N pieces and then nothing more; `looks-N` first calls `analyzeImage`, and
speaks when it has the result. All answers are made once and sent as they are.

    python -m bench.upstream
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import lru_cache
from typing import Any, cast

import uvloop

PAUSE_S = 0.002
PATHS = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai-chat", "/v1/responses": "openai-responses"}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-request-id: r-1\r\n\r\n"
END = b"0\r\n\r\n"
_MODEL = re.compile(rb'"model":\s*"([^"]*)"')
_STREAM = re.compile(rb'"stream":\s*true')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LOOK = {"imageId": ["1"], "task": "Which colour is it?"}


# --- what is said -----------------------------------------------------------------------------------------------------


def _named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()


def _anthropic(words: list[str], call: bool) -> list[bytes]:
    usage = {"input_tokens": 100, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "usage": usage,
    }
    block: dict[str, Any] = {"type": "text", "text": ""}
    pieces = [{"type": "text_delta", "text": word} for word in words]
    if call:
        block = {"type": "tool_use", "id": "toolu_1", "name": "analyzeImage", "input": {}}
        pieces = [{"type": "input_json_delta", "partial_json": json.dumps(_LOOK)}]
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    return [
        _named("message_start", message={**message, "stop_reason": None, "stop_sequence": None}),
        _named("content_block_start", index=0, content_block=block),
        *(_named("content_block_delta", index=0, delta=piece) for piece in pieces),
        _named("content_block_stop", index=0),
        _named("message_delta", delta=stop, usage={"output_tokens": 50}),
        _named("message_stop"),
    ]


def _chat(words: list[str], call: bool) -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: " + json.dumps({**base, "choices": choices}, separators=(",", ":")).encode() + b"\n\n"

    deltas: list[dict[str, Any]] = [{"content": word} for word in words]
    if call:
        function = {"name": "analyzeImage", "arguments": json.dumps(_LOOK)}
        deltas = [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}]
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    return [
        chunk({"role": "assistant", "content": ""}),
        *map(chunk, deltas),
        chunk({}, "tool_calls" if call else "stop"),
        b"data: " + json.dumps({**base, "choices": [], "usage": usage}).encode() + b"\n\n",
        b"data: [DONE]\n\n",
    ]


def _responses(words: list[str], call: bool) -> list[bytes]:
    item: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    part: dict[str, Any] = {"type": "output_text", "text": "".join(words), "annotations": []}
    usage = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1, "model": "bench", "output": []}
    output = [{**item, "content": [part]}]
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [
        _named("response.created", sequence_number=0, response={**response, "status": "in_progress"}),
        _named("response.output_item.added", sequence_number=1, output_index=0, item={**item, "content": []}),
        _named("response.content_part.added", sequence_number=2, **at, part={**part, "text": ""}),
        *(_named("response.output_text.delta", sequence_number=3, **at, delta=word, logprobs=[]) for word in words),
        _named("response.output_text.done", sequence_number=4, **at, text=part["text"], logprobs=[]),
        _named("response.content_part.done", sequence_number=5, **at, part=part),
        _named("response.output_item.done", sequence_number=6, output_index=0, item=output[0]),
        _named(
            "response.completed",
            sequence_number=7,
            response={**response, "status": "completed", "output": output, "usage": usage},
        ),
    ]


def _whole(dialect: str, words: list[str]) -> dict[str, Any]:
    text = "".join(words)
    if dialect == "anthropic":
        content = [{"type": "text", "text": text}]
        usage = {"input_tokens": 100, "output_tokens": 50}
        about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench"}
        return {**about, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    usage = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    if dialect == "openai-responses":
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        about = {"id": "resp_1", "object": "response", "created_at": 1, "model": "bench", "status": "completed"}
        return {**about, "output": [item], "usage": usage}
    message = {"role": "assistant", "content": text, "refusal": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "bench"}
    return {**about, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


_EVENTS = {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _responses}


@lru_cache
def answer(dialect: str, model: str, streams: bool, called: bool) -> list[bytes]:
    """The pieces of an HTTP answer, in which they leave one by one."""
    kind, _, number = model.partition("-")
    words = [f"word{n} " for n in range(int(number or 1))]
    if not streams:
        body = json.dumps(_whole(dialect, words), separators=(",", ":")).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: r-1\r\ncontent-length: %d\r\n\r\n"
        return [head % len(body) + body]
    events = _EVENTS[dialect](words, kind == "looks" and not called)
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    if kind == "paced":
        return [HEAD + chunks[0], *chunks[1:-1], chunks[-1] + END]
    if kind == "idle":
        return [HEAD + b"".join(chunks[: int(number) + 2])]
    return [HEAD + b"".join(chunks) + END]


# --- how --------------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4 or (length := _LENGTH.search(self._buffer, 0, end)) is None:
            return
        whole = end + int(length[1])
        if len(self._buffer) < whole:
            return
        request, self._buffer = self._buffer[:whole], self._buffer[whole:]
        path = request.split(b" ", 2)[1].partition(b"?")[0].decode()
        model = _MODEL.search(request, end)
        called = b'"tool_call_id"' in request or b'"tool_result"' in request
        name = model[1].decode() if model else "burst-1"
        self._say(answer(PATHS[path], name, bool(_STREAM.search(request, end)), called), 0)

    def _say(self, pieces: list[bytes], place: int) -> None:
        self._transport.write(pieces[place])
        if place + 1 < len(pieces):
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._say, pieces, place + 1)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
