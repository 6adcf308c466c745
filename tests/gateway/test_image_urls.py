"""Images by their address, for models that take images as data only: fetched when the route needs it, from public
places only, in every pair of dialects. The images' host is a real server on loopback, which only this test allows."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from .asked import asked
from .callers import PNG, question
from .raw import error_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, PATHS, body, played, says, whole_of
from .upstream import Upstream

PAIRS = [pytest.param(*pair, id="-to-".join(pair)) for pair in itertools.product(DIALECTS, DIALECTS)]
ONLY_DATA = "facts = {image_urls = false}\n"


class Images:
    """`/dot.png` is an image, `/inside` redirects to an address that is not allowed, anything else is nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        images = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = self.connection.getsockname()[0]
                images.asked.append(host + self.path)
                place = self.path.partition("?")[0]
                self.send_response(200 if place == "/dot.png" else 302 if place == "/inside" else 404)
                data = base64.b64decode(PNG) if place == "/dot.png" else b""
                self.send_header("location", f"http://127.0.0.2:{images.port}/dot.png")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)  # 127.0.0.2 is there, too
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Images:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()

    def url(self, path: str = "/dot.png", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with Images() as images:
        yield images


@pytest.fixture(scope="module")
def web(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Engines that take only data, `strict-` ones that fetch from nowhere inside, and `able-` ones that take both."""
    tables, mark = engines(upstream), "retry = {attempts = 1}\n"
    config = '[gateway.routes]\ndefault = "c"\n'
    config += tables.replace(mark, f'{mark}{ONLY_DATA}image_networks = ["127.0.0.1/32"]\n')
    config += tables.replace("[engines.", "[engines.strict-").replace(mark, mark + ONLY_DATA)
    config += tables.replace("[engines.", "[engines.able-")
    with (
        Served(tmp_path_factory.mktemp("images"), config) as served,
        httpx2.Client(base_url=served.base_url, timeout=20) as web,
    ):
        yield web


def by_address(dialect: str, url: str) -> dict[str, Any]:
    """The same question as with an image as data, with its address instead."""
    fields = question(dialect, "What is it?", image=True)
    part = fields["input" if dialect == "openai-responses" else "messages"][0]["content"][1]
    if dialect == "anthropic":
        part["source"] = {"type": "url", "url": url}
        part["cache_control"] = {"type": "ephemeral"}
    elif dialect == "openai-chat":
        part["image_url"] = {"url": url, "detail": "low"}
    else:
        part["image_url"], part["detail"] = url, "low"
    return fields


def ask(web: httpx2.Client, dialect: str, model: str, url: str, **more: Any) -> httpx2.Response:
    return web.post(PATHS[dialect], json={"model": model, **by_address(dialect, url), **more})


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_a_model_that_takes_only_data_is_given_the_image_itself(
    caller: str, model: str, streams: bool, upstream: Upstream, images: Images, web: httpx2.Client
) -> None:
    name = upstream.plays(played(model, says("A dot."), streams or caller != model))
    got = ask(web, caller, f"{SHORT[model]}:{name}", images.url(f"/dot.png?for={name}"), stream=streams)
    assert got.status_code == 200, got.text
    assert "A dot." in (read_stream(caller, got.content).text if streams else got.text)
    seen = asked(model, upstream.visit(name).body)
    assert (seen.texts, seen.images) == (("What is it?",), (PNG,))
    assert images.asked.count(f"127.0.0.1/dot.png?for={name}") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_but_the_image_changes_in_a_request_that_is_passed_on(
    dialect: str, upstream: Upstream, images: Images, web: httpx2.Client
) -> None:
    name = upstream.plays([body(whole_of(dialect, says("A dot.")))])
    sent = {"model": f"{SHORT[dialect]}:{name}", **by_address(dialect, images.url()), "of_tomorrow": {"x": [1.5, None]}}
    got = web.post(PATHS[dialect], json=sent, headers={"anthropic-beta": "of-tomorrow"})
    assert got.status_code == 200, got.text
    visit = upstream.visit(name)
    arrived = json.loads(json.dumps(visit.body))
    field = "input" if dialect == "openai-responses" else "messages"
    part, given = arrived[field][0]["content"][1], sent[field][0]["content"][1]
    if dialect == "anthropic":
        assert part.pop("source") == {"type": "base64", "media_type": "image/png", "data": PNG}
        assert visit.headers["anthropic-beta"] == "of-tomorrow"
        given.pop("source")
    elif dialect == "openai-chat":
        assert part["image_url"].pop("url") == given["image_url"].pop("url").replace(
            images.url(), f"data:image/png;base64,{PNG}"
        )
    else:
        assert part.pop("image_url") == f"data:image/png;base64,{PNG}"
        given.pop("image_url")
    assert {**arrived, "model": ""} == {**sent, "model": ""}


@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_a_model_that_takes_addresses_is_given_the_address_and_nothing_is_fetched(
    caller: str, model: str, upstream: Upstream, images: Images, web: httpx2.Client
) -> None:
    name = upstream.plays(played(model, says("A dot."), caller != model))
    url = images.url(f"/dot.png?for={name}")
    assert ask(web, caller, f"able-{SHORT[model]}:{name}", url).status_code == 200
    assert url in json.dumps(upstream.visit(name).body)
    assert not [place for place in images.asked if name in place]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("caller", "model"), PAIRS)
@pytest.mark.parametrize(
    ("engine", "place", "why"),
    [
        pytest.param("", "http://10.0.0.1/dot.png", "a private address", id="private"),
        pytest.param("", "http://169.254.169.254/latest/meta-data", "a metadata address", id="metadata"),
        pytest.param("", "/inside", "a loopback address", id="redirect"),
        pytest.param("strict-", "http://localhost/dot.png", "a loopback address", id="name"),
        pytest.param("strict-", "/dot.png", "a loopback address", id="loopback"),
        pytest.param("", "file:///etc/passwd", "only http and https", id="file"),
        pytest.param("", "/nothing", "answered 404", id="gone"),
    ],
)
def test_an_image_from_inside_is_refused_in_the_callers_dialect_and_the_model_is_not_asked(
    engine: str, place: str, why: str, caller: str, model: str, streams: bool, upstream: Upstream, images: Images,
    web: httpx2.Client,
) -> None:  # fmt: skip
    name = upstream.plays(played(model, says("I was asked."), True))
    url = images.url(place) if place.startswith("/") else place
    got = ask(web, caller, f"{engine}{SHORT[model]}:{name}", url, stream=streams)
    kind, said = error_of(caller, got.json())
    assert (got.status_code, kind) == (400, "invalid_request_error")
    assert said.startswith(f"the image at {url!r} was not fetched: ")
    assert why in said
    assert "takes images as data only" in said
    assert upstream.count(name) == 0
    assert not [asked for asked in images.asked if asked.startswith("127.0.0.2")]


def test_a_model_further_down_the_chain_that_takes_addresses_answers_when_an_image_cannot_be_fetched(
    upstream: Upstream, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables, mark = engines(upstream), "retry = {attempts = 1}\n"
    name = upstream.plays(played("openai-chat", says("I saw it."), False))
    config = f'[gateway.routes]\ndefault = "strict-c"\n[gateway.fallback]\ndefault = ["able-c:{name}"]\n'
    config += tables.replace("[engines.", "[engines.strict-").replace(mark, mark + ONLY_DATA)
    config += tables.replace("[engines.", "[engines.able-")
    with Served(tmp_path_factory.mktemp("chain"), config) as served, httpx2.Client(base_url=served.base_url) as web:
        got = ask(web, "openai-chat", "whatever", images.url())
    assert got.status_code == 200, got.text
    assert images.url() in json.dumps(upstream.visit(name).body)


def test_words_that_look_like_an_image_are_words(upstream: Upstream, images: Images, web: httpx2.Client) -> None:
    """What a tool is called with and what people paste may hold anything; nothing of it is fetched."""
    name = upstream.plays([body(whole_of("anthropic", says("Fine.")))])
    part = {"type": "image", "source": {"type": "url", "url": images.url(f"/dot.png?for={name}")}}
    messages = [
        {"role": "user", "content": f"Look: {json.dumps(part)}"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "show", "input": {"content": [part]}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": json.dumps(part)}]},
    ]
    got = web.post("/v1/messages", json={"model": f"a:{name}", "max_tokens": 50, "messages": messages})
    assert got.status_code == 200, got.text
    assert upstream.visit(name).body["messages"] == messages
    assert not [place for place in images.asked if name in place]
