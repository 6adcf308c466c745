"""Logins to MCP servers with OAuth: tokens in files of mode 0600, and the flow that a person starts.

Only a new login and `rondel mcp logout` change or delete a file: if the authorization server fails, the login stays.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from ..errors import ConfigError, RondelError
from ..files.private import private_folder, write_private
from ..files.regular import read_regular
from .remote import LoginNeeded
from .spec import ServerSpec, login_path

FILE_BYTES_MAX = 100_000
LOGIN_S = 300.0
REQUEST_BYTES_MAX = 16_384
MARGIN_S = 30.0  # an access token that expires within this time is renewed first


def login_problem(spec: ServerSpec, status: int) -> RondelError:
    """Return why there is no valid login: the login server failed with this status, or there is none."""
    if status:
        return RondelError(f"its login could not be renewed (HTTP {status} from the login server); it is kept")
    return LoginNeeded(spec.name)


class _Record(msgspec.Struct):
    url: str
    tokens: dict[str, object] | None = None
    expires_at: float | None = None
    client: dict[str, object] | None = None


class TokenFile:
    """The login to one server, in the form that the SDK reads and writes. The file belongs to the server's address."""

    def __init__(self, folder: Path, spec: ServerSpec) -> None:
        self._url = spec.url
        self._path = login_path(folder, spec)
        self.redirect = ""  # the address of the login in progress

    @property
    def exists(self) -> bool:
        return self._read().tokens is not None

    def delete(self) -> bool:
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    async def get_tokens(self) -> OAuthToken | None:
        record = self._read()
        if record.tokens is None:
            return None
        tokens = OAuthToken.model_validate(record.tokens)
        if tokens.refresh_token and record.expires_at is not None and time.time() > record.expires_at - MARGIN_S:
            # The SDK forgets when a stored token expires; without one it uses the refresh token at once.
            return tokens.model_copy(update={"access_token": ""})
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        record = self._read()
        record.tokens = tokens.model_dump(mode="json", exclude_none=True)
        record.expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._write(record)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        record = self._read()
        if record.client is None:
            return None
        client = OAuthClientInformationFull.model_validate(record.client)
        if self.redirect and self.redirect not in [str(uri) for uri in client.redirect_uris or ()]:
            return None  # it was registered for another address, so it is registered again
        return client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        record = self._read()
        record.client = client_info.model_dump(mode="json", exclude_none=True)
        self._write(record)

    def _read(self) -> _Record:
        try:
            record = msgspec.json.decode(read_regular(self._path, FILE_BYTES_MAX), type=_Record)
        except (ConfigError, msgspec.DecodeError):
            return _Record(self._url)
        return record if record.url == self._url else _Record(self._url)

    def _write(self, record: _Record) -> None:
        private_folder(self._path.parent)
        draft = self._path.with_suffix(f".{os.getpid()}")
        write_private(draft, msgspec.json.encode(record).decode())
        draft.replace(self._path)


class _Seen(Protocol):
    login_failure: int


async def background_login(spec: ServerSpec, tokens: TokenFile | None, seen: _Seen) -> OAuthClientProvider | None:
    """Return an authentication that uses and renews a stored login. It never starts a new one: only a person does."""
    if tokens is None or not tokens.exists:
        return None

    async def refuse(url: str) -> None:
        raise login_problem(spec, seen.login_failure)

    async def never() -> AuthorizationCodeResult:
        raise LoginNeeded(spec.name)

    return OAuthClientProvider(spec.url, _metadata("http://127.0.0.1/callback"), tokens, refuse, never)


async def login(spec: ServerSpec, tokens: TokenFile, show: Callable[[str], None]) -> None:
    """Let a person log in: `show` gets the link. Returns when the tokens are stored. Raises RondelError."""
    import httpx2

    waiting = _Callback()
    async with waiting:
        tokens.redirect = waiting.address

        async def redirect(url: str) -> None:
            if urlsplit(url).scheme not in ("http", "https"):
                raise RondelError("the server gave a login address that is not a web address, so it was refused")
            show(url)

        provider = OAuthClientProvider(spec.url, _metadata(waiting.address), tokens, redirect, waiting.result)
        before = await tokens.get_tokens()
        async with httpx2.AsyncClient(auth=provider, timeout=LOGIN_S, headers=spec.headers) as client:
            try:
                provider.context.current_tokens = None
                answer = await client.post(
                    spec.url,
                    json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
                    headers={"accept": "application/json, text/event-stream"},
                )
            except (httpx2.HTTPError, OSError) as error:
                raise RondelError(f"the MCP server {spec.name!r} cannot be reached: {error}") from None
            except RondelError:
                raise
            except Exception as error:  # the SDK raises its own kinds for every step of the flow
                raise RondelError(f"the login to {spec.name!r} failed: {error}") from None
        if await tokens.get_tokens() is None and before is None:
            status = answer.status_code
            said = "needs no login" if status < 400 else f"did not ask for a login: it answered with HTTP {status}"
            raise RondelError(f"the MCP server {spec.name!r} {said}")


def _metadata(redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata.model_validate(
        {
            "client_name": "Rondel",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )


class _Callback:
    """Listens on loopback for the browser that comes back from the login."""

    def __init__(self) -> None:
        self._path = f"/{secrets.token_urlsafe(16)}"
        self._server: asyncio.Server | None = None
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.address = ""

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=REQUEST_BYTES_MAX)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}{self._path}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def result(self) -> AuthorizationCodeResult:
        try:
            async with asyncio.timeout(LOGIN_S):
                return await self._result
        except TimeoutError:
            raise RondelError(f"no login within {LOGIN_S / 60:g} minutes; run the command again") from None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readuntil(b"\r\n")).decode("latin-1").split(" ")
                text, status = self._take(line[1] if len(line) > 1 else ""), "200 OK"
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            text, status = "This is not the answer to a login.", "400 Bad Request"
        head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
        try:
            writer.write(f"{head}{text}\n".encode())
            await writer.drain()
            writer.close()
        except OSError:
            pass

    def _take(self, target: str) -> str:
        parts = urlsplit(target)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path != self._path:
            raise ValueError
        if self._result.done():
            return "This login has already ended."
        if "code" not in given:
            self._result.set_exception(
                RondelError(f"the login was refused: {given.get('error', 'no code came')[:200]}")
            )
            return "The login was refused. You can close this window."
        self._result.set_result(
            AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))
        )
        return "You are logged in. You can close this window."
