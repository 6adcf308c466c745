"""How a connection comes about: several addresses, IPv6, TLS with certificates good and bad, and proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from rondel.http import Client, HttpError, NoAddress, ProxyFailed, TlsFailed
from rondel.http.dialing import Origin, Proxy

from .raw_server import Line, asked, ok, on_both_loops, saying, serving

AUTHORITY = trustme.CA()
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


def server_tls(*names: str, authority: trustme.CA = AUTHORITY, **options: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names, **options).configure_cert(context)
    return context


def trusting(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@contextlib.asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Client]:
    client = Client(url, **options)
    try:
        yield client
    finally:
        client.close()
        for _ in range(3):  # what TLS has to say at the end
            await asyncio.sleep(0)


# --- addresses --------------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::1", "127.0.0.1"], ["127.0.0.3", "127.0.0.1"]])
async def test_the_addresses_that_are_given_are_connected_to_one_after_the_other(addresses: list[str]):
    """The host is named to the server, and is never looked up."""
    heads: list[str] = []

    async def script(line: Line) -> None:
        heads.append((await line.request())[0])
        await line.say(ok())
        await line.left()

    async with (
        serving(script) as server,
        client_of(f"http://no-such-name.invalid:{server.port}/x", addresses=addresses) as client,
    ):
        assert await asked(client) == b"hello"
        assert f"host: no-such-name.invalid:{server.port}\r\n" in heads[0]


@on_both_loops
async def test_an_address_of_ipv6_is_connected_to_and_named_in_brackets():
    heads: list[str] = []

    async def script(line: Line) -> None:
        heads.append((await line.request())[0])
        await line.say(ok())

    try:
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    probe.close()
    async with serving(script, host="::1") as server, client_of(f"http://[::1]:{server.port}") as client:
        assert await asked(client) == b"hello"
        assert f"host: [::1]:{server.port}\r\n" in heads[0]


@on_both_loops
async def test_an_address_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.http.dialing.ADDRESS_S", 0.05)
    with contextlib.ExitStack() as stack:
        async with serving(saying(ok())) as server:
            full = stack.enter_context(socket.socket())  # whose queue is full: the system answers nobody
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind(("127.0.0.3", server.port))
            full.listen(0)
            for _ in range(4):
                waits = stack.enter_context(socket.socket())
                waits.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    waits.connect(("127.0.0.3", server.port))
            addresses = ["127.0.0.3", "127.0.0.1"]
            async with client_of(f"http://a.invalid:{server.port}", addresses=addresses) as client:
                assert await asked(client) == b"hello"


@on_both_loops
async def test_a_name_that_does_not_exist_is_an_error_that_names_it():
    async with client_of("http://no-such-name.invalid") as client:
        with pytest.raises(NoAddress, match=r"'no-such-name\.invalid' has no address"):
            await asked(client)


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("http://a.example", Origin("http", "a.example", 80), "a.example"),
        ("https://A.Example/x", Origin("https", "a.example", 443), "a.example"),
        ("https://a.example:80", Origin("https", "a.example", 80), "a.example:80"),
        ("http://[2001:db8::1]:8080/", Origin("http", "2001:db8::1", 8080), "[2001:db8::1]:8080"),
        ("http://b\u00fccher.example", Origin("http", "xn--bcher-kva.example", 80), "xn--bcher-kva.example"),
        ("http://ann:secret@a.example", Origin("http", "a.example", 80), "a.example"),
    ],
)
def test_where_a_server_is(url: str, origin: Origin, authority: str):
    assert Origin.of(url) == origin
    assert origin.authority == authority


@pytest.mark.parametrize("url", ["", "a.example", "ftp://a.example", "http://", "http://a.example:x", "http://[::1"])
def test_what_is_no_web_address_is_an_error(url: str):
    with pytest.raises(HttpError):
        Origin.of(url)


# --- TLS --------------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_server_with_a_good_certificate_is_asked_again_and_again():
    body = b"x" * 1_000_000
    async with (
        serving(saying(ok(body)), tls=server_tls("localhost")) as server,
        client_of(f"https://localhost:{server.port}", tls=trusting(), addresses=["127.0.0.1"]) as client,
    ):
        for _ in range(3):
            assert await asked(client) == body
        assert len(server.lines) == 1


@on_both_loops
@pytest.mark.parametrize(
    ("tls", "trusted", "why"),
    [
        pytest.param(server_tls("localhost", not_after=LONG_AGO), trusting(), "expired", id="expired"),
        pytest.param(server_tls("other.example"), trusting(), "localhost", id="for another name"),
        pytest.param(server_tls("localhost"), ssl.create_default_context(), "self.signed|issuer", id="of nobody known"),
        pytest.param(None, trusting(), ".", id="no TLS at all"),
    ],
)
async def test_a_server_whose_certificate_is_not_good_is_one_clear_error(
    tls: ssl.SSLContext | None, trusted: ssl.SSLContext, why: str
):
    async def plain(line: Line) -> None:
        await line.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await line.left()

    async with (
        serving(plain, tls=tls) as server,
        client_of(f"https://localhost:{server.port}", tls=trusted, addresses=["127.0.0.1"]) as client,
    ):
        with pytest.raises(TlsFailed, match=why) as raised:
            await asked(client)
        assert "\n" not in str(raised.value)


@on_both_loops
async def test_a_certificate_for_an_address_is_good_for_that_address():
    async with (
        serving(saying(ok()), tls=server_tls("127.0.0.1")) as server,
        client_of(f"https://127.0.0.1:{server.port}", tls=trusting()) as client,
    ):
        assert await asked(client) == b"hello"


@on_both_loops
@pytest.mark.parametrize("tunnelled", [False, True])
async def test_a_request_that_is_cancelled_while_tls_begins_or_a_tunnel_is_opened_leaves_nothing_open(tunnelled: bool):
    came = asyncio.Event()

    async def mute(line: Line) -> None:
        await line.reader.read(1)
        came.set()
        await line.left()

    async with serving(mute) as server:
        if tunnelled:
            opening = client_of("https://a.example", proxy=f"http://127.0.0.1:{server.port}", tls=trusting())
        else:
            opening = client_of(f"https://localhost:{server.port}", tls=trusting(), addresses=["127.0.0.1"])
        async with opening as client:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(asked(client))
                await came.wait()
                asking.cancel()
            await server.all_ended(1)


# --- proxies ----------------------------------------------------------------------------------------------------------


class Relay:
    """A proxy that passes on what it is told to, or answers something else."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.heads: list[str] = []
        self._answer = answer
        self.port = 0

    async def play(self, line: Line) -> None:
        head, _ = await line.request()
        self.heads.append(head)
        await line.say(self._answer)
        if b" 200 " not in self._answer:
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(line.reader, writer))
            group.create_task(_pump(reader, line.writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@on_both_loops
async def test_a_secure_server_is_asked_through_a_tunnel():
    relay = Relay()
    async with (
        serving(saying(ok()), tls=server_tls("a.example")) as server,
        serving(relay.play) as proxy,
        client_of(
            "https://a.example:8443", proxy=f"http://ann:s%20ecret@127.0.0.1:{proxy.port}", tls=trusting()
        ) as client,
    ):
        relay.port = server.port
        for _ in range(2):
            assert await asked(client) == b"hello"
        assert len(server.lines) == len(proxy.lines) == 1
    (head,) = relay.heads
    assert head.startswith("CONNECT a.example:8443 HTTP/1.1\r\nhost: a.example:8443\r\n")
    assert base64.b64encode(b"ann:s ecret").decode() in head


@on_both_loops
async def test_a_plain_server_is_asked_by_its_whole_address():
    heads: list[str] = []

    async def proxied(line: Line) -> None:
        while True:
            heads.append((await line.request())[0])
            await line.say(ok(b"from the proxy"))

    async with (
        serving(proxied) as proxy,
        client_of("http://a.example", proxy=f"http://ann:secret@127.0.0.1:{proxy.port}") as client,
    ):
        assert await asked(client) == b"from the proxy"
    assert heads[0].startswith("GET http://a.example/ HTTP/1.1\r\nhost: a.example\r\nproxy-authorization: Basic ")


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 2\r\n\r\nno", "407"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502"),
        (b"nonsense\r\n\r\n", "no tunnel"),
        (b"HTTP/1.1 2", "no tunnel"),
        (b"", "no tunnel"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_is_one_clear_error_without_its_password(answer: bytes, why: str):
    async with (
        serving(Relay(answer).play) as proxy,
        client_of("https://a.example", proxy=f"http://ann:secret@127.0.0.1:{proxy.port}") as client,
    ):
        with pytest.raises(ProxyFailed, match=why) as raised:
            await asked(client)
        assert "secret" not in str(raised.value)
        assert base64.b64encode(b"ann:secret").decode() not in str(raised.value)


@on_both_loops
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there_is_one_clear_error(scheme: str):
    async with serving(saying(ok())) as gone:
        pass
    async with client_of(f"{scheme}://a.example", proxy=f"http://127.0.0.1:{gone.port}") as client:
        with pytest.raises(ProxyFailed, match="proxy"):
            await asked(client)


@on_both_loops
async def test_a_bad_certificate_behind_a_proxy_is_the_servers_and_not_the_proxys():
    relay = Relay()
    async with (
        serving(saying(ok()), tls=server_tls("b.example")) as server,
        serving(relay.play) as proxy,
        client_of("https://a.example", proxy=f"http://127.0.0.1:{proxy.port}", tls=trusting()) as client,
    ):
        relay.port = server.port
        with pytest.raises(TlsFailed, match=r"a\.example"):
            await asked(client)


def test_a_proxys_password_is_in_no_repr():
    assert "secret" not in repr(Proxy.of("http://ann:secret@a.example"))
    assert base64.b64encode(b"ann:secret").decode() not in repr(Proxy.of("http://ann:secret@a.example"))
