"""The smallest relay: what any gateway must cost on an HTTP server and an HTTP client. It reads the caller's headers
and body, posts them to the upstream, and pumps the answer's bytes back. It routes, counts and checks nothing, has no
time-outs, and does not see when a caller leaves. Server and client are uvicorn and aiohttp, the fastest libraries, or
Rondel's own.

    python -m bench.relay UPSTREAM_URL [libraries|rondel]
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvloop

HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding"}
SHOWN = ("content-type", "content-length", "x-request-id")


class Relay:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in HOP_BY_HOP}
        await self._pass_on(scope["path"], headers, body, send)
        await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, path: str, headers: dict[str, str], body: bytes, send: Any) -> None:
        import aiohttp

        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        async with self._client.post(self._upstream + path, data=body, headers=headers) as answer:
            await send(_start(answer))
            while data := await answer.content.readany():
                await send({"type": "http.response.body", "body": data, "more_body": True})


class OwnRelay(Relay):
    async def _pass_on(self, path: str, headers: dict[str, str], body: bytes, send: Any) -> None:
        from rondel.http import Client, Head

        if self._client is None:
            self._client = Client(self._upstream)
        answer = await self._client.ask("POST", path, Head(headers), body)
        await send(_start(answer))
        while data := await answer.read():
            await send({"type": "http.response.body", "body": data, "more_body": True})


def _start(answer: Any) -> dict[str, Any]:
    shown = [(name.encode(), answer.headers[name].encode()) for name in SHOWN if name in answer.headers]
    return {"type": "http.response.start", "status": answer.status, "headers": shown}


async def on_libraries(upstream: str, listening: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        Relay(upstream),
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
    )
    await uvicorn.Server(config).serve(sockets=[listening])


async def on_our_own(upstream: str, listening: socket.socket) -> None:
    from rondel.http.server import Server

    await Server(OwnRelay(upstream), listening).run()


async def main(upstream: str, on: str = "libraries") -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    listening.setblocking(False)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await (on_our_own if on == "rondel" else on_libraries)(upstream, listening)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
