"""Streams of OpenAI's Responses API, as the reference describes them, and the replies that they are."""

from __future__ import annotations

import pytest

from rondel.dialects.openai_responses import OpenAIResponses
from rondel.errors import EngineGarbled, EngineOverloaded, PromptRejected
from rondel.values import Citation, Foreign, PartDelta, Text, Thinking, ToolCall, Usage

from .helpers import deltas_from, golden, read_golden, reply_from

NAME = "openai-responses"


def item(id: str, **more: object) -> dict[str, object]:
    return {NAME: {"item": {"id": id, **more}}}


def test_a_text_and_its_usage() -> None:
    """Q01: no network."""
    got = read_golden(NAME, "text")
    assert got.message.parts == (Text("Grüße, 世界 🌍", opaque=item("msg_1")),)
    assert got.usage == Usage(37, 11, tokens_cached=32, tokens_cache_written=2, tokens_reasoning=6)
    assert (got.stop, got.model, got.id) == ("end", "gpt-5.1", "resp_1")
    assert got.opaque == {NAME: {"created_at": 1700000000}}


def test_encrypted_reasoning_and_interleaved_calls() -> None:
    deltas = deltas_from(OpenAIResponses(), golden(NAME, "reasoning_and_calls"))
    got = reply_from(deltas)
    summary = [{"type": "summary_text", "text": "**First**"}, {"type": "summary_text", "text": "Second"}]
    assert got.message.parts == (
        Thinking(
            "**First**\n\nSecond", opaque={NAME: {"id": "rs_1", "encrypted_content": "gAAAAenc", "summary": summary}}
        ),
        ToolCall("call_a", "weather", {"city": "Paris"}, opaque={NAME: {"id": "fc_1"}}),
        ToolCall("call_b", "clock", opaque={NAME: {"id": "fc_2"}}),
        ToolCall("call_c", "code", {"input": "print(1)"}, opaque={NAME: {"type": "custom_tool_call", "id": "ctc_1"}}),
    )
    assert got.stop == "calls"
    assert "".join(d.text for d in deltas if isinstance(d, PartDelta) and d.index == 0) == "**First**\n\nSecond"
    assert PartDelta(1, '{"city"') in deltas


def test_citations_have_their_offsets_and_a_server_tool_is_foreign() -> None:
    got = read_golden(NAME, "web_search_and_citations")
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    file = {"type": "file_citation", "index": 3, "file_id": "file_1", "filename": "a.pdf"}
    cited = (
        Citation("https://example.com", "Ex", start=0, end=3),
        Citation(title="a.pdf", path="a.pdf", opaque={NAME: file}),
    )
    assert got.message.parts == (
        Foreign({NAME: {**search, "action": {"type": "search", "query": "q"}}}),
        Text("See it.", citations=cited, opaque=item("msg_2")),
    )
    assert got.opaque[NAME]["service_tier"] == "default"


def test_a_refusal_is_a_text_that_says_so() -> None:
    got = read_golden(NAME, "refusal")
    assert got.message.parts == (Text("I will not.", refusal=True, opaque=item("msg_3")),)
    assert got.stop == "refusal"


def test_a_reply_that_ran_out_of_tokens_has_stopped_for_its_length() -> None:
    got = read_golden(NAME, "incomplete")
    assert got.message.parts == (Text("Once", opaque=item("msg_4", status="incomplete")),)
    assert got.stop == "length"


def test_reasoning_that_is_shown_is_thinking() -> None:
    thought, said = read_golden(NAME, "open_reasoning").message.parts
    assert isinstance(thought, Thinking)
    assert thought.text == "Open thoughts"
    assert said == Text("Done.", opaque=item("msg_5"))


def test_a_failed_response_is_raised_as_what_it_means() -> None:
    with pytest.raises(EngineOverloaded, match="Slow down") as caught:
        deltas_from(OpenAIResponses(), golden(NAME, "failed"))
    assert caught.value.code == "rate_limit_exceeded"


def test_an_error_event_is_raised_as_what_it_means() -> None:
    with pytest.raises(PromptRejected, match="Your prompt is bad"):
        deltas_from(OpenAIResponses(), golden(NAME, "error"))


def test_a_stream_that_is_cut_off_is_garbled() -> None:
    with pytest.raises(EngineGarbled, match=r"before its response\.completed"):
        deltas_from(OpenAIResponses(), golden(NAME, "cut_off"))


def test_a_server_that_announces_nothing_is_read_from_its_final_response() -> None:
    body = b'{"id":"r","model":"m","status":"completed","output":[{"type":"message","role":"assistant",'
    body += b'"content":[{"type":"output_text","text":"Hi","annotations":[]}]}]}'
    stream = b'data: {"type":"response.completed","response":' + body + b"}\n\n"
    got = reply_from(deltas_from(OpenAIResponses(), stream))
    assert (got.text, got.model, got.id) == ("Hi", "m", "r")


CALL = b'{"type":"function_call","call_id":"c","name":"f","arguments":""}'
ADDED = b'data: {"type":"response.output_item.added","output_index":0,"item":' + CALL + b"}\n\n"
DONE = ADDED.replace(b"added", b"done")


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"data: {nope\n\n", "not JSON"),
        (b"data: null\n\n", "must be an object"),
        (ADDED + ADDED, "already started"),
        (ADDED + DONE + DONE, "already ended"),
        (ADDED.replace(b'"output_index":0', b'"x":0'), "'output_index' is missing"),
        (b'data: {"type":"response.output_text.delta","output_index":4,"delta":"x"}\n\n', "not open"),
        (b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n', "not a delta event"),
        (ADDED + b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n', "part 0 is open"),
    ],
)
def test_a_stream_against_the_protocol_is_garbled(stream: bytes, complaint: str) -> None:
    with pytest.raises(EngineGarbled, match=complaint):
        deltas_from(OpenAIResponses(), stream)
