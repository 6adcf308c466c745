"""`/mcp`: the agents as an MCP server over streamable HTTP. Host, origin and key were checked before.

The SDK is imported with the first request. Knows no protocol: `rondel.mcp.server` does.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, MutableMapping
from typing import Any

from ...app.app import App
from ...calling.threads import in_thread
from ...mcp.link import missing_sdk
from ...values import Person
from ..relay.disconnect import Receive
from ..relay.response import Send

PATH = "/mcp"


class McpRoute:
    """`await route.serve(...)` for each request. `allows` says whether the holder of a key may use something."""

    def __init__(self, app: App, allows: Callable[[str, str], bool]) -> None:
        self._app, self._allows = app, allows
        self._handler: asyncio.Future[Callable[..., Any] | None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def serve(
        self,
        group: asyncio.TaskGroup,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
        *,
        key: str,
        person: Person,
        body_bytes_max: int,
    ) -> str:
        """Answer a request, or return a sentence that says why that is not possible."""
        if self._handler is None:
            self._handler = asyncio.get_running_loop().create_future()
            self._running = group.create_task(self._run(self._handler, body_bytes_max))
        await asyncio.wait(
            (self._handler,)
        )  # not `await` itself: a caller that leaves must not cancel it for the others
        handler = self._handler.result()
        if handler is None:
            return missing_sdk()
        module = importlib.import_module("rondel.mcp.server")
        await handler({**scope, module.KEY: key, module.PERSON: person}, receive, send)
        return ""

    async def _run(self, handler: asyncio.Future[Callable[..., Any] | None], body_bytes_max: int) -> None:
        try:
            module = await in_thread(importlib.import_module, "rondel.mcp.server")
        except ImportError:
            handler.set_result(None)
            return
        server = module.make_server(self._app, allows=self._allows)
        async with server.http(body_bytes_max) as found:
            handler.set_result(found)
            await asyncio.Event().wait()

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
