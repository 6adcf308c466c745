"""What the gateway did not expect: a fault of its own, of which only the log has the reason, and wrong requests."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rondel import App
from rondel.gateway.server.app import Gateway
from rondel.gateway.server.setup import Setup
from rondel.project.settings import Config
from rondel.testing import Echo
from tests.gateway.test_budgets import BODIES, ask

SECRET = "/home/ann/secret"


@pytest.mark.parametrize("path", BODIES)
async def test_an_unforeseen_fault_is_an_answer_without_its_reason(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(*_: object) -> None:
        raise ZeroDivisionError(SECRET)

    app = App()
    setup = Setup(app, Config(), make_engine=lambda _: Echo(), default="echo")
    monkeypatch.setattr(setup, "decide", break_down)
    async with app, Gateway(app, setup) as gateway, asyncio.timeout(20):
        with caplog.at_level(logging.ERROR):
            status, _, body = await ask(gateway, path, BODIES[path])
        (record,) = gateway.records.newest
        monkeypatch.undo()
        assert (await ask(gateway, path, BODIES[path]))[0] == 200, "the next request is answered"
    assert (status, record.outcome) == (500, "failed")
    assert body["error"]["message"] == f"the gateway failed; its log has the reason under {record.id}"
    assert SECRET not in str((body, record))
    assert SECRET in caplog.text
    assert record.id in caplog.text


@pytest.mark.parametrize("path", BODIES)
async def test_a_compressed_body_is_refused_with_what_to_send(path: str) -> None:
    app = App()
    async with app, Gateway(app, Setup(app, Config(), make_engine=lambda _: Echo(), default="echo")) as gateway:
        status, _, body = await ask(gateway, path, BODIES[path], (b"content-encoding", b"gzip"))
    assert status == 400
    assert body["error"]["message"] == "the body is encoded as 'gzip'; send it uncompressed"


async def test_a_wrong_address_is_shown_whole_and_logged_like_other_refused_requests() -> None:
    """C04: a base URL that ends in /v1, for a client that adds it, too."""
    app = App()
    setup = Setup(app, Config(), make_engine=lambda _: Echo(), default="echo")
    async with app, Gateway(app, setup) as gateway, asyncio.timeout(20):
        twice = await ask(gateway, "/v1/v1/messages", {})
        wrong = await ask(gateway, "/v1/nothing", {})
        other = await ask(gateway, "/v1/messages", {}, method="GET")
        records = list(gateway.records.newest)
    said = [answer[2]["error"]["message"] for answer in (twice, wrong, other)]
    assert [answer[0] for answer in (twice, wrong, other)] == [404, 404, 405]
    assert said[0] == "nothing is at '/v1/v1/messages': the base URL already ends in /v1; write it once"
    assert twice[2]["type"] == "error"  # in the dialect that was meant
    assert said[1].startswith("nothing is at '/v1/nothing'; the gateway has /messages, ")
    assert [(record.status, record.outcome, record.error) for record in records] == [
        (404, "refused", said[0]), (404, "refused", said[1]), (405, "refused", said[2])]  # fmt: skip
