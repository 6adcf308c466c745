"""Callers that no library plays: whole requests, halves of them, none at all, and those who leave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from rondel.http import server as module
from rondel.http.server import Server
from tests.http.raw_server import WAIT_S, Loop, on_both_loops

ASK = b"POST /v1/x?a=b HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
Scene = Callable[[], Coroutine[Any, Any, None]]


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
            return head, await self._chunks()
        if "content-length" in lines and lines.get("x-method") != "HEAD":
            return head, await self.reader.readexactly(int(lines["content-length"]))
        return head, b""

    async def _chunks(self) -> bytes:
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

    async def call(self) -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        self._callers.append(caller)
        return caller

    async def ask(self, data: bytes = ASK) -> tuple[str, bytes]:
        return await (await self.call()).ask(data)

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


def play(scene: Coroutine[Any, Any, None], loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scene)


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


async def reply(send: Any, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def piece(send: Any, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what was asked, and with which words."""
    body = await body_of(receive)
    await reply(send, b"%b %b %b %b" % (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body))


# --- requests ---------------------------------------------------------------------------------------------------------


@on_both_loops
def test_a_connection_serves_one_request_after_the_other(loop: Loop):
    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            for _ in range(3):
                head, body = await caller.ask()
                assert head == "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n"
                assert body == b"POST /v1/x a=b hello"

    play(scene(), loop)


@on_both_loops
def test_a_request_is_read_whatever_its_split(loop: Loop):
    chunked = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"

    async def scene() -> None:
        async with serving(echo) as served:
            for data in (ASK, chunked):
                caller = await served.call()
                for at in range(len(data)):
                    caller.writer.write(data[at : at + 1])
                    await asyncio.sleep(0)
                assert (await caller.answer())[1].endswith(b"hello")

    play(scene(), loop)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/a%20b/%C3%A4?x=%20", "/a b/ä".encode(), b"x=%20"),
        (b"/a?b?c", b"/a", b"b?c"),
        (b"//x/y", b"//x/y", b""),
        (b"http://here:80/a?b", b"/a", b"b"),
        (b"http://here", b"/", b""),
    ],
)
def test_what_is_asked_for_is_a_path_and_a_query(target: bytes, path: bytes, query: bytes):
    async def scene() -> None:
        async with serving(echo) as served:
            _, body = await served.ask(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
            assert body == b"GET %b %b " % (path, query)

    play(scene(), asyncio.new_event_loop)


@on_both_loops
def test_what_is_asked_before_the_answer_is_there_waits_its_turn(loop: Loop):
    order = list[bytes]()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        order.append(b"begins")
        body = await body_of(receive)
        await asyncio.sleep(0)
        order.append(body)
        await reply(send, body)

    async def scene() -> None:
        async with serving(slow) as served:
            caller = await served.call()
            asked = [ASK.replace(b"hello", b"%05d" % n) for n in range(12)]
            caller.writer.write(b"".join(asked))
            for n in range(12):
                assert (await caller.answer())[1] == b"%05d" % n
        assert order == [what for n in range(12) for what in (b"begins", b"%05d" % n)]

    play(scene(), loop)


@on_both_loops
def test_a_large_body_holds_its_caller_back_until_it_is_read(loop: Loop):
    size = 16 << 20
    asked, go = asyncio.Event(), asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await go.wait()
        await reply(send, b"%d" % len(await body_of(receive)))

    async def scene() -> None:
        async with serving(late) as served:
            caller = await served.call()
            caller.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size)
            caller.writer.write(bytes(size))
            await asked.wait()
            await settled(lambda: caller.writer.transport.get_write_buffer_size())
            assert caller.writer.transport.get_write_buffer_size() > 0  # the server takes no more
            go.set()
            assert await caller.answer() == ("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n", b"%d" % size)

    play(scene(), loop)


def test_the_rest_of_a_body_that_nobody_reads_is_no_request():
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, scope["path"].encode(), 413)

    async def scene() -> None:
        async with serving(hasty) as served:
            caller = await served.call()
            head, _ = await caller.ask(b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 400000\r\n\r\n")
            assert head.startswith("HTTP/1.1 413 Content Too Large\r\n")
            caller.writer.write(GET * (400_000 // len(GET)) + b"x" * (400_000 % len(GET)))
            assert (await caller.ask(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"))[1] == b"/2"

    play(scene(), asyncio.new_event_loop)


EXPECTS = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


def test_who_waits_for_a_word_before_the_body_gets_it_when_the_body_is_wanted():
    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            assert await caller.ask(EXPECTS) == ("HTTP/1.1 100 Continue\r\n\r\n", b"")
            assert (await caller.ask(b"hello"))[1] == b"POST /  hello"
            assert (await caller.ask(EXPECTS + b"hello"))[1] == b"POST /  hello"  # who does not wait needs none

    play(scene(), asyncio.new_event_loop)


def test_who_waits_for_a_word_and_is_answered_instead_has_to_call_again():
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"no", 401)

    async def scene() -> None:
        async with serving(refusing) as served:
            caller = await served.call()
            head, body = await caller.ask(EXPECTS)
            assert head.startswith("HTTP/1.1 401 Unauthorized\r\n")
            assert "connection: close" in head
            assert (body, await caller.rest()) == (b"no", b"")

    play(scene(), asyncio.new_event_loop)


def test_who_wants_another_protocol_is_answered_in_this_one():
    upgrade = ASK.replace(
        b"Host", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\nHost"
    )

    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            for data in (upgrade, upgrade, ASK, upgrade + ASK):
                assert (await caller.ask(data))[1] == b"POST /v1/x a=b hello"
            assert (await caller.answer())[1] == b"POST /v1/x a=b hello"

    play(scene(), asyncio.new_event_loop)


# --- what is no request -----------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"CONNECT here:80 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_ends_the_connection(loop: Loop, data: bytes):
    asked = list[str]()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ConnectionError):
            asked.append((await body_of(receive)).decode())

    async def scene() -> None:
        async with serving(never) as served:
            caller = await served.call()
            caller.writer.write(data + GET)
            assert (await caller.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert asked == []

    play(scene(), loop)


@on_both_loops
@pytest.mark.parametrize("data", [ASK, ASK.replace(b"Host", b"Connection: close\r\nHost")])
def test_what_was_asked_before_it_is_answered(loop: Loop, data: bytes):
    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            head, body = await caller.ask(data + b"\x16\x03\x01 nonsense\r\n\r\n" + GET)
            assert head.startswith("HTTP/1.1 200 OK\r\n")
            assert (body, await caller.rest()) == (b"POST /v1/x a=b hello", b"")

    play(scene(), loop)


def test_what_stands_behind_a_body_is_no_header():
    chunked = (
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nHost: evil\r\nX: y\r\n\r\n"
    )

    async def headers(scope: Any, receive: Any, send: Any) -> None:
        await body_of(receive)
        await reply(send, b" ".join(name + b"=" + value for name, value in scope["headers"]))

    async def scene() -> None:
        async with serving(headers) as served:
            assert (await served.ask(chunked))[1] == b"host=h transfer-encoding=chunked"

    play(scene(), asyncio.new_event_loop)


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: "])
def test_a_head_that_does_not_end_is_refused(start: bytes):
    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            caller.writer.write(start.ljust(module.HEAD_BYTES_MAX + 1, b"x"))
            assert (await caller.rest()).startswith(b"HTTP/1.1 431 ")

    play(scene(), asyncio.new_event_loop)


# --- answers ----------------------------------------------------------------------------------------------------------


async def stream(scope: Any, receive: Any, send: Any) -> None:
    await body_of(receive)
    await begin(send, (b"content-type", b"text/event-stream"))
    for word in (b"one ", b"", b"two ", b"three"):
        await piece(send, word)
    await piece(send, b"", more=False)


@on_both_loops
def test_an_answer_without_a_length_comes_in_chunks(loop: Loop):
    async def scene() -> None:
        async with serving(stream) as served:
            caller = await served.call()
            for _ in range(2):
                assert (await caller.ask())[1] == b"one two three"

    play(scene(), loop)


def test_an_old_caller_reads_to_the_end_of_the_connection():
    async def scene() -> None:
        async with serving(stream) as served:
            caller = await served.call()
            caller.writer.write(b"GET / HTTP/1.0\r\n\r\n")
            head, _, body = (await caller.rest()).partition(b"\r\n\r\n")
            assert b"connection: close" in head
            assert b"transfer-encoding" not in head
            assert body == b"one two three"

    play(scene(), asyncio.new_event_loop)


def test_an_answer_that_has_no_body_has_none():
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"body", 200 if scope["method"] == "HEAD" else 204, (b"x-method", scope["method"].encode()))

    async def scene() -> None:
        async with serving(nothing) as served:
            caller = await served.call()
            for method in (b"HEAD", b"GET", b"HEAD"):
                caller.writer.write(GET.replace(b"GET", method))
                assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 20")
            caller.writer.write(GET.replace(b"Host", b"Connection: close\r\nHost"))
            assert (await caller.rest()).endswith(b"connection: close\r\n\r\n")

    play(scene(), asyncio.new_event_loop)


def test_a_head_is_written_with_what_comes_first():
    writes = list[bytes]()

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            writes.append(bytes(data))

        def is_closing(self) -> bool:
            return False

    async def scene() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        async with asyncio.TaskGroup() as group:
            server = Server(stream, listening)
            connection = module.Connection(server, asyncio.get_running_loop(), group)
            connection.connection_made(Transport())
            connection.data_received(ASK)
        server.deadlines.close()
        listening.close()

    asyncio.run(scene())
    assert [data.rpartition(b"\r\n\r\n")[2] for data in writes[:1]] == [b"4\r\none \r\n"]
    assert writes[1:] == [b"4\r\ntwo \r\n", b"5\r\nthree\r\n", b"0\r\n\r\n"]


@on_both_loops
def test_a_caller_who_reads_slowly_holds_the_application_back(loop: Loop):
    written = 0

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await begin(send)
        for _ in range(200):
            await piece(send, bytes(100_000))
            written += 1
        await piece(send, b"", more=False)

    async def scene() -> None:
        async with serving(flood) as served:
            caller = await served.call()
            caller.writer.write(GET)
            await caller.reader.readuntil(b"\r\n\r\n")
            await settled(lambda: written)
            assert written < 190  # what buffers of the system take, and no more
            assert len(await caller._chunks()) == 20_000_000  # pyright: ignore[reportPrivateUsage]

    play(scene(), loop)


# --- applications that fail -------------------------------------------------------------------------------------------


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("secret")


async def silent(scope: Any, receive: Any, send: Any) -> None:
    await begin(send)


async def splitting(scope: Any, receive: Any, send: Any) -> None:
    await reply(send, b"", 200, (b"x", b"y\r\nset-cookie: z"))


async def babbling(scope: Any, receive: Any, send: Any) -> None:
    await begin(send, (b"content-length", b"3"))
    await piece(send, b"four", more=False)


@pytest.mark.parametrize("application", [raising, silent, splitting, babbling])
def test_an_application_that_fails_before_it_answers_is_a_500(application: Any):
    async def scene() -> None:
        async with serving(application) as served:
            caller = await served.call()
            caller.writer.write(GET)
            said = await caller.rest()
            assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
            assert b"secret" not in said
            assert b"set-cookie" not in said

    play(scene(), asyncio.new_event_loop)


@on_both_loops
@pytest.mark.parametrize("length", [b"", b"9"])
def test_an_answer_that_breaks_off_does_not_look_finished(loop: Loop, length: bytes):
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        await begin(send, *([(b"content-length", length)] if length else []))
        await piece(send, b"half")
        raise RuntimeError

    async def scene() -> None:
        async with serving(breaking) as served:
            caller = await served.call()
            caller.writer.write(GET)
            said = await caller.rest()
            assert said == b"" or said.endswith((b"half", b"4\r\nhalf\r\n"))

    play(scene(), loop)


# --- leaving ----------------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("when", ["in the body", "before the answer", "in the answer", "with more asked"])
def test_an_application_is_told_at_once_that_its_caller_has_left(loop: Loop, when: str):
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

    async def scene() -> None:
        async with serving(waiting) as served:
            caller = await served.call()
            caller.writer.write(ASK[:-3] if when == "in the body" else ASK * (3 if when == "with more asked" else 1))
            await here.wait()
            caller.leave()
            await told.wait()

    play(scene(), loop)


# --- the end ----------------------------------------------------------------------------------------------------------


@on_both_loops
def test_a_server_that_stops_lets_what_is_under_way_end_and_nothing_begin(loop: Loop):
    here, go = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        here.set()
        await go.wait()
        await reply(send, b"done")

    async def scene() -> None:
        async with serving(waiting) as served:
            idle, busy = await served.call(), await served.call()
            busy.writer.write(GET)
            await here.wait()
            served.server.stop()
            assert await idle.rest() == b""
            with pytest.raises(OSError, match=r"refused|failed"):
                await served.call()
            go.set()
            head, body = await busy.answer()
            assert ("connection: close" in head, body) == (True, b"done")
            assert await busy.rest() == b""

    play(scene(), loop)


@on_both_loops
@pytest.mark.parametrize("patience", ["at once", "too late"])
def test_what_does_not_end_is_broken_off(loop: Loop, patience: str, monkeypatch: pytest.MonkeyPatch):
    here, ended = asyncio.Event(), list[str]()

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        await piece(send, b"x")
        here.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scene() -> None:
        monkeypatch.setattr(module, "DRAIN_S", 0.0)
        async with serving(stubborn) as served:
            caller = await served.call()
            caller.writer.write(GET)
            await here.wait()
            served.server.stop(at_once=patience == "at once")
            assert not (await caller.rest()).endswith(b"0\r\n\r\n")
        assert ended == ["ended"]

    play(scene(), loop)


HALF = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", ASK, HALF])
def test_who_asks_nothing_or_not_to_the_end_for_too_long_is_not_kept(sent: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "IDLE_S", 0.0)

    async def scene() -> None:
        async with serving(echo) as served:
            caller = await served.call()
            caller.writer.write(sent)
            await caller.rest()
            assert served.server.connections == set()

    play(scene(), asyncio.new_event_loop)
