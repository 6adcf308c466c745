"""What names stand for in code: built-in tools, the engine that the command line would choose, an engine at a URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel import (
    Agent,
    App,
    ConfigError,
    EngineOverloaded,
    ModelFacts,
    NotTrusted,
    RondelError,
    TurnFailed,
    ask,
    calculate,
    engine_at,
)
from rondel.project.lookup import TOOLS
from rondel.testing import Scripted, call

ANSWER = (
    b'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{"content":"Hello."}}]}\n\n'
    b'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@contextlib.asynccontextmanager
async def server(*answers: bytes) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """A model's server on loopback: its base URL, and the heads of the requests that it got."""
    heads, left = list[bytes](), list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        heads.append(head + await reader.readexactly(length))
        writer.write(left.pop(0))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", heads


def response(status: str, body: bytes, kind: str = "text/event-stream") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nretry-after: 0\r\n\r\n"
    return head.encode() + body


# --- tools ------------------------------------------------------------------------------------------------------------


def test_built_in_tools_are_found_by_name_as_in_files():
    model = Scripted(call("calculate", expression="2 + 40"), "42.")
    assert rondel.run(Agent("helper", engine=model, tools=["calculate"]), "2 + 40?").output == "42."
    assert model.prompts[1].messages[-1].parts[0].text == "42"  # type: ignore[union-attr]


def test_every_built_in_tool_can_be_imported_by_its_name():
    for name in TOOLS:
        assert getattr(rondel, name).name == name
    assert rondel.calculate is calculate


async def test_a_wrong_name_is_an_error_with_the_nearest_one():
    with pytest.raises(RondelError, match="no tool is named 'calculat'; did you mean 'calculate'"):
        await ask(Agent("helper", engine="echo", tools=["calculat"]), "Hi.")


def test_a_function_of_a_module_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rooms_of_mine.py").write_text('def free(day: str) -> str:\n    "Free rooms."\n    return "none"\n')
    monkeypatch.syspath_prepend(tmp_path)
    model = Scripted(call("free", day="today"), "None.")
    assert rondel.run(Agent("helper", engine=model, tools=["rooms_of_mine:free"]), "?").output == "None."


@pytest.mark.parametrize("key", ["tools", "plugins", "handoffs"])
def test_a_name_where_a_list_belongs_is_one_sentence(key: str):
    with pytest.raises(RondelError, match=rf"agent 'a': {key} is a list; write {key}=\['clock'\]"):
        Agent("a", **{key: "clock"})  # type: ignore[arg-type]


# --- the default engine -----------------------------------------------------------------------------------------------


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of nobody: an empty home, no keys, an empty folder."""
    from rondel.contracts.endpoint import PROVIDERS

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RONDEL_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for provider in PROVIDERS.values():
        for variable in provider.key_variables:
            monkeypatch.delenv(variable, raising=False)
    for variable in ("RONDEL_ENGINE", "RONDEL_CONFIG", "RONDEL_TRUST"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_an_agent_without_an_engine_gets_the_one_that_the_command_line_would_choose(
    clean: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RONDEL_ENGINE", "echo")
    assert rondel.run(Agent("helper"), "Anybody?").output == "Anybody?"


async def test_so_does_an_agent_that_works_for_another_one(clean: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RONDEL_ENGINE", "echo")
    inner = Agent("inner")
    outer = Agent("outer", engine=Scripted(call("inner", input="hello"), "done"), tools=[inner])
    assert (await ask(outer, "Go.")).output == "done"


def test_the_engine_of_a_project_that_is_not_trusted_is_not_used(clean: Path, monkeypatch: pytest.MonkeyPatch):
    (clean / "rondel.toml").write_text('engine = "echo"\n')
    with pytest.raises(NotTrusted, match=r"chooses the engine here, and it is not trusted; .* or give the agent"):
        rondel.run(Agent("helper"), "Hi.")
    monkeypatch.setenv("RONDEL_TRUST", str(clean))
    assert rondel.run(Agent("helper"), "Hi.").output == "Hi."


def test_an_agent_that_asks_no_model_needs_no_engine(clean: Path):
    (clean / "rondel.toml").write_text('engine = "echo"\n')  # would be refused
    assert rondel.run(Agent("now", template="Hello {{ .Input }}."), "Ann").output == "Hello Ann."


def test_nothing_is_downloaded_for_code_that_named_no_engine(clean: Path, monkeypatch: pytest.MonkeyPatch):
    async def no_server(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr("rondel.project.engines.ask_address", no_server)
    monkeypatch.setattr("rondel.project.engines.has_runtime", lambda: True)
    with pytest.raises(
        ConfigError, match=r"the embedded model is not downloaded; run `rondel model pull qwen2.5-coder-1.5b` \("
    ):
        rondel.run(Agent("helper"), "Hi.")


# --- an engine at a URL -----------------------------------------------------------------------------------------------


async def test_an_engine_at_a_url_takes_one_line_and_retries():
    busy = response("503 Busy", b"{}", "application/json")
    async with server(busy, response("200 OK", ANSWER)) as (url, requests):
        result = await ask(Agent("helper", engine=engine_at(url, "my-model", key="secret")), "Hi.")
    assert result.output == "Hello."
    assert len(requests) == 2
    assert b"authorization: bearer secret" in requests[1].lower()
    assert b'"model":"my-model"' in requests[1]


async def test_it_may_be_asked_once_only():
    async with server(response("503 Busy", b"{}", "application/json")) as (url, requests):
        with pytest.raises(TurnFailed) as raised:
            await ask(Agent("helper", engine=engine_at(url, "m", attempts=1)), "Hi.")
    assert isinstance(raised.value.__cause__, EngineOverloaded)
    assert len(requests) == 1


def test_it_is_named_after_its_host_and_can_be_told_its_facts():
    engine = engine_at("http://127.0.0.1:8000/v1", "qwen3:8b", facts=ModelFacts(window_tokens=8192, tools=False))
    assert engine.name == "127.0.0.1:qwen3:8b"
    assert (engine.facts.window_tokens, engine.facts.tools) == (8192, False)
    assert engine_at("http://127.0.0.1:8000/v1", "m", name="mine").name == "mine:m"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("127.0.0.1:8000", "m"), "is not a web address; write it as http://host:port"),
        (("http://127.0.0.1:8000", ""), "needs the name of a model"),
    ],
)
def test_a_wrong_url_or_no_model_is_one_sentence(arguments: tuple[str, str], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        engine_at(*arguments)


def test_a_wrong_dialect_is_one_sentence_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no dialect 'openai_chat'; did you mean 'openai-chat'"):
        engine_at("http://127.0.0.1:8000", "m", dialect="openai_chat")


async def test_an_app_closes_it():
    async with server(response("200 OK", ANSWER)) as (url, _), App(Agent("a", engine=engine_at(url, "m"))) as app:
        assert (await app.conversation().ask("Hi.")).output == "Hello."
