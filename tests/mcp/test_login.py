"""Logins with OAuth: a link for the person, files that only they can read, and no login lost to a failing server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import stat
import threading
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from rondel.errors import RondelError
from rondel.mcp.hub import Hub
from rondel.mcp.link import Link
from rondel.mcp.login import TokenFile, login
from rondel.mcp.spec import ServerSpec
from rondel.stores.memory import MemoryStore

from .helpers import until


class Guarded:
    """An MCP server that wants a login, and the server of the login."""

    def __init__(self) -> None:
        self.url = ""
        self.valid: set[str] = set()
        self.token_status = 200
        self.refreshed = 0
        self.expires_in = 3600
        self.wants_login = True

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/mcp", self.mcp, methods=["GET", "POST", "DELETE"]),
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def resource(self, request: Request) -> Response:
        return JSONResponse({"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def register(self, request: Request) -> Response:
        given = await request.json()
        return JSONResponse({**given, "client_id": "c1"}, status_code=201)

    async def authorize(self, request: Request) -> Response:
        given = request.query_params
        return RedirectResponse(f"{given['redirect_uri']}?code=good&state={given['state']}")

    async def token(self, request: Request) -> Response:
        form = await request.form()
        if self.token_status != 200:
            return Response("broken", self.token_status)
        self.refreshed += form["grant_type"] == "refresh_token"
        token = secrets.token_hex(8)
        self.valid = {token}
        return JSONResponse(
            {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, "refresh_token": "again"}
        )

    async def mcp(self, request: Request) -> Response:
        if self.wants_login and request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
            return Response("no", 401, headers={"www-authenticate": challenge})
        if request.method != "POST":
            return Response("", 405)
        message = await request.json()
        if "id" not in message:
            return Response("", 202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **_answer(message)})


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "initialize":
        info = {"name": "guarded", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if message["method"] == "tools/list":
        return {"result": {"tools": [{"name": "secret", "inputSchema": {"type": "object"}}]}}
    return {"error": {"code": -32601, "message": "not known"}}


@contextlib.asynccontextmanager
async def serving(guarded: Guarded) -> AsyncIterator[None]:
    config = uvicorn.Config(guarded.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    guarded.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield
    finally:
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def linked(spec: ServerSpec, folder: Path) -> AsyncIterator[Link]:
    async with Hub().connect([spec], store=MemoryStore(), env={}, folder="", logins=folder) as (link,):
        await link.settled(60)
        yield link


def visit(url: str) -> None:
    """A browser: follows the link to the login and back."""
    threading.Thread(target=lambda: urllib.request.urlopen(url).read(), daemon=True).start()


async def test_a_login_is_made_by_a_person_kept_privately_and_survives_a_failing_server(tmp_path: Path) -> None:
    guarded, folder, links = Guarded(), tmp_path / "logins", list[str]()
    async with serving(guarded):
        spec = ServerSpec("web", url=f"{guarded.url}/mcp", retries=0)
        async with linked(spec, folder) as link:
            assert link.status.state == "login"
            assert link.status.reason == "it needs a login; run `rondel mcp login web`, which gives you a link"
            assert not folder.exists()

        def show(url: str) -> None:
            links.append(url)
            visit(url)

        await login(spec, TokenFile(folder, spec), show)
        assert links[0].startswith(f"{guarded.url}/authorize?")
        (file,) = folder.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with linked(spec, folder) as link:
            assert (link.status.state, [tool.name for tool in link.offer.tools]) == ("ready", ["secret"])

        # The access token has ended, and the server of the login fails: the login stays as it is.
        kept = json.loads(file.read_bytes())
        file.write_text(json.dumps({**kept, "expires_at": 1.0}))
        before, guarded.valid, guarded.token_status = file.read_bytes(), set(), 503
        async with linked(spec, folder) as link:
            assert link.status.state == "down"
            assert "its login could not be renewed (HTTP 503" in link.status.reason
            assert file.read_bytes() == before
        guarded.token_status = 200
        async with linked(spec, folder) as link:
            assert link.status.state == "ready"
        assert guarded.refreshed == 1


async def test_a_server_that_wants_no_login_says_so(tmp_path: Path) -> None:
    guarded = Guarded()
    guarded.wants_login = False
    async with serving(guarded):
        spec = ServerSpec("web", url=f"{guarded.url}/mcp")
        with pytest.raises(RondelError, match="needs no login"):
            await login(spec, TokenFile(tmp_path, spec), visit)


def test_a_login_belongs_to_its_address(tmp_path: Path) -> None:
    """A project cannot send the login of another server to its own by using the same name."""
    mine = TokenFile(tmp_path, ServerSpec("web", url="https://good.example/mcp"))
    asyncio.run(mine.set_tokens(_token()))
    assert mine.exists
    assert not TokenFile(tmp_path, ServerSpec("web", url="https://evil.example/mcp")).exists
    assert mine.delete()
    assert not mine.delete()


def _token() -> Any:
    from mcp.shared.auth import OAuthToken

    return OAuthToken(access_token="x")
