"""Agents as an MCP server: the SDK's own client uses them, over stdio and through the gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mcp import Client, StdioServerParameters
from rondel import Agent, App
from rondel.mcp.server import SESSIONS_OF_KEY_MAX, make_server
from rondel.testing import Scripted, WordEmbedder, call, say
from rondel.tools.ask_user import ask_user
from tests.gateway.served import Served

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


def agents() -> list[Agent]:
    helper = Agent(
        "helper",
        "You help.",
        engine=Scripted(call("ask_user", question="Which size?", options=["small", "large"]), say("A large one.")),
        tools=[ask_user],
        description="Helps with everything.",
    )
    return [
        helper,
        Agent("shop", "You sell.", engine=Scripted(say("Three euros.")), inputs={"item": {"required": True}}),
    ]


async def answered(context: Any, params: Any) -> types.ElicitResult:
    assert "Which size?" in params.message
    return types.ElicitResult(action="accept", content={"answer": "large"})


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_an_agent_is_a_tool_and_its_question_an_elicitation(mode: str) -> None:
    """Both eras of the protocol, with the SDK's own client."""
    async with App(*agents()) as app:
        server = make_server(app).server
        async with Client(server, mode=mode, elicitation_callback=answered) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["helper"].description == "Helps with everything."
            assert tools["shop"].input_schema["required"] == ["item"]
            said: list[str | None] = []

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                said.append(message)

            result = await client.call_tool("helper", {"input": "a box"}, progress_callback=progress)
            assert result.content[0].text == "A large one."
            assert "A large one." in (said[-1] or "")
            assert (await client.call_tool("shop", {"item": "bread"})).content[0].text == "Three euros."
            prompt = await client.get_prompt("helper")
            assert prompt.messages[0].content.text == "You help."


async def test_bad_calls_are_errors_and_not_crashes() -> None:
    async with App(*agents()) as app, Client(make_server(app).server) as client:
        wrong = await client.call_tool("shop", {})
        assert wrong.is_error
        assert "item" in wrong.content[0].text
        with pytest.raises(MCPError, match="there is no tool 'nobody'"):
            await client.call_tool("nobody", {})
        with pytest.raises(MCPError, match="there is no prompt"):
            await client.get_prompt("nobody")
        unasked = await client.call_tool("helper", {"input": "a box"})
        assert unasked.is_error
        assert "this client cannot answer: Which size?" in unasked.content[0].text


async def test_a_state_that_was_not_given_opens_no_conversation() -> None:
    async with App(*agents()) as app:
        await (await app.conversation("private").send("a secret")).result()
        async with Client(make_server(app).server, mode="2026-07-28", elicitation_callback=answered) as client:
            for state in ("private", "mcp--" + "0" * 31, "mcp-other-" + "0" * 32):
                with pytest.raises(MCPError, match="not known"):
                    await client.session.call_tool("helper", {"input": "x"}, request_state=state)


CONFIG = """engine = "echo"
[gateway.keys.alice]
key = "sk-alice-0001"
models = ["agent:open"]
[gateway.keys.bob]
key = "sk-bob-0002"
"""
AGENT = "---\ndescription: An agent.\nengine: echo\n---\nRepeat.\n"


DOCUMENTS = {
    "documents/refunds.md": "# Refunds\n\nMoney back within 14 days.\n",
    "documents/a b/über.md": "# Hours\n\nOpen from nine to five.\n",
}
KNOWLEDGE = '[knowledge.documents]\nfolders = ["documents"]\nembedder = "none"\n'


async def check_knowledge(client: Client) -> None:
    """What a client may read of the bases of a project, and what it may not."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["search_knowledge"].input_schema["properties"]["base"]["enum"] == ["documents"]
    found = await client.call_tool("search_knowledge", {"query": "money back", "limit": 1})
    assert found.content[0].text == "[1] Refunds (documents/refunds.md, line 3)\nMoney back within 14 days."
    resources = {one.name: str(one.uri) for one in (await client.list_resources()).resources}
    assert resources == {
        "documents/refunds.md": "knowledge://documents/documents/refunds.md",
        "documents/a b/über.md": "knowledge://documents/documents/a%20b/%C3%BCber.md",
    }
    for name, text in {"documents/refunds.md": "Money back", "documents/a b/über.md": "nine to five"}.items():
        (content,) = (await client.read_resource(resources[name])).contents
        assert text in content.text
    for uri in ("knowledge://documents/../rondel.toml", "knowledge://other/x", "file:///etc/passwd", "knowledge://"):
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource(uri)
    for arguments, said in (({}, "'query' is missing"), ({"query": "x", "base": "docs"}, "no knowledge base 'docs'")):
        wrong = await client.call_tool("search_knowledge", arguments)
        assert wrong.is_error
        assert said in wrong.content[0].text
    nothing = await client.call_tool("search_knowledge", {"query": "zebra", "base": "documents"})
    assert nothing.content[0].text == "Nothing fits."


async def test_the_gateway_serves_mcp_to_keys_and_hosts_that_it_knows(tmp_path: Path) -> None:
    """`/mcp` has the keys and the Host and Origin checks of every other path, and the knowledge bases."""
    files = {**DOCUMENTS, "agents/open.md": AGENT, "agents/closed.md": AGENT}
    with Served(tmp_path / "served", CONFIG + KNOWLEDGE, files=files) as served:
        url = f"{served.base_url}/mcp"

        async def tools(**headers: str) -> list[str]:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                assert (await client.call_tool("open", {"input": "hello"})).content[0].text == "hello"
                if headers == {"authorization": "Bearer sk-bob-0002"}:
                    await check_knowledge(client)
                else:
                    assert not (await client.list_resources()).resources
                    with pytest.raises(MCPError, match="there is no resource"):
                        await client.read_resource("knowledge://documents/documents/refunds.md")
                    with pytest.raises(MCPError, match="there is no tool 'search_knowledge'"):
                        await client.call_tool("search_knowledge", {"query": "money back"})
                return sorted(tool.name for tool in (await client.list_tools()).tools)

        assert await tools(authorization="Bearer sk-alice-0001") == ["open"]
        assert await tools(authorization="Bearer sk-bob-0002") == ["closed", "open", "search_knowledge"]
        async with httpx2.AsyncClient(timeout=60) as web:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            bob = {"authorization": "Bearer sk-bob-0002"}
            assert (await web.post(url, json=ping)).status_code == 401
            assert (await web.post(url, json=ping, headers={**bob, "host": "evil.example"})).status_code == 403
            assert (
                await web.post(url, json=ping, headers={**bob, "origin": "https://evil.example"})
            ).status_code == 403


ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT}


async def test_a_call_belongs_to_the_person_of_its_key(tmp_path: Path) -> None:
    ann = 'person = "ann"\n[gateway.keys.page]\nkey = "sk-page"\nperson = "ann"\n[gateway.keys.bob]'
    config = CONFIG.replace("[gateway.keys.bob]", ann)
    with Served(tmp_path / "served", config, files={"agents/open.md": AGENT}) as served:
        async with (
            httpx2.AsyncClient(headers={"authorization": "Bearer sk-alice-0001"}, timeout=60) as http,
            Client(streamable_http_client(f"{served.base_url}/mcp", http_client=http)) as client,
        ):
            await client.call_tool("open", {"input": "hello"})
        async with httpx2.AsyncClient(base_url=served.base_url, timeout=60) as web:
            for key, titles in (("sk-page", ["hello"]), ("sk-bob-0002", [])):
                page = await web.get("/api/conversations", headers={"authorization": f"Bearer {key}"})
                assert [one["title"] for one in page.json()["conversations"]] == titles


async def test_the_sessions_of_one_key_keep_no_one_out(tmp_path: Path) -> None:
    with Served(tmp_path / "served", CONFIG, files={"agents/open.md": AGENT}) as served:
        async with httpx2.AsyncClient(timeout=60, headers={"accept": "application/json, text/event-stream"}) as web:

            async def opened(key: str) -> int:
                headers = {"authorization": f"Bearer {key}"}
                return (await web.post(f"{served.base_url}/mcp", json=INITIALIZE, headers=headers)).status_code

            found = [await opened("sk-alice-0001") for _ in range(SESSIONS_OF_KEY_MAX + 1)]
            assert (set(found[:-1]), found[-1]) == ({200}, 503)
            assert await opened("sk-bob-0002") == 200


async def test_a_session_belongs_to_the_key_that_opened_it(tmp_path: Path) -> None:
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with Served(tmp_path / "served", CONFIG, files={"agents/open.md": AGENT}) as served:
        async with httpx2.AsyncClient(timeout=60, headers={"accept": "application/json, text/event-stream"}) as web:
            url, alice = f"{served.base_url}/mcp", {"authorization": "Bearer sk-alice-0001"}
            opened = await web.post(url, json=INITIALIZE, headers=alice)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            bob = {"authorization": "Bearer sk-bob-0002", **session}
            assert (await web.post(url, json=listing, headers=bob)).status_code == 404
            assert (await web.get(url, headers=bob)).status_code == 404
            assert (await web.delete(url, headers=bob)).status_code == 404
            assert (await web.post(url, json=listing, headers={**alice, **session})).status_code == 200


def project(folder: Path) -> Path:
    """A project with an agent and a knowledge base, which the first search reads."""
    for name, text in {**DOCUMENTS, "rondel.toml": f'engine = "echo"\n{KNOWLEDGE}', "agents/parrot.md": AGENT}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


async def test_knowledge_bases_are_resources_and_a_tool(tmp_path: Path) -> None:
    """As in `rondel mcp serve`: with the bases of `app.knowledge`. A search is charged to the ledger."""
    from rondel.project.config import load
    from rondel.project.knowledge import make_knowledge

    knowledge = make_knowledge(load(project(tmp_path), {"RONDEL_STORE": str(tmp_path / "store.db")}), env={})
    assert knowledge is not None
    base = knowledge.base("documents")
    async with (
        App(*agents(), knowledge=knowledge) as app,
        Client(make_server(app).server) as client,
    ):
        await check_knowledge(client)
        base.embedder = WordEmbedder()
        await client.call_tool("search_knowledge", {"query": "money"})
        assert (await app.ledger.totals(by="kind", value="embedding")).calls == 1


async def test_without_a_knowledge_base_there_is_neither_the_tool_nor_resources() -> None:
    async with App(*agents()) as app, Client(make_server(app).server) as client:
        assert "search_knowledge" not in [tool.name for tool in (await client.list_tools()).tools]
        assert (await client.call_tool("shop", {"item": "bread"})).content[0].text == "Three euros."
        with pytest.raises(MCPError):
            await client.list_resources()


async def test_a_command_serves_mcp_on_stdio(tmp_path: Path) -> None:
    """With its agents, and with its knowledge bases as resources and a tool."""
    project(tmp_path)
    env = {"RONDEL_TRUST": str(tmp_path), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "rondel", "mcp", "serve"], env=env, cwd=str(tmp_path)
    )
    async with Client(command) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["parrot", "search_knowledge"]
        assert (await client.call_tool("parrot", {"input": "hello"})).content[0].text == "hello"
        await check_knowledge(client)
