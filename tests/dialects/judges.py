"""The official SDKs as judges: their types check every event and body that we write, their clients read our streams.

Nothing here touches a network: the clients talk to a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_args

import anthropic
import httpx2
import msgspec
import openai
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as BetaParamsStreaming
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter

from .helpers import sse_events

Json = dict[str, Any]


def _by_type(union: Any) -> dict[str, type[BaseModel]]:
    """The models of an SDK's union, by the literal of their `type` field."""
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(union)[0])}


ANTHROPIC_EVENTS = _by_type(RawMessageStreamEvent)
RESPONSES_EVENTS = _by_type(ResponseStreamEvent)


def judge_stream(dialect: str, raw: bytes) -> None:
    """Every event is what the SDK of its provider says it is."""
    for number, event in enumerate(sse_events(raw)):
        if dialect == "openai-chat":
            assert event.event == ""
            if event.data != "[DONE]":
                ChatCompletionChunk.model_validate_json(event.data)
            continue
        data: Json = msgspec.json.decode(event.data)
        assert data["type"] == event.event
        if dialect == "openai-responses":
            assert data["sequence_number"] == number
            RESPONSES_EVENTS[event.event].model_validate(data)
        elif event.event != "ping":
            ANTHROPIC_EVENTS[event.event].model_validate(data)


def judge_reply(dialect: str, body: Json) -> None:
    models: dict[str, type[BaseModel]] = {
        "anthropic": AnthropicMessage,
        "openai-chat": ChatCompletion,
        "openai-responses": Response,
    }
    models[dialect].model_validate(body)


@cache
def _params(dialect: str, stream: bool) -> TypeAdapter[Any]:
    params: dict[tuple[str, bool], Any] = {
        ("anthropic", True): MessageCreateParamsStreaming,
        ("anthropic", False): MessageCreateParamsNonStreaming,
        ("anthropic-beta", True): BetaParamsStreaming,
        ("openai-chat", True): CompletionCreateParamsStreaming,
        ("openai-chat", False): CompletionCreateParamsNonStreaming,
        ("openai-responses", True): ResponseCreateParamsStreaming,
        ("openai-responses", False): ResponseCreateParamsNonStreaming,
    }
    return TypeAdapter(params[dialect, stream])


def judge_prompt(dialect: str, body: Json, *, stream: bool) -> None:
    """The body is what the SDK would let its user send. Iterables are checked when they are walked through."""
    _walk(_params(dialect, stream).validate_python(body))


def _walk(value: object) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _walk(inner)
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for inner in value:
            _walk(inner)


Answer = Callable[[httpx2.Request], httpx2.Response]


def anthropic_client(answer: Answer) -> anthropic.Anthropic:
    transport = httpx2.MockTransport(answer)
    return anthropic.Anthropic(api_key="key", max_retries=0, http_client=httpx2.Client(transport=transport))


def openai_client(answer: Answer) -> openai.OpenAI:
    transport = httpx2.MockTransport(answer)
    return openai.OpenAI(api_key="key", max_retries=0, http_client=httpx2.Client(transport=transport))


def answer_with(raw: bytes, seen: list[Json] | None = None, *, stream: bool = True, status: int = 200) -> Answer:
    """A provider that answers with these bytes, and notes the requests that it gets."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(msgspec.json.decode(request.content))
        kind = "text/event-stream" if stream else "application/json"
        return httpx2.Response(status, headers={"content-type": kind}, content=raw)

    return answer
