"""The connections of one app. Agents with equal servers share a connection, and all share the watchdog."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from ..contracts.store import Store
from .link import Link
from .pins import load_pins
from .process import Watchdog
from .spec import ServerSpec

if TYPE_CHECKING:
    from ..app.app import App

_HUBS: WeakKeyDictionary[App, Hub] = WeakKeyDictionary()
"""Plugins are made for each agent and know each other only by their app."""


def hub_of(app: App) -> Hub:
    hub = _HUBS.get(app)
    if hub is None:
        hub = _HUBS[app] = Hub()
    return hub


def find_link(server: str, folder: str) -> Link | None:
    """Return the server of this name that an app of this process has connected for a project's folder."""
    links = (link for hub in list(_HUBS.values()) for link in hub.links)
    return next((link for link in links if link.spec.name == server and link.folder == folder), None)


class Hub:
    def __init__(self) -> None:
        self._links: dict[bytes, tuple[Link, asyncio.Task[None]]] = {}
        self._users: dict[bytes, int] = {}
        self._watchdog = Watchdog()
        self._import_lock = asyncio.Lock()

    @property
    def links(self) -> list[Link]:
        return [link for link, _ in self._links.values()]

    @contextlib.asynccontextmanager
    async def connect(
        self, specs: Sequence[ServerSpec], *, store: Store, env: dict[str, str], folder: str, logins: Path | None
    ) -> AsyncGenerator[list[Link]]:
        """Connect servers in the background while the block runs; servers that are already connected are shared."""
        keys: list[bytes] = []
        try:
            for spec in specs:
                key = msgspec.json.encode((spec, folder), order="deterministic")
                if key not in self._links:
                    link = Link(
                        spec,
                        env=env,
                        folder=folder,
                        watchdog=self._watchdog,
                        import_lock=self._import_lock,
                        logins=logins,
                    )
                    link.pins = await load_pins(store, link.identity)
                    # A task without a group, because another task than the one that opened the app may close it; the
                    # block's end awaits it.
                    task = asyncio.create_task(link.run(), name=f"mcp-{spec.name}")  # noqa: TID251
                    self._links[key] = link, task
                self._users[key] = self._users.get(key, 0) + 1
                keys.append(key)
            yield [self._links[key][0] for key in keys]
        finally:
            await self._release(keys)

    async def _release(self, keys: list[bytes]) -> None:
        ending: list[asyncio.Task[None]] = []
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                link, task = self._links.pop(key)
                link.is_ending = True
                task.cancel()
                ending.append(task)
        if ending:
            await asyncio.wait(ending)
        if not self._links:
            await self._watchdog.aclose()
