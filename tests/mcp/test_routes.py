"""No HTTP route can add or start an MCP server: not one is made for it, and no body can carry one."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import Any

import httpx2

from rondel import Agent
from rondel.gateway.server import app as gateway
from rondel.mcp import McpServers
from rondel.surfaces.web.server import ROUTES
from rondel.testing import Echo
from tests.gateway.served import Served
from tests.web.served import site

AGENT = "---\ndescription: An agent.\nengine: echo\n---\nRepeat.\n"
HELLO = [{"role": "user", "content": "hello"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"model": "agent:open", "max_tokens": 9, "messages": HELLO},
    "/v1/chat/completions": {"model": "agent:open", "messages": HELLO},
    "/v1/responses": {"model": "agent:open", "input": "hello"},
    "/api/chat": {"messages": HELLO, "agent": "open"},
    "/api/conversations": {"agent": "open"},
    "/api/conversations/{id}/messages": {"text": "hello"},
    "/agui/{agent}": {"threadId": "t", "runId": "r", "messages": [{"id": "m", **HELLO[0]}]},
}


def smuggled(marker: Path, port: int) -> list[dict[str, Any]]:
    """Servers in every form that a configuration, a provider or a client uses."""
    program = {"command": sys.executable, "args": ["-c", f"open({str(marker)!r}, 'w')"]}
    url = f"http://127.0.0.1:{port}/mcp"
    remote = {"type": "mcp", "server_label": "evil", "server_url": url, "require_approval": "never"}
    block = {"evil": program, "far": {"url": url}}
    anthropic = [{"type": "url", "url": url, "name": "evil"}, {"type": "stdio", "name": "evil", **program}]
    nested = {"mcpServers": block, "mcp": block}
    return [
        {
            **nested,
            "mcp_servers": anthropic,
            "plugins": [{"mcp": {"servers": block}}],
            "metadata": nested,
            "config": nested,
        },
        {"tools": [remote, {**remote, **program}], "forwardedProps": nested, "name": "evil", "url": url, **program},
    ]


def paths() -> list[tuple[str, str]]:
    """Each method and path of the API and the gateway that changes something, and some that do not exist."""
    own = sorted((route.method, route.path) for route in ROUTES if route.method not in ("GET", "DELETE"))
    own += [(route.method, route.path) for route in ROUTES if route.method == "DELETE" and "{id}" not in route.path]
    short = (*gateway.PATHS, gateway.COUNT, gateway.EMBEDDINGS, *gateway.IMAGES)
    served = [("POST", path if path == gateway.MCP else f"/v1{path}") for path in (*short, gateway.MCP)]
    guessed = [
        (method, path) for method in ("POST", "PUT", "PATCH", "DELETE") for path in ("/api/mcp", "/api/mcp/evil")
    ]
    return [*own, *served, *guessed, ("POST", "/v1/mcp/servers"), ("POST", "/api/settings")]


def test_the_routes_for_mcp_servers_only_look_at_them_and_log_in() -> None:
    found = {(route.method, route.path) for route in ROUTES if "mcp" in route.path}
    assert found == {
        ("GET", "/api/mcp"),
        ("GET", "/api/mcp/{server}/tools"),
        ("POST", "/api/mcp/{server}/reconnect"),
        ("POST", "/api/mcp/{server}/login"),
        ("DELETE", "/api/mcp/{server}/login"),
        ("POST", "/api/mcp/{server}/cancel"),
    }
    assert all(not route.body.__struct_fields__ for route in ROUTES if "mcp" in route.path)


def test_no_request_adds_or_starts_a_server(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        Served(tmp_path / "served", 'engine = "echo"\n', files={"agents/open.md": AGENT}) as served,
        httpx2.Client(base_url=served.base_url, timeout=60) as web,
    ):
        listening.setblocking(False)
        id = web.post("/api/conversations", json={"agent": "open"}).json()["id"]
        known = {"id": id, "agent": "open"}
        answered = dict[str, list[int]]()
        for fields in smuggled(marker, listening.getsockname()[1]):
            for method, path in paths():
                where = re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], "evil"), path)
                got = web.request(method, where, json={**BODIES.get(path, {}), **fields})
                assert got.status_code < 500, (method, where, got.text)
                answered.setdefault(path, []).append(got.status_code)
        # A body may have fields that its dialect does not know. They are ignored, and the rest is answered.
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/responses", "/agui/{agent}"):
            assert 200 in answered[path], (path, answered[path])
        assert set(answered["/api/mcp"]) == {405}
        assert web.get("/api/mcp").json() == []
        assert "evil" not in served.config.read_text()
        assert children(served.pid) == []
        try:
            listening.accept()
        except BlockingIOError:
            pass
        else:
            raise AssertionError("a server that a request named was connected to")
    assert not marker.exists()


def children(pid: int) -> list[int]:
    """The processes that a process has started. None can be seen where there is no /proc."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


async def test_a_server_that_the_models_provider_connects_to_is_shown_as_such() -> None:
    far = {"type": "mcp", "server_label": "far", "server_url": "https://far.example/mcp", "require_approval": "never"}
    near = {"type": "mcp", "server_label": "near", "server_url": "http://127.0.0.1:9/mcp", "require_approval": "always"}
    agent = Agent("helper", engine=Echo(), plugins=[McpServers([far, near])])
    async with site(agent) as made:
        shown = {one["name"]: one for one in await made.json("GET", "/api/mcp")}
        assert (shown["far"]["state"], shown["far"]["type"]) == ("provider", "provider")
        assert shown["far"]["reason"] == "the model's provider connects to it"
        assert (shown["near"]["state"], shown["near"]["type"]) == ("connecting", "http")
        assert (await made.client.post("/api/mcp/far/reconnect")).status_code == 409
