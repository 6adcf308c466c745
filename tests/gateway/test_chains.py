"""Fallbacks: when an engine fails before its first token, the next one answers, whatever dialect it speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

from .asked import asked
from .raw import Line, error_of, post_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, STREAM, beginning_of, error, played, says, silent_beginning_of
from .upstream import Close, Mark, Reset, Script, Silence, Upstream

SPARES = ("openai-chat", "anthropic", "openai-responses")  # The dialects of the engines that are tried, in order
STREAMS = [pytest.param(False, id="whole"), pytest.param(True, id="streamed")]


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    spares = ", ".join(f'"{SHORT[dialect]}:spare-{SHORT[dialect]}"' for dialect in SPARES)
    config = (
        '[gateway]\ncool_down_s = 0\n[gateway.routes]\ndefault = "c:first"\nthink = "dead:gone"\n'
        f'[gateway.fallback]\ndefault = [{spares}]\nthink = ["nokey:x", "a:thinker"]\n'
        + engines(upstream)
        + '[engines.dead]\nbase_url = "http://127.0.0.1:9"\nmodel = "gone"\nretry = {attempts = 1}\n'
        + '[engines.nokey]\nprovider = "mistral"\nretry = {attempts = 1}\n'
        + f'[engines.patient]\nbase_url = "{upstream.url("anthropic")}"\ndialect = "anthropic"\n'
        + "retry = {attempts = 3, base_s = 0.0}\n"
    )
    with Served(tmp_path_factory.mktemp("chained"), config) as served:
        yield served


EARLY: dict[str, Callable[[str, bool], Script]] = {
    "http_error": lambda d, s: error(d, 500, "api_error", "first failed"),
    "rejected": lambda d, s: error(d, 400, "invalid_request_error", "first failed"),
    "key_refused": lambda d, s: error(d, 401, "authentication_error", "first failed"),
    "network": lambda d, s: [Reset()],
    "dies_before_its_first_token": lambda d, s: [*silent_beginning_of(d), Close()] if s else [Close()],
    "empty": lambda d, s: [STREAM, b"0\r\n\r\n"] if s else [Close()],
}


def spare(upstream: Upstream, dialect: str, *scripts: Script) -> str:
    return upstream.plays(*scripts, name=f"spare-{SHORT[dialect]}")


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("row", EARLY)
@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("caller", DIALECTS)
def test_the_next_engine_answers_when_one_fails_before_its_first_token(
    caller: str, model: str, row: str, streams: bool, upstream: Upstream, web: httpx2.Client
) -> None:
    """R09: on HTTP errors, network errors and a stream that dies early, in every pair; R11: the answer says who."""
    name = upstream.plays(EARLY[row](model, streams or caller != model))
    second = spare(upstream, SPARES[0], played(SPARES[0], says("Spare."), streams or caller != SPARES[0]))
    got = web.post(**post_of(caller, f"{SHORT[model]}:{name}", streams=streams))
    assert got.status_code == 200, got.text
    assert "Spare." in (read_stream(caller, got.content).text if streams else got.text)
    assert got.headers["x-rondel-model"] == "c:spare-c"
    assert got.headers["x-rondel-attempts"] == "2"
    assert got.headers["x-rondel-rule"] == "explicit"
    assert got.headers["x-rondel-request"]
    assert (upstream.count(name), upstream.count(second)) == (1, 1)
    assert asked(SPARES[0], upstream.visit(second).body).texts == ("Hi",)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("caller", DIALECTS)
def test_a_chain_is_tried_to_its_end(caller: str, streams: bool, upstream: Upstream, web: httpx2.Client) -> None:
    """R09: across dialects, too."""
    name = upstream.plays(error(caller, 500, "api_error", "first failed"))
    for dialect in SPARES[:2]:
        spare(upstream, dialect, error(dialect, 529, "overloaded_error", "also failed"))
    spare(upstream, SPARES[2], played(SPARES[2], says("Last."), streams or caller != SPARES[2]))
    got = web.post(**post_of(caller, f"{SHORT[caller]}:{name}", streams=streams))
    assert got.status_code == 200, got.text
    assert "Last." in (read_stream(caller, got.content).text if streams else got.text)
    assert got.headers["x-rondel-model"] == "r:spare-r"
    assert got.headers["x-rondel-attempts"] == "4"


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("caller", DIALECTS)
def test_the_original_error_is_told_when_all_fail(
    caller: str, model: str, streams: bool, upstream: Upstream, web: httpx2.Client
) -> None:
    """R09: of the engine that was wanted, and with its Retry-After."""
    name = upstream.plays(error(model, 429, "rate_limit_error", "first failed", retry_after="9"))
    for dialect in SPARES:
        spare(upstream, dialect, error(dialect, 500, "api_error", "also failed"))
    got = web.post(**post_of(caller, f"{SHORT[model]}:{name}", streams=streams))
    assert got.status_code == 429, got.text
    assert got.headers["retry-after"] == "9"
    assert "first failed" in error_of(caller, got.json())[1]
    assert got.headers["x-rondel-attempts"] == "4"


@pytest.mark.parametrize("caller", DIALECTS)
def test_what_breaks_after_its_first_token_is_not_asked_again(caller: str, upstream: Upstream, web: httpx2.Client):
    name = upstream.plays([*beginning_of(caller), Reset()])
    second = spare(upstream, SPARES[0])
    read = read_stream(caller, web.post(**post_of(caller, f"{SHORT[caller]}:{name}")).content)
    assert (read.text, read.ends) == ("Hel", ("error",))
    assert upstream.count(second) == 0


@pytest.mark.parametrize("caller", DIALECTS)
def test_a_scenario_has_a_chain_of_its_own_and_an_engine_without_a_key_is_passed_over(
    caller: str, upstream: Upstream, web: httpx2.Client
) -> None:
    """R09: nothing listens at the first, the second has no key, the third answers. R11: the rule is named."""
    upstream.plays(played("anthropic", says("Thought."), True), name="thinker")
    got = web.post(**post_of(caller, "any", thinking=True))
    assert got.status_code == 200, got.text
    assert "Thought." in read_stream(caller, got.content).text
    assert got.headers["x-rondel-rule"] == "think"
    assert got.headers["x-rondel-model"] == "a:thinker"


def test_no_fallback_is_asked_for_a_caller_that_has_left(upstream: Upstream, served: Served) -> None:
    second = spare(upstream, SPARES[0])
    for caller in DIALECTS:
        mark = Mark()
        name = upstream.plays([mark, Silence()])
        with Line(served.port) as line:
            line.post(**post_of(caller, f"a:{name}"))
            mark.wait_reached()
        upstream.visit(name).wait_left()
    assert upstream.count(second) == 0


@pytest.mark.parametrize("caller", DIALECTS)
def test_an_engine_is_asked_again_before_the_next_one_is(caller: str, upstream: Upstream, web: httpx2.Client) -> None:
    busy = error("anthropic", 529, "overloaded_error", "Busy.")
    name = upstream.plays(busy, busy, played("anthropic", says("At last."), True))
    got = web.post(**post_of(caller, f"patient:{name}"))
    assert read_stream(caller, got.content).text == "At last."
    assert got.headers["x-rondel-model"] == f"patient:{name}"
    assert upstream.count(name) == 3
