"""Upstreams that never end: limits hold while a reply streams, and nothing fills the memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.helpers import rest_slow

from .raw import post_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, STREAM, Answer, Call, Say, Spent, Think, chunk, events_of
from .upstream import WAIT_S, Flood, Upstream

REPLY_TOKENS = 5_000
READ_BYTES = 256 * 1024  # What has arrived when a limit is reached is passed on
MB = 1_000_000
KINDS = ("text", "thinking", "arguments", "nothing", "comments")
LAST = {"text": b'"Z"', "thinking": b'"Z"', "arguments": b'Z\\"}"', "nothing": b'"Z"', "comments": b'"Z"'}
PARTS = {"thinking": Think("XYZ"), "arguments": Call("c1", "look", {"at": "Z"})}


def endless(dialect: str, kind: str, text: str) -> list[Any]:
    """An answer that goes on for ever with one kind of thing, in pieces of this text."""
    events = events_of(dialect, Answer((PARTS.get(kind, Say("XYZ")),), spent=Spent(fresh=100)))
    more = next(n for n, event in enumerate(events) if LAST[kind] in event and b".done" not in event)
    said = json.dumps("" if kind == "nothing" else text).encode()
    piece = events[more].replace(LAST[kind], said[1:] if kind == "arguments" else said)
    piece = b": " + b"x" * 1_000 + b"\n\n" if kind == "comments" else piece
    many = chunk(piece * max(1, 20_000 // len(piece)))
    return [STREAM, *map(chunk, events[:more]), Flood(many, 1_000_000)]


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read in /proc")


@pytest.fixture(scope="module")
def bounded(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = f'[limits]\nreply_tokens = {REPLY_TOKENS}\n[gateway.routes]\ndefault = "c"\n' + engines(upstream)
    with Served(tmp_path_factory.mktemp("endless"), config) as served:
        yield served


@pytest.fixture(scope="module")
def budgeted(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    names = ("openai-chat", "anthropic")
    keys = [f'[gateway.keys.{name}]\nkey = "{name}-{"x" * 20}"\nbudget = {{tokens = 3000}}\n' for name in names]
    config = '[gateway.routes]\ndefault = "c"\n' + engines(upstream) + "".join(keys)
    with Served(tmp_path_factory.mktemp("budgeted"), config) as served:
        yield served


def asked(served: Served, caller: str, model: str, *, key: str = "", **fields: Any) -> bytes:
    """What comes of a request; nothing may take longer than a test waits."""
    post = post_of(caller, model)
    post["json"] |= fields
    raw = b""
    web = httpx2.Client(base_url=served.base_url, timeout=WAIT_S)
    with web, web.stream("POST", **post, headers=auth(key)) as got:
        assert got.status_code == 200
        for piece in got.iter_raw():
            raw += piece
            assert len(raw) < 40 * MB
    return raw


def auth(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}-{'x' * 20}"} if key else {}


@pytest.mark.parametrize("kind", rest_slow(KINDS))
@pytest.mark.parametrize(
    ("caller", "model"),
    [*zip(DIALECTS, DIALECTS, strict=True), *zip(DIALECTS, DIALECTS[1:] + DIALECTS[:1], strict=True)],
)
def test_an_endless_answer_is_cut_off(caller: str, model: str, kind: str, upstream: Upstream, bounded: Served) -> None:
    """Trust 16: text, thinking, arguments, empty deltas and comments, relayed and through the loop."""
    name = upstream.plays(endless(model, kind, "word " * 10))
    before = peak_bytes(bounded.pid)
    raw = asked(bounded, caller, f"{SHORT[model]}:{name}")
    visit = upstream.visit(name)
    visit.wait_left()
    assert visit.bytes_sent < 45 * MB
    assert peak_bytes(bounded.pid) < before + 60 * MB
    read = read_stream(caller, raw)
    assert len(read.ends) == 1
    if caller == model:
        assert read.ends == ("error",)
        assert "was cut off" in read.error
    if kind == "text":
        assert 4 * REPLY_TOKENS < len(read.text) < 4 * REPLY_TOKENS + READ_BYTES


@pytest.mark.parametrize("caller", DIALECTS)
def test_an_answer_far_past_its_tokens_max_is_cut_off(caller: str, upstream: Upstream, bounded: Served) -> None:
    """Trust 16: a server that ignores how long an answer may be."""
    name = upstream.plays(endless(caller, "text", "word " * 10))
    field = {"anthropic": "max_tokens", "openai-chat": "max_completion_tokens", "openai-responses": "max_output_tokens"}
    raw = asked(bounded, caller, f"{SHORT[caller]}:{name}", **{field[caller]: 50})
    read = read_stream(caller, raw)
    assert (read.ends, "options.tokens_max" in read.error) == (("error",), True)
    assert len(read.text) < 4 * (4_096 + 200) + READ_BYTES


@pytest.mark.parametrize(("caller", "model"), [("openai-chat", "openai-chat"), ("anthropic", "openai-chat")])
def test_a_budget_holds_while_an_answer_streams(caller: str, model: str, upstream: Upstream, budgeted: Served) -> None:
    """Trust 16: what a blocking limit has left is all that is said."""
    name = upstream.plays(endless(model, "text", "word " * 10), endless(model, "text", "word " * 10))
    raw = asked(budgeted, caller, f"{SHORT[model]}:{name}", key=caller)
    read = read_stream(caller, raw)
    if caller == model:  # bytes that are relayed have no end of ours
        assert read.ends == ("error",)
        assert f"token limit of 3,000 for key {caller}" in read.error
    else:
        assert read.ends == ("end",)
        assert b'"stop_reason":"max_tokens"' in raw
    assert len(read.text) < 4 * (3_000 + 4_096) + READ_BYTES
    with httpx2.Client(base_url=budgeted.base_url, timeout=WAIT_S) as web:
        again = web.post(**post_of(caller, f"{SHORT[model]}:{name}"), headers=auth(caller))
    assert again.status_code == 429


RUN = """
import re, sys
from rondel.cli.main import main
try:
    main()
finally:  # of this program alone: getrusage also counts the process that started it
    status = open("/proc/self/status").read()
    print("peak", re.search(r"VmHWM:\\s+(\\d+) kB", status)[1], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("kind", "model"),
    rest_slow(
        [*(("text", one) for one in DIALECTS), *zip(("thinking", "arguments", "nothing"), DIALECTS, strict=True)]
    ),
)
def test_an_endless_answer_ends_a_turn_with_a_limit_that_has_a_name(
    kind: str, model: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Trust 16: with the defaults, in a process of its own: 1.1 GB in 12 seconds it was. What was said stays."""
    name = upstream.plays(endless(model, kind, "word " * 800))
    config = f'engine = "{SHORT[model]}:{name}"\n' + engines(upstream)
    (tmp_path / "rondel.toml").write_text(config, encoding="utf-8")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "RONDEL_TRUST": str(tmp_path)}
    env |= {f"UP_KEY_{short.upper()}": "k" for short in SHORT.values()}
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "run", "rondel", "Hi", "--json"],
        cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    said, told = ran.stdout.decode(), ran.stderr.decode()
    peak = int(told.rpartition("peak ")[2]) * 1024
    assert peak < 350 * MB, (model, peak)
    # Of empty deltas some dialects make nothing at all: there the answer is cut off for its size.
    name_of_limit = "was cut off" if kind == "nothing" else "limits.reply_tokens"
    assert name_of_limit in said + told, (model, said[-2000:], told[-2000:])
    upstream.visit(name).wait_left()
