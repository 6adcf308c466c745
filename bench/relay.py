"""The smallest relay: what any gateway must cost on this HTTP server and this HTTP client. It reads the caller's
headers and body, posts them to the upstream, and pumps the answer's bytes back. It routes, counts and checks nothing.

    python -m bench.relay PORT UPSTREAM_URL
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp
import uvicorn
import uvloop

HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding"}


class Relay:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in HOP_BY_HOP}
        async with self._session.post(self._upstream + scope["path"], data=body, headers=headers) as answer:
            kind = answer.headers["content-type"].encode()
            start = {"type": "http.response.start", "status": answer.status, "headers": [(b"content-type", kind)]}
            await send(start)
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def main() -> None:
    port, upstream = int(sys.argv[1]), sys.argv[2]
    config = uvicorn.Config(
        Relay(upstream), port=port, lifespan="off", access_log=False, log_level="warning", server_header=False
    )
    uvloop.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
