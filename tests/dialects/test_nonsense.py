"""Streams, answers and requests with one value replaced by nonsense: an error with a name, never a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.dialects._sse import encode
from rondel.errors import EngineError, EngineGarbled, PromptRejected

from .helpers import GOLDEN, NAMES, deltas_from, golden, reply_from, sse_events
from .test_prompts import HELLO, OWN
from .test_round_trips import GOOD

JUNK: tuple[Any, ...] = (None, 7, -1, "junk", [], {}, [7], {"type": "junk"}, True, 1.5)
FILES = [(path.parent.name, path.stem) for path in sorted(GOLDEN.glob("*/*.sse"))]


def spoiled(value: Any) -> Iterator[Any]:
    """The value with each of its inner values replaced by each junk, one at a time, and left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: junk} for junk in JUNK)
            yield from ({**value, key: bad} for bad in spoiled(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], bad, *value[index + 1 :]] for bad in (*JUNK, *spoiled(inner)))


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_stream_with_one_wrong_value_is_read_or_named_garbled(name: str, file: str) -> None:
    """What is read of it is a whole reply with one end, and what is passed on past a meter ends once or not at all."""
    events = sse_events(golden(name, file))
    whole = [encode(event.event, event.data) for event in events]
    garbled = 0
    for number, event in enumerate(events):
        if event.data == "[DONE]":
            continue
        for bad in list(spoiled(msgspec.json.decode(event.data)))[:: max(1, len(events) // 4)]:
            stream = [*whole[:number], encode(event.event, msgspec.json.encode(bad)), *whole[number + 1 :]]
            try:
                reply_from(deltas_from(DIALECTS[name](), b"".join(stream)))
            except EngineError:
                garbled += 1
            with suppress(EngineError):
                assert_passed_on(name, b"".join(stream))
    assert garbled, "nothing of it had to be right"


def assert_passed_on(name: str, stream: bytes) -> None:
    """What a meter lets through is the beginning of what came, and it is done only if that has an end."""
    meter = DIALECTS[name]().meter({})
    passed = meter.feed(stream)
    assert stream.startswith(passed)
    if meter.broken is not None:
        assert not meter.done
        assert meter.fail(meter.broken)
    passed += meter.finish()
    assert meter.done


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_whole_reply_with_one_wrong_value_is_read_or_named_garbled(name: str, file: str) -> None:
    dialect = DIALECTS[name]()
    reply = reply_from(deltas_from(dialect, golden(name, file)))
    for bad in spoiled(dialect.reply_writer(model="m", id="i").write_whole(reply)):
        with suppress(EngineError):
            dialect.reply_reader().read_whole(bad)


REQUESTS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}, "cache_control": {}}]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "d"}, "title": "t"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "n", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "t"}]}],
        },
    ],
    "openai-chat": [
        {"role": "developer", "content": [{"type": "text", "text": "t"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "AAAA", "filename": "f"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "i", "function": {"name": "n", "arguments": "{}"}}],
        },
        {"role": "assistant", "reasoning_content": "r", "reasoning_details": [{"type": "x"}], "refusal": "no"},
        {"role": "tool", "tool_call_id": "i", "content": "r"},
    ],
    "openai-responses": [
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]},
        {"role": "user", "content": [{"type": "input_file", "file_data": "AAAA", "filename": "f"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "e"},
        {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
    ],
}
ASKED: dict[str, dict[str, Any]] = {
    "anthropic": {
        "thinking": {"type": "enabled", "budget_tokens": 9},
        "output_config": {"effort": "low", "format": {}},
    },
    "openai-chat": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "stop": ["x"],
    },
    "openai-responses": {"reasoning": {"effort": "low"}, "text": {"format": {"type": "json_schema", "name": "n"}}},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_request_with_one_wrong_value_is_read_or_rejected(name: str) -> None:
    key = "input" if name == "openai-responses" else "messages"
    tools = [{"type": "function", "name": "n", "function": {"name": "n", "parameters": {}}, "input_schema": {}}]
    body = {"model": "m", **HELLO[name], **OWN[name], **ASKED[name], "temperature": 1, "tools": tools, "stream": True}
    body[key] = REQUESTS[name]
    dialect = DIALECTS[name]()
    accepted = [dialect.read_prompt(body)]
    for bad in spoiled(body):
        with suppress(PromptRejected):
            accepted.append(dialect.read_prompt(bad))
    for prompt in accepted:  # what was accepted can be written, in any dialect
        for other in NAMES:
            DIALECTS[other]().write_prompt(prompt, model="m")


@pytest.mark.parametrize("name", NAMES)
def test_json_that_is_too_deep_is_garbled(name: str) -> None:
    deep = b"data: " + b'{"a":' * 100_000 + b"\n\n"
    with pytest.raises(EngineGarbled, match="not JSON"):
        DIALECTS[name]().reply_reader().feed(deep)
    assert isinstance(DIALECTS[name]().reply_reader().read_error(500, b"[" * 100_000), EngineError)
