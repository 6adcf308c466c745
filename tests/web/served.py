"""The page and the API on a real server, in the test's own event loop, around an app with scripted engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx2

from rondel import Agent, App
from rondel.gateway.relay.record import Records
from rondel.gateway.server.access import Access
from rondel.gateway.server.serving import Server, address_of, bind
from rondel.project.settings import KeySettings
from rondel.surfaces.web.combined import combined
from rondel.surfaces.web.server import About, WebApp

WAIT_S = 20.0


class Site:
    """`client` is an HTTP client without a key."""

    def __init__(self, app: App, web: WebApp, address: str, client: httpx2.AsyncClient) -> None:
        self.app, self.web, self.address, self.client = app, web, address, client
        self.set_keys: Callable[[Mapping[str, KeySettings]], None] = lambda keys: None
        """Change the keys, as a reload of the configuration does."""
        self.records = Records()
        self.port = 0

    async def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = await self.client.request(method, path, json=body, **options)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()

    async def start(self, agent: str = "", **options: Any) -> str:
        return (await self.json("POST", "/api/conversations", {"agent": agent}, **options))["id"]

    async def say(self, id: str, text: str, **options: Any) -> None:
        """Send a message and wait until its turn has ended or waits for a person."""
        sent = await self.json("POST", f"/api/conversations/{id}/messages", {"text": text}, **options)
        await self.ended(id, sent["turn"], **options)

    async def ended(self, id: str, turn: str, **options: Any) -> None:
        async with asyncio.timeout(WAIT_S), contextlib.aclosing(self.events(id, **options)) as events:
            async for name, data in events:
                if name == "entry" and data["event"]["type"] == "turn_finished" and data["event"]["turn"] == turn:
                    return

    async def events(self, id: str, after: int = 0, **options: Any) -> AsyncGenerator[tuple[str, Any]]:
        path = f"/api/conversations/{id}/events?after={after}"
        async with self.client.stream("GET", path, **options) as answer:
            assert answer.status_code == 200
            async for event in read_events(answer.aiter_lines()):
                yield event


async def read_events(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[str, Any]]:
    name, data = "", ""
    async for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and data:
            yield name, json.loads(data)
            name = data = ""


@contextlib.asynccontextmanager
async def site(
    *agents: Agent,
    keys: Mapping[str, KeySettings] | None = None,
    at: int = 0,
    origins: Sequence[str] = (),
    proxies: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Site]:
    """`at` is the port of a server that is started again; `about` has more of what the page says of this place."""
    listening = bind("127.0.0.1", at)
    port = listening.getsockname()[1]
    async with App(*agents, **options) as app:
        holder = [Access(keys or {}, port=port, origins=origins)]
        records = Records()
        web = WebApp(app, lambda: holder[0], records, About("0.0", "scripted", "a test", **about or {}))
        async with combined(lambda: web, web) as application, asyncio.TaskGroup() as group:
            server = Server(application, listening, proxies=proxies)
            running = group.create_task(server.run())
            async with httpx2.AsyncClient(base_url=address_of(listening), timeout=WAIT_S) as client:
                made = Site(app, web, address_of(listening), client)
                made.records, made.port = records, port
                made.set_keys = lambda new: holder.__setitem__(0, Access(new, port=port))
                try:
                    yield made
                finally:
                    web.feeds.close_all()
            server.stop(at_once=True)
            await running
