"""Requests that are passed on as bytes, against real servers on loopback: what is sent, what comes, what breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from engines_in_steps import ANSWER, Stepping
from scripted_http import (
    CHUNKED,
    LAST_CHUNK,
    Close,
    Request,
    Reset,
    ScriptedServer,
    Silence,
    Step,
    answer,
    chunk,
    free_port,
    head,
    run,
)
from test_http import KEY, REPLY, checked, dialect, engine_at, events_of, streamed

from rondel.dialects import DIALECTS
from rondel.engine import Engine, Relayed, Relays
from rondel.engines.fallback import Fallback
from rondel.engines.http import body as http
from rondel.engines.retry import Retry
from rondel.errors import (
    EngineDenied,
    EngineError,
    EngineGarbled,
    EngineOverloaded,
    EngineTimeout,
    EngineUnreachable,
    PromptRejected,
)
from rondel.prompt import Prompt
from rondel.values import Usage

NAMES = tuple(DIALECTS)
USAGE = Usage(tokens_in=7, tokens_out=5)
HEADERS = {
    "anthropic-beta": "one-2026,two-2026",
    "openai-beta": "three",
    "x-stainless-lang": "python",
    "x-app": "cli",
    "authorization": "Bearer of-the-caller",
    "x-api-key": "of-the-caller",
    "x-goog-api-key": "of-the-caller",
    "x-auth-token": "of-the-caller",
    "cookie": "of-the-caller",
    "x-forwarded-for": "10.0.0.7",
    "x-real-ip": "10.0.0.7",
    "x-rondel-project": "ours",
    "host": "gateway",
    "content-length": "5",
    "accept-encoding": "br",
    "connection": "keep-alive, X-Hop",
    "x-hop": "hop-by-hop",
    "te": "trailers",
    "user-agent": "theirs",
}


def asked(**fields: Any) -> dict[str, msgspec.Raw]:
    body = {"model": "what-the-caller-wrote", "stream": True, "messages": [{"role": "user", "content": "Grüße"}]}
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in (body | fields).items()}


def whole_body(name: str) -> bytes:
    return msgspec.json.encode(dialect(name).reply_writer(model="m-1", id="r-1").write_whole(REPLY))


async def all_of(answered: Relayed) -> bytes:
    pieces: list[bytes] = []
    while data := await answered.read():
        pieces.append(data)
    return b"".join(pieces)


class Seen:
    """What a caller got, and what was known at the end."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.request: Request | None = None
        self.relayed: Any = None

    @property
    def raw(self) -> bytes:
        return b"".join(self.pieces)


async def relay_from(seen: Seen, *script: Step, name: str = "anthropic", ask: Any = None, **fields: Any) -> None:
    path = fields.pop("path", "")
    async with ScriptedServer(list(script)) as server:
        engine = engine_at(server.url, name, **fields)
        try:
            seen.relayed = await engine.relay(asked() if ask is None else ask, HEADERS, path=path)
            while data := await seen.relayed.read():
                seen.pieces.append(data)
        finally:
            if server.requests:
                seen.request = server.requests[0]
            if seen.relayed is not None:
                seen.relayed.close()
            await engine.aclose()


def relayed(*script: Step, **fields: Any) -> Seen:
    seen = Seen()
    run(relay_from(seen, *script, **fields))
    return seen


def refused(*script: Step, **fields: Any) -> EngineError:
    """The error of a relay that never began: nothing was passed on."""
    seen = Seen()
    with pytest.raises(EngineError) as caught:
        run(relay_from(seen, *script, **fields))
    assert seen.relayed is None
    return checked(caught.value)


def broken(*script: Step, **fields: Any) -> tuple[EngineError, Seen]:
    """The error of a relay that broke off when some of it had been passed on."""
    seen = Seen()
    with pytest.raises(EngineError) as caught:
        run(relay_from(seen, *script, **fields))
    assert seen.raw
    assert not seen.relayed.finished
    return checked(caught.value), seen


# --- what goes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_fields_travel_as_they_came_with_our_model(name: str) -> None:
    ask = asked(new_field={"deep": [1, "ü", None]}, model="x")
    sent = relayed(*streamed(name=name), name=name, ask=ask).request
    assert sent is not None
    expected = {field: msgspec.json.decode(raw) for field, raw in ask.items()} | {"model": "m-1"}
    if name == "openai-chat":
        expected["stream_options"] = {"include_usage": True}
    assert sent.body == expected
    assert msgspec.json.decode(ask["model"]) == "x"
    assert "stream_options" not in ask


def test_the_endpoints_own_fields_win_and_none_leaves_one_out() -> None:
    own = {"options": {"temperature": 0, "metadata": None}}
    sent = relayed(*streamed(), ask=asked(temperature=1, metadata={"user_id": "u"}), **own).request
    assert sent is not None
    assert sent.body["temperature"] == 0
    assert "metadata" not in sent.body


@pytest.mark.parametrize("name", NAMES)
def test_the_callers_wishes_travel_and_its_secrets_do_not(name: str) -> None:
    """Beta flags and an SDK's marks go on; keys, cookies, addresses and what belongs to a connection stay."""
    sent = relayed(*streamed(name=name), name=name).request
    assert sent is not None
    assert {header: sent.headers.get(header) for header in ("anthropic-beta", "openai-beta", "x-stainless-lang")} == {
        "anthropic-beta": "one-2026,two-2026",
        "openai-beta": "three",
        "x-stainless-lang": "python",
    }
    assert "of-the-caller" not in str(sent.headers)
    assert "10.0.0.7" not in str(sent.headers)
    assert not {"x-rondel-project", "te", "cookie", "x-forwarded-for", "x-hop"} & set(sent.headers)
    assert KEY in (sent.headers.get("authorization", "") + sent.headers.get("x-api-key", ""))
    assert sent.headers["user-agent"].startswith("rondel/")
    assert sent.headers["accept-encoding"] == "identity"


async def test_a_callers_version_wins_over_ours_and_the_endpoints_flags_join_the_callers() -> None:
    async with ScriptedServer(streamed()) as server:
        engine = engine_at(server.url, headers={"Anthropic-Beta": "zero, one-2026", "X-App": "ours"})
        answer = await engine.relay(asked(), HEADERS | {"anthropic-version": "2027-01-01"})
        answer.close()
        await engine.aclose()
        sent = server.requests[0].headers
    assert sent["anthropic-version"] == "2027-01-01"
    assert sent["anthropic-beta"] == "zero,one-2026,two-2026"
    assert sent["x-app"] == "ours"


def test_counting_tokens_has_its_own_path_and_none_of_the_endpoints_fields() -> None:
    ask = {name: raw for name, raw in asked().items() if name != "stream"}
    path = "/v1/messages/count_tokens"
    seen = relayed(answer('{"input_tokens": 14}'), ask=ask, path=path, options={"max_tokens": 5})
    assert seen.request is not None
    assert (seen.request.target, seen.raw) == (path, b'{"input_tokens": 14}')
    assert "max_tokens" not in seen.request.body
    assert seen.relayed.finished


async def test_a_query_and_another_path_find_their_place_below_any_base_url() -> None:
    async with ScriptedServer(streamed(), streamed(), [answer('{"input_tokens": 1}')]) as server:
        for base, path in (
            ("", "/v1/messages?beta=true"),
            ("/proxy/v1?tenant=7", "/v1/messages?beta=true"),
            ("/v1/messages", "/v1/messages/count_tokens"),
        ):
            engine = engine_at(server.url + base)
            (await engine.relay(asked(), {}, path=path)).close()
            await engine.aclose()
        first, second, third = [request.target for request in server.requests]
    assert first == "/v1/messages?beta=true"
    assert second == "/proxy/v1/messages?tenant=7&beta=true"
    assert third == "/v1/messages/count_tokens"


def test_a_request_with_pictures_is_sent_whole() -> None:
    picture = "A" * 3_000_000
    sent = relayed(*streamed(), ask=asked(picture=picture)).request
    assert sent is not None
    assert sent.body["picture"] == picture
    assert "transfer-encoding" not in sent.headers


async def test_a_missing_key_is_told_before_anything_is_sent() -> None:
    async with ScriptedServer() as server:
        with pytest.raises(EngineDenied, match="there is no key for test"):
            await engine_at(f"http://model.test:{server.port}", key="").relay(asked(), {})
        assert server.connections == 0


# --- good answers ----------------------------------------------------------------------------------------------------


def test_an_http_engine_and_its_wrappers_can_relay() -> None:
    engine = engine_at("http://127.0.0.1:1", "openai-chat")
    for relays in (engine, Retry(engine), Fallback(engine, engine), Retry(Fallback(engine))):
        assert isinstance(relays, Relays)
        assert relays.dialect == "openai-chat"
    assert Fallback(engine, engine_at("http://127.0.0.1:1")).dialect == ""
    assert Retry(Stepping("a:m", ANSWER)).dialect == ""
    assert isinstance(engine, Engine)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_passed_on_byte_for_byte_and_metered(name: str) -> None:
    """X03: the answer comes in single bytes, so also in parts of characters; whole events go out."""
    raw = b"".join(events_of(REPLY, name))
    ask = asked(stream_options={"include_usage": True})
    script = [CHUNKED, *(chunk(raw[at : at + 1]) for at in range(len(raw))), LAST_CHUNK]
    for steps in (streamed(name=name), script):
        seen = relayed(*steps, name=name, ask=ask)
        assert seen.raw == raw
        assert all(piece.endswith(b"\n\n") for piece in seen.pieces)
        assert (seen.relayed.finished, seen.relayed.failure, seen.relayed.status) == (True, None, 200)
        assert (seen.relayed.model, seen.relayed.usage) == ("m-1", USAGE)
        assert seen.relayed.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_is_passed_on_byte_for_byte_and_metered(name: str) -> None:
    body = b" " + whole_body(name) + b"\n"
    seen = relayed(answer(body, Request_Id="req_1", X_Secret="s"), name=name, ask=asked(stream=False))
    assert seen.raw == body
    assert (seen.relayed.finished, seen.relayed.status, seen.relayed.usage) == (True, 200, USAGE)
    assert seen.relayed.model == "m-1"
    assert seen.relayed.headers == {"content-type": "application/json", "request-id": "req_1"}


def test_a_caller_sees_limits_and_ids_of_an_answer_and_not_whose_account_it_was() -> None:
    headers = {
        "Anthropic_Ratelimit_Requests_Remaining": "3",
        "X_Ratelimit_Limit_Tokens": "9",
        "X_Request_Id": "req_7",
        "Openai_Processing_Ms": "12",
        "Openai_Organization": "org-ours",
        "Anthropic_Organization_Id": "ours",
        "Set_Cookie": "a=b",
        "Cf_Ray": "x",
    }
    seen = relayed(head(200, "text/event-stream", **headers), *events_of(REPLY), Close())
    assert seen.relayed.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "anthropic-ratelimit-requests-remaining": "3",
        "x-ratelimit-limit-tokens": "9",
        "x-request-id": "req_7",
        "openai-processing-ms": "12",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_does_not_stream_is_streamed_to_the_caller(name: str) -> None:
    seen = relayed(answer(whole_body(name)), name=name, ask=asked(stream_options={"include_usage": True}))
    assert seen.raw.count(b"event: message_stop") + seen.raw.count(b"[DONE]") + seen.raw.count(b"event: response.c") > 0
    assert (seen.relayed.finished, seen.relayed.usage, seen.relayed.model) == (True, USAGE, "m-1")


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with ScriptedServer(streamed(), [answer(whole_body("anthropic"))], streamed()) as server:
        engine = engine_at(server.url)
        for ask in (asked(), asked(stream=False), asked()):
            answered = await engine.relay(ask, {})
            assert await all_of(answered)
            answered.close()
        await engine.aclose()
        assert server.connections == 1


async def test_the_first_bytes_come_with_the_first_token_and_before_the_end() -> None:
    """The server sends nothing more until the client leaves; the first words must have been passed on by then."""
    async with ScriptedServer([*streamed()[:4], Silence()]) as server:
        engine = engine_at(server.url)
        answered = await engine.relay(asked(), {})
        words = await answered.read()
        answered.close()
        await server.left.wait()
        await engine.aclose()
    assert b"message_start" in words
    assert b"message_stop" not in words


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((400, PromptRejected), (413, PromptRejected), (422, PromptRejected), (429, EngineOverloaded)),
        *((500, EngineOverloaded), (503, EngineOverloaded), (529, EngineOverloaded)),
    ],
)
def test_a_refusal_keeps_its_status_its_body_and_its_wait(status: int, kind: type[EngineError], stream: bool) -> None:
    """R10: so that a caller of the same dialect gets the provider's own words and Retry-After."""
    body = json.dumps({"type": "error", "error": {"type": "odd", "message": f"not so, {KEY}"}, "request_id": "req_1"})
    error = refused(answer(body, status, Retry_After="17"), ask=asked(stream=stream))
    assert type(error) is kind
    assert (error.status, error.retry_after_s) == (status, 17.0)
    assert error.body == body.replace(KEY, "***").encode()
    assert dialect().reply_writer().write_error(error)[0] == (529 if status == 503 else status)


def test_the_same_error_of_a_prompt_has_them_too() -> None:
    async def ask() -> None:
        async with ScriptedServer([answer('{"error": "no"}', 429, Retry_After="3")]) as server:
            engine = engine_at(server.url)
            try:
                assert [delta async for delta in engine.stream(Prompt())]
            finally:
                await engine.aclose()

    with pytest.raises(EngineOverloaded) as caught:
        run(ask())
    assert (caught.value.status, caught.value.body, caught.value.retry_after_s) == (429, b'{"error": "no"}', 3.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refusal_of_our_key_is_a_fault_behind_the_gateway(name: str, status: int) -> None:
    """The caller's own key is good: it is told neither that it is wrong nor the provider's words about ours."""
    error = refused(answer('{"error": {"message": "invalid x-api-key"}}', status), name=name)
    assert type(error) is EngineDenied
    assert (error.status, error.body) == (status, b"")
    assert dialect(name).reply_writer().write_error(error)[0] == 502


@pytest.mark.parametrize("name", NAMES)
def test_an_error_under_a_status_of_success_means_what_it_says(name: str) -> None:
    for told, kind, status in (
        ({"type": "overloaded_error", "message": "Busy."}, EngineOverloaded, 503),
        ({"code": "rate_limit_exceeded", "message": "Busy."}, EngineOverloaded, 429),
        ({"type": "invalid_request_error", "message": "Busy."}, PromptRejected, 400),
        ({"code": 413, "message": "Busy."}, PromptRejected, 413),
        ("Busy.", EngineOverloaded, 503),
    ):
        body = json.dumps({"type": "error", "error": told})
        for stream in (True, False):
            error = refused(answer(body), name=name, ask=asked(stream=stream))
            assert (type(error), error.body) == (kind, body.encode())
            got = dialect(name).reply_writer().write_error(error)[0]
            assert got == (529 if (name, status) == ("anthropic", 503) else status)


def test_a_page_or_half_an_object_is_no_body_to_pass_on() -> None:
    assert refused(answer("<html>Bad gateway</html>", 502, "text/html")).body == b""
    assert refused(answer('{"error": {"mess', 500)).body == b""
    assert refused(answer(json.dumps({"error": "x" * 100_000}), 500)).body == b""


# --- faults before the first token -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([Close()], EngineUnreachable),
        ([Reset()], EngineUnreachable),
        ([CHUNKED, Close()], EngineUnreachable),
        ([CHUNKED, LAST_CHUNK], EngineGarbled),
        ([answer("", 200, "text/event-stream")], EngineGarbled),
        ([answer("")], EngineGarbled),
        ([answer("<!doctype html><title>Log in</title>", 200, "text/html")], EngineGarbled),
        ([CHUNKED, chunk(b"data: {nonsense\n\n"), LAST_CHUNK], EngineGarbled),
        ([CHUNKED, chunk(b": ping\n\n"), LAST_CHUNK], EngineGarbled),
        ([answer('{"choices": [{"mess')], EngineGarbled),
        ([answer('{"error": {"code": 429, "message": "slow down"}}')], EngineOverloaded),
        ([answer("[1]")], EngineGarbled),
    ],
)
def test_what_breaks_before_the_first_token_is_raised_and_may_be_asked_again(
    name: str, script: list[Step], kind: type[EngineError]
) -> None:
    for stream in (True, False):
        error = refused(*script, name=name, ask=asked(stream=stream))
        assert type(error) is kind
        assert error.retryable


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_only_began_is_raised_however_it_breaks(name: str) -> None:
    """R09: what the server said until then was held back."""
    begun = streamed(name=name)[:2]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": f"worn out {KEY}"}}
    event = chunk(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
    assert type(refused(*begun, Close(), name=name)) is EngineUnreachable
    assert type(refused(*begun, LAST_CHUNK, name=name)) is EngineGarbled
    assert type(refused(*begun, event, LAST_CHUNK, name=name)) is EngineOverloaded
    assert refused(*begun, Silence(), name=name, first_token_s=0.05, idle_s=0.05).code == "timeout_first_token"


def test_silence_before_and_after_the_head_is_a_time_out() -> None:
    for script in ([Silence()], [CHUNKED, Silence()], [head(content_type="application/json"), b"{", Silence()]):
        for stream in (True, False):
            error = refused(*script, ask=asked(stream=stream), first_token_s=0.05, idle_s=0.05)
            assert type(error) is EngineTimeout
            assert error.code == "timeout_first_token"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_where_a_whole_answer_was_asked_for_is_garbled(name: str) -> None:
    script = [head(content_type="text/plain"), *events_of(REPLY, name), Close()]
    assert type(refused(*script, name=name, ask=asked(stream=False))) is EngineGarbled
    assert type(refused(*streamed(name=name), name=name, ask=asked(stream=False))) is EngineGarbled


def test_a_flood_before_the_first_token_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_BYTES_MAX", 10_000)
    pings = chunk(b": ping\n\n" * 2_000)
    assert refused(CHUNKED, pings, Silence()).code == "too_long"


# --- faults in mid-stream --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("end", "kind"), [(Close(), EngineUnreachable), (Reset(), EngineUnreachable), (LAST_CHUNK, EngineGarbled)]
)
def test_an_upstream_that_goes_away_never_looks_finished(name: str, end: Step, kind: type[EngineError]) -> None:
    """X04: the error is raised, and the caller's stream can be ended with it, once."""
    error, seen = broken(*streamed(name=name)[:5], chunk(b"data: half an ev"), end, name=name)
    assert type(error) is kind
    assert b"half" not in seen.raw
    last = seen.relayed.fail(error)
    assert last.endswith(b"\n\n")
    assert seen.relayed.fail(error) == b""
    assert seen.relayed.failure is error
    reader = dialect(name).reply_reader()
    reader.feed(seen.raw + last)
    with pytest.raises(EngineError):
        reader.finish()


@pytest.mark.parametrize("name", NAMES)
def test_words_that_come_with_nonsense_are_passed_on_before_it_is_told(name: str) -> None:
    """And at once, although nothing follows."""
    words = b"".join(events_of(REPLY, name)[:-2])
    error, seen = broken(CHUNKED, chunk(words + b'data: {"error": nonsense\n\n'), Silence(), name=name)
    assert type(error) is EngineGarbled
    assert seen.raw == words


@pytest.mark.parametrize("name", NAMES)
def test_silence_in_mid_stream_is_a_time_out(name: str) -> None:
    error, _ = broken(*streamed(name=name)[:5], Silence(), name=name, idle_s=0.05)
    assert (type(error), error.code) == (EngineTimeout, "timeout_idle")


@pytest.mark.parametrize("name", NAMES)
def test_an_error_event_in_mid_stream_is_the_only_end(name: str) -> None:
    """X04: it passes as it came, but for the key that it repeats."""
    event = f'data: {{"type":"error","error":{{"type":"server_error","message":"worn out {KEY}"}}}}\n\n'.encode()
    begun = streamed(name=name)[:5]
    seen = relayed(*begun, chunk(event), chunk(b"".join(events_of(REPLY, name))), LAST_CHUNK, name=name)
    assert seen.raw.endswith(event.replace(KEY.encode(), b"***"))
    assert seen.relayed.finished
    assert type(checked(seen.relayed.failure)) is EngineOverloaded


@pytest.mark.parametrize("name", NAMES)
def test_a_second_end_is_dropped(name: str) -> None:
    """X04: one terminal event, whatever the upstream sends."""
    twice = [*streamed(name=name)[:-1], *streamed(name=name)[1:]]
    seen = relayed(*twice, name=name, ask=asked(stream_options={"include_usage": True}))
    assert seen.raw == b"".join(events_of(REPLY, name))


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("upto", "stream"), [(0, True), (1, True), (2, True), (5, True), (0, False), (-1, False)])
async def test_whoever_leaves_closes_the_upstream_at_once(upto: int, stream: bool) -> None:
    """X04: before the headers, before the first token, in mid-stream, and in the middle of a whole answer."""
    half = head(content_length="5000"), whole_body("anthropic")[:50]
    script = list(half) if upto < 0 else streamed()[:upto]
    async with ScriptedServer([*script, Silence()]) as server:
        engine = engine_at(server.url)
        begun = asyncio.Event()

        async def read() -> None:
            answered = await engine.relay(asked(stream=stream), {})
            while await answered.read():
                begun.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await (begun if upto > 2 else server.asked).wait()
            task.cancel()
        await server.left.wait()
        await engine.aclose()
        assert task.cancelled()


async def test_closing_an_answer_of_which_nothing_was_read_closes_the_upstream_at_once() -> None:
    """X04: one of which something was read is part of the contract of engines."""
    async with ScriptedServer([*streamed()[:5], Silence()]) as server:
        engine = engine_at(server.url)
        (await engine.relay(asked(), {})).close()
        await server.left.wait()
        await engine.aclose()


# --- again, and elsewhere --------------------------------------------------------------------------------------------


class Waits(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def test_a_relay_is_tried_again_until_the_first_token_and_never_after_it() -> None:
    """R10: 429 with its own wait, a stream that dies before its first token, then the answer, which breaks for good."""
    waits = Waits()

    async def ask() -> None:
        busy, begun = [answer("{}", 429, Retry_After="7")], [*streamed()[:2], LAST_CHUNK]
        async with ScriptedServer(busy, begun, [*streamed()[:5], LAST_CHUNK]) as server:
            engine = Retry(engine_at(server.url), sleep=waits, random=lambda: 0.5)
            answered = await engine.relay(asked(), {})
            try:
                assert await all_of(answered)
            finally:
                await engine.aclose()

    with pytest.raises(EngineGarbled, match="broke off"):
        run(ask())
    assert waits == [7.0, 1.0]


def test_a_relay_that_will_not_pass_or_asks_for_too_much_patience_is_given_up() -> None:
    async def ask(script: bytes) -> None:
        async with ScriptedServer([script]) as server:
            engine = Retry(engine_at(server.url), sleep=Waits())
            try:
                await engine.relay(asked(), {})
            finally:
                await engine.aclose()

    with pytest.raises(PromptRejected):
        run(ask(answer("{}", 400)))
    with pytest.raises(EngineOverloaded, match="Try again in 5 min"):
        run(ask(answer("{}", 429, Retry_After="300")))


async def test_the_next_engine_of_the_same_dialect_answers_a_relay() -> None:
    """R09: nothing listens at the first, the second refuses our key, the third answers."""
    async with ScriptedServer([answer("{}", 401)]) as second, ScriptedServer(streamed()) as third:
        bases = (f"http://127.0.0.1:{free_port()}", second.url, third.url)
        engine = Fallback(*(engine_at(base) for base in bases))
        answered = await engine.relay(asked(), {})
        raw = await all_of(answered)
        await engine.aclose()
        assert raw == b"".join(events_of(REPLY))


def test_when_no_engine_answers_a_relay_the_first_error_is_told_and_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask() -> None:
        async with ScriptedServer([answer("{}", 429)]) as first, ScriptedServer([answer("{}", 500)]) as second:
            engine = Fallback(engine_at(first.url), engine_at(second.url))
            try:
                await engine.relay(asked(), {})
            finally:
                await engine.aclose()

    with pytest.raises(EngineOverloaded) as caught:
        run(ask())
    assert caught.value.status == 429
    busy = "test:m-1 failed: test refused the request (429): {}; try again later"
    broken = "test:m-1 failed: test had an internal error (status 500): {}; try again later"
    assert str(caught.value) == f"{busy}; then {broken}"
    assert caplog.messages == [f"{busy} (asking test:m-1 instead)", broken]
