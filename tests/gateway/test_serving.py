"""The gateway's server against raw sockets: whole requests, parts of them, none at all, attacks, and callers who leave.

Each test runs on asyncio's own loop and on uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from rondel.gateway.server import serving as module
from rondel.gateway.server.serving import Server
from tests.http.raw_server import WAIT_S, on_both_loops

ASK = b"POST /v1/x?a=b HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


# --- both sides -------------------------------------------------------------------------------------------------------


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes = ASK) -> tuple[str, bytes]:
        self.writer.write(data)
        return await self.answer()

    async def answer(self) -> tuple[str, bytes]:
        """Head and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        if "transfer-encoding" in lines:
            return head, await self.chunks()
        return head, await self.reader.readexactly(int(lines.get("content-length", "0")))

    async def chunks(self) -> bytes:
        body = bytearray()
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return bytes(body)

    async def rest(self) -> bytes:
        """What comes until the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    def leave(self) -> None:
        self.writer.transport.abort()


class Served:
    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self._callers: list[Caller] = []

    async def call(self, data: bytes = b"") -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        self._callers.append(caller)
        caller.writer.write(data)
        return caller

    async def wait_empty(self) -> None:
        while self.server.connections:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        for caller in self._callers:
            caller.leave()


@contextlib.asynccontextmanager
async def serving(application: Callable[..., Awaitable[None]]) -> AsyncGenerator[Served]:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server = Server(application, listening)
    served = Served(server, listening.getsockname()[1])
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(server.run())
        try:
            yield served
        finally:
            served.close()
            server.stop(at_once=True)


async def settled(value: Callable[[], int]) -> None:
    """Returns when a number does not change any more, however often the loop goes round."""
    before = -1
    while value() != before:
        before = value()
        for _ in range(500):
            await asyncio.sleep(0)


async def body_of(receive: Any) -> bytes:
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)
    raise ConnectionError("the caller has left")


async def reply(send: Any, body: bytes, status: int = 200) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


async def begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def piece(send: Any, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what was asked, and with which words."""
    with contextlib.suppress(ConnectionError):
        body = await body_of(receive)
        asked = scope["method"].encode(), scope["path"].encode(), scope["query_string"], body
        await reply(send, b"%b %b %b %b" % asked)


async def refusing(scope: Any, receive: Any, send: Any) -> None:
    """Answers without reading the body."""
    await reply(send, scope["path"].encode(), 401)


# --- requests ---------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_connection_serves_one_request_after_the_other():
    async with serving(echo) as served:
        caller = await served.call()
        for _ in range(3):
            head, body = await caller.ask()
            assert head == "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n"
            assert body == b"POST /v1/x a=b hello"


@on_both_loops
async def test_a_request_is_read_whatever_its_split():
    async with serving(echo) as served:
        for data in (ASK, CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"):
            caller = await served.call()
            for at in range(len(data)):
                caller.writer.write(data[at : at + 1])
                await asyncio.sleep(0)
            assert (await caller.answer())[1].endswith(b"hello")


@on_both_loops
async def test_what_is_asked_before_the_answer_is_there_waits_its_turn():
    order = list[bytes]()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        order.append(b"begins")
        body = await body_of(receive)
        await asyncio.sleep(0)
        order.append(body)
        await reply(send, body)

    async with serving(slow) as served:
        caller = await served.call(b"".join(ASK.replace(b"hello", b"%05d" % n) for n in range(12)))
        for n in range(12):
            assert (await caller.answer())[1] == b"%05d" % n
    assert order == [what for n in range(12) for what in (b"begins", b"%05d" % n)]


@on_both_loops
async def test_who_asks_far_ahead_gets_some_answers_and_then_the_end():
    async with serving(echo) as served:
        caller = await served.call(GET * 5_000)
        said = await caller.rest()
        assert said.count(b"HTTP/1.1 200 OK\r\n") == module.PIPELINED_MAX + 1
        assert said.count(b"HTTP/1.1 ") == module.PIPELINED_MAX + 1


@on_both_loops
async def test_a_large_body_holds_its_caller_back_until_it_is_read():
    size = 16 << 20
    asked, go = asyncio.Event(), asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await go.wait()
        await reply(send, b"%d" % len(await body_of(receive)))

    async with serving(late) as served:
        caller = await served.call(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        await asked.wait()
        await settled(lambda: caller.writer.transport.get_write_buffer_size())
        assert caller.writer.transport.get_write_buffer_size() > 0  # the server takes no more
        go.set()
        assert await caller.answer() == ("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n", b"%d" % size)


EXPECTS = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


@on_both_loops
async def test_who_waits_for_a_word_before_the_body_gets_it_when_the_body_is_wanted():
    async with serving(echo) as served:
        caller = await served.call()
        for _ in range(2):
            assert await caller.ask(EXPECTS) == ("HTTP/1.1 100 Continue\r\n\r\n", b"")
            assert (await caller.ask(b"hello"))[1] == b"POST /  hello"


@on_both_loops
async def test_who_waits_for_a_word_and_is_answered_instead_has_to_call_again():
    async with serving(refusing) as served:
        caller = await served.call(EXPECTS)
        head, body = await caller.answer()
        assert head.startswith("HTTP/1.1 401 Unauthorized\r\n")
        assert "connection: close" in head
        assert (body, await caller.rest()) == (b"/", b"")


@on_both_loops
async def test_who_wants_another_protocol_is_answered_in_this_one():
    upgrade = ASK.replace(
        b"Host", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\nHost"
    )
    web_socket = GET.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nHost")
    async with serving(echo) as served:
        caller = await served.call()
        for data in (upgrade, upgrade, ASK, upgrade + ASK):
            assert (await caller.ask(data))[1] == b"POST /v1/x a=b hello"
        assert (await caller.answer())[1] == b"POST /v1/x a=b hello"
        assert (await caller.ask(web_socket))[1] == b"GET /  "
        old = await served.call()
        head, _ = await old.ask(web_socket.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert "connection: close" in head.lower(), "a caller of HTTP/1.0 waits for the end of the connection"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"CONNECT here:80 HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"-1\r\na\r\n",
        CHUNKED + b"0x1\r\na\r\n",
        CHUNKED + b"fffffffffffffffff\r\na\r\n",
        CHUNKED + b"1\r\nab\r\n",
        CHUNKED + b"1\na\n0\n\n",
        CHUNKED + b"1 ;\r\na\r\n0\r\n\r\n",
    ],
)
@on_both_loops
async def test_what_is_no_request_is_refused_and_ends_the_connection(data: bytes):
    asked = list[str]()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ConnectionError):
            asked.append((await body_of(receive)).decode())

    async with serving(never) as served:
        caller = await served.call(data + GET)
        assert (await caller.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert asked == []


@pytest.mark.parametrize("data", [ASK, ASK.replace(b"Host", b"Connection: close\r\nHost")])
@pytest.mark.parametrize("bad", [b"\x16\x03\x01 nonsense\r\n\r\n", CHUNKED + b"x\r\n"], ids=["head", "body"])
@on_both_loops
async def test_what_was_asked_before_it_is_answered(data: bytes, bad: bytes):
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        await piece(send, b"one ")
        await asyncio.sleep(0.01)
        await piece(send, b"two", more=False)

    async with serving(slow) as served:
        caller = await served.call(data + bad + GET)
        head, body = await caller.answer()
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert (body, await caller.rest()) == (b"one two", b"")


@on_both_loops
async def test_an_answer_that_has_begun_when_its_request_turns_out_broken_is_broken_off():
    async def early(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        await piece(send, b"x")
        with pytest.raises(ConnectionError):
            await body_of(receive)

    async with serving(early) as served:
        caller = await served.call(CHUNKED)
        await caller.reader.readuntil(b"1\r\nx\r\n")
        caller.writer.write(b"nonsense\r\n" + GET)
        assert await caller.rest() == b""


@on_both_loops
async def test_a_trailer_is_no_header():
    async def headers(scope: Any, receive: Any, send: Any) -> None:
        await body_of(receive)
        await reply(send, b" ".join(name + b"=" + value for name, value in scope["headers"]))

    async with serving(headers) as served:
        caller = await served.call(CHUNKED + b"2\r\nhi\r\n0\r\nHost: evil\r\nX: y\r\n\r\n")
        assert (await caller.answer())[1] == b"host=h transfer-encoding=chunked"


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"GET /", b"x"),
        (b"GET / HTTP/1.1\r\nX: ", b"x"),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n"),
        (CHUNKED + b"1\r\na\r\n1", b";x=y"),
        (b"", b"\r\n"),
    ],
    ids=["line", "header", "headers", "trailers", "chunk extensions", "empty lines"],
)
@on_both_loops
async def test_a_request_that_grows_without_end_is_refused(start: bytes, again: bytes):
    async with serving(echo) as served:
        caller = await served.call(start + again * (6 * module.HEAD_BYTES_MAX // len(again)))
        assert (await caller.rest()).startswith(b"HTTP/1.1 431 ")


@on_both_loops
async def test_too_many_headers_are_refused_before_they_are_read():
    asked = list[str]()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    async with serving(never) as served:
        head = b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(9_000)) + b"\r\n"
        for pieces in (1, 90):
            caller, size = await served.call(), len(head) // pieces + 1
            for at in range(0, len(head), size):
                caller.writer.write(head[at : at + size])
                await asyncio.sleep(0)
            assert (await caller.rest()).startswith(b"HTTP/1.1 431 ")
    assert asked == []


@on_both_loops
async def test_more_connections_than_there_may_be_are_refused():
    async with serving(echo) as served:
        served.server.connections_max = 2
        callers = [await served.call() for _ in range(2)]
        assert [(await caller.ask())[1] for caller in callers] == [b"POST /v1/x a=b hello"] * 2
        assert (await (await served.call()).rest()).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        for caller in callers:
            assert (await caller.ask())[0].startswith("HTTP/1.1 200 ")


LONG = b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 400000\r\n\r\n"


@on_both_loops
async def test_a_flood_of_refused_connections_does_not_use_up_all_files():
    async with serving(echo) as served:
        served.server.connections_max = 2
        callers = [await served.call() for _ in range(100)]
        async with asyncio.timeout(module.UNREAD_S / 2):
            while served.server.connections > 2 + module.REFUSED_MAX:
                await asyncio.sleep(0.01)
        assert (await callers[0].ask())[1] == b"POST /v1/x a=b hello"
        assert (await callers[99].rest()).startswith(b"HTTP/1.1 503 ")


@on_both_loops
async def test_the_rest_of_a_refused_body_is_no_request():
    async with serving(refusing) as served:
        caller = await served.call(LONG)
        assert (await caller.answer())[1] == b"/1"
        caller.writer.write(GET * (400_000 // len(GET)) + b"x" * (400_000 % len(GET)))
        assert (await caller.ask(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"))[1] == b"/2"


@pytest.mark.parametrize("length", [b"Content-Length: 1000000000000", b"Transfer-Encoding: chunked"])
@on_both_loops
async def test_the_rest_of_a_refused_body_is_not_read_for_ever(length: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "UNREAD_S", 0.1)
    async with serving(refusing) as served:
        caller = await served.call(b"POST /1 HTTP/1.1\r\nHost: h\r\n" + length + b"\r\n\r\n")
        assert (await caller.answer())[1] == b"/1"
        with contextlib.suppress(ConnectionError):
            while served.server.connections:
                caller.writer.write(b"3e8\r\n" + bytes(1_000) + b"\r\n")
                await asyncio.sleep(0.01)
        await served.wait_empty()


# --- answers ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_an_answer_that_has_no_body_has_a_head():
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"body" if scope["method"] == "HEAD" else b"", 200 if scope["method"] == "HEAD" else 204)

    async with serving(nothing) as served:
        caller = await served.call()
        for method in (b"HEAD", b"GET", b"HEAD"):
            caller.writer.write(GET.replace(b"GET", method))
            assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 20")


@on_both_loops
async def test_a_caller_of_http_1_0_gets_a_stream_without_chunks_that_ends_with_the_connection():
    async def streaming(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/whole":
            await reply(send, b"whole")
            return
        await begin(send)
        for text in (b"one ", b"", b"two "):
            await piece(send, text)
        await piece(send, b"three", more=False)

    async with serving(streaming) as served:
        for path, body in ((b"/", b"one two three"), (b"/whole", b"whole")):
            said = await (await served.call(b"GET %b HTTP/1.0\r\nHost: here\r\n\r\n" % path)).rest()
            head, _, rest = said.partition(b"\r\n\r\n")
            assert rest == body
            assert b"connection: close" in head
            assert b"transfer-encoding" not in head


@on_both_loops
async def test_a_caller_who_reads_slowly_holds_the_application_back():
    written = 0

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await begin(send)
        for _ in range(200):
            await piece(send, bytes(100_000))
            written += 1
        await piece(send, b"", more=False)

    async with serving(flood) as served:
        caller = await served.call(GET)
        await caller.reader.readuntil(b"\r\n\r\n")
        await settled(lambda: written)
        assert written < 190  # what buffers of the system take, and no more
        assert len(await caller.chunks()) == 20_000_000


@on_both_loops
async def test_an_application_that_fails_before_it_answers_is_a_500():
    async def raising(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("secret")

    async with serving(raising) as served:
        said = await (await served.call(GET)).rest()
        assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"secret" not in said


@pytest.mark.parametrize("length", [b"", b"9"])
@on_both_loops
async def test_an_answer_that_breaks_off_does_not_look_finished(length: bytes):
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        await begin(send, *([(b"content-length", length)] if length else []))
        await piece(send, b"half")
        raise RuntimeError

    async with serving(breaking) as served:
        said = await (await served.call(GET)).rest()
        assert said == b"" or said.endswith((b"half", b"4\r\nhalf\r\n"))


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "says that it sends no more"])
@pytest.mark.parametrize("when", ["in the body", "before the answer", "in the answer", "with more asked"])
@on_both_loops
async def test_an_application_is_told_at_once_that_its_caller_has_left(when: str, how: str):
    """A caller that closes its half of the connection is not to be told from one that leaves."""
    told, here = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        if when == "in the body":
            assert (await receive())["body"] == b"he"
        else:
            await body_of(receive)
        if when == "in the answer":
            await begin(send)
            await piece(send, b"x")
        here.set()
        assert (await receive())["type"] == "http.disconnect"
        await piece(send, b"to nobody")
        told.set()

    async with serving(waiting) as served:
        data = ASK[:-3] if when == "in the body" else ASK * (3 if when == "with more asked" else 1)
        caller = await served.call(data)
        await here.wait()
        if how == "leaves":
            caller.leave()
        else:
            caller.writer.write_eof()
        await told.wait()


# --- the end ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_server_that_stops_lets_what_is_under_way_end_and_nothing_begin():
    here, go = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        here.set()
        await go.wait()
        await reply(send, b"done")

    async with serving(waiting) as served:
        idle, busy = await served.call(), await served.call(GET)
        await here.wait()
        served.server.stop()
        assert await idle.rest() == b""
        with pytest.raises(OSError, match=r"refused|failed"):
            await served.call()
        go.set()
        head, body = await busy.answer()
        assert ("connection: close" in head, body) == (True, b"done")
        assert await busy.rest() == b""


@on_both_loops
async def test_what_does_not_end_is_broken_off_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "CANCEL_S", 0.01)
    here, ended = asyncio.Event(), list[str]()

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        await piece(send, b"x")
        here.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async with serving(stubborn) as served:
        caller = await served.call(GET)
        await here.wait()
        served.server.stop(at_once=True)
        assert not (await caller.rest()).endswith(b"0\r\n\r\n")
    assert ended == ["ended"]


HALF = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"


@on_both_loops
async def test_who_is_idle_after_a_refused_body_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.05)
    async with serving(refusing) as served:
        caller = await served.call(LONG)
        assert (await caller.answer())[1] == b"/1"
        caller.writer.write(bytes(400_000))
        assert await caller.rest() == b""


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n", ASK, HALF, ASK + HALF])
@on_both_loops
async def test_who_asks_nothing_or_not_to_the_end_for_too_long_is_not_kept(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HEAD_S", "BODY_S", "KEEP_ALIVE_S"):
        monkeypatch.setattr(module, name, 0.05)
    async with serving(echo) as served:
        caller = await served.call(sent)
        assert (await caller.rest()).count(b"HTTP/1.1 200 OK") == sent.count(b"hello")
        await served.wait_empty()


@on_both_loops
async def test_a_slow_application_is_no_slow_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BODY_S", 0.01)

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)
        await reply(send, b"%d" % len(await body_of(receive)))

    async with serving(late) as served:
        caller = await served.call(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n" + bytes(500_000))
        assert (await caller.answer())[1] == b"500000"
