"""Addresses of the web as anybody may write them: there is one way to understand each, or it is refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.fetching import FetchError
from rondel.fetching.http import HttpFetcher
from rondel.fetching.url import Url
from rondel.http.dialing import Origin


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("http://a.example", "a.example", 80, "/"),
        ("HTTPS://A.Example:8443/Cat.PNG?Size=2#part", "a.example", 8443, "/Cat.PNG?Size=2"),
        ("http://a.example:/x", "a.example", 80, "/x"),
        ("http://a.example./x", "a.example.", 80, "/x"),
        ("http://my_images.example/x", "my_images.example", 80, "/x"),
        ("http://b\u00fccher.example/\u00e4 b?q=\u00f6", "xn--bcher-kva.example", 80, "/%C3%A4%20b?q=%C3%B6"),
        ("http://a.example/%2e%2e/a%20b+c;d=~'(e)", "a.example", 80, "/%2e%2e/a%20b+c;d=~'(e)"),
        ("http://[2606:4700::1111]:8080/", "2606:4700::1111", 8080, "/"),
        ("http://[::FFFF:127.0.0.1]/", "::ffff:7f00:1", 80, "/"),
        # What looks like another way to write an address inside is that address, and not a name.
        ("http://\uff11\uff12\uff17.0.0.1/", "127.0.0.1", 80, "/"),
        ("http://127\u30020\u30020\u30021/", "127.0.0.1", 80, "/"),
        ("http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/", "localhost", 80, "/"),
        # A colon in the path is no port, and a question mark ends the host.
        ("http://a.example?b.example/x", "a.example", 80, "/?b.example/x"),
        ("http://a.example/http://b.example:80/", "a.example", 80, "/http://b.example:80/"),
    ],
)
def test_an_address_means_one_place(text: str, host: str, port: int, path: str):
    url = Url.of(text)
    assert (url.host, url.port, url.path) == (host, port, path)
    assert Origin.of(url.origin)[1:] == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "http://a.example\\@127.0.0.1/",
        "http://a.example\\.b.example/",
        "http://a.example\\/x",
        "http://127%2e0.0.1/",
        "http://a.example%00.b.example/",
        "http://a b.example/",
        "http:// a.example/",
        "http://a.example\t/",
        "http://a.exa\nmple/",
        "ht\ntp://a.example/",
        "http://a.example/x\r\nhost: b.example",
        "\x00http://a.example/",
        "http://[::1/",
        "http://[::1]b.example/",
        "http://b.example[::1]/",
        "http://[127.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "http://[a.example]/",
        "http://::1/",
        "http://a.example:80:90/",
        "http://a.example:0/",
        "http://a.example:65536/",
        "http://a.example:-1/",
        "http://a.example:+80/",
        "http://a.example:8_0/",
        "http://a.example:\u0668\u0660/",
        "http://a..example/",
        "http://.example/",
        f"http://{'a' * 64}.example/",
        "http://a.example\u2100/",
        "http://ann@a.example/",
        "http://@a.example/",
        "http://ann:secret@a.example/",
        "http://a.example/\ud800",
        "http:/a.example/",
        "http:a.example",
        "//a.example/",
        "javascript:alert(1)",
    ],
)
def test_an_address_with_anything_odd_in_it_is_refused(text: str):
    async def nobody(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host!r} was looked up")

    with pytest.raises(FetchError, match=r"cannot be read|only http and https|contains a user name") as raised:
        asyncio.run(HttpFetcher(resolve=nobody).image(text))
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=40), st.sampled_from(["http://", "https://", "http://a.example", "http://[::1]", ""]))
def test_whatever_is_written_is_one_place_or_refused(text: str, begin: str):
    try:
        url = Url.of(begin + text)
    except ValueError:
        return
    assert Origin.of(url.origin) == Origin(url.scheme, url.host, url.port)
    assert url.path.isascii()
    assert url.path.isprintable()
    assert url.path.startswith("/")
    assert " " not in url.path
    assert Url.of(url.origin + url.path) == url


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("/b", "https://a.example:8443/b"),
        ("b", "https://a.example:8443/x/b"),
        ("?c", "https://a.example:8443/x/y?c"),
        ("", "https://a.example:8443/x/y?q"),
        ("//b.example/c", "https://b.example/c"),
        ("http://b.example/c", "http://b.example/c"),
        ("/b\u00c3\u00a4", "https://a.example:8443/b\u00e4"),
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_a_redirect_is_understood_from_where_it_stands(location: str, where: str):
    assert Url.of("https://a.example:8443/x/y?q#z").joined(location) == where
