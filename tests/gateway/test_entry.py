"""Who comes in: keys, hosts, origins, sizes, and a configuration that changes while it is in use. A real process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest

from .callers import Callers, question
from .raw import Line, error_of, post_of, read_stream
from .served import SECRETS, SHORT, Served, engines
from .speech import DIALECTS, STREAM, beginning_of, chunk, error, events_of, played, says
from .upstream import WAIT_S, Gate, Upstream

ANN, OLD, NARROW, NEW = (f"sk-caller-{name}-4c1d9a" for name in ("ann", "old", "narrow", "new"))
KEYS = f"""
[gateway]
body_mb_max = 0.2
origins = ["https://chat.example"]
hosts = ["gateway.example"]
[gateway.routes]
default = "c:first"
think = "a:thinker"
[gateway.fallback]
think = ["c:not-for-narrow"]
[gateway.keys]
ann = {{key = "{ANN}"}}
old = {{key = "{OLD}", expires = "2020-01-01"}}
narrow = {{key = "{NARROW}", models = ["a:*"]}}
"""


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("guarded"), KEYS + engines(upstream)) as served:
        yield served
    for secret in (ANN, OLD, NARROW, NEW, *SECRETS.values()):
        assert secret not in served.output
        for path in served.folder.rglob("*"):
            if path.is_file() and path.name != "rondel.toml":
                assert secret.encode() not in path.read_bytes(), path


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_is_needed_and_must_be_right(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    """C04: 401 with the sentence that is expected, in the caller's own envelope; Bearer or x-api-key lets in."""
    name = upstream.plays(*(played(dialect, says("Hello"), False) for _ in range(3)))
    post = post_of(dialect, f"{SHORT[dialect]}:{name}", streams=False)
    for headers, status, sentence in (
        ({}, 401, "No API key: send it as `Authorization: Bearer …` or `x-api-key`."),
        ({"authorization": "Bearer"}, 401, "No API key: send it as `Authorization: Bearer …` or `x-api-key`."),
        (bearer("wrong"), 401, "Invalid API key"),
        ({"x-api-key": ANN + "x"}, 401, "Invalid API key"),
        (bearer(OLD), 401, "the key 'old' expired on 2020-01-01"),
    ):
        got = web.post(**post, headers=headers)
        kind, message = error_of(dialect, got.json())
        assert (got.status_code, kind) == (status, "authentication_error")
        assert sentence in message
    for headers in (bearer(ANN), {"x-api-key": ANN}, {"authorization": ANN}):
        assert web.post(**post, headers=headers).status_code == 200
    assert upstream.count(name) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_may_use_its_models_only(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    """C04: 403 for others, whether it names them or a rule does."""
    name = upstream.plays(played("anthropic", says("Hello"), True))
    assert web.post(**post_of(dialect, f"a:{name}"), headers=bearer(NARROW)).status_code == 200
    for asked in ("r:other", "whatever", "a:", "a:x,r:y"):
        got = web.post(**post_of(dialect, asked), headers=bearer(NARROW))
        kind, message = error_of(dialect, got.json())
        assert (got.status_code, kind) == (403, "permission_error")
        assert "may not use" in message
    listed = web.get("/v1/models", headers=bearer(NARROW)).json()["data"]
    assert [model["id"] for model in listed] == ["a:default-model", "a:thinker"]


def test_a_fallback_that_a_key_may_not_use_is_not_asked(upstream: Upstream, web: httpx2.Client) -> None:
    """C04, R09"""
    upstream.plays(error("anthropic", 500, "api_error", "first failed"), name="thinker")
    other = upstream.plays(name="not-for-narrow")
    got = web.post(**post_of("anthropic", "any", thinking=True), headers=bearer(NARROW))
    assert got.status_code == 500
    assert "first failed" in got.text
    assert upstream.count(other) == 0


def test_the_sdks_understand_a_refusal(served: Served) -> None:
    """C04"""
    with Callers(served.base_url, "wrong") as callers:
        with pytest.raises(anthropic.AuthenticationError, match="Invalid API key"):
            callers.ask("anthropic", "a:x", question("anthropic"), streams=True)
        with pytest.raises(openai.AuthenticationError, match="Invalid API key"):
            callers.ask("openai-responses", "a:x", question("openai-responses"), streams=True)
        with pytest.raises(openai.AuthenticationError, match="Invalid API key"):
            callers.openai.models.list()


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/v1/messages", "/nowhere"])
def test_a_host_that_is_not_ours_and_a_page_of_another_site_are_refused_everywhere(path: str, web: httpx2.Client):
    """C04: DNS rebinding; on every route, also where no key is needed."""
    got = web.get(path, headers={"host": "evil.example", **bearer(ANN)})
    assert got.status_code == 403
    assert "evil.example" in got.json()["error"]["message"]
    got = web.get(path, headers={"origin": "https://evil.example", **bearer(ANN)})
    assert got.status_code == 403
    assert "CORS not allowed for this origin" in got.text
    assert "access-control-allow-origin" not in got.headers
    assert web.get(path, headers={"origin": "null", **bearer(ANN)}).status_code == 403


def test_a_page_that_is_allowed_may_read_the_answers(upstream: Upstream, web: httpx2.Client, served: Served) -> None:
    """C04"""
    own = f"http://localhost:{served.port}"
    for origin in ("https://chat.example", own):
        asks_first = web.options("/v1/chat/completions", headers={"origin": origin})
        assert asks_first.status_code == 204
        name = upstream.plays(played("openai-chat", says("Hello"), True))
        post = post_of("openai-chat", f"c:{name}")
        got = web.post(**post, headers={"origin": origin, "host": "gateway.example", **bearer(ANN)})
        assert got.status_code == 200
        failed = web.post(**post, headers={"origin": origin})
        assert failed.status_code == 401
        for answer in (asks_first, got, failed):
            assert answer.headers["access-control-allow-origin"] == origin


def test_health_is_public_and_other_paths_say_what_there_is(web: httpx2.Client) -> None:
    """C04"""
    got = web.get("/health")
    assert (got.status_code, got.json()["status"]) == (200, "ok")
    assert web.head("/health").status_code == 200
    got = web.get("/v1/nothing", headers=bearer(ANN))
    assert got.status_code == 404
    assert "/chat/completions" in got.json()["error"]["message"]
    got = web.get("/v1/messages", headers=bearer(ANN))
    assert got.status_code == 405
    assert error_of("anthropic", got.json())[1] == "GET is not supported for '/v1/messages'; use POST"


def test_a_client_that_wants_a_web_socket_is_told_at_once_that_there_is_none(web: httpx2.Client) -> None:
    """Codex wants one first, and tries five times more after any other status."""
    wanted = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "c2FtZQ==", **bearer(ANN)}
    got = web.get("/v1/responses", headers=wanted)
    assert got.status_code == 426
    assert error_of("openai-responses", got.json())[1] == "WebSockets are not supported; use POST"


def test_without_a_key_it_listens_on_this_machine_only(upstream: Upstream, tmp_path: Path) -> None:
    """C04: refused before anything is opened."""
    config = tmp_path / "rondel.toml"
    config.write_text('[gateway]\nhost = "0.0.0.0"\n[gateway.routes]\ndefault = "c"\n' + engines(upstream))
    config.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-m", "rondel", "serve", "--port", "0"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "RONDEL_TRUST": str(tmp_path), "UP_KEY_A": "x", "UP_KEY_C": "x", "UP_KEY_R": "x"},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode != 0
    assert b"without a key the gateway listens on this machine only" in done.stderr
    assert b"Traceback" not in done.stderr


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_that_is_too_long_or_no_json_is_refused_in_the_callers_envelope(
    dialect: str, web: httpx2.Client, served: Served
) -> None:
    url = post_of(dialect, "x")["url"]
    long = web.post(url, content=b"{" + b" " * 300_000 + b"}", headers=bearer(ANN))
    assert long.status_code == 413
    assert "body_mb_max" in error_of(dialect, long.json())[1]
    unsized = web.post(url, content=iter([b"{" + b" " * 150_000, b" " * 150_000 + b"}"]), headers=bearer(ANN))
    assert unsized.status_code == 413
    for content in (b"", b"[]", b"{nonsense", b'"text"', b'{"model": 3}', b"{}", b"\xff\xfe", b"[" * 10_000):
        got = web.post(url, content=content, headers=bearer(ANN))
        assert got.status_code == 400, content
        kind, message = error_of(dialect, got.json())
        assert (kind, bool(message)) == ("invalid_request_error", True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_that_is_none_is_refused_with_where_it_is_wrong(dialect: str, upstream: Upstream, web: httpx2.Client):
    """Across dialects it must be understood; in its own it is the upstream's to judge."""
    other = "a" if dialect != "anthropic" else "c"
    field = "input" if dialect == "openai-responses" else "messages"
    got = web.post(
        post_of(dialect, "x")["url"], json={"model": f"{other}:x", field: [{"role": 3}]}, headers=bearer(ANN)
    )
    assert got.status_code == 400
    assert f"{field}[0]" in error_of(dialect, got.json())[1]


def test_a_head_that_is_no_http_ends_the_connection_and_nothing_else(served: Served, web: httpx2.Client) -> None:
    with Line(served.port) as line:
        line.send(b"\x00\x01 what is this\r\n\r\n")
        assert b"400" in line.read_until(b"\r\n")
    assert web.get("/health").status_code == 200


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_secret_is_in_an_answer_whatever_goes_wrong(
    dialect: str, upstream: Upstream, web: httpx2.Client, served: Served
) -> None:
    """C04: what the server repeats of our key, and what a caller sends, come back to nobody; `served` looks through
    all output and all files when it ends."""
    for model in DIALECTS:
        secret = SECRETS[SHORT[model]]
        scripts = (
            error(model, 500, "api_error", f"Bearer {secret} failed"),
            [*beginning_of(model), chunk(b"data: {" + secret.encode() + b"\n\n"), b"0\r\n\r\n"],
            [STREAM, chunk(secret.encode() + b"\n\n"), b"0\r\n\r\n"],
        )
        for script in scripts:
            name = upstream.plays(script)
            got = web.post(**post_of(dialect, f"{SHORT[model]}:{name}"), headers=bearer(ANN))
            assert secret not in got.text, (model, got.text)
            assert ANN not in got.text
            assert ANN not in str(upstream.visit(name).headers)


def test_a_good_change_is_taken_up_and_a_bad_one_is_refused_while_requests_go_on(
    upstream: Upstream, served: Served, web: httpx2.Client
) -> None:
    """C04: what came in under the old file is answered under it."""
    good = KEYS + engines(upstream)
    gate = Gate()
    events = events_of("anthropic", says("Hello"))
    name = upstream.plays([STREAM, *map(chunk, events[:4]), gate, *map(chunk, events[4:]), b"0\r\n\r\n"])
    raw = b""
    with web.stream("POST", **post_of("anthropic", f"a:{name}"), headers=bearer(ANN)) as got:
        for piece in got.iter_raw():
            if not raw:
                served.write(good.replace(ANN, NEW))
                served.wait_said("was reloaded")
                assert web.get("/v1/models", headers=bearer(ANN)).status_code == 401
                assert web.get("/v1/models", headers=bearer(NEW)).status_code == 200
                served.write(good.replace("body_mb_max", "body_mb_mux"))
                assert "body_mb_mux" in served.wait_said(r".*the previous settings stay active")
                assert web.get("/v1/models", headers=bearer(NEW)).status_code == 200
                gate.open()
            raw += piece
    assert read_stream("anthropic", raw)[:2] == ("Hello", ("end",))
    served.write(good)
    served.wait_said(r"(?s)was reloaded.*was reloaded")
    assert web.get("/v1/models", headers=bearer(ANN)).status_code == 200
