"""What is written about a turn, and what never is."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rondel import Agent, App, EngineError, Plugin, tool
from rondel.testing import Scripted, call, say
from rondel.text.masking import mask
from rondel.values import Notice, Usage, deltas_of

from ..helpers import events_of, play


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "rondel.log"]


async def hello(app: App) -> None:
    await events_of(await app.conversation("c1").send("hello"))


def test_each_round_is_one_line_of_json(caplog: pytest.LogCaptureFixture):
    """O03: request, model, attempts and usage."""

    @tool
    async def look() -> str:
        return "seen"

    answer = say("It is there.", usage=Usage(100, 20, tokens_cached=80))
    engine = Scripted(call("look"), [Notice("retry 1 of 3, key=hunter22"), *deltas_of(answer)])
    with caplog.at_level(logging.INFO, "rondel.log"):
        play(hello, Agent("helper", engine=engine, tools=[look]))
    first, second = lines(caplog)
    assert (first["event"], first["round"], first["calls"], first["stop"]) == ("round", 1, ["look"], "calls")
    assert (second["conversation"], second["agent"], second["engine"]) == ("c1", "helper", "scripted:test")
    assert (second["round"], second["tokens_in"], second["tokens_out"], second["tokens_cached"]) == (2, 100, 20, 80)
    assert second["notices"] == ["retry 1 of 3, key=***"]
    assert second["turn"] == first["turn"]
    assert second["seconds"] >= second["first_token_s"] >= 0


def test_what_fails_is_logged_without_its_secrets(caplog: pytest.LogCaptureFixture):
    """O03: failures of calls, plugins and turns; secrets hidden."""

    class Leaky(Plugin):
        async def on_prompt(self, turn: Any, prompt: Any) -> Any:
            raise RuntimeError("password=hunter22")

    @tool
    async def leak() -> str:
        raise ValueError("Authorization: Bearer abc.def.ghi")

    engine = Scripted(call("leak"), EngineError("wrong key sk-abcdefghijkl", provider="acme", code="401"))
    with caplog.at_level(logging.INFO, "rondel.log"):
        play(hello, Agent("helper", engine=engine, tools=[leak], plugins=[Leaky()]))
    found = lines(caplog)
    assert {line["event"] for line in found} == {"round", "plugin_failed", "call_failed", "turn_failed"}
    failed = next(line for line in found if line["event"] == "turn_failed")
    assert (failed["error"], failed["provider"], failed["code"]) == ("EngineError", "acme", "401")
    for secret in ("hunter22", "abc.def.ghi", "sk-abc"):
        assert secret not in caplog.text


def test_where_nobody_listens_nothing_is_written(caplog: pytest.LogCaptureFixture):
    """O03: the log costs nothing when it is off."""
    with caplog.at_level(logging.WARNING, "rondel.log"):
        play(hello, Agent("helper", engine=Scripted("hi")))
    assert lines(caplog) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the key sk-ant-api03-AbC_dEf-123 is wrong", "the key *** is wrong"),
        ("Authorization: Bearer abc.DEF-123=", "Authorization: Bearer ***"),
        ("https://ann:hunter2@example.org/x", "https://ann:***@example.org/x"),
        ("https://example.org/?api_key=0123abcd&x=1", "https://example.org/?api_key=***&x=1"),
        ('{"password": "hunter2", "user": "ann"}', '{"password": "***", "user": "ann"}'),
        ("OPENAI_API_KEY=abcdef", "OPENAI_API_KEY=***"),
        ("access_token: deadbeefdeadbeef", "access_token: ***"),
        ("ghp_0123456789abcdef AKIAIOSFODNN7EXAMPLE", "*** ***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ", "***"),
        ("Authorization: Token abcdef", "Authorization: Token ***"),
        ("{b'x-api-key': b'abcdef'}", "{b'x-api-key': b'***'}"),
        ("[('x-api-key', 'abcdef')]", "[('x-api-key', '***')]"),
        (r"{\"api_key\": \"abcdef\"}", r'{\"api_key\": \"***"}'),
        ("accessToken=abcdef, passphrase: abcdef", "accessToken=***, passphrase: ***"),
        ("https://u:ab/c@d@host", "https://u:***@host"),
        (f"postgres://app:{'A1%2F' * 200}@db/x", "postgres://app:***@db/x"),
        ("https://example.org:443/v1?mail=me@example.org", "https://example.org:443/v1?mail=me@example.org"),
        ("Incorrect API key provided: abcdef", "Incorrect API key provided: ***"),
        ("max_tokens=5, tokens: 7, a monkey: George", "max_tokens=5, tokens: 7, a monkey: George"),
        ("risk-management and task-force", "risk-management and task-force"),
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, shown: str):
    """O03: secrets hidden."""
    assert mask(text) == shown
