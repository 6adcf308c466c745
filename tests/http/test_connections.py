"""Connections: kept and used again, asked once more when they were closed, held back, given up, and closed."""

from __future__ import annotations

import asyncio

import pytest

from rondel.http import Answer, Broken, Client, ConnectTimeout, Head, HttpError, Refused, Silence
from rondel.http.connection import BUFFERED_BYTES_MAX

from ..engines.scripted_http import full_port
from .raw_server import Line, Server, asked, get, ok, on_both_loops, playing, saying, serving, whole

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LARGE = b"x" * 3_000_000


async def silent(line: Line) -> None:
    await line.request()
    await line.left()


async def deaf(line: Line) -> None:
    """Reads nothing."""
    line.writer.transport.pause_reading()
    await asyncio.Event().wait()


# --- used again -------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_requests_one_after_the_other_share_one_connection_and_those_at_once_do_not():
    async with playing(saying(ok())) as (client, server):
        for _ in range(3):
            await asked(client)
        assert len(server.lines) == 1
        answers = [await get(client) for _ in range(5)]
        assert len(server.lines) == 1  # each answer was there at once
        assert [await whole(answer) for answer in answers] == [b"hello"] * 5


@on_both_loops
async def test_many_at_once_each_get_their_own_answer():
    async def echo(line: Line) -> None:
        while True:
            head, body = await line.request()
            await line.say(ok(head.split(" ")[1].encode() + body))

    async with playing(echo) as (client, server):

        async def one(number: int) -> None:
            for turn in range(4):
                target = f"/{number}/{turn}"
                got = await whole(await client.ask("POST", target, Head({}), b"!" * number))
                assert got == target.encode() + b"!" * number

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(one(number))
        assert len(server.lines) <= 100


@on_both_loops
@pytest.mark.parametrize("body", [b"", b"a body", LARGE], ids=["none", "small", "large"])
async def test_a_connection_that_was_closed_just_as_it_was_used_is_replaced_once(body: bytes):
    """The server closes it when the second request is on its way: it said nothing, so it is asked again."""
    seen: list[bytes] = []

    async def first(line: Line) -> None:
        await line.request()
        await line.say(ok(b"first"))
        await line.reader.read(1)  # the second request arrives, and nobody reads it
        line.reset()

    async def second(line: Line) -> None:
        seen.append((await line.request())[1])
        await line.say(ok(b"second"))
        await line.left()

    async with playing(first, second) as (client, _):
        assert await asked(client) == b"first"
        answer = await client.ask("POST", "/", Head({}), body)
        assert await whole(answer) == b"second"
        assert seen == [body]


@on_both_loops
async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used():
    async with playing(saying(ok(), close=True)) as (client, server):
        assert await asked(client) == b"hello"
        await server.all_ended(1)
        assert await asked(client) == b"hello"
        assert len(server.lines) == 2


@on_both_loops
async def test_a_request_is_not_sent_again_when_something_of_an_answer_came():
    async def first(line: Line) -> None:
        await line.request()
        await line.say(ok(b"first"))
        await line.request()
        await line.say(b"HTTP/1.1 2")
        line.close()

    async with playing(first) as (client, server):
        assert await asked(client) == b"first"
        with pytest.raises(Broken):
            await get(client)
        assert len(server.lines) == 1


@on_both_loops
async def test_a_request_on_a_new_connection_is_sent_once():
    async def leaves(line: Line) -> None:
        await line.request()

    async with playing(leaves) as (client, server):
        with pytest.raises(Broken):
            await get(client)
        assert len(server.lines) == 1


@on_both_loops
async def test_a_server_that_closes_every_connection_is_asked_twice_at_the_most():
    async def first(line: Line) -> None:
        await line.request()
        await line.say(ok(b"first"))
        await line.reader.read(1)
        line.reset()

    async def leaves(line: Line) -> None:
        await line.request()

    async with playing(first, leaves) as (client, server):
        await asked(client)
        with pytest.raises(Broken):
            await get(client)
        assert len(server.lines) == 2


@on_both_loops
async def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.http.client.IDLE_S", 0.01)
    async with playing(saying(ok())) as (client, server):
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(asked(client))
        await server.all_ended(len(server.lines))
        assert await asked(client) == b"hello"


@on_both_loops
async def test_a_long_answer_that_nobody_reads_does_not_hold_back_the_next_one():
    """It has arrived whole, and its connection is free: whoever is next must be able to read from it."""
    body = b"x" * (BUFFERED_BYTES_MAX + 1000)
    async with playing(saying(ok(body))) as (client, _):
        for _ in range(3):
            answer = await get(client)
            while not answer.ended:
                await asyncio.sleep(0)
            answer.close()
        assert await asked(client) == body


# --- sending ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_large_body_arrives_whole_at_a_server_that_reads_slowly():
    async def slow(line: Line) -> None:
        for _ in range(2):
            await line.reader.readuntil(b"\r\n\r\n")
            got = bytearray()
            while len(got) < len(LARGE):
                got += await line.reader.read(50_000)
                await asyncio.sleep(0)
            assert bytes(got) == LARGE
            await line.say(ok(b"got it"))

    async with playing(slow) as (client, server):
        for _ in range(2):
            assert await whole(await client.ask("POST", "/", Head({}), LARGE)) == b"got it"
        assert len(server.lines) == 1


@on_both_loops
@pytest.mark.parametrize("reads", [False, True], ids=["and reads no more", "and reads on"])
async def test_a_server_that_answers_before_the_body_is_sent_is_heard(reads: bool):
    heard = asyncio.Event()

    async def impatient(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        if not reads:
            line.writer.transport.pause_reading()
        await line.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nmu")
        await heard.wait()
        await line.say(b"ch")
        await (line.left() if reads else asyncio.Event().wait())

    async with playing(impatient) as (client, server):
        answer = await client.ask("POST", "/", Head({}), LARGE * 5, wait_s=30)
        assert answer.status == 413
        heard.set()
        assert await whole(answer) == b"much"
        if reads:
            await server.all_ended(1)  # a connection over which half a request went is not used again


@on_both_loops
async def test_a_server_that_does_not_read_is_given_up_in_time():
    async with playing(deaf) as (client, _):
        with pytest.raises(Silence):
            await client.ask("POST", "/", Head({}), LARGE * 5, wait_s=0.05)


@on_both_loops
@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({"x": "a\r\nhost: b"}, "/"),
        ({"x": "a\nb"}, "/"),
        ({"x\r\ny": "a"}, "/"),
        ({"x": "a\0"}, "/"),
        ({}, "/a b"),
        ({}, "/a\r\nhost: b"),
        ({}, "/\u00e4"),
    ],
)
async def test_nothing_can_be_smuggled_into_a_request(headers: dict[str, str], target: str):
    async with playing(saying(ok())) as (client, server):
        with pytest.raises(HttpError, match=r"line break|invalid character"):
            await client.ask("GET", target, Head(headers))
        assert not server.lines


# --- held back --------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_who_reads_slowly_holds_the_server_back():
    """What waits to be read is bounded, however much the server has to say."""
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    total = 400

    async def flood(line: Line) -> None:
        await line.request()
        line.writer.write(CHUNKED)
        for _ in range(total):
            line.writer.write(piece)
            await line.writer.drain()
        line.writer.write(b"0\r\n\r\n")
        await line.left()

    async with playing(flood) as (client, server):
        answer = await get(client)
        writer = await _settled(server)
        assert writer.transport.get_write_buffer_size() > 0, "the server could say everything at once"
        size = largest = 0
        while got := await answer.read():
            size, largest = size + len(got), max(largest, len(got))
            await asyncio.sleep(0)
        assert size == total * 65536
        assert largest <= BUFFERED_BYTES_MAX + 1_000_000


async def _settled(server: Server) -> asyncio.StreamWriter:
    """The server's writer when it can write no more."""
    writer, before, same = server.lines[0].writer, -1, 0
    while same < 50:
        await asyncio.sleep(0.001)
        now = writer.transport.get_write_buffer_size()
        same, before = (same + 1 if now == before and now else 0), now
    return writer


# --- given up ---------------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("phase", ["before the head", "in the head", "while it sends"])
async def test_a_request_that_is_cancelled_closes_its_connection(phase: str):
    async def script(line: Line) -> None:
        if phase == "while it sends":
            await line.reader.readuntil(b"\r\n\r\n")
        else:
            await line.request()
        await line.left()

    async with playing(script) as (client, server):
        body = LARGE * 5 if phase == "while it sends" else b""
        came = asyncio.Event()

        async def watch() -> None:
            while not server.lines:
                await asyncio.sleep(0)
            came.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            asking = group.create_task(client.ask("POST", "/", Head({}), body))
            await came.wait()
            if phase == "in the head":
                await server.lines[0].say(b"HTTP/1.1 200 OK\r\nx-half")
            asking.cancel()
        await server.all_ended(1)
        assert asking.cancelled()


@on_both_loops
async def test_an_answer_that_is_closed_closes_its_connection_at_once():
    async with playing(saying(CHUNKED + b"5\r\nhello\r\n")) as (client, server):
        answer = await get(client)
        assert await answer.read() == b"hello"
        answer.close()
        answer.close()
        await server.all_ended(1)
        with pytest.raises(Broken):
            await answer.read()


@on_both_loops
async def test_an_answer_that_was_let_go_frees_its_connection_when_the_server_ends_it():
    async def script(line: Line) -> None:
        await line.request()
        await line.say(CHUNKED + b"5\r\nhello\r\n")
        await line.request()
        await line.say(ok(b"again"))
        await line.left()

    async with playing(script) as (client, server):
        answer = await get(client)
        assert await answer.read() == b"hello"
        answer.let_go()
        answer.close()
        await server.lines[0].say(b"3\r\nbye\r\n0\r\n\r\n")
        while not answer.ended:
            await asyncio.sleep(0)
        assert await asked(client) == b"again"
        assert len(server.lines) == 1


@on_both_loops
async def test_an_answer_that_was_let_go_and_does_not_end_is_closed_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.http.connection.LINGER_S", 0.02)

    async def endless(line: Line) -> None:
        await line.request()
        await line.say(CHUNKED + b"5\r\nhello\r\n")
        while True:
            await line.say(b"1\r\n.\r\n")

    async with playing(endless) as (client, server):
        answer = await get(client)
        assert await answer.read() == b"hello"
        answer.let_go()
        await server.all_ended(1)


@on_both_loops
async def test_a_client_that_is_closed_closes_everything_and_tells_who_waits():
    async with playing(saying(CHUNKED), silent) as (client, server):
        outcomes: list[str] = []

        async def reads(answer: Answer) -> None:
            try:
                await answer.read()
            except Broken:
                outcomes.append("read")

        async def asks() -> None:
            try:
                await client.ask("POST", "/", Head({}), b"")
            except Broken:
                outcomes.append("ask")

        answer = await get(client)
        async with asyncio.TaskGroup() as group:
            group.create_task(reads(answer))
            group.create_task(asks())
            while len(server.lines) < 2:
                await asyncio.sleep(0)
            client.close()
        assert sorted(outcomes) == ["ask", "read"]
        await server.all_ended(2)
        with pytest.raises(Broken, match="closed"):
            await get(client)
        assert len(server.lines) == 2


# --- in time ----------------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nx-half", b"HTTP/1.1 100 Continue\r\n\r\n"],
    ids=["nothing", "half a head", "only continue"],
)
async def test_a_server_that_does_not_answer_is_given_up_in_time(said: bytes):
    async with playing(saying(said)) as (client, server):
        with pytest.raises(Silence):
            await get(client, wait_s=0.05)
        await server.all_ended(1)


@on_both_loops
async def test_a_silence_in_the_middle_is_given_up_in_time():
    async with playing(saying(CHUNKED + b"5\r\nhello\r\n")) as (client, server):
        answer = await get(client, wait_s=60, idle_s=0.05)
        assert await answer.read() == b"hello"
        answer.expect_more()
        with pytest.raises(Silence):
            await answer.read()
        await server.all_ended(1)


@on_both_loops
async def test_who_reads_late_is_not_taken_for_a_silent_server():
    async with playing(saying(CHUNKED + b"5\r\nhello\r\n")) as (client, server):
        answer = await get(client, wait_s=60, idle_s=60)
        answer.first_due = answer.idle_s = 0.0
        answer.expire()  # the time that is allowed has passed, and nobody waits for anything
        assert await answer.read() == b"hello"
        answer.expect_more()
        answer.expire()
        answer.idle_s = 60.0
        await server.lines[0].say(b"3\r\nbye\r\n0\r\n\r\n")
        assert await whole(answer) == b"bye"


@on_both_loops
async def test_a_place_where_nobody_listens_is_refused_in_words():
    async with serving(saying(ok())) as server:
        port = server.port
    client = Client(f"http://127.0.0.1:{port}")
    with pytest.raises(Refused) as raised:
        await get(client)
    assert "refused" in str(raised.value).lower()
    client.close()


@on_both_loops
async def test_a_place_that_never_answers_is_given_up_in_time():
    with full_port() as port:
        client = Client(f"http://127.0.0.1:{port}", connect_s=0.05)
        with pytest.raises(ConnectTimeout, match=r"0\.05 s"):
            await get(client)
        client.close()
