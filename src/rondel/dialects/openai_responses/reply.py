"""Converts between replies and whole answers of OpenAI's Responses API; streams share its response object, stop reasons
and usage.

A response repeats the request's settings: they are not read, because the prompt has them, and they are written from the
caller's prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ...contracts.dialect import SIGNED_BY, Json
from ...errors import EngineError, PromptRejected
from ...prompt import Prompt
from ...values import Foreign, Media, Message, Part, Reply, ReplyFinished, StopReason, Text, Thinking, ToolCall, Usage
from .._failures import error_in_stream, status_of
from .._openai import natural_stop, usage_details
from .._wire import count_field, each, extras, mention, merge, object_field, opaque, own, text_field
from .parts import (
    CUSTOM_CALL,
    NAME,
    call_item,
    is_picture,
    message_item,
    picture_item,
    read_item,
    reasoning_item,
    write_output_part,
)
from .prompt import write_settings
from .tools import as_wanted, calls_wanted

_REPEATED = (
    *("instructions", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "max_output_tokens"),
    *("max_tool_calls", "text", "reasoning", "truncation", "metadata", "user", "store", "background", "prompt"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier", "top_logprobs"),
    *("previous_response_id", "conversation", "include", "input", "frequency_penalty", "presence_penalty"),
)
_BODY = (
    "id",
    "object",
    "model",
    "output",
    "usage",
    "status",
    "error",
    "incomplete_details",
    "created_at",
    "output_text",
)
FAILED = {"failed": "failed", "cancelled": "was cancelled"}  # the statuses of a response that is an error, in words
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_reply(body: Json) -> Reply:
    parts = list(chain.from_iterable(each(body.get("output"), "output", read_item)))
    stop, kept = read_ending(body, parts)
    usage = read_usage(object_field(body, "usage"))
    model, id = text_field(body, "model", ""), text_field(body, "id", "")
    return Reply(Message("assistant", tuple(parts)), stop, usage, model, id, opaque(NAME, kept))


def read_ending(body: Json, parts: Iterable[Part], *, incomplete: bool = False) -> tuple[StopReason, Json]:
    """Return why a reply stopped, and what only this dialect says about it. Raises for a failed response. `incomplete`
    is what the last event says, and counts if the response itself does not say it."""
    status = text_field(body, "status", "completed")
    if body.get("error") or status in FAILED:
        raise error_in_stream(body.get("error"), fallback=f"the response {FAILED.get(status, 'failed')}")
    if incomplete and status == "completed":
        status = "incomplete"
    held = list(parts)
    reason = text_field(object_field(body, "incomplete_details"), "reason", "")
    stop = _stop_of(status, reason, held)
    kept = extras(body, *_BODY, *_REPEATED)
    if (status, reason) != _plain_ending(stop, held):
        kept |= {"status": status, "incomplete_details": {"reason": reason} if reason else None}
    if body.get("created_at"):
        kept["created_at"] = body["created_at"]
    usage = object_field(body, "usage")
    if details := extras(usage, *_COUNTS, *_DETAILS) | usage_details(usage, _DETAILS):
        kept["usage"] = details
    return stop, extras(kept)


def _stop_of(status: str, reason: str, parts: list[Part]) -> StopReason:
    if status == "completed":
        return natural_stop(parts)
    if reason in ("max_output_tokens", "max_messages"):
        return "length"
    return "refusal" if reason == "content_filter" else "interrupted"


def _plain_ending(stop: StopReason, parts: list[Part]) -> tuple[str, str]:
    if stop == "length":
        return "incomplete", "max_output_tokens"
    if stop == "refusal" and _stop_of("completed", "", parts) != "refusal":
        return "incomplete", "content_filter"
    return ("incomplete", "") if stop == "interrupted" else ("completed", "")


def read_usage(raw: Json) -> Usage:
    details = object_field(raw, "input_tokens_details")
    return Usage(
        tokens_in=count_field(raw, "input_tokens"),
        tokens_out=count_field(raw, "output_tokens"),
        tokens_cached=count_field(details, "cached_tokens"),
        tokens_cache_written=count_field(details, "cache_write_tokens"),
        tokens_reasoning=count_field(object_field(raw, "output_tokens_details"), "reasoning_tokens"),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def write_reply(reply: Reply, *, model: str, id: str, prompt: Prompt | None, created_s: int) -> Json:
    head = head_of(model=model, id=id, prompt=prompt, created_s=created_s)
    ending = ReplyFinished(reply.stop, reply.usage, reply.opaque)
    wanted = calls_wanted(prompt)
    parts = [as_wanted(part, wanted) for part in reply.message.parts]
    return finish(head, write_output(parts, id), parts, ending)


def head_of(*, model: str, id: str, prompt: Prompt | None, created_s: int) -> Json:
    """Return a response without any output yet, with the settings that the caller asked for."""
    asked = {} if prompt is None else write_settings(prompt)
    head: Json = {"id": id, "object": "response", "created_at": created_s, "status": "in_progress", "model": model}
    head |= {"error": None, "incomplete_details": None, "output": [], "usage": None}
    head |= {"instructions": None, "metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return head | {key: asked[key] for key in _REPEATED if key in asked and key != "include"}


def finish(head: Json, output: list[Json], parts: Iterable[Part], ending: ReplyFinished) -> Json:
    """Return the response with its output and its ending, with the exact original words if they still fit."""
    kept, held = own(ending, NAME), list(parts)
    said = kept.get("status", ""), object_field(kept, "incomplete_details").get("reason", "")
    status, reason = said if said[0] and _stop_of(*said, held) == ending.stop else _plain_ending(ending.stop, held)
    body = {
        **head,
        "created_at": head["created_at"] or kept.get("created_at", 0),
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": write_usage(ending.usage, kept),
    }
    return merge(kept, body)


def write_output(parts: Iterable[Part], id: str) -> list[Json]:
    items: list[Json] = []
    open_item: Json = {}
    for part in parts:
        new_id = item_id(part, id, len(items))
        if is_picture(part):
            items.append(picture_item(part, new_id))
            open_item = {}
            continue
        if isinstance(part, Media):
            part = Text(mention(part))
        if isinstance(part, Text) or (isinstance(part, Foreign) and "part" in own(part, NAME)):
            item: Json = own(part, NAME).get("item") or {}
            if not item or item != open_item:
                items.append(message_item(item, new_id, []))
            items[-1]["content"].append(write_output_part(part))
            open_item = item
            continue
        open_item = {}
        if isinstance(part, ToolCall):
            items.append(call_item(part, new_id))
        elif isinstance(part, Thinking) and (part.text or own(part, NAME) or SIGNED_BY in part.opaque):
            items.append(reasoning_item(part, new_id))
        elif isinstance(part, Foreign) and own(part, NAME):
            items.append(own(part, NAME))
    return items


def item_id(part: Part, id: str, number: int) -> str:
    """Return an id for an item that came without one, always the same for the same response. Servers check how ids
    begin."""
    prefix = "rs" if isinstance(part, Thinking) else "ig" if is_picture(part) else "msg"
    if isinstance(part, ToolCall):
        prefix = "ctc" if own(part, NAME).get("type") == CUSTOM_CALL else "fc"
    return f"{prefix}_{id.removeprefix('resp_')}_{number}"


def write_usage(usage: Usage, kept: Json) -> Json:
    details_in = {"cached_tokens": usage.tokens_cached, "cache_write_tokens": usage.tokens_cache_written}
    raw: Json = {
        "input_tokens": usage.tokens_in,
        "input_tokens_details": details_in,
        "output_tokens": usage.tokens_out,
        "output_tokens_details": {"reasoning_tokens": usage.tokens_reasoning},
        "total_tokens": usage.tokens_in + usage.tokens_out,
    }
    return merge(object_field(kept, "usage"), raw)


def failure(error: EngineError) -> Json:
    """Return an error in the form of a response; its codes are a closed list."""
    code = "invalid_prompt" if isinstance(error, PromptRejected) else "server_error"
    return {"code": "rate_limit_exceeded" if status_of(error) == 429 else code, "message": str(error)}
