"""Converts between replies and whole answers of Anthropic's Messages API; streams share its stop reasons and usage."""

from __future__ import annotations

from ...contracts.dialect import Json
from ...errors import EngineError
from ...values import Message, Opaque, Reply, StopReason, Usage
from .._failures import error_in_stream, status_of
from .._wire import count_field, each, exact_word, extras, merge, object_field, opaque, own, text_field
from .parts import NAME, read_block, write_block

_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_PLAIN_STOPS: dict[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
    "interrupted": "max_tokens",  # Anthropic has no such reason, and the answer must not look finished
}
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ENDING = ("stop_reason", "stop_sequence", "stop_details", "container")
"""The fields that say how a reply ended: of the body, or of `message_delta` in a stream."""


def read_reply(body: Json) -> Reply:
    if body.get("type") == "error" or body.get("error"):
        raise error_in_stream(body.get("error"))
    parts = each(body.get("content"), "content", read_block)
    usage_raw = object_field(body, "usage")
    message = Message("assistant", tuple(parts))
    stop, ending = read_ending(body, usage_raw, has_calls=bool(message.calls))
    left = extras(body, "type", "role", "id", "model", "content", "usage", *_ENDING)
    kept = opaque(NAME, {**left, **ending.get(NAME, {})})
    return Reply(message, stop, read_usage(usage_raw), text_field(body, "model", ""), text_field(body, "id", ""), kept)


def write_reply(reply: Reply, *, model: str, id: str) -> Json:
    kept = own(reply, NAME)
    blocks = [block for part in reply.message.parts if (block := write_block(part, replay=False)) is not None]
    body: Json = {"id": id, "type": "message", "role": "assistant", "model": model, "content": blocks}
    body |= write_ending(reply.stop, kept)
    body["usage"] = write_usage(reply.usage, kept)
    return merge(extras(kept, "usage"), body)


def error_body(error: EngineError) -> Json:
    return {"type": "error", "error": {"type": _error_type(error), "message": str(error)}}


def _error_type(error: EngineError) -> str:
    status = status_of(error)
    return _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")


def stop_of(word: str) -> StopReason:
    return _STOPS.get(word, "end")


def read_ending(raw: Json, usage_raw: Json, *, has_calls: bool) -> tuple[StopReason, Opaque]:
    """Return how a reply ended, and what only this dialect says about it."""
    word = text_field(raw, "stop_reason", "")
    stop = stop_of(word) if word else "calls" if has_calls else "end"
    kept = extras({key: raw.get(key) for key in _ENDING})
    if word == _PLAIN_STOPS[stop]:
        del kept["stop_reason"]
    if details := extras(usage_raw, *_USAGE, "output_tokens_details"):
        kept["usage"] = details
    return stop, opaque(NAME, kept)


def write_ending(stop: StopReason, kept: Json) -> Json:
    """Return the fields that say how a reply ended, with the exact original words if they still fit."""
    ending: Json = {"stop_reason": exact_word(kept.get("stop_reason"), stop, stop_of, _PLAIN_STOPS)}
    ending["stop_sequence"] = kept.get("stop_sequence") if stop == "stop_sequence" else None
    return ending | extras({key: kept.get(key) for key in ("stop_details", "container")})


def read_usage(raw: Json) -> Usage:
    """Return the usage. Anthropic counts cached and written tokens separately; ours are part of `tokens_in`."""
    cached, written = count_field(raw, "cache_read_input_tokens"), count_field(raw, "cache_creation_input_tokens")
    return Usage(
        tokens_in=count_field(raw, "input_tokens") + cached + written,
        tokens_out=count_field(raw, "output_tokens"),
        tokens_cached=cached,
        tokens_cache_written=written,
        tokens_reasoning=count_field(object_field(raw, "output_tokens_details"), "thinking_tokens"),
    )


def write_usage(usage: Usage, kept: Json) -> Json:
    raw: Json = {
        "input_tokens": max(0, usage.tokens_in - usage.tokens_cached - usage.tokens_cache_written),
        "cache_creation_input_tokens": usage.tokens_cache_written,
        "cache_read_input_tokens": usage.tokens_cached,
        "output_tokens": usage.tokens_out,
    }
    if usage.tokens_reasoning:
        raw["output_tokens_details"] = {"thinking_tokens": usage.tokens_reasoning}
    return merge(object_field(kept, "usage"), raw)
