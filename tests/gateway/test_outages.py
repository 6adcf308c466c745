"""An upstream that is down is not asked again with every request: a real gateway, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path

import httpx2
import pytest

from rondel.errors import EngineDenied, EngineError, EngineOverloaded, EngineTimeout, EngineUnreachable, PromptRejected
from rondel.gateway.routing.outages import BASE_S, ENTRIES_MAX, MAX_S, Candidate, Outages
from rondel.testing import Echo, VirtualClock
from rondel.testing.png import draw_png
from tests.engines.scripted_http import ScriptedServer, answer
from tests.forked import run_rondel

from .raw import error_of, post_of
from .served import KEPT, SHORT, Served, engines
from .speech import DIALECTS, error, played, says
from .upstream import WAIT_S, Reset, Upstream

ECHO = Echo()


def config(upstream: Upstream, dialect: str, name: str, more: str = "") -> str:
    down = f'[engines.down]\nbase_url = "{upstream.url(dialect)}"\ndialect = "{dialect}"\nmodel = "{name}"\nkey = "k"\n'
    down += "retry = {attempts = 3, base_s = 0.01}\n"
    routes = f'[gateway.routes]\ndefault = "down"\n[gateway.fallback]\ndefault = ["{SHORT[dialect]}:up-{dialect}"]\n'
    return more + routes + down + engines(upstream)


@pytest.mark.parametrize("path", ["embeddings", "images/generations"])
async def test_an_engine_that_does_not_chat_and_is_down_costs_one_request_too(path: str, tmp_path: Path) -> None:
    """Trust 26: embedders and image engines have fallbacks as well."""
    usage = {"input_tokens": 9, "output_tokens": 9, "prompt_tokens": 9, "total_tokens": 9}
    made = {"embedding": [1, 0], "index": 0, "b64_json": base64.b64encode(draw_png("8x8")).decode()}
    fine = answer(json.dumps({"model": "m", "data": [made], "usage": usage}))
    scripts = [[answer("{}", 503, retry_after="60")], [fine], [fine]]
    async with ScriptedServer(*scripts) as server:
        routes = '[gateway.routes]\nembedding = "up:first"\n[gateway.fallback]\nembedding = ["up:spare"]\n'
        images = '[images]\nengine = "up:first"\nfallback = ["up:spare"]\n'
        up = f'[engines.up]\nbase_url = "{server.url}"\nretry = {{attempts = 1}}\n'

        def ask() -> None:
            with Served(tmp_path / "p", f'engine = "echo"\n{images}{routes}{up}') as served:
                for _ in range(2):
                    body = {"model": "any", "input": "x", "prompt": "x"}
                    got = httpx2.post(f"{served.base_url}/v1/{path}", json=body, timeout=WAIT_S)
                    assert got.status_code == 200, got.text

        await asyncio.to_thread(ask)
    assert [request.body["model"] for request in server.requests] == ["first", "spare", "spare"]


@pytest.mark.parametrize("caller", DIALECTS)
@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
def test_an_upstream_that_is_down_costs_one_request_and_not_each(
    caller: str, dialect: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Trust 26: relayed or not, it is skipped until it is due again, and the answer says so."""
    name = upstream.plays(*([Reset()] for _ in range(6)))
    up = upstream.plays(*(played(dialect, says("Hello"), True) for _ in range(3)), name=f"up-{dialect}")
    with (
        Served(tmp_path, config(upstream, dialect, name)) as served,
        httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web,
    ):
        first = web.post(**post_of(caller, "any"))
        assert (first.status_code, first.headers["x-rondel-attempts"]) == (200, "2")
        assert upstream.count(name) == 3
        for _ in range(2):
            got = web.post(**post_of(caller, "any"))
            assert (got.status_code, got.headers["x-rondel-attempts"]) == (200, "1")
            assert got.headers["x-rondel-model"] == f"{SHORT[dialect]}:{up}"
            assert f"'down:{name}' was not asked: it was unreachable" in got.headers["x-rondel-warning"]
        assert (upstream.count(name), upstream.count(up)) == (3, 3)
        status = web.get("/status").json()
        assert status["requests"] == 0
        (down,) = status["engines"]
        assert (down["engine"], down["failures"], down["why"]) == (f"down:{name}", 1, "unreachable")
        assert 0 < down["retry_in_s"] <= BASE_S
        # With no alternative it is asked: the caller named it, and everything else failed.
        upstream.plays(error(dialect, 500, "api_error", "spare failed"), name=up)
        got = web.post(**post_of(caller, "any"))
        assert upstream.count(name) == 6
        assert got.status_code == 502
        assert "spare failed" not in error_of(caller, got.json())[1]


@pytest.mark.slow
def test_status_is_a_command_and_asks_for_a_key(upstream: Upstream, tmp_path: Path) -> None:
    """Trust 26: `rondel status` shows what a running gateway knows; a key sees what it may use."""
    name = upstream.plays(*([Reset()] for _ in range(3)))
    upstream.plays(*(played("anthropic", says("Hello"), True) for _ in range(3)), name="up-anthropic")
    keys = (
        '[gateway]\nport = {port}\n[gateway.keys]\nann = {{key = "ann-key-long-enough"}}\n'
        'bob = {{key = "bob-key-long-enough", models = ["c"]}}\n'
    )
    with Served(tmp_path, config(upstream, "anthropic", name, keys.format(port=0))) as served:
        served.write(config(upstream, "anthropic", name, keys.format(port=served.port)))
        served.wait_said("was reloaded")
        ann = {"x-api-key": "ann-key-long-enough"}
        with httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
            assert web.post(**post_of("anthropic", "any"), headers=ann).status_code == 200
            assert web.get("/status").status_code == 401
            assert web.get("/status", headers={"x-api-key": "bob-key-long-enough"}).json()["engines"] == []

        def status(*arguments: str) -> str:
            env = {key: os.environ[key] for key in KEPT if key in os.environ}
            env |= {f"UP_KEY_{short.upper()}": "k" for short in SHORT.values()}
            env |= {"HOME": str(tmp_path / "home"), "RONDEL_TRUST": str(tmp_path)}
            done = run_rondel("status", *arguments, cwd=tmp_path, env=env, stdin=b"", timeout_s=WAIT_S)
            assert done.returncode == 0, done.stderr
            return done.stdout.decode()

        said = status()
        assert served.base_url in said
        assert "down" in said
        assert "unreachable" in said
        assert json.loads(status("--json"))["engines"][0]["engine"] == f"down:{name}"
        assert json.loads(status("--json", "--key", "bob"))["engines"] == []


def test_status_without_a_gateway_is_one_sentence(tmp_path: Path) -> None:
    """Trust 26"""
    (tmp_path / "rondel.toml").write_text('engine = "echo"\n[gateway]\nport = 9\n')
    env = {key: os.environ[key] for key in KEPT if key in os.environ}
    env |= {"HOME": str(tmp_path), "RONDEL_TRUST": str(tmp_path)}
    done = run_rondel("status", cwd=tmp_path, env=env, stdin=b"", timeout_s=WAIT_S)
    assert done.returncode == 1
    assert b"no gateway is running at http://127.0.0.1:9" in done.stderr


# --- with a clock that is moved by hand -------------------------------------------------------------------------------


def accounts(*names: str) -> list[Candidate]:
    return [Candidate(ECHO, name) for name in names]


def order(outages: Outages, *names: str) -> tuple[str, ...]:
    return tuple(candidate.account for candidate in outages.order(accounts(*names))[0])


def test_the_pause_doubles_and_one_request_tries_again() -> None:
    """Trust 26: half open: one request asks it, the others still do not; a success forgets everything."""
    clock = VirtualClock()
    outages = Outages(clock.now)
    pause_s = BASE_S
    for _ in range(12):
        outages.failed("a:x", EngineTimeout("slow"))
        assert order(outages, "a:x", "b:y") == ("b:y", "a:x")
        clock.advance(pause_s - 0.01)
        assert order(outages, "a:x", "b:y") == ("b:y", "a:x")
        clock.advance(0.02)
        assert order(outages, "a:x", "b:y") == ("a:x", "b:y"), "it is due"
        assert order(outages, "a:x", "b:y") == ("b:y", "a:x"), "one request is enough to find out"
        pause_s = min(2 * pause_s, MAX_S)
    outages.answered("a:x")
    assert order(outages, "a:x", "b:y") == ("a:x", "b:y")
    assert outages.all() == []
    outages.failed("a:x", EngineTimeout("slow"))
    clock.advance(BASE_S + 0.01)
    assert order(outages, "a:x", "b:y") == ("a:x", "b:y"), "the pause is short again"


def test_with_no_alternative_it_is_asked() -> None:
    """Trust 26"""
    outages = Outages(VirtualClock().now)
    for name in ("a:x", "b:y"):
        outages.failed(name, EngineUnreachable("gone"))
    assert outages.order(accounts("a:x")) == (accounts("a:x"), ())
    assert order(outages, "a:x", "b:y") == ("a:x", "b:y")


@pytest.mark.parametrize(
    ("failure", "skipped"),
    [
        (EngineUnreachable("gone"), ("a:x",)),
        (EngineTimeout("slow"), ("a:x",)),
        (EngineOverloaded("busy", retry_after_s=30.0), ("a:x",)),
        (EngineOverloaded("busy"), ()),
        (EngineDenied("no key"), ()),
        (PromptRejected("too long"), ()),
    ],
)
def test_what_is_remembered(failure: EngineError, skipped: tuple[str, ...]) -> None:
    """Trust 26: what costs time, or what a server asked for; other models of the same account are still asked."""
    outages = Outages(VirtualClock().now)
    outages.failed("a:x", failure)
    found = tuple(name for name in ("a:x", "a:z") if order(outages, name, "b:y") == ("b:y", name))
    assert found == skipped


def test_a_server_says_how_long_and_an_error_that_comes_back_counts() -> None:
    """Trust 26"""
    clock = VirtualClock()
    outages = Outages(clock.now)
    outages.failed("a:x", EngineOverloaded("busy", retry_after_s=40.0))
    clock.advance(39.0)
    assert order(outages, "a:x", "b:y") == ("b:y", "a:x")
    outages.failed("c:x", EngineOverloaded("500"))
    assert order(outages, "c:x", "b:y") == ("c:x", "b:y")
    outages.failed("c:x", EngineOverloaded("500"))
    assert order(outages, "c:x", "b:y") == ("b:y", "c:x")
    outages.failed("d:x", EngineOverloaded("busy", retry_after_s=1e9))
    assert max(outage.until for outage in outages.all()) <= clock.now() + MAX_S


def test_it_can_be_turned_off() -> None:
    """Trust 26: `cool_down_s = 0`."""
    outages = Outages(VirtualClock().now, 0.0)
    outages.failed("a:x", EngineTimeout("slow"))
    assert order(outages, "a:x", "b:y") == ("a:x", "b:y")
    assert outages.all() == []


def test_what_is_remembered_is_bounded() -> None:
    """Trust 26: callers may name any model."""
    outages = Outages(VirtualClock().now)
    for n in range(ENTRIES_MAX + 50):
        outages.failed(f"a:{n}", EngineTimeout("slow"))
    assert len(outages.all()) == ENTRIES_MAX
