"""What every dialect must do. A new one is a row in DIALECTS, and passes these tests unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rondel import values
from rondel.contracts.dialect import Dialect, Json, Passthrough, ReplyReader, ReplyWriter, passthrough
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engines.http import HttpEngine
from rondel.errors import EngineDenied, EngineError, EngineGarbled, EngineOverloaded, PromptRejected
from rondel.prompt import Prompt

from .helpers import deltas_from, reply_from, written_stream

CALL = values.ToolCall("call_1", "look", {"at": "the sky", "deep": [1, {"x": None}]})
LONG_NAME = "a name with spaces, which is not one that a server takes " * 3
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
PROMPT = Prompt.of(
    values.system("Be brief."),
    values.user("What do you see? Grüße 🌍"),
    values.assistant("Let me look.", CALL),
    values.Message("tool", (values.ToolResult("call_1", (values.Text("Clouds."),)),)),
    values.user("And now?"),
    tools=[values.ToolSpec("look", "Looks somewhere.", SCHEMA)],
    options=values.Options(tokens_max=100, temperature=0.5, tool_choice="auto"),
)
REPLY = values.Reply(
    values.Message("assistant", (values.Text("Grüße 🌍"), CALL)), "calls", values.Usage(10, 5), "m-1", "r_1"
)
ERRORS = [
    PromptRejected("too long", code="context_length_exceeded"),
    EngineOverloaded("later", code="429"),
    EngineDenied("no key"),
    EngineGarbled("broke off"),
]


class OnlyFour:
    """A dialect with the four methods and nothing else."""

    name = "only-four"
    path = "/v1/chat/completions"
    messages_field = "messages"
    headers: Mapping[str, str] = {"authorization": "Bearer {key}"}

    def __init__(self) -> None:
        self._chat = DIALECTS["openai-chat"]()

    def read_prompt(self, body: Json) -> Prompt:
        return self._chat.read_prompt(body)

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return self._chat.write_prompt(prompt, model=model, stream=stream)

    def reply_reader(self, tools: tuple[values.ToolSpec, ...] = ()) -> ReplyReader:
        return self._chat.reply_reader(tools)

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> ReplyWriter:
        return self._chat.reply_writer(model=model, id=id, prompt=prompt, created_s=created_s)


ALL: dict[str, Any] = {**DIALECTS, OnlyFour.name: OnlyFour}


@pytest.fixture(params=ALL)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return ALL[request.param]()


@pytest.fixture(params=[name for name in ALL if isinstance(ALL[name](), Passthrough)])
def relayed(request: pytest.FixtureRequest) -> Any:
    return ALL[request.param]()


def over_the_wire(body: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(body))


def stream_of(dialect: Dialect, reply: values.Reply = REPLY) -> bytes:
    return written_stream(dialect, values.deltas_of(reply), model=reply.model, id=reply.id)


# --- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_is_read_as_it_was_written(dialect: Dialect, stream: bool) -> None:
    read = dialect.read_prompt(over_the_wire(dialect.write_prompt(PROMPT, model="m-1", stream=stream)))
    assert (read.messages, read.tools, read.model) == (PROMPT.messages, PROMPT.tools, "m-1")
    assert (read.options.tokens_max, read.options.temperature) == (100, 0.5)


def test_a_history_is_written_as_its_parts_one_after_the_other(dialect: Dialect) -> None:
    """Engines keep the bytes of a history, and write only what is new."""
    field, first = dialect.messages_field, values.user("-")
    whole = dialect.write_prompt(Prompt.of(first, *PROMPT.messages[1:]), model="m")[field]
    head, tail = (
        dialect.write_prompt(Prompt.of(first, *messages), model="m")[field]
        for messages in (PROMPT.messages[1:4], PROMPT.messages[4:])
    )
    assert whole == [*head, *tail[1:]]


@pytest.mark.parametrize("body", [{"model": 7}, {"model": "m", "messages": 7, "input": 7, "tools": 7}])
def test_a_body_that_is_not_a_prompt_is_rejected(dialect: Dialect, body: Json) -> None:
    with pytest.raises(PromptRejected):
        dialect.read_prompt(body)


def test_a_tool_has_its_own_name_in_calls_whatever_was_sent(dialect: Dialect) -> None:
    tools = (values.ToolSpec(LONG_NAME, "", SCHEMA),)
    sent = over_the_wire(dialect.write_prompt(Prompt.of(values.user("Hi"), tools=tools), model="m"))
    (on_the_wire,) = dialect.read_prompt(sent).tools
    reply = msgspec.structs.replace(
        REPLY, message=values.Message("assistant", (values.ToolCall("c", on_the_wire.name, {}),))
    )
    reader = dialect.reply_reader(tools)
    streamed = reply_from([*reader.feed(stream_of(dialect, reply)), *reader.finish()])
    whole = dialect.reply_reader(tools).read_whole(dialect.reply_writer().write_whole(reply))
    assert [call.name for read in (streamed, whole) for call in read.message.calls] == [LONG_NAME] * 2


# --- replies ----------------------------------------------------------------------------------------------------------


def test_a_reply_is_read_as_it_was_written_streamed_or_whole(dialect: Dialect) -> None:
    writer = dialect.reply_writer(model=REPLY.model, id=REPLY.id)
    whole = dialect.reply_reader().read_whole(over_the_wire(writer.write_whole(REPLY)))
    streamed = reply_from(deltas_from(dialect, stream_of(dialect)))
    for read in (whole, streamed):
        assert (read.message.text, read.stop, read.usage) == ("Grüße 🌍", REPLY.stop, REPLY.usage)
        assert [(call.id, call.name, call.arguments) for call in read.message.calls] == [
            (CALL.id, CALL.name, CALL.arguments)
        ]
        assert (read.model, read.id) == (REPLY.model, REPLY.id)


def test_a_stream_reads_the_same_byte_by_byte(dialect: Dialect) -> None:
    raw = stream_of(dialect)
    assert deltas_from(dialect, *(raw[n : n + 1] for n in range(len(raw)))) == deltas_from(dialect, raw)


def test_a_ping_changes_nothing(dialect: Dialect) -> None:
    writer, raw = dialect.reply_writer(model=REPLY.model, id=REPLY.id), b""
    for delta in values.deltas_of(REPLY):
        raw += writer.ping() + writer.feed(delta)
    assert reply_from(deltas_from(dialect, raw)) == reply_from(deltas_from(dialect, stream_of(dialect)))
    assert writer.ping() == b""


@pytest.mark.parametrize("deltas", range(4))
def test_a_stream_that_fails_ends_once_and_reads_as_an_error(dialect: Dialect, deltas: int) -> None:
    writer = dialect.reply_writer(model="m", id="i")
    raw = b"".join(map(writer.feed, list(values.deltas_of(REPLY))[:deltas])) + writer.fail(
        EngineOverloaded("broke off")
    )
    assert writer.fail(EngineOverloaded("again")) == b"".join(map(writer.feed, values.deltas_of(REPLY))) == b""
    reader = dialect.reply_reader()
    with contextlib.suppress(EngineError):  # raised only if no text came before it
        reader.feed(raw)
    assert "broke off" in str(reader.failure)


@pytest.mark.parametrize("garbage", [b"data: {]\n\n", b"data: 7\n\n", b"data: \xff\n\n"])
def test_a_stream_that_breaks_off_or_is_nonsense_is_garbled(dialect: Dialect, garbage: bytes) -> None:
    raw = stream_of(dialect)
    for broken in (raw[: len(raw) // 2], b"", garbage):
        with pytest.raises(EngineGarbled):
            deltas_from(dialect, broken)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_read_as_what_was_written(dialect: Dialect, error: EngineError) -> None:
    status, body = dialect.reply_writer().write_error(error)
    assert 400 <= status < 600
    read = dialect.reply_reader().read_error(status, msgspec.json.encode(body), provider="acme", model="m")
    assert str(error) in str(read)
    assert read.provider == "acme"


# --- relaying is optional ---------------------------------------------------------------------------------------------


def test_a_dialect_of_four_methods_asks_models_and_is_not_relayed() -> None:
    assert passthrough(OnlyFour()) is None
    engine = HttpEngine(Endpoint("acme", "http://127.0.0.1:9", OnlyFour.name, "k"), OnlyFour(), "m")
    with pytest.raises(TypeError, match="cannot be relayed"):
        asyncio.run(engine.relay({}, {}))


def test_a_meter_passes_a_stream_unchanged_and_reads_who_answered_and_what_it_cost(relayed: Any) -> None:
    raw, meter = stream_of(relayed), relayed.meter({})
    assert b"".join(meter.feed(raw[n : n + 7]) for n in range(0, len(raw), 7)) + meter.finish() == raw
    assert (meter.model, meter.usage, meter.done) == (REPLY.model, REPLY.usage, True)
    whole = relayed.meter({})
    body = relayed.reply_writer(model=REPLY.model, id=REPLY.id).write_whole(REPLY)
    whole.whole(msgspec.json.encode(body))
    assert (whole.model, whole.usage) == (REPLY.model, REPLY.usage)
