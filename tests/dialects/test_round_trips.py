"""What is written is read back the same, in every dialect, streamed or not, split anywhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.contracts.dialect import Dialect
from rondel.dialects import DIALECTS
from rondel.errors import EngineOverloaded
from rondel.values import deltas_of

from .helpers import GOLDEN, NAMES, deltas_from, golden, reply_from, written_stream
from .strategies import PROMPTS, QUICK, REPLIES, streams

GOOD = [
    (path.parent.name, path.stem)
    for path in sorted(GOLDEN.glob("*/*.sse"))
    if path.stem not in ("cut_off", "overloaded", "server_error", "failed", "error")
]


@pytest.fixture(params=NAMES)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]()


def over_the_wire(body: object) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(body), type=dict)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_is_read_as_it_was_written(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(PROMPTS[name], st.booleans())
    def check(prompt, stream) -> None:  # type: ignore[no-untyped-def]
        body = dialect.write_prompt(prompt, model=prompt.model, stream=stream)
        assert dialect.read_prompt(over_the_wire(body)) == prompt

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_is_read_as_it_was_written(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(REPLIES[name])
    def check(reply) -> None:  # type: ignore[no-untyped-def]
        body = dialect.reply_writer(model=reply.model, id=reply.id).write_whole(reply)
        assert dialect.reply_reader().read_whole(over_the_wire(body)) == reply

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_streamed_reply_is_read_as_it_was_written_whatever_the_split(name: str) -> None:
    """X03: any split of the bytes reads the same, also inside a UTF-8 character."""
    dialect = DIALECTS[name]()

    @QUICK
    @given(REPLIES[name], st.data())
    def check(reply, data) -> None:  # type: ignore[no-untyped-def]
        raw = written_stream(dialect, data.draw(streams(reply)), model=reply.model, id=reply.id)
        whole = deltas_from(dialect, raw)
        assert reply_from(whole) == reply
        cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
        assert deltas_from(dialect, *(raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True))) == whole

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_reply_streams_as_itself(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(REPLIES[name])
    def check(reply) -> None:  # type: ignore[no-untyped-def]
        raw = written_stream(dialect, deltas_of(reply), model=reply.model, id=reply.id)
        assert reply_from(deltas_from(dialect, raw)) == reply

    check()


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_golden_stream_reads_the_same_byte_by_byte(name: str, file: str) -> None:
    """X03: one byte at a time, which splits every character and every line end."""
    dialect, raw = DIALECTS[name](), golden(name, file)
    whole = deltas_from(dialect, raw)
    assert deltas_from(dialect, *(raw[i : i + 1] for i in range(len(raw)))) == whole
    assert deltas_from(dialect, raw.replace(b"\n", b"\r\n")) == whole


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_golden_reply_survives_being_written_and_read_again(name: str, file: str) -> None:
    """The same dialect in and out is lossless: signatures, encrypted reasoning, citations, foreign blocks, stops."""
    dialect = DIALECTS[name]()
    deltas = deltas_from(dialect, golden(name, file))
    reply = reply_from(deltas)
    again = written_stream(dialect, deltas, model=reply.model, id=reply.id)
    if name == "openai-chat":  # its first chunk tells when it was made, which the writer is told by its caller
        again = again.replace(b'"created":0', b'"created":1700000000')
    assert reply_from(deltas_from(dialect, again)) == reply
    if not any(call.broken for call in reply.message.calls) or name != "anthropic":
        body = over_the_wire(dialect.reply_writer(model=reply.model, id=reply.id).write_whole(reply))
        assert dialect.reply_reader().read_whole(body) == reply


def ends(name: str, raw: bytes) -> int:
    """How many terminal events a stream has."""
    marks = {
        "anthropic": (b"event: message_stop\n", b"event: error\n"),
        "openai-chat": (b"data: [DONE]\n", b'data: {"error":'),
        "openai-responses": (
            b"event: response.completed\n",
            b"event: response.incomplete\n",
            b"event: response.failed\n",
        ),
    }
    return sum(raw.count(mark) for mark in marks[name])


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_a_stream_has_one_terminal_event_whenever_it_fails(name: str, file: str) -> None:
    """X04: exactly one terminal event, also when the upstream breaks off after any delta."""
    dialect = DIALECTS[name]()
    deltas = deltas_from(dialect, golden(name, file))
    for cut in range(len(deltas) + 1):
        writer = dialect.reply_writer(model="m", id="i")
        raw = b"".join(writer.feed(delta) for delta in deltas[:cut])
        raw += writer.fail(EngineOverloaded("gone")) + writer.fail(EngineOverloaded("again"))
        raw += b"".join(writer.feed(delta) for delta in deltas) + writer.ping()
        assert ends(name, raw) == 1


def test_a_ping_is_read_as_nothing(dialect: Dialect) -> None:
    name = dialect.name
    raw = golden(name, "text")
    ping = dialect.reply_writer(model="m", id="i").ping()
    first, rest = raw.split(b"\n\n", 1)
    assert deltas_from(dialect, first + b"\n\n" + ping + rest) == deltas_from(dialect, raw)
