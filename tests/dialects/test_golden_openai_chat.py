"""Streams of OpenAI's Chat Completions API and of servers like it, and the replies that they are."""

from __future__ import annotations

import pytest

from rondel.dialects.openai_chat import OpenAIChat
from rondel.errors import EngineGarbled, EngineOverloaded
from rondel.values import Citation, Foreign, PartDelta, Text, Thinking, ToolCall, Usage

from .helpers import deltas_from, golden, read_golden, reply_from

NAME = "openai-chat"


def test_a_text_and_its_usage_in_a_chunk_without_choices() -> None:
    """Q01: no network."""
    got = read_golden(NAME, "text")
    assert got.message.parts == (Text("Grüße, 世界 🌍"),)
    assert got.usage == Usage(30, 12, tokens_cached=20, tokens_reasoning=5)
    assert (got.stop, got.model, got.id) == ("end", "gpt-5.1", "chatcmpl-1")
    assert got.opaque == {NAME: {"system_fingerprint": "fp_1", "created": 1700000000}}


def test_calls_in_interleaved_pieces_are_whole_calls() -> None:
    deltas = deltas_from(OpenAIChat(), golden(NAME, "interleaved_calls"))
    assert reply_from(deltas).message.parts == (
        ToolCall("call_a", "weather", {"city": "Paris"}),
        ToolCall("call_b", "clock", {"zone": "UTC"}),
        ToolCall("call_c", "noop", opaque={NAME: {"extra_content": {"google": {"thought_signature": "sig"}}}}),
    )
    assert reply_from(deltas).stop == "calls"
    assert PartDelta(1, '{"zone": "U') in deltas


def test_reasoning_content_is_thinking_that_remembers_its_field() -> None:
    got = read_golden(NAME, "reasoning_content")
    assert got.message.parts == (
        Thinking("Let me think.", opaque={NAME: {"field": "reasoning_content"}}),
        Text("Four."),
    )
    assert got.usage == Usage(5, 7, tokens_cached=4)


def test_reasoning_details_grow_together_with_their_signature() -> None:
    details = [{"type": "reasoning.text", "text": "Hm so", "index": 0, "format": "f1", "signature": "SIG"}]
    assert read_golden(NAME, "reasoning_details").message.parts == (
        Thinking("Hm so", opaque={NAME: {"field": "reasoning", "details": details}}),
        Text("ok"),
    )


def test_a_refusal_is_a_text_that_says_so() -> None:
    got = read_golden(NAME, "refusal")
    assert got.message.parts == (Text("I will not.", refusal=True),)
    assert got.stop == "refusal"


def test_citations_have_their_offsets() -> None:
    cited = Citation("https://example.com", "Ex", start=4, end=14)
    assert read_golden(NAME, "citations").message.parts == (Text("See the source", citations=(cited,)),)


def test_a_server_that_closes_without_done_after_its_finish_reason_has_answered() -> None:
    got = read_golden(NAME, "no_done")
    assert (got.text, got.stop) == ("short", "length")


def test_new_ids_in_an_old_place_are_new_calls_and_stop_may_end_them() -> None:
    got = read_golden(NAME, "same_index_calls")
    assert got.message.calls == (ToolCall("a1", "f", {"x": 1}), ToolCall("a2", "g", {"y": 2}))
    assert got.stop == "calls"
    assert got.opaque[NAME]["finish_reason"] == "stop"


def test_arguments_that_are_no_json_object_are_kept_as_they_came() -> None:
    calls = read_golden(NAME, "broken_arguments").message.calls
    assert [call.broken for call in calls] == ['{"x": oops', "[1]"]
    assert [call.arguments for call in calls] == [{}, {}]


def test_fields_that_only_chat_knows_are_foreign_and_whole() -> None:
    audio = {"id": "audio_1", "transcript": "Hello", "data": "AAAABBBB", "expires_at": 1700000600}
    assert read_golden(NAME, "audio").message.parts == (Foreign({NAME: {"audio": audio}}),)


def test_an_error_in_mid_stream_is_raised_as_what_it_means() -> None:
    with pytest.raises(EngineOverloaded, match="The server had an error"):
        deltas_from(OpenAIChat(), golden(NAME, "server_error"))


def test_a_stream_that_is_cut_off_is_garbled() -> None:
    with pytest.raises(EngineGarbled, match="before its finish reason"):
        deltas_from(OpenAIChat(), golden(NAME, "cut_off"))


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"data: {nope\n\n", "not JSON"),
        (b"data: 5\n\n", "must be an object"),
        (b'data: {"hello": 1}\n\n', "'choices' is missing"),
        (b'data: {"choices": 3}\n\n', "must be a list"),
        (b'data: {"choices": [{"delta": "x"}]}\n\n', "must be an object"),
        (b'data: {"choices": [{"delta": {"refusal": 5}}]}\n\n', "must be a string"),
        (b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', "must be a list"),
        (b'data: {"choices": [{"delta": {"tool_calls": [{"function": 1}]}}]}\n\n', "must be an object"),
        (b"data: [DONE]\n\n", "before any chunk"),
    ],
)
def test_a_stream_against_the_protocol_is_garbled(stream: bytes, complaint: str) -> None:
    with pytest.raises(EngineGarbled, match=complaint):
        deltas_from(OpenAIChat(), stream)
