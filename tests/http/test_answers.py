"""Answers as servers write them, well and badly: what comes is read whole, or is an error. Never a silent end."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.contracts.deadline import Deadlines
from rondel.http import Answer, Broken, HttpError, NotHttp
from rondel.http.connection import HEAD_BYTES_MAX, Connection

from .raw_server import Line, asked, get, ok, on_both_loops, playing, saying, whole

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@on_both_loops
@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        pytest.param([ok(b"hello")], b"hello", id="with its length"),
        pytest.param([ok(b"")], b"", id="empty"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], b"hello", id="in chunks"),
        pytest.param(
            [CHUNKED + b'3;a=b;c\r\nhel\r\n2;x="y z"\r\nlo\r\n0;end\r\n\r\n'], b"hello", id="chunk extensions"
        ),
        pytest.param([CHUNKED + b"5\r\nhello\r\n0\r\nx-sum: 1\r\nx-b: 2\r\n\r\n"], b"hello", id="trailers"),
        pytest.param([CHUNKED, b"5", b"\r", b"\n", b"he", b"llo\r", b"\n0\r\n", b"\r\n"], b"hello", id="split chunks"),
        pytest.param([CHUNKED + b"0005\r\nhello\r\n00\r\n\r\n"], b"hello", id="zeros before a size"),
        pytest.param([bytes([byte]) for byte in ok(b"hello")], b"hello", id="byte by byte"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"hello")], b"hello", id="continue first"),
        pytest.param([b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n", ok(b"hello")], b"hello", id="hints first"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n"] * 3 + [ok(b"hello")], b"hello", id="continue thrice"),
        pytest.param([b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello"], b"hello", id="no reason"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", id="no content"),
        pytest.param([b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"], b"", id="not modified"),
    ],
)
async def test_an_answer_is_read_whole_and_the_connection_is_used_again(pieces: list[bytes], body: bytes):
    async with playing(saying(*pieces)) as (client, server):
        for _ in range(3):
            assert await asked(client) == body
        assert len(server.lines) == 1


@on_both_loops
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", id="neither length nor chunks"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nhello", id="of old"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", id="of old with its length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello", id="says close"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\nhello", id="says close, no length"),
    ],
)
async def test_an_answer_that_ends_its_connection_is_read_to_the_end(answer: bytes):
    async with playing(saying(answer, close=True)) as (client, server):
        assert await asked(client) == b"hello"
        assert await asked(client) == b"hello"
        assert len(server.lines) == 2


@on_both_loops
async def test_status_and_headers_are_told_with_names_in_lower_case_and_lines_joined():
    head = "HTTP/1.1 429 Slow Down\r\nRetry-AFTER:   7 \r\nX-Many: a\r\nx-many: b\r\nX-MANY: c\r\nx-odd: \u00e4\r\n"
    async with playing(saying(f"{head}x-empty:\r\ncontent-length: 2\r\n\r\nno".encode("latin-1"))) as (client, _):
        answer = await get(client)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-many"] == "a, b, c"
        assert answer.headers["x-odd"] == "\u00e4"
        assert answer.headers["x-empty"] == ""
        assert await whole(answer) == b"no"
        assert answer.ended


@on_both_loops
async def test_a_body_comes_in_pieces_as_it_arrives():
    async with playing(saying(CHUNKED)) as (client, server):
        answer = await get(client)
        connection = server.lines[0]
        for word in (b"one", b"two"):
            await connection.say(b"3\r\n" + word + b"\r\n")
            assert await answer.read() == word
            assert not answer.ended
        await connection.say(b"0\r\n\r\n")
        assert await answer.read() == b""
        assert await answer.read() == b""


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "read"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", b"hello", id="a shorter body"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"", id="no body"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n", b"hello", id="no last chunk"),
        pytest.param(CHUNKED + b"9\r\nhello", b"hello", id="half a chunk"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n0\r\n", b"hello", id="half an end"),
        pytest.param(CHUNKED, b"", id="no chunk"),
    ],
)
async def test_an_answer_that_breaks_off_is_an_error_after_what_came(answer: bytes, read: bytes):
    async with playing(saying(answer, close=True)) as (client, _):
        got = await get(client)
        assert not read or await got.read() == read
        with pytest.raises(Broken):
            await got.read()
        assert not got.ended
        with pytest.raises(Broken):
            await got.read()


@on_both_loops
async def test_a_reset_is_never_the_end_of_a_body_that_ends_with_its_connection():
    async with playing(saying(b"HTTP/1.1 200 OK\r\n\r\nhello")) as (client, server):
        answer = await get(client)
        assert await answer.read() == b"hello"
        server.lines[0].writer.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # linger: reset
        server.lines[0].reset()
        with pytest.raises(Broken):
            await answer.read()


@on_both_loops
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="a status that is no number"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="a status of two digits"),
        pytest.param(b"HTTP/1.1 000 OK\r\ncontent-length: 0\r\n\r\n", id="status 000"),
        pytest.param(b"HTTP/1.1 099 OK\r\ncontent-length: 2\r\n\r\nhi", id="status 099"),
        pytest.param(b"HTTP/1.1 600 OK\r\ncontent-length: 2\r\n\r\nhi", id="status 600"),
        pytest.param(b"HTTP/1.1 999 OK\r\n\r\nhi", id="status 999"),
        pytest.param(b"HTTP/9.9 200 OK\r\n\r\n", id="a version that is none"),
        pytest.param(b"ICY 200 OK\r\n\r\n", id="another protocol"),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", id="no HTTP at all"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", id="a request"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", id="a length that is no number"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", id="a length below nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", id="two lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", id="a header without a colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx-\x00: a\r\ncontent-length: 0\r\n\r\n", id="a control character"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n\x00\x01", id="an upgrade"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"a" * HEAD_BYTES_MAX * 2, id="a header without an end"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * HEAD_BYTES_MAX, id="headers without an end"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * HEAD_BYTES_MAX, id="never the real answer"),
    ],
)
async def test_what_is_no_answer_is_one_error_and_the_connection_is_closed(answer: bytes):
    async with playing(saying(answer)) as (client, server):
        with pytest.raises(NotHttp) as raised:
            await get(client)
        assert "\n" not in str(raised.value)
        await server.all_ended(1)


@on_both_loops
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"x\r\nhello\r\n", id="a size that is no number"),
        pytest.param(b"5\r\nhelloXX0\r\n\r\n", id="a chunk that is longer than it says"),
        pytest.param(b"-1\r\n", id="a size below nothing"),
        pytest.param(b"fffffffffffffffff\r\n", id="a size beyond all"),
        pytest.param(b"5;" + b"a" * HEAD_BYTES_MAX * 4, id="an extension without an end"),
        pytest.param(b"0\r\nx: " + b"a" * HEAD_BYTES_MAX * 4, id="a trailer without an end"),
        pytest.param(b"0\r\n" + b"x: a\r\n" * HEAD_BYTES_MAX, id="trailers without an end"),
    ],
)
async def test_chunks_that_are_none_are_one_error_and_the_connection_is_closed(rest: bytes):
    async with playing(saying(CHUNKED + rest)) as (client, server):
        with pytest.raises(HttpError):
            await asked(client)
        await server.all_ended(1)


@on_both_loops
async def test_a_long_head_and_a_long_body_in_one_packet_are_an_answer():
    """What of a packet is body does not count as head."""
    body = b"b" * HEAD_BYTES_MAX * 3

    async def script(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\n")
        line.writer.write(b"x: " + b"a" * 60_000 + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await line.left()

    async with playing(script) as (client, _):
        assert await asked(client) == body


@on_both_loops
@pytest.mark.parametrize(
    "stray", [ok(b"stray"), b"nonsense", b"HTTP/1.1 200 OK\r\n", b"\0"], ids=["answer", "nonsense", "half", "nul"]
)
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
async def test_what_follows_an_answer_is_never_taken_for_the_next_one(stray: bytes, later: bool):
    async def first(line: Line) -> None:
        await line.request()
        line.writer.write(ok(b"first") + (b"" if later else stray))
        await line.left()

    async with playing(first, saying(ok(b"second"))) as (client, server):
        assert await asked(client) == b"first"
        if later:
            server.lines[0].writer.write(stray)
        await server.all_ended(1)
        assert await asked(client) == b"second"


@on_both_loops
async def test_line_ends_between_two_answers_are_nothing():
    async with playing(saying(ok(b"hello") + b"\r\n")) as (client, _):
        for _ in range(3):
            assert await asked(client) == b"hello"


@on_both_loops
async def test_an_answer_that_is_read_late_is_all_there():
    async with playing(saying(ok(b"hello"), close=True)) as (client, server):
        first: Answer = await get(client)
        await server.all_ended(1)
        assert await whole(first) == b"hello"


class Wire(asyncio.Transport):
    """A transport of which nothing is seen but whether it is open."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        self._closed = True


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    st.sampled_from(["length", "chunks", "close"]),
    st.lists(st.integers(min_value=1, max_value=2_000), max_size=12),
)
def test_wherever_an_answer_is_split_it_is_read_the_same(pieces: list[bytes], kind: str, cuts: list[int]):
    body = b"".join(pieces)
    if kind == "length":
        raw = b"HTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" + ok(body, "x-a: 1", "x-a: 2")
    elif kind == "chunks":
        chunks = b"".join(b"%x;e\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        raw = CHUNKED[:-2] + b"x-a: 1\r\nx-a: 2\r\n\r\n" + chunks + b"0\r\nx-sum: 7\r\n\r\n"
    else:
        raw = b"HTTP/1.1 200 OK\r\nx-a: 1\r\nx-a: 2\r\n\r\n" + body

    async def main() -> None:
        freed: list[bool] = []
        connection = Connection(asyncio.get_running_loop(), Deadlines(), lambda free: freed.append(free.is_open))
        wire = Wire()
        connection.connection_made(wire)
        answer = connection.ask(b"GET / HTTP/1.1\r\n\r\n", b"")
        places = sorted({0, *(cut for cut in cuts if cut < len(raw)), len(raw)})
        for begin, end in itertools.pairwise(places):
            connection.data_received(raw[begin:end])
        if kind == "close":
            assert not answer.ended
            wire.abort()
            connection.connection_lost(None)
        assert (answer.status, answer.headers["x-a"]) == (200, "1, 2")
        assert await whole(answer) == body
        assert answer.ended
        assert freed[0] is (kind != "close")

    asyncio.run(main())
