"""What a caller sees when the model's server fails, in every pair of dialects.

Before the first token it is an answer with a status of its own and the caller's own envelope. After it the status is
long gone: what was said stays, and one error ends the stream, which never looks finished.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx2
import pytest

from .raw import Read, error_of, post_of, read_stream
from .served import SECRETS, SHORT, Served, engines
from .speech import (
    DIALECTS,
    END,
    STREAM,
    beginning_of,
    body,
    chunk,
    envelope,
    error,
    error_event,
    events_of,
    head,
    piece_of,
    says,
    silent_beginning_of,
    whole_of,
)
from .upstream import WAIT_S, Close, Gate, Reset, Script, Silence, Upstream

PAIRS = tuple(itertools.product(DIALECTS, DIALECTS))
TOKEN_S, IDLE_S = 1.5, 0.3


@pytest.fixture(scope="module")
def hasty(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that soon gives a silent server up."""
    config = '[gateway.routes]\ndefault = "c"\n' + engines(upstream, first_token_s=TOKEN_S, idle_s=IDLE_S)
    with Served(tmp_path_factory.mktemp("hasty"), config) as served:
        yield served


@pytest.fixture(scope="module")
def quick(hasty: Served) -> Iterator[httpx2.Client]:
    """For rows in which time runs out; in all others it must not."""
    with httpx2.Client(base_url=hasty.base_url, timeout=WAIT_S) as quick:
        yield quick


def in_all_pairs(ask: Callable[[str, str], Any]) -> dict[tuple[str, str], Any]:
    """What comes of a question in each pair of dialects, asked side by side."""
    with ThreadPoolExecutor(len(PAIRS)) as pool:
        return dict(zip(PAIRS, pool.map(lambda pair: ask(*pair), PAIRS), strict=True))


# --- before the first token -------------------------------------------------------------------------------------------

RATE, OVERLOAD, REJECTED, SERVER, TIMEOUT = "rate_limit_error", "overloaded", "invalid_request_error", "api", "timeout"
KINDS: dict[str, dict[str, str]] = {
    RATE: {"anthropic": "rate_limit_error", "openai": "rate_limit_error"},
    OVERLOAD: {"anthropic": "overloaded_error", "openai": "server_error"},
    REJECTED: {"anthropic": "invalid_request_error", "openai": "invalid_request_error"},
    SERVER: {"anthropic": "api_error", "openai": "server_error"},
    TIMEOUT: {"anthropic": "timeout_error", "openai": "server_error"},
}


class Early(NamedTuple):
    """A fault before the first token."""

    script: Callable[[str, bool], Script]  # Of the upstream's dialect, and whether it is to stream
    status: int
    kind: str
    says: str  # What the message has in it


def _sized(data: bytes) -> list[bytes]:
    """A body that is shorter than it was to be."""
    return [head(200, "application/json", content_length=str(len(data) + 50)) + data]


EARLY: dict[str, Early] = {
    "429_with_retry_after": Early(
        lambda d, s: error(d, 429, "rate_limit_error", "Slow down.", retry_after="7"), 429, RATE, "Slow down"
    ),
    "500": Early(lambda d, s: error(d, 500, "api_error", "Oops."), 500, SERVER, "Oops"),
    "503_without_an_envelope": Early(lambda d, s: [body(b"upstream gone", 503, "text/plain")], 503, OVERLOAD, ""),
    "a_key_that_is_refused": Early(
        lambda d, s: error(d, 401, "authentication_error", "Who are you?"), 502, SERVER, "refused the key"
    ),
    "silence_before_headers": Early(lambda d, s: [Silence()], 504, TIMEOUT, f"within {TOKEN_S:g} s"),
    "silence_before_the_first_token": Early(
        lambda d, s: [*silent_beginning_of(d), Silence()] if s else [head(200, "application/json"), Silence()],
        504,
        TIMEOUT,
        f"within {TOKEN_S:g} s",
    ),
    "reset_before_headers": Early(lambda d, s: [Reset()], 502, SERVER, ""),
    "closed_before_headers": Early(lambda d, s: [Close()], 502, SERVER, "closed the connection"),
    "closed_before_the_first_token": Early(
        lambda d, s: [*silent_beginning_of(d), Close()] if s else [head(200, "application/json"), b"{", Reset()],
        502,
        SERVER,
        "",
    ),
    "ended_before_the_first_token": Early(
        lambda d, s: [*silent_beginning_of(d), END] if s else [body(b"")], 502, SERVER, ""
    ),
    "malformed_events": Early(
        lambda d, s: [STREAM, chunk(b"data: {not json\n\n"), END] if s else [body(b"{not json")], 502, SERVER, ""
    ),
    "truncated_json": Early(
        lambda d, s: [*_sized(json.dumps(whole_of(d, says("Hello"))).encode()[:-30]), Close()], 502, SERVER, ""
    ),
    "an_empty_answer": Early(lambda d, s: [STREAM, END] if s else [body(b"")], 502, SERVER, ""),
    "a_web_page": Early(
        lambda d, s: [body(b"<!doctype html><title>Hi</title>", 200, "text/html")], 502, SERVER, "web page"
    ),
    "other_json": Early(lambda d, s: [body({"status": "fine"})], 502, SERVER, ""),
    "a_content_filter": Early(
        lambda d, s: error(d, 400, _REJECTION[d], "Our policy forbids this."), 400, REJECTED, "Our policy"
    ),
    "too_long_a_prompt": Early(
        lambda d, s: error(d, 400, _OVERFLOW[d], "prompt is too long: 9 > 8 tokens"), 400, REJECTED, "too long"
    ),
    "an_error_event_after_200": Early(
        lambda d, s: (
            [STREAM, chunk(error_event(d, "overloaded_error", "Busy.")), END]
            if s
            else [body(envelope(d, "overloaded_error", "Busy."))]
        ),
        503,
        OVERLOAD,
        "Busy.",
    ),
}
_REJECTION = {
    "anthropic": "invalid_request_error",
    "openai-chat": "content_policy_violation",
    "openai-responses": "content_policy_violation",
}
_OVERFLOW = {
    "anthropic": "invalid_request_error",
    "openai-chat": "context_length_exceeded",
    "openai-responses": "context_length_exceeded",
}


EARLY_ROWS = [
    pytest.param(row, streams, id=f"{row}-{'streamed' if streams else 'whole'}")
    for row in EARLY
    for streams in (False, True)
    if streams or row != "an_error_event_after_200"  # a whole answer has no events
]


@pytest.mark.parametrize(("row", "streams"), EARLY_ROWS)
def test_a_fault_before_the_first_token_is_an_answer_in_the_callers_envelope(
    row: str, streams: bool, upstream: Upstream, web: httpx2.Client, quick: httpx2.Client
) -> None:
    fault, client = EARLY[row], quick if "silence" in row else web

    def ask(caller: str, model: str) -> httpx2.Response:
        name = upstream.plays(fault.script(model, streams or caller != model))
        return client.post(**post_of(caller, f"{SHORT[model]}:{name}", streams=streams))

    for (caller, model), got in in_all_pairs(ask).items():
        pair = f"{caller} to {model}: {got.text}"
        assert got.status_code == (529 if (caller, fault.status) == ("anthropic", 503) else fault.status), pair
        assert got.headers["content-type"] == "application/json", pair
        assert got.headers.get("retry-after") == ("7" if "retry" in row else None), pair
        kind, message = error_of(caller, got.json())
        if caller != model or "x-provider" in message:
            assert kind == KINDS[fault.kind]["anthropic" if caller == "anthropic" else "openai"], pair
        assert fault.says in message, pair
        assert got.headers["x-rondel-attempts"] == "1", pair


# --- in the middle of a stream ----------------------------------------------------------------------------------------

LATE: dict[str, Callable[[str], Script]] = {
    "silence": lambda d: [Silence()],
    "reset": lambda d: [Reset()],
    "closed": lambda d: [Close()],
    "ended_too_early": lambda d: [END],
    "half_an_event": lambda d: [chunk(piece_of(d, "lo")[:-20]), END],
    "malformed_event": lambda d: [chunk(b"data: {not json\n\n"), END],
    "malformed_inside": lambda d: [chunk(b'data: {"type" 1}\n\n'), *map(chunk, _rest_of(d)), END],
    "a_word_that_is_no_json": lambda d: [chunk(b"data: {oops}\n\n"), *map(chunk, _rest_of(d)), END],
    "a_list": lambda d: [chunk(b'data: [{"type":"x"}]\n\n'), *map(chunk, _rest_of(d)), END],
    "malformed_among_good_ones": lambda d: [chunk(b"data: {]}\n\n" + b"".join(_rest_of(d))), END],
    "cut_in_two": lambda d: [chunk(_torn(piece_of(d, "lo")) + b"".join(_rest_of(d))), END],
    "cut_in_two_at_a_comma": lambda d: [chunk(b'data: {"type":[1\n\ndata: 2]}\n\n' + b"".join(_rest_of(d))), END],
    "error_event": lambda d: [chunk(error_event(d, "overloaded_error", "Busy.")), END],
}


def _rest_of(dialect: str) -> list[bytes]:
    """How an answer that `beginning_of` began goes on to its end."""
    return events_of(dialect, says("Hel"))[len(beginning_of(dialect)) - 1 :]


def _torn(event: bytes) -> bytes:
    """An event with a blank line in the middle of its JSON, as a text that was not escaped makes it."""
    return event.replace(b'"lo"', b'"l\n\ndata: o"')


SAYS = {"silence": "fell silent", "closed": "closed the connection", "error_event": "Busy."}


@pytest.mark.parametrize("row", LATE)
def test_a_fault_in_mid_stream_keeps_what_was_said_and_ends_with_one_error(
    row: str, upstream: Upstream, web: httpx2.Client, quick: httpx2.Client
) -> None:
    """X04, Trust 25: upstream gone, or nonsense, means one in-band error in the caller's dialect, never a stream that
    looks finished."""
    client = quick if row == "silence" else web

    def ask(caller: str, model: str) -> tuple[httpx2.Response, Read]:
        gate = Gate()
        name = upstream.plays([*beginning_of(model), gate, *LATE[row](model)])
        raw = b""
        with client.stream("POST", **post_of(caller, f"{SHORT[model]}:{name}")) as got:
            for piece in got.iter_raw():
                raw += piece
                gate.open()
        return got, read_stream(caller, raw)

    for pair, (got, read) in in_all_pairs(ask).items():
        assert got.status_code == 200, pair
        assert read.text == "Hel", pair
        assert read.ends == ("error",), pair
        assert SAYS.get(row, "") in read.error, pair
        assert read.kind, pair


@pytest.mark.parametrize("bad", [b"{oops}", b'{"type" 1}', b"[]", b"{", b'{"type":[1\n\ndata: 2]}', b"nonsense"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_nonsense_is_found_although_the_whole_answer_comes_at_once(
    dialect: str, bad: bytes, upstream: Upstream, web: httpx2.Client
) -> None:
    """Trust 25: what is no JSON object is not passed on, wherever the bytes are split; what stood before it is."""
    begun = events_of(dialect, says("Hel"))[: len(beginning_of(dialect)) - 1]
    answer = b"".join([*begun, b"data: %b\n\n" % bad, *_rest_of(dialect)])
    name = upstream.plays([STREAM, chunk(answer), END])
    got = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}")).content
    read = read_stream(dialect, got)
    assert (read.text, read.ends) == ("Hel", ("error",))
    assert b"data: %b\n\n" % bad not in got


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_an_object_of_another_protocol_is_found_in_mid_stream(dialect: str, upstream: Upstream, web: httpx2.Client):
    """Trust 25: every event of these dialects says what it is."""
    name = upstream.plays(
        [*beginning_of(dialect), chunk(b'data: {"choices":[]}\n\n'), *map(chunk, _rest_of(dialect)), END]
    )
    read = read_stream(dialect, web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}")).content)
    assert (read.text, read.ends) == ("Hel", ("error",))


@pytest.mark.parametrize("row", LATE)
def test_a_fault_in_mid_stream_is_an_error_to_who_wanted_a_whole_answer(
    row: str, upstream: Upstream, web: httpx2.Client, quick: httpx2.Client
) -> None:
    client = quick if row == "silence" else web

    def ask(caller: str, model: str) -> httpx2.Response | None:
        if caller == model:  # a whole answer is asked for upstream, too
            return None
        name = upstream.plays([*beginning_of(model), *LATE[row](model)])
        return client.post(**post_of(caller, f"{SHORT[model]}:{name}", streams=False))

    for pair, got in in_all_pairs(ask).items():
        if got is not None:
            assert got.status_code in (502, 503, 504, 529), (pair, got.text)
            assert SAYS.get(row, "") in error_of(pair[0], got.json())[1], pair


def test_a_stream_ends_once_although_the_upstream_ends_it_twice(upstream: Upstream, web: httpx2.Client) -> None:
    """X04: exactly one terminal event."""

    def ask(caller: str, model: str) -> Read:
        last = events_of(model, says("Hello"))[-1]
        again = [*events_of(model, says("Hello")), last, piece_of(model, "more"), last]
        name = upstream.plays([STREAM, *map(chunk, again), END])
        return read_stream(caller, web.post(**post_of(caller, f"{SHORT[model]}:{name}")).content)

    for pair, read in in_all_pairs(ask).items():
        assert (read.text, read.ends) == ("Hello", ("end",)), pair


def test_an_error_after_the_end_is_not_told(upstream: Upstream, web: httpx2.Client) -> None:
    def ask(caller: str, model: str) -> Read:
        late = [*events_of(model, says("Hello")), error_event(model, "overloaded_error", "Busy.")]
        name = upstream.plays([STREAM, *map(chunk, late), END])
        return read_stream(caller, web.post(**post_of(caller, f"{SHORT[model]}:{name}")).content)

    for pair, read in in_all_pairs(ask).items():
        assert (read.text, read.ends) == ("Hello", ("end",)), pair


def test_a_server_that_does_not_stream_is_streamed_all_the_same(upstream: Upstream, web: httpx2.Client) -> None:
    def ask(caller: str, model: str) -> Read:
        name = upstream.plays([body(whole_of(model, says("Hello")))])
        return read_stream(caller, web.post(**post_of(caller, f"{SHORT[model]}:{name}")).content)

    for pair, read in in_all_pairs(ask).items():
        assert (read.text, read.ends) == ("Hello", ("end",)), pair


def test_a_server_that_repeats_our_key_does_not_tell_it_to_callers(
    upstream: Upstream, web: httpx2.Client, served: Served
) -> None:
    def ask(caller: str, model: str) -> str:
        secret = SECRETS[SHORT[model]]
        early = upstream.plays(error(model, 400, "invalid_request_error", f"bad key {secret}"))
        late = upstream.plays([*beginning_of(model), chunk(error_event(model, "api_error", f"key {secret}")), END])
        return "".join(web.post(**post_of(caller, f"{SHORT[model]}:{name}")).text for name in (early, late))

    for pair, text in in_all_pairs(ask).items():
        assert "***" in text, pair
        assert "sk-upstream" not in text, pair
    assert "sk-upstream" not in served.output
