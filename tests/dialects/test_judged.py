"""What we write is what the official SDKs read, and what they send is what we read."""

from __future__ import annotations

from typing import Any

import anthropic
import msgspec
import openai
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rondel.dialects import DIALECTS
from rondel.errors import EngineDenied, EngineOverloaded, PromptRejected
from rondel.values import Message, Reply, Text, Thinking, ToolCall, Usage, deltas_of

from .helpers import NAMES, deltas_from, golden, reply_from, written_stream
from .judges import answer_with, anthropic_client, judge_prompt, judge_reply, judge_stream, openai_client
from .strategies import PROMPTS, QUICK, REPLIES, streams
from .test_round_trips import GOOD, over_the_wire

REPLY = Reply(
    Message(
        "assistant",
        (Thinking("Hm."), Text("Grüße 🌍"), ToolCall("call_1", "f", {"a": [1, 2]}), ToolCall("call_2", "g")),
    ),
    "calls",
    Usage(100, 20, 60, 10, 5),
)


@pytest.mark.parametrize("name", NAMES)
def test_every_event_that_is_written_is_valid(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(REPLIES[name], st.data())
    def check(reply, data) -> None:  # type: ignore[no-untyped-def]
        raw = written_stream(dialect, data.draw(streams(reply)), model="m", id="i")
        if name != "openai-chat" or b'"type":"custom"' not in raw:  # which the type of its chunks leaves out
            judge_stream(name, raw)
        judge_reply(name, over_the_wire(dialect.reply_writer(model="m", id="i").write_whole(reply)))

    check()


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_that_is_written_is_valid(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(PROMPTS[name], st.booleans())
    def check(prompt, stream) -> None:  # type: ignore[no-untyped-def]
        body = over_the_wire(dialect.write_prompt(prompt, model="m", stream=stream))
        assume("x_new_part" not in str(body))
        assume(name != "openai-responses" or "input_audio" not in str(body))
        judge_prompt(name, body, stream=stream)

    check()


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_golden_reply_is_valid_in_every_dialect(name: str, file: str, target: str) -> None:
    deltas = deltas_from(DIALECTS[name](), golden(name, file))
    if file == "server_tool" and target == name:
        return  # it holds a block that the SDK does not know either
    dialect = DIALECTS[target]()
    judge_stream(target, written_stream(dialect, deltas, model="m", id="i"))
    judge_reply(target, over_the_wire(dialect.reply_writer(model="m", id="i").write_whole(reply_from(deltas))))


def test_anthropics_own_client_reads_our_stream() -> None:
    raw = written_stream(DIALECTS["anthropic"](), deltas_of(REPLY), model="m", id="msg_1")
    client = anthropic_client(answer_with(raw))
    with client.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[1].text == "Grüße 🌍"  # type: ignore[union-attr]
    assert message.content[2].input == {"a": [1, 2]}  # type: ignore[union-attr]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (30, 60)


def test_openais_own_client_reads_our_chat_stream() -> None:
    raw = written_stream(DIALECTS["openai-chat"](), deltas_of(REPLY), model="m", id="chatcmpl-1")
    client = openai_client(answer_with(raw))
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert message.content == "Grüße 🌍"
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []] == [
        ("call_1", "f", '{"a":[1,2]}'),
        ("call_2", "g", "{}"),
    ]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 100


def test_openais_own_client_reads_our_responses_stream() -> None:
    raw = written_stream(DIALECTS["openai-responses"](), deltas_of(REPLY), model="m", id="resp_1")
    client = openai_client(answer_with(raw))
    with client.responses.stream(model="m", input="Hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert "".join(deltas) == response.output_text == "Grüße 🌍"
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert response.output[2].arguments == '{"a":[1,2]}'  # type: ignore[union-attr]
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 60


def test_an_error_in_our_stream_is_an_error_to_the_official_clients() -> None:
    """X04: a stream that fails ends with its dialect's own error."""
    error = EngineOverloaded("no capacity")
    raw = DIALECTS["anthropic"]().reply_writer(model="m", id="i").fail(error)
    hello: Any = {"messages": [{"role": "user", "content": "Hi"}], "model": "m"}
    client = anthropic_client(answer_with(raw))
    with pytest.raises(anthropic.APIStatusError, match="no capacity"):
        list(client.messages.create(**hello, max_tokens=5, stream=True))
    raw = DIALECTS["openai-chat"]().reply_writer(model="m", id="i").fail(error)
    with pytest.raises(openai.APIError, match="no capacity"):
        list(openai_client(answer_with(raw)).chat.completions.create(**hello, stream=True))
    raw = DIALECTS["openai-responses"]().reply_writer(model="m", id="i").fail(error)
    judge_stream("openai-responses", raw)
    last = list(openai_client(answer_with(raw)).responses.create(model="m", input="Hi", stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "no capacity"


def test_an_error_answer_is_the_right_error_to_the_official_clients() -> None:
    hello: Any = {"messages": [{"role": "user", "content": "Hi"}], "model": "m"}
    for error, kind in (
        (EngineDenied("no"), "AuthenticationError"),
        (PromptRejected("no"), "BadRequestError"),
        (EngineOverloaded("no", code="rate_limit_error"), "RateLimitError"),
    ):
        status, body = DIALECTS["anthropic"]().reply_writer().write_error(error)
        client = anthropic_client(answer_with(msgspec.json.encode(body), stream=False, status=status))
        with pytest.raises(getattr(anthropic, kind), match="no"):
            client.messages.create(**hello, max_tokens=5)
        for name in ("openai-chat", "openai-responses"):
            status, body = DIALECTS[name]().reply_writer().write_error(error)
            other = openai_client(answer_with(msgspec.json.encode(body), stream=False, status=status))
            with pytest.raises(getattr(openai, kind), match="no"):
                other.chat.completions.create(**hello)


def test_what_the_official_clients_send_is_read() -> None:
    seen: list[dict[str, Any]] = []
    raw = written_stream(DIALECTS["anthropic"](), deltas_of(REPLY), model="m", id="i")
    tool: Any = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    hello: Any = [{"role": "user", "content": "Hi"}]
    claude = anthropic_client(answer_with(raw, seen))
    list(claude.messages.create(model="m", max_tokens=5, system="Be", messages=hello, tools=[tool], stream=True))
    prompt = DIALECTS["anthropic"]().read_prompt(seen[-1])
    assert [message.text for message in prompt.messages] == ["Be", "Hi"]
    assert prompt.tools[0].name == "f"

    raw = written_stream(DIALECTS["openai-chat"](), deltas_of(REPLY), model="m", id="i")
    client = openai_client(answer_with(raw, seen))
    list(client.chat.completions.create(model="m", messages=hello, stream=True))
    prompt = DIALECTS["openai-chat"]().read_prompt(seen[-1])
    assert prompt.opaque == {"openai-chat": {"stream_options": {"include_usage": False}}}
    assert prompt.messages == (Message("user", (Text("Hi"),)),)

    raw = written_stream(DIALECTS["openai-responses"](), deltas_of(REPLY), model="m", id="i")
    client = openai_client(answer_with(raw, seen))
    list(client.responses.create(model="m", input="Hi", instructions="Be", stream=True))
    prompt = DIALECTS["openai-responses"]().read_prompt(seen[-1])
    assert [(message.role, message.text) for message in prompt.messages] == [("system", "Be"), ("user", "Hi")]
    assert prompt.opaque["openai-responses"]["store"] is True
