"""Answers that are passed on as bytes: whole events, one end, and what they cost, whatever the words in them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.contracts.dialect import StreamMeter
from rondel.dialects import DIALECTS
from rondel.dialects._meter import EVENT_BYTES_MAX
from rondel.errors import EngineDenied, EngineError, EngineGarbled, EngineOverloaded
from rondel.values import Message, Reply, Text, Thinking, ToolCall, Usage, deltas_of

from .helpers import NAMES, deltas_from, golden, reply_from, sse_events, written_stream
from .judges import answer_with, anthropic_client, judge_stream, openai_client
from .test_round_trips import GOOD

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
TRAPS = (
    '"} \n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
    'data: [DONE]\n\n {"error":{"message":"no"}} "error" "usage":{"prompt_tokens":9} "finish_reason":"stop"',
    '{"type":"response.completed","response":{"usage":{"input_tokens":99}}}',
    '\\"type\\":\\"error\\" \\"message_delta\\" "message_',
)
"""Words that look like the events that a meter looks for."""
TRAPPED = Reply(
    Message(
        "assistant",
        (Thinking(TRAPS[0]), *(Text(trap) for trap in TRAPS), ToolCall("c1", "message_stop", {"error": TRAPS[1]})),
    ),
    stop="calls",
    usage=Usage(30, 12, tokens_cached=20),
)


def fields(**values: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in values.items()}


def meter_of(name: str, **asked: Any) -> StreamMeter:
    return DIALECTS[name]().meter(fields(**({"stream": True, "stream_options": {"include_usage": True}} | asked)))


def passed(meter: StreamMeter, *chunks: bytes) -> bytes:
    """What a caller gets; each piece of it ends with an event."""
    pieces = [*(meter.feed(chunk) for chunk in chunks), meter.finish()]
    assert all(piece.endswith((b"\n\n", b"\r\n\r\n", b"\r\n\r", b"\r\r")) for piece in pieces if piece)
    return b"".join(pieces)


def stream_of(name: str, reply: Reply = TRAPPED) -> bytes:
    return written_stream(DIALECTS[name](), deltas_of(reply), model="m-1", id="r-1")


def split(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


# --- whole events, whatever the split ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_stream_passes_as_it_came_and_is_metered_as_it_is_read(name: str, file: str) -> None:
    """X03: in one piece, in single bytes (so also inside of characters), and in pieces of any size between."""
    raw = golden(name, file)
    reply = reply_from(deltas_from(DIALECTS[name](), raw))
    for size in (len(raw), 1, 2, 3, 7, 64, 1000):
        meter = meter_of(name)
        out = passed(meter, *split(raw, size))
        assert reply_from(deltas_from(DIALECTS[name](), out)) == reply
        assert out.startswith(raw.rstrip()[:-1])
        assert (meter.usage, meter.model, meter.done) == (reply.usage, reply.model, True)
        assert meter.token_seen
        assert meter.failure is None


@pytest.mark.parametrize("name", NAMES)
@settings(derandomize=True, database=None)
@given(st.data())
def test_no_split_changes_what_passes(name: str, data: st.DataObject) -> None:
    """X03: with ends of lines of any of the three kinds."""
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    raw = stream_of(name).replace(b"\n", end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    meter = meter_of(name)
    # A line's end of two bytes may be cut by the split: its second byte is then left over, behind the last event.
    assert passed(meter, *chunks) in (raw, raw[:-1])
    assert meter.usage == TRAPPED.usage


@pytest.mark.parametrize("name", NAMES)
def test_words_that_look_like_events_fool_nobody(name: str) -> None:
    """X04: the text of a reply neither ends it nor changes what it cost."""
    for size in (10_000, 50, 1):
        meter = meter_of(name)
        assert passed(meter, *split(stream_of(name), size)) == stream_of(name)
        assert (meter.usage, meter.failure) == (TRAPPED.usage, None)


@pytest.mark.parametrize("name", NAMES)
def test_a_byte_order_mark_comments_and_data_over_several_lines_are_no_hindrance(name: str) -> None:
    raw = b"\xef\xbb\xbf: hello\n\n" + stream_of(name).replace(b'","', b'",\ndata: "')
    meter = meter_of(name)
    assert passed(meter, raw) == raw
    assert meter.usage == TRAPPED.usage


@pytest.mark.parametrize("name", NAMES)
def test_half_an_event_is_held_back(name: str) -> None:
    raw = stream_of(name)
    second = raw.index(b"\n\n") + 2
    meter = meter_of(name)
    assert meter.feed(raw[: second + 10]) == raw[:second]
    assert meter.feed(raw[second + 10 : second + 20]) == b""


@pytest.mark.parametrize("name", NAMES)
def test_an_event_without_an_end_is_cut_off(name: str) -> None:
    meter = meter_of(name)
    for _ in range(16):
        assert meter.feed(b"data: " + b"x" * 1_000_000) == b""
    with pytest.raises(EngineGarbled, match=f"one event of more than {EVENT_BYTES_MAX} bytes"):
        meter.feed(b"x" * 1_000_000)


# --- one end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_nothing_passes_after_the_first_end(name: str) -> None:
    """X04: a second terminal event, and whatever else follows the first, is dropped: in one chunk or in many."""
    raw = stream_of(name)
    for size in (100_000, 100, 1):
        meter = meter_of(name)
        assert passed(meter, *split(raw + raw, size)) == raw
        assert meter.feed(raw) == b""


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_breaks_off_is_no_stream_that_ended(name: str) -> None:
    """X04: whatever it broke off behind, and in the middle of an event too."""
    raw = stream_of(name)
    end = {CHAT: b'"finish_reason":"tool_calls"', ANTHROPIC: b"event: message_stop", RESPONSES: b"event: response.comp"}
    last = raw.rindex(end[name])
    for upto in range(0, last, 97):
        meter = meter_of(name)
        out = meter.feed(raw[:upto])
        with pytest.raises(EngineGarbled):
            meter.finish()
        assert raw.startswith(out)


@pytest.mark.parametrize("name", NAMES)
def test_a_last_event_without_its_blank_line_still_ends_the_stream(name: str) -> None:
    meter = meter_of(name)
    assert passed(meter, stream_of(name).rstrip(b"\n")) == stream_of(name)
    assert meter.done


def test_a_chat_that_closes_after_its_finish_reason_gets_its_done() -> None:
    """X04: some servers leave `[DONE]` out; the caller has exactly one terminal event all the same."""
    meter = meter_of(CHAT)
    out = passed(meter, golden(CHAT, "no_done"))
    assert out == golden(CHAT, "no_done") + b"data: [DONE]\n\n"


ERROR_EVENTS = {
    CHAT: b'data: {"error": {"message": "worn out", "type": "server_error"}}\n\n',
    ANTHROPIC: b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"worn out"}}\n\n',
    RESPONSES: b'event: error\ndata: {"type":"error","code":"server_error","message":"worn out","param":null}\n\n',
}


@pytest.mark.parametrize("name", NAMES)
def test_an_error_before_the_first_token_is_raised(name: str) -> None:
    with pytest.raises(EngineOverloaded, match="worn out"):
        meter_of(name).feed(ERROR_EVENTS[name])


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_mid_stream_passes_as_it_came_and_is_the_only_end(name: str) -> None:
    """X04: the upstream's own error event is what the caller sees, and nothing behind it."""
    raw = stream_of(name)
    begun = raw[: raw.index(b"\n\n", len(raw) // 2) + 2]
    meter = meter_of(name)
    assert passed(meter, begun + ERROR_EVENTS[name] + raw) == begun + ERROR_EVENTS[name]
    assert meter.done
    assert isinstance(meter.failure, EngineOverloaded)
    assert meter.fail(EngineError("another")) == b""


def test_a_response_that_failed_is_an_error_with_the_servers_words() -> None:
    failed = golden(RESPONSES, "failed")
    meter = meter_of(RESPONSES)
    assert passed(meter, *split(failed, 50)) == failed
    assert "broke off with an error: " in str(meter.failure)
    with pytest.raises(EngineError, match="broke off with an error: "):
        meter_of(RESPONSES).feed(failed[failed.index(b"event: response.failed") :])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "event", [b"data: {nope\n\n", b"data: 5\n\n", b'data: {"hello": 1}\n\n', b"data: \xff\xfe\n\n"]
)
def test_nonsense_before_the_first_token_is_garbled(name: str, event: bytes) -> None:
    with pytest.raises(EngineGarbled, match=f"does not follow the {name} protocol"):
        meter_of(name).feed(event)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_or_nothing_at_all_is_garbled(name: str) -> None:
    for raw in (b"", b"<html>\n\nno</html>\n\n", b": ping\n\n"):
        meter = meter_of(name)
        meter.feed(raw)
        with pytest.raises(EngineGarbled, match="broke off"):
            meter.finish()


def test_an_event_of_an_unknown_kind_passes_whatever_it_holds() -> None:
    odd = b'data: {"type":"response.of_tomorrow","response":"a text","error":[1]}\n\n'
    raw = stream_of(RESPONSES)
    begun = raw.index(b"\n\n", len(raw) // 2) + 2
    assert passed(meter_of(RESPONSES), raw[:begun] + odd + raw[begun:]) == raw[:begun] + odd + raw[begun:]


# --- the first token --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_only_announces_a_reply_is_no_token(name: str) -> None:
    """A ping, a start and an empty delta leave the way open for another attempt; a part of the reply does not."""
    writer = DIALECTS[name]().reply_writer(model="m", id="i")
    begin, *rest = deltas_of(Reply(Message("assistant", (Text("Hello"),))))
    meter = meter_of(name)
    meter.feed(writer.feed(begin) + writer.ping())
    assert not meter.token_seen
    for delta in rest[:2]:
        meter.feed(writer.feed(delta))
    assert meter.token_seen


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_of_nothing_at_all_has_ended_well(name: str) -> None:
    meter = meter_of(name)
    passed(meter, stream_of(name, Reply(Message("assistant", ()))))
    assert (meter.token_seen, meter.done) == (True, True)


# --- what it cost -----------------------------------------------------------------------------------------------------


def test_cached_tokens_are_counted_once() -> None:
    """The usage at the start and at the end of a message tell of the same tokens."""

    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    started = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50, "output_tokens": 1}
    ended = {"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 42}
    raw = event("message_start", message={"model": "m", "usage": started})
    raw += event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    raw += event("message_delta", delta={}, usage=ended) + event("message_stop")
    meter = meter_of(ANTHROPIC)
    passed(meter, raw)
    assert meter.usage == Usage(153, 42, tokens_cached=100, tokens_cache_written=50)


@pytest.mark.parametrize("asked", [{}, {"stream_options": {"include_usage": False}}, {"stream_options": None}])
def test_a_chat_caller_who_did_not_ask_for_usage_is_metered_and_sees_none(asked: dict[str, Any]) -> None:
    sent = fields(stream=True, **asked)
    meter = DIALECTS[CHAT]().meter(sent)
    assert msgspec.json.decode(sent["stream_options"]) == {"include_usage": True}
    raw = stream_of(CHAT)
    usage = next(event for event in raw.split(b"\n\n") if b'"choices":[]' in event) + b"\n\n"
    assert passed(meter, *split(raw, 100)) == raw.replace(usage, b"")
    assert meter.usage == TRAPPED.usage


def test_other_wishes_for_a_chats_stream_stay() -> None:
    sent = fields(stream=True, stream_options={"include_obfuscation": False})
    DIALECTS[CHAT]().meter(sent)
    assert msgspec.json.decode(sent["stream_options"]) == {"include_obfuscation": False, "include_usage": True}
    whole = fields(stream=False)
    DIALECTS[CHAT]().meter(whole)
    assert whole == fields(stream=False)


def test_usage_beside_choices_and_chunks_that_only_have_no_choices_are_passed_on() -> None:
    filtered = b'data: {"id":"c","model":"m","choices":[],"prompt_filter_results":[]}\n\n'
    words = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":7}}\n\n'
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":8}}\n\n'
    raw = filtered + words + last + b"data: [DONE]\n\n"
    meter = DIALECTS[CHAT]().meter(fields(stream=True))
    assert passed(meter, raw) == raw
    assert (meter.usage.tokens_in, meter.model) == (8, "m")


@pytest.mark.parametrize("name", NAMES)
def test_usage_that_makes_no_sense_does_not_cost_the_answer(name: str) -> None:
    raw = stream_of(name).replace(b'"usage":{', b'"usage":{"input_tokens":"many","prompt_tokens":"many",')
    assert passed(meter_of(name), raw) == raw


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [150, 1_000_000])
def test_a_stream_is_metered_whatever_blanks_its_json_has(name: str, size: int) -> None:
    raw = stream_of(name).replace(b'":', b'"  : ')
    meter = meter_of(name)
    assert passed(meter, *split(raw, size)) == raw
    assert (meter.usage, meter.done, meter.failure) == (TRAPPED.usage, True, None)


def test_a_chat_without_done_is_complete_with_its_finish_reason_whatever_blanks_its_json_has() -> None:
    words = b'data: {"choices" : [{"index" : 0, "delta" : {"content" : "x"}}]}\n\n'
    last = b'data: {"choices" : [{"index" : 0, "delta" : {}, "finish_reason" : "stop"}]}\n\n'
    assert passed(meter_of(CHAT), words, words, last) == words + words + last + b"data: [DONE]\n\n"


# --- whole answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_is_metered(name: str) -> None:
    body = msgspec.json.encode(DIALECTS[name]().reply_writer(model="m-1", id="r-1").write_whole(TRAPPED))
    meter = meter_of(name, stream=False)
    meter.whole(body)
    assert (meter.usage, meter.model, meter.done) == (TRAPPED.usage, "m-1", True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", [b"", b"[1]", b"{}", b'{"status": "ok"}', b'{"choices": [], "content": null', b"\xff"])
def test_a_whole_answer_that_is_none_is_garbled(name: str, body: bytes) -> None:
    with pytest.raises(EngineGarbled, match=f"does not follow the {name} protocol"):
        meter_of(name).whole(body)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_that_is_an_error_is_raised(name: str) -> None:
    _, body = DIALECTS[name]().reply_writer().write_error(EngineOverloaded("worn out"))
    with pytest.raises(EngineOverloaded, match="worn out"):
        meter_of(name).whole(msgspec.json.encode(body))


# --- an error at the end of a stream that is under way ----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [EngineGarbled("broke off"), EngineDenied("broke off", provider="acme")])
def test_a_failure_ends_a_stream_once_and_reads_as_an_error(name: str, error: EngineError) -> None:
    """X04: one in-band error, whether or not anything is known of the stream, and nothing behind it."""
    raw = stream_of(name)
    begun = raw[: raw.index(b"\n\n", len(raw) // 2) + 2]
    meter = meter_of(name)
    failed = meter.feed(begun) + meter.fail(error)
    assert len(sse_events(failed)) == len(sse_events(begun)) + 1
    assert (meter.fail(error), meter.feed(raw), meter.finish()) == (b"", b"", b"")
    for end in (failed, begun + DIALECTS[name]().reply_writer().fail(error)):
        with pytest.raises(EngineError, match="broke off"):
            deltas_from(DIALECTS[name](), end)


def test_the_sdks_take_a_failure_for_one() -> None:
    error = EngineGarbled("broke off")
    reply = Reply(Message("assistant", (Text("Hello"),)))
    streams = {name: stream_of(name, reply) for name in NAMES}
    ends = {CHAT: b"[DONE]", RESPONSES: b"event: response.completed", ANTHROPIC: b"event: message_stop"}
    broken: dict[str, bytes] = {}
    for name, raw in streams.items():
        upto = raw.rindex(b"\n\n", 0, raw.index(ends[name])) + 2
        meter = meter_of(name)
        broken[name] = meter.feed(raw[:upto]) + meter.fail(error)
    hello: Any = [{"role": "user", "content": "Hi"}]
    client = openai_client(answer_with(broken[CHAT]))
    with pytest.raises(openai.APIError, match="broke off"):
        list(client.chat.completions.create(model="m", messages=hello, stream=True))
    with (
        pytest.raises(anthropic.APIStatusError, match="broke off"),
        anthropic_client(answer_with(broken[ANTHROPIC])).messages.stream(
            model="m", max_tokens=5, messages=hello
        ) as stream,
    ):
        stream.until_done()
    judge_stream(RESPONSES, broken[RESPONSES])
    events = list(openai_client(answer_with(broken[RESPONSES])).responses.create(model="m", input="Hi", stream=True))
    last: Any = events[-1]
    assert (last.type, last.response.status, last.response.error.message) == ("response.failed", "failed", "broke off")
    assert (last.response.id, last.response.model) == ("r-1", "m-1")
    with openai_client(answer_with(broken[RESPONSES])).responses.stream(model="m", input="Hi") as watched:
        assert [event.type for event in watched][-1] == "response.failed"
