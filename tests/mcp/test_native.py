"""Servers in a provider's own form: passed on to Anthropic in its form, and served by our own client otherwise."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from rondel import Agent, App
from rondel.dialects.anthropic import MCP_BETA, Anthropic
from rondel.engine import Engine
from rondel.mcp.native import native_tool
from rondel.mcp.spec import ServerSpec, read_block
from rondel.project.engines import engine_at, make_engine
from rondel.testing import Scripted, say
from rondel.values import Foreign, ModelFacts, PartFinished, ToolSpec, deltas_of
from tests.dialects.helpers import deltas_from, reply_from, sse_events, written_stream
from tests.dialects.judges import judge_prompt
from tests.engines.scripted_http import ScriptedServer, Silence, answer, head

from .helpers import plugin_of, raw, tell, with_fields

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers of these tests are POSIX programs")

DOCS = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example.com/mcp",
    "headers": {"Authorization": "Bearer secret-token"},
    "allowed_tools": ["search"],
    "require_approval": "never",
}
USE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "search", "server_name": "docs", "input": {"query": "tea"}}
RESULT = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "Green tea needs 70 degrees."}],
}


def spec_of(**changes: Any) -> ServerSpec:
    (spec,), _ = read_block([{**DOCS, **changes}])
    return spec


def streamed(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def blocks(*items: tuple[dict[str, Any], dict[str, Any] | None]) -> Iterable[dict[str, Any]]:
    for index, (start, delta) in enumerate(items):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if delta is not None:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def reply(*items: tuple[dict[str, Any], dict[str, Any] | None]) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
    }
    usage = {"input_tokens": 9, "output_tokens": 5}
    return streamed(
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        *blocks(*items),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    )


def text(said: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": said}


CALLED = reply(
    text("I look it up."),
    ({**USE, "input": {}}, {"type": "input_json_delta", "partial_json": '{"query": "tea"}'}),
    (RESULT, None),
    text("70 degrees."),
)


def claude(url: str) -> Engine:
    return engine_at(
        url, "claude-sonnet-5-5", key="sk-x", dialect="anthropic", attempts=1, facts=ModelFacts(remote_mcp=True)
    )


async def test_anthropic_connects_to_the_server_and_what_it_did_stays_in_the_conversation() -> None:
    """K03: passed on to an engine that supports it. Calls and results come back with the next request as they were."""
    events = (answer(body, content_type="text/event-stream") for body in (CALLED, reply(text("You are welcome."))))
    async with ScriptedServer(*([one] for one in events)) as server:
        agent = Agent("helper", engine=claude(server.url), plugins=[plugin_of(spec_of())])
        async with App(agent) as app:
            said = await (await app.conversation("c").send("How hot is green tea?")).result()
            await (await app.conversation("c").send("Thanks!")).result()
    first, second = server.requests
    assert said.output == "I look it up.70 degrees."
    assert first.headers["anthropic-beta"] == second.headers["anthropic-beta"] == MCP_BETA
    assert first.body["mcp_servers"] == [
        {
            "type": "url",
            "url": "https://docs.example.com/mcp",
            "name": "docs",
            "authorization_token": "secret-token",
        }
    ]
    assert first.body["tools"] == [
        {
            "type": "mcp_toolset",
            "mcp_server_name": "docs",
            "default_config": {"enabled": False},
            "configs": {"search": {"enabled": True}},
        }
    ]
    assert second.body["messages"][1]["content"][1:3] == [USE, RESULT]
    for request in (first, second):
        judge_prompt("anthropic-beta", request.body, stream=True)


async def test_without_such_servers_no_beta_is_asked_for() -> None:
    body = answer(reply(text("Hello.")), content_type="text/event-stream")
    async with ScriptedServer([body]) as server, App(Agent("helper", engine=claude(server.url))) as app:
        await (await app.conversation().send('Say "type":"mcp_tool_use"')).result()
    assert "anthropic-beta" not in server.requests[0].headers
    assert "mcp_servers" not in server.requests[0].body


async def test_anthropic_is_asked_without_a_server_that_it_cannot_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """K04: the servers that failed are left out, and what they did before is still understood."""
    monkeypatch.setattr("rondel.engines.remote_mcp.BASE_S", 0.0)
    told = {"type": "invalid_request_error", "message": "Connection error while communicating with MCP server docs"}
    down = answer(json.dumps({"type": "error", "error": told}), status=400)
    scripts = [CALLED, down, down, reply(text("It is down."))]
    parts = [one if one is down else answer(one, content_type="text/event-stream") for one in scripts]
    async with ScriptedServer(*([one] for one in parts)) as server:
        env = {"ANTHROPIC_API_KEY": "sk-x", "ANTHROPIC_BASE_URL": server.url}
        engine = make_engine("anthropic:claude-sonnet-5-5", env=env)
        async with App(Agent("helper", engine=engine, plugins=[plugin_of(spec_of())])) as app:
            await (await app.conversation("c").send("hi")).result()
            said = await (await app.conversation("c").send("again")).result()
    assert said.output == "It is down."
    last = server.requests[-1]
    assert "mcp_servers" not in last.body
    assert "tools" not in last.body
    assert last.headers["anthropic-beta"] == MCP_BETA  # the history has a call of the server
    assert "not used: docs." in json.dumps(last.body)


@pytest.mark.parametrize(
    "changes",
    [
        {"server_url": "http://docs.example.com/mcp"},
        {"headers": {"X-Team": "blue"}},
        {"headers": {"Authorization": "Basic dTpw"}},
    ],
)
def test_what_anthropic_cannot_carry_has_no_form_for_it(changes: dict[str, Any]) -> None:
    assert set(_forms(spec_of())) == {"openai-responses", "anthropic"}
    assert set(_forms(spec_of(**changes))) == {"openai-responses"}


def test_a_server_whose_calls_a_person_approves_is_never_passed_on() -> None:
    assert native_tool(spec_of(require_approval="always")) is None
    assert native_tool(spec_of(require_approval={"never": {"tool_names": ["search"]}})) is None
    assert native_tool(with_fields(spec_of(), approval="confirm")) is None


def _forms(spec: ServerSpec) -> dict[str, Any]:
    tool = native_tool(spec)
    assert isinstance(tool, ToolSpec)
    return tool.opaque


class Speaking(Scripted):
    dialect = "anthropic"


async def test_our_own_client_serves_what_the_engine_cannot_carry() -> None:
    """K03: an engine that connects to servers, but not to this one; and one agent with two such engines."""
    own = with_fields(raw("docs"), native={**DOCS, "server_url": "http://127.0.0.1/mcp"})
    model = Speaking(say("ok"), facts=ModelFacts(remote_mcp=True))
    async with App(Agent("helper", engine=model, plugins=[plugin_of(own)])) as app:
        await tell(app)
    names = [spec.name for spec in model.prompts[0].tools]
    assert "mcp-docs-echo" in names
    assert "docs" not in names


async def test_a_turn_with_an_engine_that_connects_does_not_offer_the_tools_twice() -> None:
    """Our own client has connected for another engine before."""
    own = with_fields(raw("docs"), native=DOCS)
    own = with_fields(own, url="https://docs.example.com/mcp")
    plain, speaking = Scripted(say("ok")), Speaking(say("ok"), facts=ModelFacts(remote_mcp=True))
    plugin = plugin_of(own)
    agents = (Agent("plain", engine=plain, plugins=[plugin]), Agent("speaking", engine=speaking, plugins=[plugin]))
    async with App(*agents) as app:
        await (await app.conversation("a", agent="plain").send("hi")).result()
        await (await app.conversation("b", agent="speaking").send("hi")).result()
    assert "mcp-docs-echo" in [spec.name for spec in plain.prompts[0].tools]
    assert [spec.name for spec in speaking.prompts[0].tools] == ["docs"]


def test_calls_and_results_of_servers_survive_a_stream_both_ways() -> None:
    """They are read from a stream, and written for a caller of the gateway, as the SDK has them."""
    dialect = Anthropic()
    read = reply_from(deltas_from(dialect, *(CALLED[at : at + 7] for at in range(0, len(CALLED), 7))))
    foreign = [part.opaque["anthropic"] for part in read.message.parts if isinstance(part, Foreign)]
    assert foreign == [USE, RESULT]
    written = written_stream(dialect, deltas_of(read), model="m", id="msg_1")
    for event in sse_events(written):
        TypeAdapter[Any](BetaRawMessageStreamEvent).validate_json(event.data)
    assert reply_from(deltas_from(dialect, written)).message == read.message
    whole = dialect.reply_writer(model="m", id="msg_1").write_whole(read)
    assert BetaMessage.model_validate(whole).content[1].type == "mcp_tool_use"
    assert dialect.reply_reader().read_whole(whole).message == read.message


async def test_a_stopped_reply_keeps_no_call_of_the_provider_without_its_result() -> None:
    """Anthropic would refuse every later request of the conversation."""
    begun = CALLED[: CALLED.index(b"mcp_tool_result")].rpartition(b"event: ")[0]
    after = answer(reply(text("Go on.")), content_type="text/event-stream")
    async with (
        ScriptedServer([head() + begun, Silence()], [after]) as server,
        App(Agent("helper", engine=claude(server.url), plugins=[plugin_of(spec_of())])) as app,
    ):
        view = await app.conversation("c").send("How hot is green tea?")
        async for event in view:
            if isinstance(event, PartFinished) and event.index == 1:
                await view.stop()
        await (await app.conversation("c").send("And now?")).result()
    said = server.requests[1].body["messages"][1]
    assert said["role"] == "assistant"
    assert said["content"] == "I look it up."
