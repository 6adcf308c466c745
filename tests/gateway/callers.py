"""The vendors' own SDKs as callers: one question in each dialect's words, and what each SDK makes of the answer.

Streams go through the SDKs' helpers, whose accumulators are strict: an event out of order is an error.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import anthropic
import openai
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

KEY = "caller-key"
TIMEOUT_S = 20.0
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"

LOOK = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"], "additionalProperties": False}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Heard(NamedTuple):
    """What a caller makes of an answer."""

    text: str
    thoughts: str
    calls: tuple[tuple[str, str, Any], ...]
    stop: str
    tokens_in: int
    cached: int
    tokens_out: int
    cites: tuple[str, ...]
    refusal: str
    model: str
    id: str


# --- questions --------------------------------------------------------------------------------------------------------


def question(dialect: str, text: str = "Hi", **kinds: Any) -> dict[str, Any]:
    """The fields of a request. `kinds`: image, document, tools, result, schema, thinking, system."""
    return {"anthropic": _messages, "openai-chat": _chat, "openai-responses": _responses}[dialect](text, kinds)


def _messages(text: str, kinds: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if kinds.get("image"):
        content.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}})
    if kinds.get("document"):
        source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
        content.append({"type": "document", "title": "paper.pdf", "source": source})
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if kinds.get("result"):
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen a"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    fields: dict[str, Any] = {"max_tokens": 4000, "messages": messages}
    if kinds.get("tools"):
        fields["tools"] = [{"name": "look", "description": "Looks.", "input_schema": LOOK}]
    if kinds.get("schema"):
        fields["output_config"] = {"format": {"type": "json_schema", "schema": CITY}}
    if kinds.get("thinking"):
        fields["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    if system := kinds.get("system"):
        fields["system"] = system
    return fields


def _chat(text: str, kinds: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if kinds.get("image"):
        content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
    if kinds.get("document"):
        data = f"data:application/pdf;base64,{PDF}"
        content.append({"type": "file", "file": {"filename": "paper.pdf", "file_data": data}})
    system = kinds.get("system")
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    if kinds.get("result"):
        function = {"name": "look", "arguments": '{"at": "a"}'}
        messages.append({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": "c1", "content": "seen a"})
    fields: dict[str, Any] = {"messages": messages}
    if kinds.get("tools"):
        function = {"name": "look", "description": "Looks.", "parameters": LOOK, "strict": kinds["tools"] != "loose"}
        fields["tools"] = [{"type": "function", "function": function}]
    if kinds.get("schema"):
        schema = {"name": "place", "schema": CITY, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if kinds.get("thinking"):
        fields["reasoning_effort"] = "high"
    return fields


def _responses(text: str, kinds: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
    if kinds.get("image"):
        url = f"data:image/png;base64,{PNG}"
        content.append({"type": "input_image", "image_url": url, "detail": "auto"})
    if kinds.get("document"):
        data = f"data:application/pdf;base64,{PDF}"
        content.append({"type": "input_file", "filename": "paper.pdf", "file_data": data})
    items: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if kinds.get("result"):
        items.append({"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "a"}'})
        items.append({"type": "function_call_output", "call_id": "c1", "output": "seen a"})
    fields: dict[str, Any] = {"input": items}
    if system := kinds.get("system"):
        fields["instructions"] = system
    if kinds.get("tools"):
        tool = {"type": "function", "name": "look", "description": "Looks.", "parameters": LOOK, "strict": True}
        fields["tools"] = [tool]
    if kinds.get("schema"):
        fields["text"] = {"format": {"type": "json_schema", "name": "place", "schema": CITY, "strict": True}}
    if kinds.get("thinking"):
        fields["reasoning"] = {"effort": "high", "summary": "auto"}
    return fields


# --- what is heard ----------------------------------------------------------------------------------------------------


def heard_message(message: Message) -> Heard:
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    cites = [
        str(getattr(citation, "url", ""))
        for block in message.content
        if block.type == "text"
        for citation in block.citations or ()
    ]
    return Heard(
        "".join(block.text for block in message.content if block.type == "text"),
        "".join(block.thinking for block in message.content if block.type == "thinking"),
        tuple((block.id, block.name, block.input) for block in message.content if block.type == "tool_use"),
        message.stop_reason or "",
        usage.input_tokens + read + written,
        read,
        usage.output_tokens,
        tuple(cites),
        "",
        message.model,
        message.id,
    )


def heard_completion(completion: ChatCompletion) -> Heard:
    choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    made = [call for call in message.tool_calls or () if call.type == "function"]
    more = message.model_extra or {}
    annotations = [note if isinstance(note, dict) else note.model_dump() for note in message.annotations or ()]
    return Heard(
        message.content or "",
        more.get("reasoning_content") or more.get("reasoning") or "",
        tuple((call.id, call.function.name, json.loads(call.function.arguments)) for call in made),
        choice.finish_reason or "",
        usage.prompt_tokens,
        (usage.prompt_tokens_details.cached_tokens or 0) if usage.prompt_tokens_details else 0,
        usage.completion_tokens,
        tuple(note["url_citation"]["url"] for note in annotations),
        message.refusal or "",
        completion.model,
        completion.id,
    )


def heard_response(response: Response) -> Heard:
    usage = response.usage
    assert usage is not None
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    contents = [content for item in response.output if item.type == "message" for content in item.content]
    texts = [content for content in contents if content.type == "output_text"]
    reasoning = [item for item in response.output if item.type == "reasoning"]
    incomplete = response.incomplete_details.reason if response.incomplete_details else ""
    return Heard(
        response.output_text,
        "".join(part.text for item in reasoning for part in (*item.summary, *(item.content or ()))),
        tuple(
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if item.type == "function_call"
        ),
        incomplete or response.status or "",
        usage.input_tokens,
        usage.input_tokens_details.cached_tokens,
        usage.output_tokens,
        tuple(note.url for text in texts for note in text.annotations if note.type == "url_citation"),
        "".join(content.refusal for content in contents if content.type == "refusal"),
        response.model,
        response.id,
    )


class Callers:
    """A client of each vendor. They ask once: what a gateway answers is what is tested."""

    def __init__(self, base_url: str, key: str = KEY) -> None:
        self.anthropic = anthropic.Anthropic(api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT_S)
        self.openai = openai.OpenAI(api_key=key, base_url=f"{base_url}/v1", max_retries=0, timeout=TIMEOUT_S)

    def __enter__(self) -> Callers:
        return self

    def __exit__(self, *_: object) -> None:
        self.anthropic.close()
        self.openai.close()

    def ask(self, dialect: str, model: str, fields: dict[str, Any], *, streams: bool = False) -> Heard:
        """Ask through the SDK of a dialect, and listen to the end."""
        if dialect == "anthropic":
            if not streams:
                return heard_message(self.anthropic.messages.create(model=model, **fields))
            with self.anthropic.messages.stream(model=model, **fields) as events:
                return heard_message(events.get_final_message())
        if dialect == "openai-chat":
            if not streams:
                return heard_completion(self.openai.chat.completions.create(model=model, **fields))
            told = {"stream_options": {"include_usage": True}, **fields}
            with self.openai.chat.completions.stream(model=model, **told) as events:
                try:
                    return heard_completion(events.get_final_completion())
                except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                    return heard_completion(events.current_completion_snapshot)  # an answer that was cut is one, too
        if not streams:
            return heard_response(self.openai.responses.create(model=model, **fields))
        with self.openai.responses.stream(model=model, **fields) as events:
            last = [event for event in events if event.type.startswith(("response.completed", "response.incomplete"))]
            assert len(last) == 1
            return heard_response(last[0].response)  # type: ignore[union-attr]
