"""The HTTP engine against real servers on loopback: what it sends, and what it makes of good and of broken answers."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from scripted_http import (
    CHUNKED,
    LAST_CHUNK,
    Close,
    Flood,
    Reset,
    ScriptedServer,
    Silence,
    Step,
    answer,
    chunk,
    free_port,
    full_port,
    head,
    run,
)

from rondel import values
from rondel.contracts.dialect import Dialect
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engine import Engine
from rondel.engines.http import HttpEngine, retry_after_s
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

KEY = "sk-hunter2"
REPLY = values.Reply(
    values.assistant(values.Text("Grüße"), values.ToolCall("call_1", "add", {"a": 2, "b": 40})),
    stop="calls",
    usage=values.Usage(tokens_in=7, tokens_out=5),
    model="m-1",
    id="r-1",
)
PROMPT = Prompt.of(values.system("Be brief."), values.user("Hi"))


def dialect(name: str = "anthropic") -> Dialect:
    return DIALECTS[name]()


def engine_at(base_url: str, name: str = "anthropic", **fields: Any) -> HttpEngine:
    known: dict[str, Any] = {"key": KEY, "key_variables": ("TEST_KEY",), "first_token_s": 10.0, "idle_s": 10.0}
    return HttpEngine(Endpoint("test", base_url, name, **(known | fields)), dialect(name), "m-1")


def events_of(reply: values.Reply, name: str = "anthropic") -> list[bytes]:
    """The pieces in which a server of this dialect streams a reply."""
    writer = dialect(name).reply_writer(model=reply.model, id=reply.id)
    return [piece for delta in values.deltas_of(reply) if (piece := writer.feed(delta))]


def streamed(reply: values.Reply = REPLY, name: str = "anthropic") -> list[Step]:
    return [CHUNKED, *(chunk(piece) for piece in events_of(reply, name)), LAST_CHUNK]


async def ask(engine: HttpEngine) -> values.Reply:
    builder = values.ReplyBuilder()
    try:
        async for delta in engine.stream(PROMPT):
            builder.add(delta)
    finally:
        await engine.aclose()
    assert builder.finished
    return builder.reply()


async def ask_server(*script: Step, name: str = "anthropic", **fields: Any) -> values.Reply:
    async with ScriptedServer(list(script)) as server:
        return await ask(engine_at(server.url, name, **fields))


def failure_of(*script: Step, **fields: Any) -> EngineError:
    """The error that an answer leads to. Whatever it is, it says whose it is and keeps the key to itself."""
    with pytest.raises(EngineError) as caught:
        run(ask_server(*script, **fields))
    return checked(caught.value)


def checked(error: EngineError) -> EngineError:
    assert (error.provider, error.model) == ("test", "m-1")
    assert error.code
    link: BaseException | None = error
    while link is not None:
        assert KEY not in f"{link} {link!r} {link.args} {link.__dict__}"
        link = link.__cause__ or link.__context__
    return error


# --- good answers ----------------------------------------------------------------------------------------------------


def test_it_is_an_engine_with_a_name_and_facts() -> None:
    engine = engine_at("http://127.0.0.1:1")
    assert isinstance(engine, Engine)
    assert engine.name == "test:m-1"
    assert engine.facts.tools
    assert KEY not in repr(engine)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_streamed_answer_becomes_a_reply(name: str) -> None:
    reply = run(ask_server(*streamed(name=name), name=name))
    assert (reply.text, reply.stop, reply.model) == ("Grüße", "calls", "m-1")
    assert [(call.name, call.arguments) for call in reply.message.calls] == [("add", {"a": 2, "b": 40})]
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (7, 5)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_server_that_does_not_stream_gives_the_same_reply(name: str) -> None:
    body = json.dumps(dialect(name).reply_writer(model="m-1", id="r-1").write_whole(REPLY))
    streaming, whole = run(ask_server(*streamed(name=name), name=name)), run(ask_server(answer(body), name=name))
    assert whole.message.calls[0].arguments == streaming.message.calls[0].arguments
    assert (whole.text, whole.stop, whole.model) == (streaming.text, streaming.stop, streaming.model)


def test_an_answer_in_single_bytes_reads_the_same() -> None:
    body = b"".join(events_of(REPLY))
    pieces = [chunk(body[at : at + 1]) for at in range(len(body))]
    assert run(ask_server(CHUNKED, *pieces, LAST_CHUNK)) == run(ask_server(*streamed()))


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "application/octet-stream"])
def test_a_stream_under_a_wrong_label_is_still_a_stream(content_type: str) -> None:
    script = [head(content_type=content_type), *events_of(REPLY), Close()]
    assert run(ask_server(*script)).text == "Grüße"


async def test_the_request_carries_the_prompt_the_key_and_the_endpoints_own_fields() -> None:
    async with ScriptedServer(streamed()) as server:
        own = {"headers": {"X-Team": "7"}, "options": {"metadata": {"user_id": "u"}, "max_tokens": None}}
        await ask(engine_at(server.url, **own))
        sent = server.requests[0]
    assert sent.target == "/v1/messages"
    assert (sent.headers["x-api-key"], sent.headers["x-team"]) == (KEY, "7")
    assert sent.headers["user-agent"].startswith("rondel/")
    assert (sent.body["model"], sent.body["stream"]) == ("m-1", True)
    assert sent.body["metadata"] == {"user_id": "u"}
    assert "max_tokens" not in sent.body


async def test_without_a_key_no_empty_key_is_sent() -> None:
    async with ScriptedServer(streamed()) as server:
        await ask(engine_at(server.url, key=""))
        assert not {"x-api-key", "authorization"} & set(server.requests[0].headers)


async def test_the_first_delta_comes_before_the_answer_has_ended() -> None:
    """The server sends nothing more until the client leaves; the first words must have been read by then."""
    events = events_of(REPLY)
    async with ScriptedServer([CHUNKED, *(chunk(event) for event in events[:3]), Silence()]) as server:
        engine = engine_at(server.url)
        async with aclosing(engine.stream(PROMPT)) as deltas:
            words = await anext(delta.text async for delta in deltas if isinstance(delta, values.PartDelta))
        await server.left.wait()
        await engine.aclose()
        assert words == "Grüße"


def test_pieces_that_arrive_together_go_on_together() -> None:
    """What a part is made of stays in its order; other parts and other kinds of deltas are never joined."""

    async def deltas() -> list[values.Delta]:
        writer = dialect().reply_writer(model="m", id="r")
        said = [values.PartDelta(0, "one "), values.PartDelta(0, "two "), values.PartDelta(0, "three")]
        first, *rest = values.deltas_of(
            values.Reply(values.assistant(values.Text("one two three")), usage=values.Usage(1, 1))
        )
        told = [first, rest[0], *said, *(delta for delta in rest[1:] if not isinstance(delta, values.PartDelta))]
        body = b"".join(map(writer.feed, told))
        async with ScriptedServer([CHUNKED + chunk(body) + LAST_CHUNK]) as server:
            engine = engine_at(server.url)
            heard = [delta async for delta in engine.stream(PROMPT)]
            await engine.aclose()
            return heard

    heard = run(deltas())
    assert [delta.text for delta in heard if isinstance(delta, values.PartDelta)] == ["one two three"]
    assert isinstance(heard[-1], values.ReplyFinished)


async def test_prompts_one_after_the_other_share_a_connection() -> None:
    async with ScriptedServer(streamed(), streamed(), streamed()) as server:
        engine = engine_at(server.url)
        for _ in range(3):
            assert [delta async for delta in engine.stream(PROMPT)]
        await engine.aclose()
        assert server.connections == 1


async def test_many_prompts_at_once_do_not_wait_for_each_other() -> None:
    async with ScriptedServer(*(streamed() for _ in range(150))) as server:
        engine = engine_at(server.url)

        async def one() -> str:
            builder = values.ReplyBuilder()
            async for delta in engine.stream(PROMPT):
                builder.add(delta)
            return builder.reply().text

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for _ in range(150)]
        await engine.aclose()
        assert [task.result() for task in tasks] == ["Grüße"] * 150


def test_one_engine_serves_one_loop_after_another_and_leaves_nothing_open() -> None:
    """Nobody calls `aclose`; a warning about something left open would fail this test."""
    engines: list[HttpEngine] = []

    async def once() -> None:
        async with ScriptedServer(streamed()) as server:
            engine = engine_at(server.url)
            engines.append(engine)
            assert [delta async for delta in engine.stream(PROMPT)]

    async def again_on_a_closed_port() -> None:
        with pytest.raises(EngineUnreachable):
            assert [delta async for delta in engines[0].stream(PROMPT)]

    run(once())
    run(again_on_a_closed_port())


def test_an_answer_that_is_complete_but_not_ended_is_a_reply() -> None:
    script = streamed()[:-1]
    assert run(ask_server(*script, Silence())).text == "Grüße"
    assert run(ask_server(*script, Close())).text == "Grüße"


async def test_a_slow_consumer_is_not_taken_for_a_silent_server() -> None:
    async with ScriptedServer(streamed()) as server:
        engine = engine_at(server.url, idle_s=0.05, first_token_s=5.0)
        seen: list[values.Delta] = []
        async for delta in engine.stream(PROMPT):
            seen.append(delta)
            await asyncio.sleep(0.1 if isinstance(delta, values.PartDelta) else 0)
        await engine.aclose()
        assert isinstance(seen[-1], values.ReplyFinished)


def test_broken_tool_arguments_are_passed_through_as_broken() -> None:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    call = {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
    message = {"id": "r", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
    body = (
        event("message_start", message=message)
        + event("content_block_start", index=0, content_block=call)
        + event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"a": 2,, "b"'})
        + event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1})
        + event("message_stop")
    )
    (made,) = run(ask_server(CHUNKED, chunk(body), LAST_CHUNK)).message.calls
    assert (made.name, made.broken, made.arguments) == ("add", '{"a": 2,, "b"', {})


# --- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_its_variable_and_never_shows_itself(status: int) -> None:
    """F06: the error carries its name, code, provider and message. Here the server even repeats the key."""
    body = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": f"bad key {KEY}"}})
    error = failure_of(answer(body, status))
    assert type(error) is EngineDenied
    assert "TEST_KEY" in str(error)
    assert "***" in str(error)


async def test_a_missing_key_is_told_before_anything_is_sent() -> None:
    async with ScriptedServer() as server:
        engine = engine_at(f"http://model.test:{server.port}", key="")
        with pytest.raises(EngineDenied, match="there is no key for test; set TEST_KEY") as caught:
            await ask(engine)
        assert checked(caught.value).code == "no_key"
        assert server.connections == 0


def test_a_key_with_a_line_break_in_it_is_refused_without_being_shown() -> None:
    with pytest.raises(EngineDenied, match="TEST_KEY contains an invalid character") as caught:
        run(ask(engine_at("http://127.0.0.1:1", key=f"{KEY}\nx")))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry_After": "17"}, 17.0),
        ({"Retry_After": "Sun, 15 Nov 2026 20:02:00 GMT", "Date": "Sun, 15 Nov 2026 20:00:30 GMT"}, 90.0),
        ({"Retry_After": "Sun, 15 Nov 2026 20:00:00 GMT", "Date": "Sun, 15 Nov 2026 20:00:30 GMT"}, 0.0),
        ({"Retry_After_Ms": "1500", "Retry_After": "2"}, 1.5),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "-7"}, 0.0),
        ({"Retry_After": "1e308"}, 30 * 86_400.0),
        ({"Retry_After": "inf"}, 30 * 86_400.0),
        ({"Retry_After": "9" * 5_000}, 30 * 86_400.0),
        ({"Retry_After_Ms": "1e308"}, 30 * 86_400.0),
        ({"Retry_After": "Sun, 15 Nov 9999 20:00:00 GMT"}, 30 * 86_400.0),
        ({"Retry_After": "Sun, 15 Nov 99999999999 20:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_too_many_requests_says_when_to_come_back(headers: dict[str, str], wait_s: float | None) -> None:
    """R10: Retry-After in seconds, in milliseconds, or as a date by the server's own clock."""
    error = failure_of(answer("{}", 429, **headers))
    assert type(error) is EngineOverloaded
    assert error.retryable
    assert error.retry_after_s == wait_s


async def test_a_busy_server_is_asked_again_after_the_time_it_wants() -> None:
    """R10: the whole way: 429 with Retry-After, then 503 without, then the answer."""
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    busy, broken = answer("{}", 429, Retry_After="7"), answer("{}", 503)
    async with ScriptedServer([busy], [broken], streamed()) as server:
        engine = Retry(engine_at(server.url), sleep=wait, random=lambda: 0.5)
        builder = values.ReplyBuilder()
        async for delta in engine.stream(PROMPT):
            builder.add(delta)
        await engine.aclose()
        assert builder.reply().text == "Grüße"
    assert waits == [7.0, 1.0]


def test_a_date_without_the_servers_clock_is_read_by_ours() -> None:
    assert retry_after_s({"retry-after": "Sun, 15 Nov 1998 20:00:00 GMT"}) == 0.0


@pytest.mark.parametrize(
    ("status", "kind"), [(400, PromptRejected), (404, PromptRejected), (500, EngineOverloaded), (503, EngineOverloaded)]
)
def test_a_status_becomes_its_error(status: int, kind: type[EngineError]) -> None:
    body = json.dumps({"type": "error", "error": {"type": "some_error", "message": "it is so"}})
    error = failure_of(answer(body, status))
    assert type(error) is kind
    assert "it is so" in str(error)


def test_a_status_is_told_even_when_its_body_breaks_off() -> None:
    assert type(failure_of(head(500, content_length="100"), b"half", Close())) is EngineOverloaded
    assert type(failure_of(head(500, content_length="100"), b"half", Silence(), idle_s=0.05)) is EngineOverloaded


def test_a_web_page_from_a_gateway_in_trouble_is_an_overload() -> None:
    assert type(failure_of(answer("<html>Bad gateway</html>", 502, "text/html"))) is EngineOverloaded


def test_an_error_under_a_status_of_success_is_an_error() -> None:
    error = failure_of(answer(json.dumps({"error": {"code": 429, "message": "slow down"}})))
    assert type(error) is EngineOverloaded
    assert "slow down" in str(error)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    async with ScriptedServer() as other:
        with pytest.raises(EngineGarbled, match="base URL") as caught:
            await ask_server(answer("", 307, Location=f"{other.url}/elsewhere"))
        assert not checked(caught.value).retryable
        assert other.connections == 0


# --- answers that are no answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/plain"])
def test_a_web_page_is_called_a_web_page(content_type: str) -> None:
    error = failure_of(answer("<!doctype html><title>Log in</title>", 200, content_type))
    assert type(error) is EngineGarbled
    assert error.code == "html"
    assert "web page (HTML)" in str(error)


def test_json_that_is_not_json_is_garbled() -> None:
    assert type(failure_of(answer('{"type": "mess'))) is EngineGarbled
    assert type(failure_of(answer("[1, 2]"))) is EngineGarbled
    assert type(failure_of(answer('{"nothing": "known"}'))) is EngineGarbled


@pytest.mark.parametrize("name", DIALECTS)
def test_an_event_that_is_not_json_is_garbled(name: str) -> None:
    error = failure_of(CHUNKED, chunk(b"event: message_start\ndata: {nonsense\n\n"), LAST_CHUNK, name=name)
    assert type(error) is EngineGarbled


@pytest.mark.parametrize("name", DIALECTS)
def test_an_answer_that_ends_early_is_garbled(name: str) -> None:
    script = streamed(name=name)
    assert type(failure_of(*script[:3], LAST_CHUNK, name=name)) is EngineGarbled
    assert type(failure_of(answer("", 200, "text/event-stream"), name=name)) is EngineGarbled


def test_an_error_in_the_middle_of_a_stream_says_whose_it_is() -> None:
    """F06: the dialect does not know the provider; the engine adds it."""
    event = {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded {KEY}"}}
    data = f"event: error\ndata: {json.dumps(event)}\n\n".encode()
    error = failure_of(*streamed()[:3], chunk(data), LAST_CHUNK)
    assert type(error) is EngineOverloaded
    assert "Overloaded" in str(error)


async def test_a_dialect_that_stumbles_is_the_answers_fault() -> None:
    class Stumbling:
        def feed(self, data: bytes) -> list[values.Delta]:
            raise KeyError("choices")

    broken: Any = dialect()
    broken.reply_reader = lambda tools: Stumbling()
    with pytest.raises(EngineGarbled, match="KeyError: 'choices'"):
        async with ScriptedServer(streamed()) as server:
            await ask(HttpEngine(Endpoint("test", server.url, "anthropic"), broken, "m-1"))


def test_what_is_not_http_is_called_so() -> None:
    assert failure_of(b"SSH-2.0-OpenSSH_9.9\r\n", Close()).code == "not_http"


# --- too much --------------------------------------------------------------------------------------------------------


def flooded(engine_of: Any) -> tuple[EngineError, int]:
    """The error, and how many bytes of 200 MB the server could send before it was cut off."""

    async def flood() -> tuple[EngineError, int]:
        async with ScriptedServer([head(), b"data: ", Flood(200_000_000), Close()]) as server:
            with pytest.raises(EngineError) as caught:
                await ask(engine_of(server.url))
            await server.left.wait()
            return caught.value, server.bytes_sent

    return run(flood())


def test_a_line_of_200_megabytes_is_refused_without_being_kept() -> None:
    error, bytes_sent = flooded(engine_at)
    assert type(checked(error)) is EngineGarbled
    assert bytes_sent < http.EVENT_BYTES_MAX + 16_000_000


def test_the_engine_bounds_an_answer_even_if_its_dialect_does_not() -> None:
    class Deaf:
        def feed(self, data: bytes) -> list[values.Delta]:
            return []

    deaf: Any = dialect()
    deaf.reply_reader = lambda tools: Deaf()
    error, bytes_sent = flooded(lambda url: HttpEngine(Endpoint("test", url, "anthropic"), deaf, "m-1"))
    assert (type(error), error.code) == (EngineGarbled, "too_long")
    assert bytes_sent < http.EVENT_BYTES_MAX + 16_000_000


def test_json_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_BYTES_MAX", 1_000_000)
    error = failure_of(head(content_type="application/json"), b'{"', Flood(20_000_000), Close())
    assert error.code == "too_long"


def test_an_endless_error_is_told_by_its_beginning() -> None:
    assert type(failure_of(head(500), Flood(20_000_000), Close())) is EngineOverloaded


# --- silence ---------------------------------------------------------------------------------------------------------


def timed_out(*script: Step, **fields: Any) -> EngineError:
    error = failure_of(*script, **fields)
    assert type(error) is EngineTimeout
    assert error.retryable
    return error


def test_silence_before_the_answer_is_a_time_out_of_the_first_token() -> None:
    error = timed_out(Silence(), first_token_s=0.05)
    assert error.code == "timeout_first_token"
    assert "within 0.05 s (the endpoint's first_token_s)" in str(error)


def test_silence_after_the_head_is_a_time_out_of_the_first_token() -> None:
    assert timed_out(CHUNKED, Silence(), first_token_s=0.05).code == "timeout_first_token"
    assert timed_out(head(content_type="text/plain"), Silence(), first_token_s=0.05).code == "timeout_first_token"


def test_silence_after_a_ping_is_a_time_out_of_the_first_token() -> None:
    ping = chunk(b'event: ping\ndata: {"type": "ping"}\n\n')
    assert timed_out(CHUNKED, ping, Silence(), first_token_s=0.05, idle_s=0.05).code == "timeout_first_token"


def test_half_an_event_and_then_silence_is_a_time_out() -> None:
    *events, last = events_of(REPLY)[:4]
    script = [CHUNKED, *(chunk(event) for event in events), chunk(last[: len(last) // 2])]
    error = timed_out(*script, Silence(), idle_s=0.05)
    assert error.code == "timeout_idle"
    assert "within 0.05 s (the endpoint's idle_s)" in str(error)


def test_a_port_that_accepts_nobody_is_a_time_out_of_connecting() -> None:
    with (
        full_port() as port,
        pytest.raises(EngineTimeout, match=r"within 0\.05 s \(the endpoint's connect_s\)") as caught,
    ):
        run(ask(engine_at(f"http://127.0.0.1:{port}", connect_s=0.05)))
    assert checked(caught.value).code == "timeout_connect"


# --- no connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", [0, 1, 3])
def test_a_connection_that_is_reset_is_unreachable(upto: int) -> None:
    error = failure_of(*streamed()[:upto], Reset())
    assert type(error) is EngineUnreachable
    assert error.retryable


def test_a_connection_that_closes_in_the_middle_is_unreachable() -> None:
    assert type(failure_of(*streamed()[:3], Close())) is EngineUnreachable
    assert type(failure_of(Close())) is EngineUnreachable


def unreachable(base_url: str) -> EngineError:
    with pytest.raises(EngineUnreachable) as caught:
        run(ask(engine_at(base_url)))
    return checked(caught.value)


def test_a_port_where_nothing_listens_asks_whether_the_server_runs() -> None:
    error = unreachable(f"http://127.0.0.1:{free_port()}")
    assert error.code == "refused"
    assert "Nothing is listening at 127.0.0.1:" in str(error)
    assert str(error).endswith("). Is the server running?")


def test_a_name_without_an_address_says_so() -> None:
    assert unreachable("http://no-such-host.invalid").code == "dns"


async def test_a_server_without_tls_is_no_trusted_connection() -> None:
    async def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("", 400))
        writer.close()

    async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineUnreachable) as caught:
            await ask(engine_at(f"https://127.0.0.1:{port}"))
        assert checked(caught.value).code == "tls"


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("script", "may_have_spent"),
    [
        ([Reset()], True),
        ([CHUNKED, Reset()], True),
        ([CHUNKED, chunk(b": ping\n\n"), LAST_CHUNK], True),
        ([Silence()], True),
        ([answer("{}", 500)], False),
        ([answer("{}", 429)], False),
        ([answer("{}", 400)], False),
        ([answer("<html>", content_type="text/html")], False),
        ([answer("", 302, location="http://elsewhere")], False),
        ([b"SSH-2.0-x\r\n\r\n", Close()], False),
    ],
)
def test_an_error_says_whether_the_model_may_have_been_reached(script: list[Step], may_have_spent: bool) -> None:
    """Trust 11: what was sent and not refused may be charged by the provider, so the ledger charges it."""
    assert failure_of(*script, first_token_s=0.3).may_have_spent is may_have_spent


def test_what_was_never_sent_was_not_spent() -> None:
    """Trust 11: no connection, no charge."""
    with pytest.raises(EngineError) as refused:
        run(ask(engine_at(f"http://127.0.0.1:{free_port()}")))
    assert not refused.value.may_have_spent
    with full_port() as port, pytest.raises(EngineTimeout) as waited:
        run(ask(engine_at(f"http://127.0.0.1:{port}", connect_s=0.2)))
    assert not waited.value.may_have_spent


async def test_the_proxy_of_the_environment_is_used(no_proxies: pytest.MonkeyPatch) -> None:
    async with ScriptedServer(streamed()) as proxy:
        no_proxies.setenv("HTTP_PROXY", proxy.url)
        assert (await ask(engine_at("http://model.test"))).text == "Grüße"
        assert proxy.requests[0].target == "http://model.test/v1/messages"


def test_loopback_is_never_asked_for_through_a_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert run(ask_server(*streamed())).text == "Grüße"


def test_a_proxy_that_is_not_there_or_not_http_says_so(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert unreachable("http://model.test").code == "proxy"
    no_proxies.setenv("HTTP_PROXY", "socks5://127.0.0.1:1080")
    assert "socks5" in str(unreachable("http://model.test"))


def test_a_host_that_the_environment_excepts_goes_without_the_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    no_proxies.setenv("NO_PROXY", ".invalid")
    assert unreachable("http://no-such-host.invalid").code == "dns"


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", [0, 1, 3])
async def test_a_cancelled_task_closes_the_request_at_once(upto: int) -> None:
    """F05: before the answer begins and in the middle of it, stopping closes the upstream request."""
    async with ScriptedServer([*streamed()[:upto], Silence()]) as server:
        engine = engine_at(server.url)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in engine.stream(PROMPT):
                begun.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await (begun if upto > 1 else server.asked).wait()
            task.cancel()
        await server.left.wait()
        await engine.aclose()
        assert task.cancelled()
