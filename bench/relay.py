"""The smallest relay on uvicorn and aiohttp: what any gateway must cost. It reads the caller's headers and body, posts
them to the upstream, and passes the answer's bytes back. It routes, counts and checks nothing, has no time-outs, and
does not notice when a caller leaves.

    python -m bench.relay UPSTREAM_URL
"""

from __future__ import annotations

import socket
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
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in HOP_BY_HOP}
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        async with self._client.post(self._upstream + scope["path"], data=body, headers=headers) as answer:
            shown = [(name.encode(), answer.headers[name].encode()) for name in SHOWN if name in answer.headers]
            await send({"type": "http.response.start", "status": answer.status, "headers": shown})
            while data := await answer.content.readany():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def main(upstream: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    listening.setblocking(False)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Relay(upstream),
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        timeout_keep_alive=75,  # as the gateway: on a busy machine its turn comes late
    )
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
