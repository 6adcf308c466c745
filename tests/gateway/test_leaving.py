"""Callers that leave, that do not read, and that wait: the upstream is closed at once, held back, or waited for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from . import speech
from .asked import asked
from .callers import Callers, question
from .raw import Line, post_of, read_stream
from .served import SHORT, Served, engines
from .upstream import WAIT_S, Flood, Gate, Mark, Script, Silence, Upstream

PAIRS = tuple(itertools.product(speech.DIALECTS, speech.DIALECTS))
LEAVERS = 300


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = '[gateway]\nplugins = ["lender:Lender"]\nping_s = 0.1\n[gateway.routes]\ndefault = "c"\n' + engines(
        upstream
    )
    files = {"lender.py": Path(__file__).with_name("lender.py").read_text(encoding="utf-8")}
    with Served(tmp_path_factory.mktemp("leaving"), config, files=files) as served:
        yield served


# --- who leaves -------------------------------------------------------------------------------------------------------

PHASES = ("before_headers", "before_the_first_token", "in_mid_stream", "whole_before_headers", "whole_in_the_body")


def _script(phase: str, caller: str, model: str, mark: Mark) -> Script:
    if phase.endswith("headers"):
        return [mark, Silence()]
    if phase == "before_the_first_token":
        return [*speech.silent_beginning_of(model), mark, Silence()]
    if phase == "whole_in_the_body" and caller == model:
        return [speech.head(200, "application/json"), b'{"id": "x", ', mark, Silence()]
    return [*speech.beginning_of(model), mark, Silence()]


def leave(phase: str, caller: str, model: str, upstream: Upstream, port: int, text: str = "Hi") -> None:
    mark = Mark()
    name = upstream.plays(_script(phase, caller, model, mark), name=f"{phase}-{caller}-{model}-{len(text)}")
    with Line(port) as line:
        line.post(**post_of(caller, f"{SHORT[model]}:{name}", streams=not phase.startswith("whole"), text=text))
        mark.wait_reached()
        if phase == "in_mid_stream":
            assert b"200 OK" in line.read_until(b"H")
    upstream.visit(name).wait_left()


@pytest.mark.parametrize("text", ["Hi", "[inject] Hi"], ids=["plain", "injected"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_caller_that_leaves_closes_the_upstream_at_once(phase: str, text: str, upstream: Upstream, served: Served):
    """X04: in every phase, streamed or whole, relayed or through the loop."""
    with ThreadPoolExecutor(len(PAIRS)) as pool:
        list(pool.map(lambda pair: leave(phase, *pair, upstream, served.port, text), PAIRS))


def test_a_caller_that_leaves_in_the_second_round_closes_it(upstream: Upstream, served: Served) -> None:
    for model in speech.DIALECTS:
        name = upstream.plays(
            speech.stream(model, speech.calls(speech.Call("l1", "add", {"a": 1, "b": 1}), saying="Let me see.")),
            [*speech.beginning_of(model), Silence()],
        )
        with Line(served.port) as line:
            line.post(**post_of("anthropic", f"{SHORT[model]}:{name}", text="[inject] Hi"))
            second = upstream.visits(name, 2)[1]
        second.wait_left()


# --- who does not read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", speech.DIALECTS)
@pytest.mark.parametrize("caller", ["anthropic", "openai-responses"])
def test_a_caller_that_does_not_read_holds_the_upstream_back(
    caller: str, model: str, upstream: Upstream, served: Served, web: httpx2.Client
) -> None:
    """Back-pressure: 200 MB are there to be said, and only what fits into the sockets on the way is taken."""
    size, bound = 200, 24
    piece = speech.chunk(speech.piece_of(model, "x" * 1_000_000))
    name = upstream.plays([*speech.beginning_of(model), Flood(piece, size), Silence()])
    with Line(served.port, buffer_bytes=4096) as line:
        line.post(**post_of(caller, f"{SHORT[model]}:{name}"))
        line.read_until(b"200 OK")
        visit = upstream.visit(name)
        # The process works on meanwhile: were nobody held back, far more would be gone after so many answers.
        for _ in range(20):
            other = upstream.plays(speech.played(model, speech.says("Hello"), False))
            assert web.post(**post_of(model, f"{SHORT[model]}:{other}", streams=False)).status_code == 200
        assert visit.bytes_sent < bound * 1_000_000
        assert not visit.over.is_set()
    visit.wait_left()


# --- who waits --------------------------------------------------------------------------------------------------------


def test_pings_keep_a_caller_waiting_and_no_client_minds_them(upstream: Upstream, served: Served, web: httpx2.Client):
    """While the model thinks, before its first token and between two. The SDKs read on as if nothing had been said."""
    gate, waiting = Gate(), list[tuple[str, str]]()
    for caller, model in PAIRS:
        events = speech.events_of(model, speech.says("Hello"))
        if (caller, model) == ("anthropic", "anthropic"):
            script: Script = [gate, speech.STREAM, *map(speech.chunk, events), b"0\r\n\r\n"]
        else:
            middle = next(n for n, event in enumerate(events) if b"He" in event)
            script = [
                speech.STREAM,
                *map(speech.chunk, events[: middle + 1]),
                gate,
                *map(speech.chunk, events[middle + 1 :]),
                b"0\r\n\r\n",
            ]
        waiting.append((caller, f"{SHORT[model]}:{upstream.plays(script)}"))

    def witness(caller: str) -> int:
        raw = b""
        name = upstream.plays([gate, *speech.stream("openai-chat", speech.says("Hello"))])
        with web.stream("POST", **post_of(caller, f"c:{name}")) as got:
            for piece in got.iter_raw():
                raw += piece
                if read_stream(caller, raw).pings >= 2:
                    gate.open()
        read = read_stream(caller, raw)
        assert (read.text, read.ends) == ("Hello", ("end",))
        return read.pings

    with Callers(served.base_url) as callers, ThreadPoolExecutor(len(PAIRS)) as pool:
        asked_ = [pool.submit(callers.ask, caller, model, question(caller), streams=True) for caller, model in waiting]
        assert witness("anthropic") >= 2
        assert [answer.result(WAIT_S).text for answer in asked_] == ["Hello"] * len(PAIRS)


@pytest.mark.parametrize("caller", speech.DIALECTS)
def test_a_failure_after_pings_is_said_in_the_stream(caller: str, upstream: Upstream, web: httpx2.Client) -> None:
    """The status is gone with the first ping."""
    gate = Gate()
    name = upstream.plays([gate, *speech.error("openai-chat", 429, "rate_limit_error", "Slow down.")])
    raw = b""
    with web.stream("POST", **post_of(caller, f"c:{name}")) as got:
        assert got.status_code == 200
        for piece in got.iter_raw():
            raw += piece
            gate.open()
    read = read_stream(caller, raw)
    assert (read.ends, read.pings > 0) == (("error",), True)
    assert "Slow down;" in read.error


def test_a_whole_answer_is_not_pinged(upstream: Upstream, served: Served, web: httpx2.Client) -> None:
    gate = Gate()
    whole = upstream.plays([gate, *speech.played("anthropic", speech.says("Hello"), False)])
    streamed = upstream.plays([gate, *speech.played("anthropic", speech.says("Hello"), True)])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(web.post, **post_of("anthropic", f"a:{whole}", streams=False))
        with web.stream("POST", **post_of("anthropic", f"a:{streamed}")) as got:
            for piece in got.iter_raw():
                if b"ping" in piece:
                    gate.open()
        assert answer.result(WAIT_S).json()["content"][0]["text"] == "Hello"


# --- what stays behind ------------------------------------------------------------------------------------------------

OURS = (
    *(
        "Request",
        "Record",
        "Outgoing",
        "Exchange",
        "Turn",
        "EphemeralJournal",
        "ReplyMerger",
        "ReplyBuilder",
        "Transcript",
    ),
    *("Answer", "Connection", "Task", "TimerHandle", "RequestResponseCycle"),
)


def census(upstream: Upstream, web: httpx2.Client, pid: int) -> dict[str, Any]:
    """What lives in the gateway, as an injected tool sees it from inside, and what it has open."""
    counting = speech.calls(speech.Call("l1", "census", {"kinds": OURS}))
    name = upstream.plays(speech.stream("openai-chat", counting), speech.stream("openai-chat", speech.says("Ok.")))
    assert web.post(**post_of("openai-chat", f"c:{name}", text="[inject] Hi")).status_code == 200
    ((_, told),) = asked("openai-chat", upstream.visits(name, 2)[1].body).results
    return {"open": len(list(Path(f"/proc/{pid}/fd").iterdir())), **json.loads(told)}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_callers_that_leave_leave_nothing_behind(upstream: Upstream, served: Served, web: httpx2.Client) -> None:
    """X04: connections, tasks and objects are what they were, however many left, in whatever phase."""
    work = list(itertools.islice(itertools.cycle(itertools.product(PHASES, PAIRS, ("Hi", "[inject] Hi"))), LEAVERS))
    port = served.port
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: leave(one[0], *one[1], upstream, port, one[2]), work[:90]))
        before = census(upstream, web, served.pid)
        list(pool.map(lambda one: leave(one[0], *one[1], upstream, port, one[2]), work))
    after = census(upstream, web, served.pid)
    grown = {kind: (before[kind], count) for kind, count in after.items() if count > before[kind] + 8}
    assert grown == {}
