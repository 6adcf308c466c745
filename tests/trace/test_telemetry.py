"""Turns as OpenTelemetry spans, received by a real collector on loopback that decodes the protobuf."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from typing import Any

import pytest

from rondel import Agent, App, tool
from rondel.errors import install_extra
from rondel.events import Outcome, TurnFinished, Warned
from rondel.plugins.telemetry import Telemetry
from rondel.project.lookup import find_plugin
from rondel.testing import Scripted, call, calls, say
from rondel.tools.ask_user import ask_user
from rondel.trace.telemetry import Sender
from rondel.values import ToolCall, Usage
from tests.helpers import events_of, of, play
from tests.trace.collector import attributes_of, collector
from tests.trace.journals import called, journal, said, turn


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def fail() -> str:
    raise ValueError("it is a secret failure")


def crew(telemetry: Telemetry) -> list[Agent]:
    inner = Agent("adder", engine=Scripted(call("add", "k", a=2, b=2), say("four", usage=Usage(7, 3))), tools=[add])
    steps = calls(call("adder", "c", input="2 + 2"), call("fail", "f")), say("Four.", usage=Usage(20, 5, 8))
    outer = Agent(
        "helper",
        "You are a secret helper.",
        engine=Scripted(*steps, name="gemini:flash"),
        tools=[inner, fail],
        plugins=[telemetry],
    )
    return [outer]


async def _ask(app: App) -> str:
    conversation = app.conversation()
    await events_of(await conversation.send("a secret question"))
    return conversation.id


def test_a_turn_is_one_trace_of_agents_models_and_tools():
    """O01: OpenTelemetry export: invoke_agent, chat and execute_tool spans with their parents, tokens and errors."""
    with collector() as received:
        conversation = play(_ask, *crew(Telemetry(received.endpoint)))
    spans = received.spans
    assert set(spans) == {
        *("invoke_agent helper", "chat flash", "execute_tool adder", "execute_tool fail"),
        *("invoke_agent adder", "chat test", "execute_tool add"),
    }
    assert len({span.trace_id for span in spans.values()}) == 1

    def parent(name: str) -> str:
        return next((other for other, span in spans.items() if span.span_id == spans[name].parent_span_id), "")

    assert spans["invoke_agent helper"].parent_span_id == b""
    assert parent("invoke_agent adder") == "execute_tool adder"
    assert parent("execute_tool add") == parent("chat test") == "invoke_agent adder"
    root = attributes_of(spans["invoke_agent helper"])
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert (root["gen_ai.conversation.id"], root["gen_ai.agent.name"], root["gen_ai.provider.name"]) == (
        conversation,
        "helper",
        "gcp.gemini",
    )
    assert (
        root["gen_ai.usage.input_tokens"],
        root["gen_ai.usage.output_tokens"],
        root["gen_ai.usage.cache_read.input_tokens"],
    ) == (27, 8, 8)
    chat = attributes_of(spans["chat flash"])
    assert (chat["gen_ai.request.model"], chat["gen_ai.response.finish_reasons"]) == ("flash", ["tool_calls"])
    assert spans["chat flash"].kind == 3, "a client span"
    failed = spans["execute_tool fail"]
    assert (failed.status.code, failed.status.message, attributes_of(failed)["error.type"]) == (2, "", "_OTHER")
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())
    assert received.paths == ["/v1/traces"] * len(received.paths)
    assert received.resource["service.name"] == "rondel"


def test_nothing_that_was_said_leaves_the_program_unless_it_is_wanted():
    with collector() as received:
        play(_ask, *crew(Telemetry(received.endpoint)))
    assert "secret" not in str(received.requests)
    with collector() as received:
        play(_ask, *crew(Telemetry(received.endpoint, content=True)))
    root = attributes_of(received.spans["invoke_agent helper"])
    assert json.loads(root["gen_ai.system_instructions"]) == [{"type": "text", "content": "You are a secret helper."}]
    assert json.loads(root["gen_ai.input.messages"])[0]["parts"][0]["content"] == "a secret question"
    assert json.loads(root["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "Four."}]
    assert attributes_of(received.spans["execute_tool add"])["gen_ai.tool.call.arguments"] == '{"a":2,"b":2}'
    assert received.spans["execute_tool fail"].status.message == "'fail' failed: ValueError: it is a secret failure"


def test_headers_and_the_whole_address_are_taken_as_they_are_given():
    with collector() as received:
        telemetry = Telemetry(f"{received.endpoint}/team/v1/traces", headers={"X-Key": "k1"})
        play(_ask, Agent("helper", engine=Scripted("hi"), plugins=[telemetry]))
    assert received.paths == ["/team/v1/traces"]
    assert received.headers[0]["x-key"] == "k1"


def test_without_an_endpoint_the_variables_of_opentelemetry_say_where_to(monkeypatch: pytest.MonkeyPatch):
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "desk")
        play(_ask, Agent("helper", engine=Scripted("hi"), plugins=[find_plugin("telemetry")]))
    assert (received.paths, received.resource["service.name"]) == (["/v1/traces"], "desk")


def test_a_turn_that_waits_and_goes_on_is_one_trace():
    async def scene(app: App) -> None:
        conversation = app.conversation()
        await events_of(await conversation.send("paint it"))
        await events_of(await conversation.answer("ask:q", "red", by="ann"))

    with collector() as received:
        engine = Scripted(call("ask_user", "q", question="Which colour?"), "Red it is.")
        play(scene, Agent("helper", engine=engine, tools=[ask_user], plugins=[Telemetry(received.endpoint)]))
        every: list[Any] = list(received.every_span())
    agents = [span for span in every if span.name == "invoke_agent helper"]
    assert [attributes_of(span)["rondel.outcome"] for span in agents] == ["waiting", "done"]
    assert len({span.trace_id for span in every}) == 1
    assert len({span.span_id for span in every}) == len(every)


def test_of_a_turn_with_thousands_of_steps_every_span_arrives():
    steps = [
        event for n in range(1_500) for event in (said("", ToolCall(f"c{n}", "add")), *called(f"c{n}", "add", "3"))
    ]
    with collector() as received:
        sender = Sender(received.endpoint)
        sender.submit("talk", journal(*turn(*steps)), {})
        sender.close(wait_s=20)
    assert sum(1 for _ in received.every_span()) == 3_001
    assert len({span.span_id for span in received.every_span()}) == 3_001


# --- a collector that is not there ------------------------------------------------------------------------------------


def _closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_collector_that_is_gone_costs_a_turn_nothing_and_is_told_of_once(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rondel.trace.telemetry.sender.SEND_S", 0.5)
    telemetry = Telemetry(f"http://user:pass@127.0.0.1:{_closed_port()}/key-123")
    agent = Agent("helper", engine=Scripted("one", "two", "three"), plugins=[telemetry])

    async def scene(app: App) -> list[Any]:
        conversation, events = app.conversation(), []
        for _ in range(3):
            events += await events_of(await conversation.send("go"))
            assert telemetry.sender is not None
            telemetry.sender.flush()
        return events

    with caplog.at_level(logging.WARNING):
        events = play(scene, agent)
    assert [event.outcome for event in of(TurnFinished, events)] == [Outcome.DONE] * 3
    (warned,) = of(Warned, events)
    assert (warned.plugin, warned.message.startswith("traces cannot be sent to http://127.0.0.1:")) == (
        "telemetry",
        True,
    )
    assert "pass" not in warned.message
    assert "key-123" not in warned.message
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_what_a_collector_refuses_is_told_of_and_not_sent_again(caplog: pytest.LogCaptureFixture):
    with collector(status=401) as received:
        play(_ask, Agent("helper", engine=Scripted("hi"), plugins=[Telemetry(received.endpoint)]))
    assert len(received.requests) == 1
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["traces cannot be sent to http"]


def test_without_the_library_a_sentence_says_what_to_install():
    """The library is an extra: a program without it goes on, and is told once."""
    script = """
import sys
sys.modules["opentelemetry"] = None
import asyncio
from rondel import Agent, App
from rondel.events import Warned
from rondel.plugins.telemetry import Telemetry
from rondel.testing import Scripted

async def main():
    telemetry = Telemetry("http://127.0.0.1:9")
    async with App(Agent("a", engine=Scripted("one", "two"), plugins=[telemetry])) as app:
        conversation = app.conversation()
        for _ in range(2):
            async for event in await conversation.send("go"):
                if isinstance(event, Warned):
                    print(event.message)
            telemetry.sender.flush()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().splitlines() == [
        f"telemetry is configured, but OpenTelemetry is not installed: run {install_extra('otel')}"
    ], done.stderr
