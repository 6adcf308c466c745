"""Converts between replies and whole answers of OpenAI's Chat Completions API; streams share its stop reasons, usage
and errors.

One finish reason has several meanings here: `stop` ends a reply, a refusal and, with a forced tool, a reply with calls.
The content of the reply decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...contracts.dialect import Json
from ...errors import EngineError
from ...values import Foreign, Media, Message, Part, Reply, StopReason, Text, ToolCall, Usage
from .._failures import error_in_stream
from .._openai import as_custom, error_fields, natural_stop, usage_details
from .._wire import (
    WireError,
    at,
    count_field,
    each,
    extras,
    mention,
    merge,
    object_field,
    objects,
    opaque,
    own,
    text_field,
)
from .parts import (
    DETAILS,
    NAME,
    THINKING_FIELDS,
    message_fields,
    read_call,
    read_citations,
    read_content,
    read_thinking,
    write_call,
    write_citations,
    write_thinking,
)

MESSAGE_FIELDS = ("role", "content", "refusal", "tool_calls", "annotations", DETAILS, *THINKING_FIELDS)
"""The fields of a message or a delta that our values have, too."""

BODY_FIELDS = ("id", "object", "model", "choices", "usage", "created")

_STOPS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "refusal",
    # Words of compatible servers for an answer that broke off: OpenRouter, vLLM and SGLang, DeepSeek.
    "error": "interrupted",
    "abort": "interrupted",
    "insufficient_system_resource": "interrupted",
}
_PLAIN_STOPS: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "stop_sequence": "stop",
    "refusal": "content_filter",
    "pause": "stop",
    "interrupted": "length",  # Chat has no such reason, and the answer must not look finished
}


def read_reply(body: Json) -> Reply:
    if body.get("error"):
        raise error_in_stream(body["error"])
    choices = objects(body, "choices")
    if not choices:
        raise WireError("choices", "is empty: an answer has at least one")
    with at("choices[0]"):
        parts = _read_parts(object_field(choices[0], "message"))
        word = text_field(choices[0], "finish_reason", "")
    usage_raw = object_field(body, "usage")
    stop, ending = read_ending(word, usage_raw, parts)
    kept = {**extras(body, *BODY_FIELDS), **ending}
    if choice := extras(choices[0], "index", "message", "finish_reason"):
        kept["choice"] = choice
    if body.get("created"):
        kept["created"] = body["created"]
    model, id = text_field(body, "model", ""), text_field(body, "id", "")
    return Reply(Message("assistant", parts), stop, read_usage(usage_raw), model, id, opaque(NAME, kept))


def _read_parts(raw: Json) -> tuple[Part, ...]:
    parts: list[Part] = [*read_thinking(raw)]
    citations = read_citations(objects(raw, "annotations"))
    texts = [part for part in read_content(raw.get("content")) if part != Text("")]
    if citations:
        first = texts[0] if texts else Text("")
        text = Text(first.text, citations=citations, opaque=first.opaque) if isinstance(first, Text) else Text("")
        texts = [text, *texts[1:]]
    parts += texts
    if refusal := text_field(raw, "refusal", ""):
        parts.append(Text(refusal, refusal=True))
    parts += each(raw.get("tool_calls"), "tool_calls", read_call)
    if left := extras(raw, *MESSAGE_FIELDS):
        parts.append(Foreign({NAME: left}))
    return tuple(parts)


def write_reply(reply: Reply, *, model: str, id: str, created_s: int, customs: frozenset[str] = frozenset()) -> Json:
    kept, parts = own(reply, NAME), tuple(as_custom(part, customs, NAME, "custom") for part in reply.message.parts)
    said = object_field(kept, "choice")
    choice: Json = {"index": 0, "message": _write_message(parts), "logprobs": said.get("logprobs")}
    choice["finish_reason"] = write_stop(reply.stop, kept, parts)
    body: Json = {
        "id": id,
        "object": "chat.completion",
        "created": created_s or kept.get("created", 0),
        "model": model,
        "choices": [merge(said, choice)],
        "usage": write_usage(reply.usage, kept),
    }
    return merge(extras(kept, "choice", "usage", "finish_reason", "created"), body)


def _write_message(parts: tuple[Part, ...]) -> Json:
    content = refusal = ""
    annotations: list[Json] = []
    fields: Json = {}
    for part in parts:
        if isinstance(part, Text) and part.refusal:
            refusal += part.text
        elif isinstance(part, Text):
            annotations += write_citations(part, len(content))
            content += part.text
        elif isinstance(part, Media):
            content += mention(part)
        elif isinstance(part, Foreign):
            fields |= message_fields(part)
    message: Json = {"role": "assistant", "content": content or None, "refusal": refusal or None}
    message |= write_thinking(parts, replay=False)
    if annotations:
        message["annotations"] = annotations
    if calls := [write_call(part) for part in parts if isinstance(part, ToolCall)]:
        message["tool_calls"] = calls
    return merge(fields, message)


def stop_of(word: str, parts: Iterable[Part]) -> StopReason:
    stop = _STOPS.get(word, "end")
    return natural_stop(parts) if stop == "end" else stop


def _plain_stop(stop: StopReason, parts: Iterable[Part]) -> str:
    if stop == "refusal" and stop_of("stop", parts) == "refusal":
        return "stop"
    return _PLAIN_STOPS[stop]


def read_ending(word: str, usage_raw: Json, parts: Iterable[Part]) -> tuple[StopReason, Json]:
    """Return why a reply stopped, and what only this dialect says about its end."""
    held = list(parts)
    stop = stop_of(word, held)
    kept: Json = {"finish_reason": word} if word and word != _plain_stop(stop, held) else {}
    if details := extras(usage_raw, *_COUNTS, *_DETAILS) | usage_details(usage_raw, _DETAILS):
        kept["usage"] = details
    return stop, kept


def write_stop(stop: StopReason, kept: Json, parts: Iterable[Part]) -> str:
    held, said = list(parts), kept.get("finish_reason")
    return said if isinstance(said, str) and stop_of(said, held) == stop else _plain_stop(stop, held)


_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS: dict[str, tuple[str, ...]] = {
    "prompt_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "completion_tokens_details": ("reasoning_tokens",),
}


def read_usage(raw: Json) -> Usage:
    details_in = object_field(raw, "prompt_tokens_details")
    details_out = object_field(raw, "completion_tokens_details")
    return Usage(
        tokens_in=count_field(raw, "prompt_tokens"),
        tokens_out=count_field(raw, "completion_tokens"),
        tokens_cached=count_field(details_in, "cached_tokens") or count_field(raw, "prompt_cache_hit_tokens"),
        tokens_cache_written=count_field(details_in, "cache_write_tokens"),
        tokens_reasoning=count_field(details_out, "reasoning_tokens"),
    )


def write_usage(usage: Usage, kept: Json) -> Json:
    details_in: Json = {"cached_tokens": usage.tokens_cached}
    if usage.tokens_cache_written:
        details_in["cache_write_tokens"] = usage.tokens_cache_written
    raw: Json = {
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
        "prompt_tokens_details": details_in,
        "completion_tokens_details": {"reasoning_tokens": usage.tokens_reasoning},
    }
    return merge(object_field(kept, "usage"), raw)


def error_body(error: EngineError) -> Json:
    return {"error": error_fields(error)}
