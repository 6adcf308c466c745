"""Fetching images: from the public Internet only, whatever an address says, and never more than asked for.

The server is a real one on loopback, which only these tests allow.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from rondel import Node, Prompt
from rondel.fetching import FetchError, image_urls, with_images
from rondel.fetching.engine import fetch_all
from rondel.fetching.http import HttpFetcher, Resolve
from rondel.values import Media, Message, Text, ToolResult, user

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
LOOPBACK = ("127.0.0.1/32",)


class Server:
    """Says for each path what it was given, and keeps what it was asked."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers, self.asked, self.port = answers, list[str](), 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            answer = self.answers[head.split(" ")[1].partition("?")[0]]
            if answer:
                writer.write(answer)
                await writer.drain()
            else:
                await reader.read()  # says nothing until the other side leaves
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def ok(body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = ("HTTP/1.1 200 OK", f"content-length: {len(body) if length is None else length}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


def moved(where: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nlocation: {where}\r\ncontent-length: 0\r\n\r\n".encode()


@asynccontextmanager
async def serving(answers: dict[str, bytes], tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    async with asyncio.timeout(20), listening:
        yield server


def names(**known: list[str] | list[list[str]]) -> tuple[Resolve, list[str]]:
    """A resolver of these names, and the list of what it was asked. A list of lists is one answer after the other."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        answers: list[Any] = known[host.replace(".", "_")]
        if answers and isinstance(answers[0], list):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return answers

    return resolve, asked


async def refused(fetcher: HttpFetcher, url: str) -> str:
    with pytest.raises(FetchError) as raised:
        await fetcher.image(url)
    return str(raised.value)


# --- what is fetched --------------------------------------------------------------------------------------------------


async def test_an_image_comes_as_data_with_the_type_that_its_bytes_have():
    async with serving({"/cat.jpg": ok(PNG, "content-type: text/html")}) as server:
        fetcher = HttpFetcher(allowed=LOOPBACK)
        found = await fetcher.image(f"http://127.0.0.1:{server.port}/cat.jpg?size=2")
        assert found == Media("image", "image/png", PNG)
    head = server.asked[0].lower()
    assert head.startswith("get /cat.jpg?size=2 http/1.1")
    assert "accept-encoding: identity" in head
    assert "cookie" not in head


async def test_a_name_is_looked_up_once_and_the_connection_goes_to_what_was_checked():
    """A name that means something else the second time (DNS rebinding) has no second time."""
    resolve, asked = names(pictures_example=[["127.0.0.1"], ["10.0.0.1"]])
    async with serving({"/a": ok(PNG)}) as server:
        fetcher = HttpFetcher(allowed=LOOPBACK, resolve=resolve)
        assert (await fetcher.image(f"http://pictures.example:{server.port}/a")).data == PNG
    assert asked == ["pictures.example"]
    assert f"host: pictures.example:{server.port}" in server.asked[0].lower()


async def test_a_secure_server_must_prove_to_be_the_name_and_not_the_address(monkeypatch: pytest.MonkeyPatch):
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    monkeypatch.setattr("rondel.http.dialing._trusted", trusted)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("pictures.example").configure_cert(theirs)
    resolve, _ = names(pictures_example=["127.0.0.1"], other_example=["127.0.0.1"])
    async with serving({"/a": ok(PNG)}, tls=theirs) as server:
        fetcher = HttpFetcher(allowed=LOOPBACK, resolve=resolve)
        assert (await fetcher.image(f"https://pictures.example:{server.port}/a")).data == PNG
        with pytest.raises(FetchError, match=r"could not be read: .*other\.example"):
            await fetcher.image(f"https://other.example:{server.port}/a")
        with pytest.raises(FetchError, match=r"could not be read: .*127\.0\.0\.1"):
            await fetcher.image(f"https://127.0.0.1:{server.port}/a")


async def test_a_redirect_is_followed_when_it_leads_to_a_public_place():
    async with serving({"/old": moved("/new", 301), "/new": ok(PNG)}) as server:
        fetcher = HttpFetcher(allowed=LOOPBACK)
        assert (await fetcher.image(f"http://127.0.0.1:{server.port}/old")).data == PNG
    assert len(server.asked) == 2


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/a.png", "loopback"),
        ("http://127.0.0.1:8080/a.png", "loopback"),
        ("https://10.0.0.1/", "private"),
        ("http://169.254.169.254/latest/meta-data", "metadata"),
        ("http://[::1]/", "loopback"),
        ("http://[::ffff:127.0.0.1]/", "IPv4-mapped"),
        ("http://[::ffff:7f00:1]/", "IPv4-mapped"),
        ("http://[fe80::1]/", "link-local"),
        ("http://[64:ff9b::7f00:1]/", "loopback"),
        ("http://0/", "unspecified"),
        ("http://2130706433/", "loopback"),
        ("http://127.1/", "loopback"),
        ("http://0x7f.1/", "loopback"),
        ("http://localhost/", "loopback"),
        ("http://LOCALHOST./", "loopback"),
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.com/a.png", "only http and https"),
        ("gopher://127.0.0.1:70/", "only http and https"),
        ("data:image/png;base64,aaaa", "only http and https"),
        ("//example.com/a.png", "only http and https"),
        ("http:///a.png", "cannot be read|only http and https"),
        ("http://exa mple/", "cannot be read|no host"),
        ("http://example.com:99999999/", "cannot be read"),
        ("http://ann:secret@example.com/", "user name"),
        ("", "only http and https"),
    ],
)
async def test_an_address_that_leads_inside_or_nowhere_is_refused_in_one_sentence(url: str, why: str):
    async def resolve(host: str, port: int) -> list[str]:
        """As the system's own would answer, without asking anybody."""
        forms = {"0": "0.0.0.0", "2130706433": "127.0.0.1", "127.1": "127.0.0.1", "0x7f.1": "127.0.0.1"}
        return [forms[host]] if host in forms else ["127.0.0.1", "::1"] if "localhost" in host.lower() else []

    said = await refused(HttpFetcher(resolve=resolve), url)
    assert any(word in said for word in why.split("|")), said
    assert said.startswith("the image at ")
    assert "\n" not in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "fd00::1", "::ffff:1.1.1.1"]
)
async def test_a_name_that_stands_for_a_place_inside_is_refused_also_among_public_ones(inside: str):
    resolve, _ = names(nice_example=["93.184.215.14", inside])
    said = await refused(HttpFetcher(resolve=resolve), "https://nice.example/cat.png")
    assert "'nice.example' is a" in said
    assert "only public addresses" in said


async def test_a_redirect_to_a_place_inside_is_refused_and_nobody_is_asked():
    resolve, asked = names(inside_example=["10.0.0.1"])
    answers = {
        "/name": moved("http://inside.example/a.png"),
        "/literal": moved("http://169.254.169.254/"),
        "/file": moved("file:///etc/passwd"),
        "/nothing": moved(""),
    }
    async with serving(answers) as server:
        fetcher = HttpFetcher(allowed=LOOPBACK, resolve=resolve)
        for path, why in [("/name", "private"), ("/literal", "metadata"), ("/file", "only http"), ("/nothing", "more")]:
            with pytest.raises(FetchError, match=why):
                await fetcher.image(f"http://127.0.0.1:{server.port}{path}")
    assert asked == ["inside.example"]


async def test_redirects_in_a_circle_end():
    async with serving({"/round": moved("/round")}) as server:
        with pytest.raises(FetchError, match="redirects more than 3 times"):
            await HttpFetcher(allowed=LOOPBACK).image(f"http://127.0.0.1:{server.port}/round")
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ok(b"<html>nothing to see</html>", "content-type: image/png"), r"not an image that models can see \(PNG"),
        (ok(b"<svg/>", "content-type: image/svg+xml"), "not an image"),
        (ok(b""), "not an image"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 206 Partial\r\ncontent-length: 0\r\n\r\n", "answered 206"),
        (ok(PNG + b"x" * 2_000), "larger than 1,000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + PNG + b"x" * 2_000, "larger than 1,000 bytes"),
        (ok(PNG, length=900), "could not be read"),
        (b"nonsense\r\n\r\n", "could not be read"),
    ],
)
async def test_what_is_no_image_or_too_large_or_broken_is_refused(answer: bytes, why: str):
    async with serving({"/a": answer}) as server:
        with pytest.raises(FetchError, match=why):
            await HttpFetcher(allowed=LOOPBACK, bytes_max=1_000).image(f"http://127.0.0.1:{server.port}/a")


async def test_a_server_that_says_nothing_is_left_after_the_time_that_is_allowed():
    async with serving({"/a": b""}) as server:
        with pytest.raises(FetchError, match=r"took longer than 0\.05 seconds"):
            await HttpFetcher(allowed=LOOPBACK, seconds_max=0.05).image(f"http://127.0.0.1:{server.port}/a")


async def test_a_port_where_nobody_listens_is_one_sentence_without_the_query():
    async with serving({}) as server:
        port = server.port
    # nobody listens there any more
    said = await refused(HttpFetcher(allowed=LOOPBACK), f"http://127.0.0.1:{port}/a?signature=secret#part")
    assert said.startswith(f"the image at 'http://127.0.0.1:{port}/a?***' was not fetched: its server could not be")
    assert "secret" not in said


# --- prompts ----------------------------------------------------------------------------------------------------------


class Shelf:
    """A fetcher that has one picture."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def image(self, url: str) -> Media:
        self.asked.append(url)
        if url != "https://a.example/cat.png":
            raise FetchError(f"the image at {url!r} was not fetched: there is none")
        return Media("image", "image/png", PNG)


async def test_the_images_of_a_prompt_are_fetched_each_once_wherever_they_stand():
    cat, gone = Media("image", url="https://a.example/cat.png"), Media("image", url="https://a.example/gone.png")
    here, paper = Media("image", "image/png", PNG), Media("file", url="https://a.example/paper.pdf")
    result = ToolResult("c1", (Text("two"), cat, gone))
    plain = user("hello")
    history = (plain, user("look", cat, here, paper), Message("tool", (result,)))
    shelf = Shelf()
    for prompt in (Prompt.of(*history), Prompt((Node("history", children=history),))):
        made = with_images(prompt, await fetch_all(image_urls(prompt), shelf))
        assert made.messages[0] is plain
        assert made.messages[1].parts[1:] == (Media("image", "image/png", PNG), here, paper)
        (inner,) = made.messages[2].parts
        assert isinstance(inner, ToolResult)
        assert inner.parts[1] == here
        assert "was not fetched: there is none.)" in inner.text
    untouched = Prompt.of(user("hello", here))
    assert with_images(untouched, await fetch_all(image_urls(untouched), shelf)) is untouched
    assert shelf.asked == ["https://a.example/cat.png", "https://a.example/gone.png"] * 2
