"""What a model says, in the words of each dialect as its vendor documents them: whole, and as events.

Written apart from the code that is tested, from the vendors' own documents. An answer is a list of parts; `stream`
and `whole` give the bytes of an HTTP answer.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

T = TypeVar("T")

PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
DIALECTS = tuple(PATHS)


class Say(NamedTuple):
    text: str
    cites: str = ""  # The address of a web page that the text cites


class Think(NamedTuple):
    text: str


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class Refuse(NamedTuple):
    text: str


class Spent(NamedTuple):
    fresh: int = 10  # Tokens of the prompt that were in no cache
    cached: int = 0
    written: int = 0  # Tokens that went into the cache
    out: int = 5


class Answer(NamedTuple):
    parts: tuple[Say | Think | Call | Refuse, ...]
    stop: str = ""  # `end`, `calls`, `length`, `stop_sequence`, `filtered`; empty is what the parts say.
    spent: Spent = Spent()
    interleaved: bool = False  # The pieces of parallel calls' arguments come in turns, where the dialect can

    @property
    def ends(self) -> str:
        kinds = {type(part) for part in self.parts}
        return self.stop or ("calls" if Call in kinds else "refused" if Refuse in kinds else "end")


def says(*texts: str, spent: Spent | None = None) -> Answer:
    return Answer(tuple(Say(text) for text in texts), spent=spent or Spent())


def calls(*made: Call, saying: str = "", interleaved: bool = False) -> Answer:
    return Answer((*((Say(saying),) if saying else ()), *made), interleaved=interleaved)


# --- HTTP -------------------------------------------------------------------------------------------------------------


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"content-type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM = head(transfer_encoding="chunked", x_request_id="up-1")
END = b"0\r\n\r\n"


def body(value: object, status: int = 200, content_type: str = "application/json", **headers: str) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return head(status, content_type, content_length=str(len(data)), **headers) + data


def whole(dialect: str, answer: Answer) -> list[bytes]:
    return [body(whole_of(dialect, answer))]


def stream(dialect: str, answer: Answer) -> list[bytes]:
    return [STREAM, *(chunk(event) for event in events_of(dialect, answer)), END]


def played(dialect: str, answer: Answer, streams: bool) -> list[bytes]:
    return stream(dialect, answer) if streams else whole(dialect, answer)


def error(dialect: str, status: int, kind: str, message: str, **headers: str) -> list[bytes]:
    """An error as an answer, in the vendor's envelope."""
    return [body(envelope(dialect, kind, message), status, **headers)]


def envelope(dialect: str, kind: str, message: str) -> dict[str, Any]:
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def error_event(dialect: str, kind: str, message: str) -> bytes:
    """An error that the vendor writes into a stream that is under way."""
    if dialect == "openai-chat":
        return b"data: " + json.dumps(envelope(dialect, kind, message)).encode() + b"\n\n"
    if dialect == "anthropic":
        return _event("error", **{k: v for k, v in envelope(dialect, kind, message).items() if k != "type"})
    return _event("error", code=kind, message=message, param=None, sequence_number=9)


def whole_of(dialect: str, answer: Answer) -> dict[str, Any]:
    return {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _response}[dialect](answer)


def events_of(dialect: str, answer: Answer) -> list[bytes]:
    return {"anthropic": _anthropic_events, "openai-chat": _chat_events, "openai-responses": _response_events}[dialect](
        answer
    )


def beginning_of(dialect: str, text: str = "Hel", *, spent: Spent | None = None) -> list[bytes]:
    """A stream that has said something and not ended."""
    events = events_of(dialect, says(text, spent=spent))
    mark = {
        "anthropic": b"text_delta",
        "openai-chat": json.dumps({"content": _pieces(text)[-1]})[:-1].encode(),
        "openai-responses": b"output_text.delta",
    }[dialect]
    last = max(n for n, event in enumerate(events) if mark in event)
    return [STREAM, *(chunk(event) for event in events[: last + 1])]


def silent_beginning_of(dialect: str, *, spent: Spent | None = None) -> list[bytes]:
    """A stream that has begun and said nothing."""
    events = events_of(dialect, says("never", spent=spent))
    return [STREAM, *(chunk(event) for event in events[: 1 if dialect != "openai-responses" else 2])]


def piece_of(dialect: str, text: str) -> bytes:
    """One event that says more, in the middle of a stream that `beginning_of` began."""
    if dialect == "anthropic":
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
    if dialect == "openai-chat":
        return _chunk_event({"content": text})
    return _event(
        "response.output_text.delta",
        item_id=_item(0, Say("Hel"))["id"],
        output_index=0,
        content_index=0,
        delta=text,
        logprobs=[],
        sequence_number=5,
    )


def _event(kind: str, /, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _pieces(text: str) -> list[str]:
    """A text in three pieces, or fewer."""
    size = max(1, -(-len(text) // 3))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


STOPS = {
    "anthropic": {
        "end": "end_turn",
        "calls": "tool_use",
        "length": "max_tokens",
        "stop_sequence": "stop_sequence",
        "refused": "refusal",
        "filtered": "refusal",
    },
    "openai-chat": {
        "end": "stop",
        "calls": "tool_calls",
        "length": "length",
        "stop_sequence": "stop",
        "refused": "stop",
        "filtered": "content_filter",
    },
    "openai-responses": {
        "end": "completed",
        "calls": "completed",
        "length": "max_output_tokens",
        "stop_sequence": "completed",
        "refused": "completed",
        "filtered": "content_filter",
    },
}
"""What each dialect calls the end of an answer."""


# --- Anthropic Messages -----------------------------------------------------------------------------------------------


def _anthropic_usage(spent: Spent) -> dict[str, Any]:
    return {
        "input_tokens": spent.fresh,
        "cache_read_input_tokens": spent.cached,
        "cache_creation_input_tokens": spent.written,
        "output_tokens": spent.out,
        "service_tier": "standard",
    }


def _anthropic_block(part: Any) -> dict[str, Any]:
    match part:
        case Say(text, cites):
            block: dict[str, Any] = {"type": "text", "text": text}
            return block | {"citations": [_anthropic_citation(cites)]} if cites else block
        case Think(text):
            return {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}
        case Call(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments}
        case _:
            return {"type": "text", "text": part.text}


def _anthropic_citation(url: str) -> dict[str, Any]:
    return {
        "type": "web_search_result_location",
        "url": url,
        "title": "A page",
        "cited_text": "as it says",
        "encrypted_index": "ZQ==",
    }


def _anthropic_stop(answer: Answer) -> dict[str, Any]:
    sequence = "END" if answer.ends == "stop_sequence" else None
    return {"stop_reason": STOPS["anthropic"][answer.ends], "stop_sequence": sequence}


def _anthropic(answer: Answer) -> dict[str, Any]:
    return {
        "id": "msg_up",
        "type": "message",
        "role": "assistant",
        "model": "upstream-model",
        "content": [_anthropic_block(part) for part in answer.parts],
        **_anthropic_stop(answer),
        "usage": _anthropic_usage(answer.spent),
    }


def _anthropic_events(answer: Answer) -> list[bytes]:
    begun = _anthropic(answer) | {"content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = begun["usage"] | {"output_tokens": 1}
    events = [_event("message_start", message=begun), _event("ping")]
    for index, part in enumerate(answer.parts):
        events += _anthropic_part(index, part)
    usage = _anthropic_usage(answer.spent)
    events.append(_event("message_delta", delta=_anthropic_stop(answer), usage=usage))
    return [*events, _event("message_stop")]


def _anthropic_part(index: int, part: Any) -> list[bytes]:
    block = _anthropic_block(part)
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    empty_block = {**block, **empty[block["type"]]}
    empty_block.pop("citations", None)
    deltas: list[dict[str, Any]]
    match part:
        case Think(text):
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(text)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case Call(_, _, arguments):
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *_pieces(json.dumps(arguments))]]
        case _:
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(part.text)]
            deltas += [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", ())]
    return [
        _event("content_block_start", index=index, content_block=empty_block),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


# --- OpenAI Chat Completions ------------------------------------------------------------------------------------------


def _openai_usage(spent: Spent) -> dict[str, Any]:
    tokens_in = spent.fresh + spent.cached + spent.written
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": spent.out,
        "total_tokens": tokens_in + spent.out,
        "prompt_tokens_details": {"cached_tokens": spent.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _chat_call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}


def _annotations(answer: Answer) -> list[dict[str, Any]]:
    cited, at = list[dict[str, Any]](), 0
    for part in answer.parts:
        if isinstance(part, Say):
            if part.cites:
                place = {"start_index": at, "end_index": at + len(part.text)}
                citation = {"url": part.cites, "title": "A page", **place}
                cited.append({"type": "url_citation", "url_citation": citation})
            at += len(part.text)
    return cited


def _chat(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(part.text for part in answer.parts if isinstance(part, Say)) or None,
        "refusal": next((part.text for part in answer.parts if isinstance(part, Refuse)), None),
    }
    if thoughts := [part.text for part in answer.parts if isinstance(part, Think)]:
        message["reasoning_content"] = "".join(thoughts)
    if made := [_chat_call(part) for part in answer.parts if isinstance(part, Call)]:
        message["tool_calls"] = made
    if cited := _annotations(answer):
        message["annotations"] = cited
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": STOPS["openai-chat"][answer.ends]}
    return {
        "id": "chatcmpl-up",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "upstream-model",
        "choices": [choice],
        "usage": _openai_usage(answer.spent),
        "system_fingerprint": "fp_1",
    }


def _chunk_event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    chunk = {
        "id": "chatcmpl-up",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "upstream-model",
        "system_fingerprint": "fp_1",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _chat_events(answer: Answer) -> list[bytes]:
    events = [_chunk_event({"role": "assistant", "content": "", "refusal": None})]
    for part in answer.parts:
        field = {Say: "content", Think: "reasoning_content", Refuse: "refusal"}.get(type(part))
        if field:
            events += [_chunk_event({field: piece}) for piece in _pieces(part[0])]
    events += _chat_call_events([part for part in answer.parts if isinstance(part, Call)], answer.interleaved)
    if cited := _annotations(answer):
        events.append(_chunk_event({"annotations": cited}))
    events.append(_chunk_event({}, STOPS["openai-chat"][answer.ends]))
    events.append(_chunk_event(None, usage=_openai_usage(answer.spent)))
    return [*events, b"data: [DONE]\n\n"]


def _chat_call_events(made: list[Call], interleaved: bool) -> list[bytes]:
    lists: list[list[bytes]] = []
    for index, call in enumerate(made):
        first = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        pieces = [{"index": index, "function": {"arguments": piece}} for piece in _pieces(json.dumps(call.arguments))]
        lists.append([_chunk_event({"tool_calls": [delta]}) for delta in (first, *pieces)])
    return _in_turns(lists) if interleaved else [event for events in lists for event in events]


def _in_turns(lists: list[list[T]]) -> list[T]:
    longest = max(map(len, lists), default=0)
    return [events[n] for n in range(longest) for events in lists if n < len(events)]


# --- OpenAI Responses -------------------------------------------------------------------------------------------------


def _response_usage(spent: Spent) -> dict[str, Any]:
    tokens_in = spent.fresh + spent.cached + spent.written
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": spent.cached, "cache_write_tokens": spent.written},
        "output_tokens": spent.out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens_in + spent.out,
    }


def _item(index: int, part: Any) -> dict[str, Any]:
    place = f"{index}_{crc32(repr(part).encode())}"  # no two items of a conversation have the same id
    match part:
        case Think(text):
            summary = [{"type": "summary_text", "text": text}]
            return {"type": "reasoning", "id": f"rs_{place}", "summary": summary, "encrypted_content": "ZW5j"}
        case Call(id, name, arguments):
            call = {"type": "function_call", "id": f"fc_{place}", "call_id": id, "name": name}
            return {**call, "arguments": json.dumps(arguments), "status": "completed"}
        case Refuse(text):
            content: dict[str, Any] = {"type": "refusal", "refusal": text}
        case _:
            content = _output_text(part.text, part.cites)
    return {"type": "message", "id": f"msg_{place}", "role": "assistant", "status": "completed", "content": [content]}


def _output_text(text: str, cites: str = "") -> dict[str, Any]:
    cited = [{"type": "url_citation", "url": cites, "title": "A page", "start_index": 0, "end_index": len(text)}]
    return {"type": "output_text", "text": text, "annotations": cited if cites else [], "logprobs": []}


def _response(answer: Answer) -> dict[str, Any]:
    why = {"length": "max_output_tokens", "filtered": "content_filter"}.get(answer.stop)
    return {
        "id": "resp_up",
        "object": "response",
        "created_at": 1700000000,
        "status": "incomplete" if why else "completed",
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "instructions": None,
        "metadata": {},
        "model": "upstream-model",
        "output": [_item(index, part) for index, part in enumerate(answer.parts)],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _response_usage(answer.spent),
    }


def _response_events(answer: Answer) -> list[bytes]:
    done = _response(answer)
    begun = {**done, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    lists = [_item_events(index, part) for index, part in enumerate(answer.parts)]
    parts = _in_turns(lists) if answer.interleaved else [event for events in lists for event in events]
    last = "response.incomplete" if done["status"] == "incomplete" else "response.completed"
    named = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        *parts,
        (last, {"response": done}),
    ]
    return [_event(name, **fields, sequence_number=number) for number, (name, fields) in enumerate(named)]


Named = tuple[str, dict[str, Any]]


def _item_events(index: int, part: Any) -> list[Named]:
    item = _item(index, part)
    at = {"output_index": index, "item_id": item["id"]}
    match part:
        case Think(text):
            begun = {**item, "summary": []}
            inner = _summary_events(at, text)
        case Call(_, _, arguments):
            begun = {**item, "arguments": "", "status": "in_progress"}
            inner = _argument_events(at, json.dumps(arguments), part.name)
        case _:
            begun = {**item, "content": [], "status": "in_progress"}
            inner = _content_events(at, item["content"][0])
    added = ("response.output_item.added", {"output_index": index, "item": begun})
    return [added, *inner, ("response.output_item.done", {"output_index": index, "item": item})]


def _summary_events(at: dict[str, Any], text: str) -> list[Named]:
    at = {**at, "summary_index": 0}
    name = "response.reasoning_summary_"
    return [
        (f"{name}part.added", {**at, "part": {"type": "summary_text", "text": ""}}),
        *((f"{name}text.delta", {**at, "delta": piece}) for piece in _pieces(text)),
        (f"{name}text.done", {**at, "text": text}),
        (f"{name}part.done", {**at, "part": {"type": "summary_text", "text": text}}),
    ]


def _argument_events(at: dict[str, Any], arguments: str, tool: str) -> list[Named]:
    name = "response.function_call_arguments."
    return [
        *((f"{name}delta", {**at, "delta": piece}) for piece in _pieces(arguments)),
        (f"{name}done", {**at, "arguments": arguments, "name": tool}),
    ]


def _content_events(at: dict[str, Any], content: dict[str, Any]) -> list[Named]:
    at = {**at, "content_index": 0}
    kind = "output_text" if content["type"] == "output_text" else "refusal"
    field = "text" if kind == "output_text" else "refusal"
    more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    empty = {**content, field: ""} | ({"annotations": []} if kind == "output_text" else {})
    cited: list[dict[str, Any]] = content.get("annotations", [])
    return [
        ("response.content_part.added", {**at, "part": empty}),
        *((f"response.{kind}.delta", {**at, "delta": piece, **more}) for piece in _pieces(content[field])),
        *(
            ("response.output_text.annotation.added", {**at, "annotation_index": n, "annotation": annotation})
            for n, annotation in enumerate(cited)
        ),
        (f"response.{kind}.done", {**at, field: content[field], **more}),
        ("response.content_part.done", {**at, "part": content}),
    ]
