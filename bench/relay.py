"""The smallest relay: what any gateway must cost on this HTTP server and this HTTP client. It reads the caller's
headers and body, posts them to the upstream, and pumps the answer's bytes back. It routes, counts and checks nothing,
has no time-outs, and does not see when a caller leaves.

    python -m bench.relay UPSTREAM_URL
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn
import uvloop

HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding"}
SHOWN = ("content-type", "content-length", "x-request-id")


class Relay:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in HOP_BY_HOP}
        async with self._session.post(self._upstream + scope["path"], data=body, headers=headers) as answer:
            shown = [(name.encode(), answer.headers[name].encode()) for name in SHOWN if name in answer.headers]
            await send({"type": "http.response.start", "status": answer.status, "headers": shown})
            while data := await answer.content.readany():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def main(upstream: str) -> None:
    config = uvicorn.Config(
        Relay(upstream),
        port=0,
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        backlog=2_048,
    )
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
