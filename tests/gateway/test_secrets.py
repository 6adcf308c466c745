"""No secret of the configuration leaves the gateway, whatever an upstream repeats of it. A real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.forked import run_rondel
from tests.helpers import rest_slow

from .raw import post_of
from .served import SECRETS, SHORT, Served, engines
from .speech import (
    DIALECTS,
    END,
    STREAM,
    Call,
    body,
    calls,
    chunk,
    envelope,
    error,
    error_event,
    events_of,
    says,
    whole_of,
)
from .upstream import WAIT_S, Upstream

HEADER, TOKEN, QUERY = "canary/of-a-header-5b1e", "canary-of-a-token-77aa", "canary-of-a-query-90cd"
COOKIE = "dXNlcjpjYW5hcnktb2YtYmFzaWMtMmY="  # `user:canary-of-basic-2f`, as a header of basic authentication has it
CANARIES = (HEADER, TOKEN, QUERY, COOKIE, "canary-of-basic-2f", *SECRETS.values())


def config(upstream: Upstream) -> str:
    headers = f'{{x-team-pass = "{HEADER}", x-token = "Bearer {TOKEN}", x-proxy = "Basic {COOKIE}"}}'
    return "".join(
        line + (f"headers = {headers}\n" if line.startswith("key = ") else "")
        for line in engines(upstream).replace('"\ndialect', f'?code={QUERY}"\ndialect').splitlines(keepends=True)
    )


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("leaky"), config(upstream)) as served:
        yield served
        name = upstream.plays(echoes("anthropic", SECRETS["a"], streams=True)[0])
        rondel(served, "run", "rondel", "Hi", "--engine", f"a:{name}")  # so that there is a trace to look at
        upstream.visit(name)
    files = [path for path in served.folder.rglob("*") if path.is_file() and path.name != "rondel.toml"]
    assert any(path.suffix == ".jsonl" for path in files), "it kept a log"
    shown = served.output
    for arguments in (
        ["trace", "last", "--json"],
        ["trace", "last", "--html"],
        ["usage"],
        ["usage", "--json"],
        ["logs"],
        ["config"],
    ):
        shown += rondel(served, *arguments)
    for canary in CANARIES:
        assert canary not in shown
        for path in files:
            assert canary.encode() not in path.read_bytes(), path


def rondel(served: Served, *arguments: str) -> str:
    env = {"HOME": str(served.folder / "home"), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    env |= {"RONDEL_TRUST": str(served.folder)}
    env |= {f"XDG_{kind}_HOME": str(served.folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    env |= {f"UP_KEY_{name.upper()}": secret for name, secret in SECRETS.items()}
    done = run_rondel(*arguments, cwd=served.folder, env=env, stdin=b"", timeout_s=WAIT_S)
    assert done.returncode == (1 if arguments[0] == "run" and b"rondel: " in done.stderr else 0), done.stderr
    return (done.stdout + done.stderr).decode()


def echoes(model: str, canary: str, streams: bool) -> list[list[Any]]:
    """Answers of an upstream that repeats what it should not."""
    again = {"x_request_id": canary, "request_id": f"Bearer {canary}", "x_ratelimit_limit_requests": canary}
    named = [event.replace(b"upstream-model", canary.encode()) for event in events_of(model, says("Hello"))]
    right = [body({**whole_of(model, says("Hello")), "model": canary, "id": f"id-{canary}"}, **again)]
    scripts: list[list[Any]] = [
        [STREAM.replace(b"\r\n\r\n", f"\r\nx-request-id: {canary}\r\n\r\n".encode()), *map(chunk, named), END]
        if streams
        else right,
        error(model, 500, canary, "an error's code", **again),
        error(model, 400, "invalid_request_error", f"bad header {canary}", retry_after="1", **again),
        error(model, 401, "authentication_error", f"wrong key {canary}"),
        [body({**envelope(model, "api_error", "x"), canary: f"https://x/?key={canary}"}, 529)],
        [body(canary, 503)],
        [body(json.dumps({**whole_of(model, says("Hello")), "model": canary}).replace("/", "\\/").encode())],
        [f"HTTP/1.1 302 x\r\nlocation: https://else/?k={canary}\r\ncontent-length: 0\r\n\r\n".encode()],
    ]
    if streams:
        scripts.append([STREAM, *map(chunk, named[:-2]), chunk(b"data: {broken\n\n"), END])
        called = b"".join(events_of(model, calls(Call(f"call-{canary}", f"do-{canary}", {}))))
        pieces = called.replace(canary.encode(), canary.encode()[:9] + b"\0" + canary.encode()[9:]).split(b"\0")
        scripts.append([STREAM, *map(chunk, pieces), END])
        failing = [*map(chunk, named[:-2]), chunk(error_event(model, canary, f"it was {canary}")), END]
        scripts.append([STREAM, *failing])
    return scripts


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("dialect", rest_slow(DIALECTS))
def test_no_secret_comes_back_that_an_upstream_repeats(dialect: str, streams: bool, upstream: Upstream, served: Served):
    """Trust 14: as a model's name, an error's code or words, a header, a redirect; `served` looks through all files."""
    with httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
        for model in DIALECTS:
            for canary in (SECRETS[SHORT[model]], HEADER, TOKEN, QUERY, "canary-of-basic-2f"):
                for script in echoes(model, canary, streams):
                    name = upstream.plays(script)
                    got = web.post(**post_of(dialect, f"{SHORT[model]}:{name}", streams=streams))
                    upstream.visit(name)
                    assert canary not in got.text.replace("\\/", "/"), (model, got.text)
                    assert canary not in str(got.headers), (model, got.headers)


def test_no_secret_is_printed_or_kept_by_a_run(upstream: Upstream, served: Served) -> None:
    """Trust 14: `rondel run` prints errors and events, and its journal keeps models' names; `served` looks there."""
    canary = SECRETS["a"]
    for script, more in zip(echoes("anthropic", canary, streams=True), (["--json"], []), strict=False):
        name = upstream.plays(script)
        assert canary not in rondel(served, "run", "rondel", "Hi", "--engine", f"a:{name}", *more)
        upstream.visit(name)
