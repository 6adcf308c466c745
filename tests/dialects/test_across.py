"""From one dialect into another: all that both know arrives, and nothing that only one of them knows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.dialects import DIALECTS
from rondel.prompt import Prompt
from rondel.values import (
    Citation,
    Delta,
    Foreign,
    Media,
    Message,
    Notice,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    deltas_of,
    user,
)

from .helpers import NAMES, deltas_from, golden, reply_from, written_stream
from .judges import judge_reply, judge_stream
from .strategies import PROMPTS, QUICK, REPLIES, streams
from .test_round_trips import GOOD, over_the_wire

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]


def shared(reply: Reply) -> tuple[object, ...]:
    """What all dialects can say of a reply, and that it was cut off. Chat has all texts in one field, and refusals may
    be plain texts."""
    calls = sorted((c.id, c.name, str(c.arguments)) for c in reply.message.calls)
    texts = "".join(sorted(part.text for part in reply.message.parts if isinstance(part, Text)))
    return calls, sorted(texts), reply.usage, reply.stop in ("length", "interrupted")


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_reply_can_be_written_in_any_other_dialect(source: str, target: str) -> None:
    dialect = DIALECTS[target]()

    @QUICK
    @given(REPLIES[source], st.data())
    def check(reply, data) -> None:  # type: ignore[no-untyped-def]
        raw = written_stream(dialect, data.draw(streams(reply)), model="m", id="i")
        judge_stream(target, raw)
        assert shared(reply_from(deltas_from(dialect, raw))) == shared(reply)
        body = dialect.reply_writer(model="m", id="i").write_whole(reply)
        judge_reply(target, over_the_wire(body))
        assert shared(dialect.reply_reader().read_whole(over_the_wire(body))) == shared(reply)

    check()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_prompt_can_be_written_in_any_other_dialect_without_its_opaque(source: str, target: str) -> None:
    dialect = DIALECTS[target]()

    @QUICK
    @given(PROMPTS[source])
    def check(prompt) -> None:  # type: ignore[no-untyped-def]
        body = str(over_the_wire(dialect.write_prompt(prompt, model="m")))
        leaks = ("x_new", "x_top", "cache_control", "'signature'", "encrypted_index", "web_search", "item_reference")
        assert not [leak for leak in leaks if leak in body]

    check()


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize(("source", "file"), GOOD)
def test_no_opaque_of_a_golden_reply_leaks(source: str, file: str, target: str) -> None:
    if source == target:
        return
    deltas = deltas_from(DIALECTS[source](), golden(source, file))
    dialect = DIALECTS[target]()
    written = written_stream(dialect, deltas, model="m", id="i").decode()
    written += str(dialect.reply_writer(model="m", id="i").write_whole(reply_from(deltas)))
    leaks = ("EqQBCg", "EmwKAhgB", "Eo8B", "gAAAAenc", "rs_1", "msg_1", "fp_1", "SIG", "srvtoolu", "ws_1", "audio_1")
    assert not [leak for leak in leaks if leak in written]


def reply_in(target: str, *parts: Part) -> Reply:
    """What a caller of this dialect reads of a reply of these parts."""
    raw = written_stream(DIALECTS[target](), deltas_of(Reply(Message("assistant", parts))), model="m", id="i")
    return reply_from(deltas_from(DIALECTS[target](), raw))


def test_a_web_citation_of_anthropic_is_an_annotation_of_its_whole_text() -> None:
    cited = Citation("https://example.com", "Ex", "quote", opaque={ANTHROPIC: {"type": "web_search_result_location"}})
    parts = (Text("Intro. "), Text("Claim.", citations=(cited,)))
    body = DIALECTS[CHAT]().reply_writer(model="m", id="i").write_whole(Reply(Message("assistant", parts)))
    annotation = body["choices"][0]["message"]["annotations"][0]["url_citation"]
    assert annotation == {"url": "https://example.com", "title": "Ex", "start_index": 7, "end_index": 13}
    assert [part.citations for part in reply_in(RESPONSES, *parts).message.parts if isinstance(part, Text)] == [
        (),
        (Citation("https://example.com", "Ex", start=0, end=6),),
    ]


def test_a_url_citation_is_shown_to_a_caller_of_anthropic_but_never_sent_to_its_models() -> None:
    text = Text("Claim.", citations=(Citation("https://example.com", "Ex", start=0, end=5),))
    read = reply_in(ANTHROPIC, text).message
    assert isinstance(read.parts[0], Text)
    assert (read.parts[0].citations[0].url, read.parts[0].citations[0].title) == ("https://example.com", "Ex")
    prompt = DIALECTS[ANTHROPIC]().read_prompt(
        {"model": "m", "max_tokens": 1, "messages": [{"role": "assistant", "content": [read_block(text)]}]}
    )
    assert "citations" not in str(DIALECTS[ANTHROPIC]().write_prompt(prompt, model="m"))


def read_block(text: Text) -> dict[str, Any]:
    return (
        DIALECTS[ANTHROPIC]()
        .reply_writer(model="m", id="i")
        .write_whole(Reply(Message("assistant", (text,))))["content"][0]
    )


@pytest.mark.parametrize("target", NAMES)
def test_thinking_without_a_signature_is_shown_to_callers(target: str) -> None:
    assert [p.text for p in reply_in(target, Thinking("Hm.")).message.parts if isinstance(p, Thinking)] == ["Hm."]


@pytest.mark.parametrize("target", NAMES)
def test_media_and_foreign_parts_of_a_reply_do_not_break_it(target: str) -> None:
    parts = (Media("image", "image/png", b"x", name="cat.png"), Foreign({"other": {"type": "x"}}), Text("Done."))
    got = reply_in(target, *parts)
    if target == "openai-responses":  # it has a form for pictures
        (picture,) = [part.opaque[target] for part in got.message.parts if isinstance(part, Foreign)]
        assert (picture["type"], picture["result"]) == ("image_generation_call", "eA==")
        assert got.text == "Done."
    else:
        assert got.text == "[image left out, it cannot be sent here: cat.png]Done."


@pytest.mark.parametrize("target", NAMES)
def test_parts_that_overlap_arrive_whole(target: str) -> None:
    one, two = ToolCall("c1", "f", {"a": 1}), ToolCall("c2", "g", {"b": 2})
    deltas: list[Delta] = [
        ReplyStarted(),
        PartStarted(0, ToolCall("c1", "f")),
        PartStarted(1, ToolCall("c2", "g")),
        Notice("still here"),
        PartDelta(1, '{"b":'),
        PartDelta(0, '{"a":1}'),
        PartFinished(0, one),
        PartDelta(1, "2}"),
        PartFinished(1, two),
        ReplyFinished("calls"),
    ]
    raw = written_stream(DIALECTS[target](), deltas, model="m", id="i")
    judge_stream(target, raw)
    calls = reply_from(deltas_from(DIALECTS[target](), raw)).message.calls
    assert [(c.id, c.name, c.arguments) for c in calls] == [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]


@pytest.mark.parametrize("target", NAMES)
def test_a_reply_that_begins_with_its_end_is_a_whole_stream(target: str) -> None:
    """X04: one terminal event, and a start before it, even of an empty reply."""
    raw = written_stream(DIALECTS[target](), [ReplyFinished()], model="m", id="i")
    judge_stream(target, raw)
    assert reply_from(deltas_from(DIALECTS[target](), raw)).message.parts == ()


def test_a_chat_caller_that_wants_no_usage_gets_no_chunk_without_choices() -> None:
    dialect: Any = DIALECTS[CHAT]()
    hello = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    for asked, count in (({}, 0), ({"stream_options": {"include_usage": True}}, 1)):
        writer = dialect.reply_writer(model="m", id="i", prompt=dialect.read_prompt({**hello, **asked}), created_s=7)
        raw = b"".join(writer.feed(delta) for delta in deltas_of(Reply(Message("assistant", (Text("Hi"),)))))
        assert raw.count(b'"choices":[]') == count
        assert b'"created":7' in raw


def test_a_response_repeats_what_its_caller_asked() -> None:
    dialect: Any = DIALECTS[RESPONSES]()
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    asked = {"model": "m", "input": "Hi", "instructions": "Be", "tools": [tool], "temperature": 0.5}
    asked["metadata"] = {"a": "b"}
    prompt = dialect.read_prompt(asked)
    reply = Reply(Message("assistant", (Text("Hi"),)))
    body = dialect.reply_writer(model="m", id="resp_1", prompt=prompt, created_s=7).write_whole(reply)
    judge_reply(RESPONSES, body)
    assert {key: body[key] for key in ("instructions", "temperature", "metadata", "tools")} == {
        key: asked[key] for key in ("instructions", "temperature", "metadata", "tools")
    }
    assert body["created_at"] == 7


@pytest.mark.parametrize("target", NAMES)
def test_a_server_tool_is_offered_to_its_own_dialect_only(target: str) -> None:
    spec = ToolSpec("search", opaque={"elsewhere": {"type": "search_2030"}})
    body = DIALECTS[target]().write_prompt(Prompt((user("Hi"),), (spec,)), model="m")
    assert "tools" not in body


def test_a_citation_of_a_file_reaches_the_callers_of_all_dialects_in_their_own_form() -> None:
    """K02: what a knowledge base found is cited as each dialect cites."""
    cited = Citation(path="guide.md", title="Guide", quote="Refunds take 14 days.", line=12, number=1, start=9, end=12)
    text = Text("14 days. [1]", citations=(cited,))

    def written(name: str) -> dict[str, Any]:
        return DIALECTS[name]().reply_writer(model="m", id="i").write_whole(Reply(Message("assistant", (text,))))

    assert written(ANTHROPIC)["content"][0]["citations"] == [
        {
            "type": "search_result_location",
            "source": "guide.md:12",
            "title": "Guide",
            "cited_text": "Refunds take 14 days.",
            "search_result_index": 0,
            "start_block_index": 0,
            "end_block_index": 1,
        }
    ]
    assert written(CHAT)["choices"][0]["message"]["annotations"] == [
        {
            "type": "url_citation",
            "url_citation": {"url": "guide.md:12", "title": "Guide", "start_index": 9, "end_index": 12},
        }
    ]
    assert written(RESPONSES)["output"][0]["content"][0]["annotations"] == [
        {"type": "file_citation", "file_id": "guide.md:12", "filename": "guide.md", "index": 12}
    ]
    for name in NAMES:
        (read,) = reply_in(name, text).message.parts
        assert isinstance(read, Text)
        assert "guide.md" in (read.citations[0].address or read.citations[0].title)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_only_we_know_is_never_sent_to_a_model(name: str) -> None:
    cited = Citation(path="secret/plan.md", title="Plan", number=1, start=0, end=3)
    item = {RESPONSES: {"item": {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}}}
    said = Message("assistant", (Text("[1] yes", citations=(cited,), opaque=item),))
    prompt = Prompt.of(user("hi"), said)
    assert "secret" not in str(DIALECTS[name]().write_prompt(prompt, model="m"))
