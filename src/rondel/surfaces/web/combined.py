"""One ASGI application of two: the page and its API for their paths, the gateway for all others.

The page is loaded when somebody first asks for it: a gateway that serves only programs starts faster without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from ...calling.threads import in_thread

if TYPE_CHECKING:
    from .server import WebApp

Asgi: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

PROTOCOLS = ("/agui/", "/a2a/", "/.well-known/agent-card.json")
OURS = ("/api/", "/assets/", "/metrics", "/favicon", *PROTOCOLS)


@contextlib.asynccontextmanager
async def combined(make_web: Callable[[], WebApp], gateway: Asgi) -> AsyncGenerator[Asgi]:
    """Yield the application. `make_web` is called at the first request for the page."""
    web: WebApp | None = None

    def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_web = scope["type"] == "http" and is_ours(scope)
        return serve_web(scope, receive, send) if is_web else gateway(scope, receive, send)

    async def serve_web(scope: Any, receive: Any, send: Any) -> None:
        nonlocal web
        if web is None:
            await in_thread(import_module, ".server", __package__)  # not here: it would hold up every other request
        if web is None:
            web = make_web()
            web.start(group)
        await web(scope, receive, send)

    async with asyncio.TaskGroup() as group:
        try:
            yield application
        finally:
            if web is not None:
                web.close()


def is_ours(scope: Any) -> bool:
    """Whether this request is for the page or the API, not for the gateway."""
    path: str = scope["path"]
    if path.startswith(OURS):
        return True
    if path != "/" or scope["method"] != "GET":
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
