"""Signals to a gateway that has work: it waits as long as it is told to, says what it cuts off, and reloads on SIGHUP.

Real processes; nothing here waits longer than the drain that it sets.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.helpers import rest_slow

from .raw import error_of, post_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, STREAM, body, chunk, events_of, played, says, whole_of
from .upstream import WAIT_S, Gate, Upstream

DIFFERENT = {"anthropic": "openai-chat", "openai-chat": "anthropic", "openai-responses": "openai-chat"}
"""A model of another dialect, so that a turn answers and nothing is relayed."""


def config(upstream: Upstream, drain_s: float) -> str:
    return f'[gateway]\ndrain_s = {drain_s}\n[gateway.routes]\ndefault = "c"\n' + engines(upstream)


class Asking:
    """A request in a thread of its own."""

    def __init__(self, served: Served, post: dict[str, Any]) -> None:
        self.status, self.raw, self.begun = 0, b"", threading.Event()
        self._served, self._post = served, post
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        with (
            httpx2.Client(base_url=self._served.base_url, timeout=WAIT_S) as web,
            web.stream("POST", **self._post) as got,
        ):
            self.status, self.headers = got.status_code, got.headers
            for piece in got.iter_raw():
                self.raw += piece
                self.begun.set()

    def wait(self) -> bytes:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.raw


def half(dialect: str, gate: Gate) -> list[Any]:
    """An answer that stops in the middle until a gate opens."""
    events = events_of(dialect, says("Hello there, how are you?"))
    middle = 2 * len(events) // 3
    return [STREAM, *map(chunk, events[:middle]), gate, *map(chunk, events[middle:]), b"0\r\n\r\n"]


@pytest.mark.parametrize("relayed", [True, False], ids=["relayed", "turn"])
@pytest.mark.parametrize("dialect", rest_slow(DIALECTS))
def test_a_stream_that_does_not_end_in_time_ends_with_an_error(
    dialect: str, relayed: bool, upstream: Upstream, tmp_path: Path
) -> None:
    """Trust 22: in the caller's dialect, after what was said; the code says that not all was answered."""
    gate, whole_gate = Gate(), Gate()
    model = dialect if relayed else DIFFERENT[dialect]
    name = upstream.plays(half(model, gate), [whole_gate])
    with Served(tmp_path, config(upstream, 0.3)) as served:
        streamed = Asking(served, post_of(dialect, f"{SHORT[model]}:{name}"))
        assert streamed.begun.wait(WAIT_S)
        whole = Asking(served, post_of(dialect, f"{SHORT[model]}:{name}", streams=False))
        whole_gate.wait_reached()
        served.signal(signal.SIGTERM)
        read = read_stream(dialect, streamed.wait())
        assert (streamed.status, read.ends) == (200, ("error",))
        assert "the gateway is stopping" in read.error
        assert read.text
        assert "Hello there, how are you?".startswith(read.text)
        told = json.loads(whole.wait())
        assert whole.status in (503, 529)
        assert "the gateway is stopping" in error_of(dialect, told)[1]
        assert int(whole.headers["retry-after"]) >= 1
        assert served.wait_ended() == 5
    assert "Stopped 2 requests after" in served.output
    gate.open()
    whole_gate.open()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_waits_for_what_ends_in_time(number: signal.Signals, upstream: Upstream, tmp_path: Path) -> None:
    """Trust 22: the stream is whole, and the code is 0."""
    gate = Gate()
    name = upstream.plays(half("anthropic", gate))
    with Served(tmp_path, config(upstream, 30)) as served:
        streamed = Asking(served, post_of("anthropic", f"a:{name}"))
        assert streamed.begun.wait(WAIT_S)
        served.signal(number)
        served.wait_said("Waiting for 1 open request")
        with pytest.raises(httpx2.TransportError):
            _ask_on(served)
        gate.open()
        assert read_stream("anthropic", streamed.wait())[:2] == ("Hello there, how are you?", ("end",))
        assert served.wait_ended() == 0


def _ask_on(served: Served) -> None:
    """Ask until it no longer listens; that takes a tenth of a second at most."""
    for _ in range(10_000):
        httpx2.get(f"{served.base_url}/health", timeout=WAIT_S)


class Slow:
    """A caller that sends a request by hand and reads the answer when it is told to."""

    def __init__(self, served: Served) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(WAIT_S)
        self._socket.connect(("127.0.0.1", served.port))
        self.raw = b""

    def send(self, post: dict[str, Any]) -> None:
        body = json.dumps(post["json"]).encode()
        head = f"POST {post['url']} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read_some(self) -> None:
        self.raw += self._socket.recv(4096)

    def read_all(self) -> bytes:
        with self._socket, contextlib.suppress(ConnectionError):
            while piece := self._socket.recv(1 << 20):
                self.raw += piece
        return self.raw.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(("drain_s", "code"), rest_slow([(0.1, 5), (30, 0)]), ids=["too late", "in time"])
def test_it_waits_for_answers_that_are_on_their_way(drain_s: float, code: int, upstream: Upstream, tmp_path: Path):
    """Trust 22: a caller who reads slowly gets all of an answer that has ended, or the code says that it did not."""
    answer = json.dumps(whole_of("openai-chat", says("words " * 1_000_000)))
    name = upstream.plays([body(json.loads(answer))])
    with Served(tmp_path, config(upstream, drain_s)) as served:
        caller = Slow(served)
        caller.send(post_of("openai-chat", f"c:{name}", streams=False))
        caller.read_some()
        with httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
            while web.get("/status").json()["requests"]:
                caller.read_some()
        served.signal(signal.SIGTERM)
        if code:
            assert served.wait_ended() == code
            assert len(caller.read_all()) < len(answer)
            assert "Stopped 1 request after" in served.output
            return
        time.sleep(1)  # as long as it once took to cut everything off
        assert json.loads(caller.read_all()) == json.loads(answer)
        assert served.wait_ended() == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(number: signal.Signals, code: int, upstream: Upstream, tmp_path: Path) -> None:
    """Trust 22"""
    gate = Gate()
    name = upstream.plays(half("anthropic", gate))
    with Served(tmp_path, config(upstream, 600)) as served:
        streamed = Asking(served, post_of("anthropic", f"a:{name}"))
        assert streamed.begun.wait(WAIT_S)
        served.signal(signal.SIGTERM)
        served.wait_said("Waiting for 1 open request")
        served.signal(number)
        assert served.wait_ended() == code
        with_error = read_stream("anthropic", streamed.wait())
        assert with_error.ends == ("error",)
    gate.open()


def test_the_flag_wins_over_the_file(upstream: Upstream, tmp_path: Path) -> None:
    """Trust 22: `rondel serve --drain`."""
    gate = Gate()
    name = upstream.plays(half("anthropic", gate))
    with Served(tmp_path, config(upstream, 600), arguments=("--drain", "0.1")) as served:
        streamed = Asking(served, post_of("anthropic", f"a:{name}"))
        assert streamed.begun.wait(WAIT_S)
        served.signal(signal.SIGTERM)
        assert read_stream("anthropic", streamed.wait()).ends == ("error",)
        assert served.wait_ended() == 5
    gate.open()


def test_sighup_reads_the_configuration_again(upstream: Upstream, tmp_path: Path) -> None:
    """Trust 22: a good one is in force, a wrong one is refused and told, and requests under way are not disturbed."""
    gate = Gate()
    name = upstream.plays(half("anthropic", gate), played("openai-chat", says("Hi"), True))
    good = config(upstream, 30)
    with Served(tmp_path, good) as served, httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
        streamed = Asking(served, post_of("anthropic", f"a:{name}"))
        assert streamed.begun.wait(WAIT_S)
        served.signal(signal.SIGHUP)
        served.wait_said("is unchanged")
        served.write(good.replace("[gateway]\n", '[gateway]\nkeys.ann.key = "a-long-enough-key"\n'))
        served.signal(signal.SIGHUP)
        served.wait_said("was reloaded")
        assert web.get("/v1/models").status_code == 401
        served.write("[gateway]\nprot = 1\n")
        served.signal(signal.SIGHUP)
        assert "'gateway.prot' is not known" in served.wait_said(r".*the previous settings stay active")
        assert web.get("/v1/models", headers={"x-api-key": "a-long-enough-key"}).status_code == 200
        gate.open()
        assert read_stream("anthropic", streamed.wait()).ends == ("end",)
    assert served.wait_ended() == 0
