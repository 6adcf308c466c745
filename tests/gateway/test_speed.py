"""How fast answers come: measured while they stream, on the average of a session, and until the first token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rondel.app.app import App
from rondel.engine import Engine
from rondel.gateway.relay.record import SESSIONS_MAX, Record, Records, Speed
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.machine.tokens import event_tokens
from rondel.project.engines import make_engine
from rondel.project.settings import Config, EngineSettings
from rondel.testing import Pause, Scripted
from rondel.values import Usage
from tests.cli.model_server import ModelServer

WAIT_S = 20.0


def test_the_speed_now_is_that_of_the_last_second():
    """O02: live, by hand."""
    speed = Speed()
    assert speed.live(0.0) is None
    for at in (10.0, 10.25, 10.5, 10.75, 11.0):
        speed.add(10, at)
    assert speed.live(11.0) == pytest.approx(50.0)
    assert speed.live(11.5) == pytest.approx(30.0)
    assert speed.live(13.0) is None
    assert (speed.recent, len(speed.moments)) == (0, 0)


def test_a_fast_stream_is_as_cheap_to_follow_as_a_slow_one():
    speed = Speed()
    for number in range(10_000):
        speed.add(1, number / 10_000)
    assert len(speed.moments) <= 21
    assert speed.live(1.0) == pytest.approx(10_000, rel=0.01)


def test_a_session_has_an_average_and_the_first_token_of_its_newest_answer():
    """O02: average and time to first token, by hand."""
    records = Records()
    for tokens, first_s, seconds in ((100, 0.5, 2.5), (50, 0.25, 1.25)):
        record = Record("r", 0.0, session="s", streams=True)
        records.begin(record)
        record.usage, record.first_token_s, record.seconds = Usage(tokens_out=tokens), first_s, seconds
        assert record.tokens_per_s == pytest.approx(50.0)
        records.end(record)
    speed = records.speeds["s"]
    assert speed.average == pytest.approx(50.0)
    assert speed.first_token_s == 0.25


def test_only_the_newest_sessions_are_known_and_requests_without_one_have_none():
    records = Records()
    for number in range(SESSIONS_MAX + 10):
        records.begin(Record("r", 0.0, session=f"s{number}"))
    assert (len(records.speeds), "s9" in records.speeds, "s10" in records.speeds) == (SESSIONS_MAX, False, True)
    unnamed = Record("r", 0.0)
    records.begin(unnamed)
    assert unnamed.speed is None


def test_whoever_watches_badly_has_no_part_in_the_request(caplog: pytest.LogCaptureFixture):
    records, seen = Records(), list[str]()

    def fail(record: Record) -> None:
        raise ValueError("no")

    unwatch = records.watch(fail)
    records.watch(lambda record: seen.append(record.outcome))
    record = Record("r", 0.0)
    records.begin(record)
    unwatch()
    record.outcome = "done"
    records.end(record)
    assert seen == ["open", "done"]
    assert [entry.getMessage() for entry in caplog.records] == ["a watcher of requests failed"]


def test_an_answer_that_came_in_one_moment_has_no_speed():
    assert (
        Record("r", 0.0, streams=True, usage=Usage(tokens_out=9), first_token_s=1.0, seconds=1.01).tokens_per_s is None
    )


@pytest.mark.parametrize(
    ("event", "tokens"),
    [
        (b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello there"}}\n\n', 2),
        (b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n' * 3, 3),
        (b'data: {"type":"response.output_text.delta","delta":"Hello \\"there\\", you"}\n\n', 5),
        (b'data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\\"a\\""}}\n\n', 1),
        (b'data: {"type":"response.output_text.done","text":"Hello there, all of it again"}\n\n', 0),
        (b": ping\n\n", 0),
        (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', 0),
    ],
)
def test_the_pieces_of_a_stream_are_measured_in_every_dialect(event: bytes, tokens: int):
    assert event_tokens(event) == tokens


# --- through a request ------------------------------------------------------------------------------------------------


async def _ask(gateway: Gateway, first_piece: Callable[[], Awaitable[None]]) -> None:
    """One streamed request of the session s1; `first_piece` is awaited when a piece of text has come."""
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
    pieces: list[bytes] = []

    async def send(message: Any) -> None:
        pieces.append(message.get("body", b""))
        if b"text_delta" in pieces[-1] and sum(b"text_delta" in piece for piece in pieces) == 1:
            seen.set()

    seen = asyncio.Event()
    headers = [(b"host", b"localhost"), (b"x-session-id", b"s1")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(gateway(scope, incoming.get, send))
        await seen.wait()
        await first_piece()
    assert b"message_stop" in b"".join(pieces)


async def _measured(config: Config, make: Callable[[str], Engine], go_on: Callable[[], None]) -> Records:
    app = App(engine="test:model", make_engine=make)
    setup = Setup(app, config, make_engine=make, default="test:model")
    async with app, Gateway(app, setup) as gateway:

        async def under_way() -> None:
            speed = gateway.records.speeds["s1"]
            async with asyncio.timeout(WAIT_S):
                while not speed.moments:  # it is measured as soon as it has been sent
                    await asyncio.sleep(0)
            assert (speed.live(speed.moments[-1][0]) or 0) > 0
            assert speed.average is None
            go_on()

        await _ask(gateway, under_way)
        return gateway.records


def _check(records: Records) -> None:
    (record,) = records.newest
    assert record.outcome == "done"
    assert record.first_token_s is not None
    assert records.speeds["s1"].first_token_s == record.first_token_s
    assert records.speeds["s1"].tokens_out == record.usage.tokens_out


def test_a_streamed_turn_is_measured_while_it_streams():
    """O02: live and first token, through a request that a turn answers."""
    pause = Pause("So far, so good", " and on.")
    records = asyncio.run(_measured(Config(), lambda _: Scripted(pause), pause.release))
    _check(records)
    assert records.newest[0].relayed is False


def test_a_stream_that_is_passed_on_is_measured_while_it_streams():
    """O02: live and first token, through a request that is passed on as bytes."""
    server = ModelServer()
    held = server.holds("So far, so good", " and on.")
    config = Config(engines={"test": EngineSettings(base_url=server.url, dialect="anthropic", model="model")})
    try:
        records = asyncio.run(_measured(config, lambda name: make_engine(name, config, env={}), held.release))
    finally:
        server.close()
    _check(records)
    assert records.newest[0].relayed is True
