"""Streams of Anthropic's Messages API, as the reference describes them, and the replies that they are."""

from __future__ import annotations

import pytest

from rondel.dialects.anthropic import Anthropic
from rondel.errors import EngineGarbled, EngineOverloaded
from rondel.values import Citation, Foreign, Message, PartDelta, Reply, ReplyStarted, Text, Thinking, ToolCall, Usage

from .helpers import deltas_from, golden, read_golden, reply_from

NAME = "anthropic"


def reply(*parts: Text | Thinking | ToolCall | Foreign, **fields: object) -> Reply:
    return Reply(Message("assistant", parts), model="claude-sonnet-5", id="msg_01", **fields)  # type: ignore[arg-type]


def test_a_text_with_pings_and_cached_tokens() -> None:
    """Q01: no network. Input tokens count the cached and the written ones, which this wire counts apart."""
    usage = Usage(2125, 12, tokens_cached=2000, tokens_cache_written=100)
    kept = {NAME: {"usage": {"service_tier": "standard"}}}
    assert read_golden(NAME, "text") == reply(Text("Grüße, 世界 🌍"), usage=usage, opaque=kept)


def test_the_first_delta_tells_the_input_tokens() -> None:
    first = deltas_from(Anthropic(), golden(NAME, "text"))[0]
    assert first == ReplyStarted("claude-sonnet-5", "msg_01", Usage(2125, 1, 2000, 100))


def test_thinking_is_signed_and_calls_come_in_pieces() -> None:
    deltas = deltas_from(Anthropic(), golden(NAME, "thinking_and_parallel_calls"))
    assert reply_from(deltas) == reply(
        Thinking("Two cities, two calls.", opaque={NAME: {"signature": "EqQBCg=="}}),
        Thinking(opaque={NAME: {"type": "redacted_thinking", "data": "EmwKAhgB"}}),
        Text("Let me look."),
        ToolCall("toolu_01", "weather", {"city": "Paris"}),
        ToolCall("toolu_02", "clock", opaque={NAME: {"caller": {"type": "direct"}}}),
        stop="calls",
        usage=Usage(482, 89, tokens_cached=10, tokens_reasoning=40),
    )
    assert PartDelta(3, '{"city": "Pa') in deltas


def test_citations_of_all_kinds_keep_their_raw_form() -> None:
    first, second = read_golden(NAME, "citations").message.parts
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert first.citations[0] == Citation(
        title="Facts", quote="The grass is green.", opaque={NAME: first.citations[0].opaque[NAME]}
    )
    assert first.citations[0].opaque[NAME]["end_char_index"] == 20
    assert [(c.url, c.title, c.quote) for c in second.citations] == [
        ("https://example.com/sky", "Sky", "It is blue."),
        ("", "", "Blue."),
        ("", "Notes", "Blue!"),
        ("https://example.com/kb", "Base", "Blue?"),
    ]
    assert [c.opaque[NAME]["type"] for c in second.citations] == [
        "web_search_result_location",
        "page_location",
        "content_block_location",
        "search_result_location",
    ]


def test_blocks_that_only_anthropic_knows_are_foreign_and_whole() -> None:
    got = read_golden(NAME, "server_tool")
    use = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "weather"}}
    assert got.message.parts[0] == Foreign({NAME: use})
    assert got.message.parts[1].opaque[NAME]["content"][0]["encrypted_content"] == "Abc="  # type: ignore[union-attr]
    assert got.message.parts[2] == Foreign({NAME: {"type": "compaction", "content": "So far."}})
    assert got.text == "Sunny."
    assert got.stop == "pause"
    assert got.opaque[NAME]["usage"] == {"server_tool_use": {"web_search_requests": 1}}


def test_a_refusal_keeps_its_details() -> None:
    got = read_golden(NAME, "refusal")
    assert (got.stop, got.text) == ("refusal", "I can")
    assert got.opaque[NAME]["stop_details"]["category"] == "bio"


def test_a_stop_sequence_is_remembered() -> None:
    got = read_golden(NAME, "stop_sequence")
    assert got.stop == "stop_sequence"
    assert got.opaque == {NAME: {"stop_sequence": "###"}}


def test_arguments_that_are_no_json_are_kept_as_they_came() -> None:
    got = read_golden(NAME, "broken_arguments")
    assert got.message.calls == (ToolCall("toolu_09", "f", broken='{"a": [1, '),)
    assert got.stop == "length"


def test_an_error_in_mid_stream_is_raised_as_what_it_means() -> None:
    with pytest.raises(EngineOverloaded, match="Overloaded") as caught:
        deltas_from(Anthropic(), golden(NAME, "overloaded"))
    assert caught.value.code == "overloaded_error"


def test_a_stream_that_is_cut_off_is_garbled() -> None:
    with pytest.raises(EngineGarbled, match="before its message_stop"):
        deltas_from(Anthropic(), golden(NAME, "cut_off"))


START = b'event: message_start\ndata: {"type":"message_start","message":{"id":"i","model":"m","usage":{}}}\n\n'
BLOCK = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}\n\n'


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"data: {nope\n\n", "not JSON"),
        (b"data: [1]\n\n", "must be an object"),
        (b"data: {}\n\n", "'type' is missing"),
        (START + START, "second time"),
        (START + BLOCK + BLOCK, "already started"),
        (START + b'data: {"type":"content_block_stop","index":3}\n\n', "not open"),
        (START + b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0}\n\n', "delta"),
        (START + BLOCK + b'data: {"type":"message_stop"}\n\n', "block 0 is open"),
        (b'data: {"type":"message_stop"}\n\n', "before any"),
        (START + BLOCK.replace(b'"index":0', b'"index":"x"'), "whole number"),
    ],
)
def test_a_stream_against_the_protocol_is_garbled(stream: bytes, complaint: str) -> None:
    with pytest.raises(EngineGarbled, match=complaint):
        deltas_from(Anthropic(), stream)


def test_a_server_that_names_no_events_is_read() -> None:
    delta = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" you"}}\n\n'
    end = b'data: {"type":"content_block_stop","index":0}\n\ndata: {"type":"message_stop"}\n\n'
    assert reply_from(deltas_from(Anthropic(), START + BLOCK + delta + end)).text == "Hi you"
