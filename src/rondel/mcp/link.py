"""A server as an app sees it: connected in the background, reconnected when it fails, with a status for people.

Imports nothing of the SDK before it connects. After a failure it waits 500 ms, twice as long each time but at most
2 s, for `retries` more attempts. Then the server counts as down, and is retried in the background, less and less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..calling.threads import in_thread
from ..errors import RondelError, ToolError, install_extra
from ..question import Hold
from ..tool import NoResult
from ..values import Media, Text, ToolResult
from .asking import Asker
from .process import Watchdog
from .remote import ConnectionLost, LoginNeeded, Offer, RemoteTool, Status
from .spec import ServerSpec

if TYPE_CHECKING:
    from .session import Session

BASE_S, CAP_S = 0.5, 2.0
AGAIN_S, AGAIN_MAX_S = 2.0, 60.0  # the pauses between attempts in the background
RECONNECT_S = 5.0  # how long a prompt waits for a server that has just been lost
READ_S = 30.0  # how long a prompt or a resource may take


def missing_sdk() -> str:
    return f"the MCP SDK is not installed; run {install_extra('mcp')}"


def retry_delay_s(failures: int) -> float:
    """Return the pause after this many failures: 500·2^n ms, at most 2 s."""
    return min(CAP_S, BASE_S * 2 ** (failures - 1))


def _explain(error: BaseException) -> str:
    known = sys.modules.get("rondel.mcp.session")  # not there if its import failed
    return known.explain(error) if known is not None else f"{type(error).__name__}: {error}"


class Pin(msgspec.Struct, frozen=True):
    """A tool's description of itself when it was approved."""

    digest: str
    description: str
    schema: dict[str, Any]


class Link:
    """One server. `run` is its task; all other methods may be called from other tasks of the same loop."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        env: Mapping[str, str],
        folder: str,
        watchdog: Watchdog,
        import_lock: asyncio.Lock,
        logins: Path | None,
    ) -> None:
        self.spec, self.folder = spec, folder
        self.status = Status()
        self.offer = Offer()
        self.version = 0  # counts changes of its offer and of the pins
        self.pins: dict[str, Pin] = {}
        self._env = {**env, **spec.env}
        self._cwd = os.path.join(folder, os.path.expanduser(spec.cwd)) if spec.cwd or folder else None
        self._watchdog, self._import_lock, self.logins = watchdog, import_lock, logins
        self._session: Session | None = None
        self._has_imported = asyncio.Event()
        self._settled = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._was_ready = False
        self.is_ending = False
        """Whether it is no longer used. Set when it is cancelled, because a connection of the SDK that is just closing
        mistakes that cancellation for its own, and `run` would never learn of it."""

    @property
    def identity(self) -> str:
        """Identifies the server for pins, by its command or its address: a new command is a new server."""
        about = (self.spec.name, self.spec.command, self.spec.args, self.spec.url)
        return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:24]

    @property
    def is_ready(self) -> bool:
        return self._session is not None and self._session.is_open

    def retry(self) -> None:
        """Connect again now, at a person's request: with a new login, or without waiting for the next attempt."""
        self._retry_now.set()
        if self._session is not None:
            self._session.broken.set()

    async def reconnected(self) -> None:
        """Wait a moment for a server that has just been lost."""
        if not self.is_ready and self._was_ready and self.status.state != "down":
            self._settled.clear()
            self._retry_now.set()
            await self.settled(RECONNECT_S)

    async def settled(self, seconds: float) -> bool:
        """Wait until the server has connected or counts as down. Return False if it takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        return self._settled.is_set()

    # --- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        failures = 0
        while not self.is_ending:
            try:
                await self._connected()
                failures = 0
            except RondelError as error:
                failures += 1
                if not self._fail(error, failures):
                    return
            except Exception as error:  # a bug in a library must end neither the task nor the app
                failures += 1
                self._fail(RondelError(_explain(error)), failures)
            finally:
                self._session = None
            if self.is_ending:
                return
            extra = failures - self.spec.retries - 1
            pause = retry_delay_s(max(1, failures)) if extra < 0 else min(AGAIN_MAX_S, AGAIN_S * 2 ** min(extra, 8))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._retry_now.wait()

    async def _connected(self) -> None:
        """Connect, and return when the connection has ended. Raises RondelError if it cannot connect."""
        self._retry_now.clear()
        try:
            async with self._import_lock:  # one thread imports the SDK for all servers
                module = await in_thread(importlib.import_module, "rondel.mcp.session")
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "httpx2", "anyio", "pydantic"):
                raise
            raise RondelError(missing_sdk()) from None
        finally:
            self._has_imported.set()
        env, cwd = self._env, self._cwd
        opening = module.open_session(self.spec, env=env, cwd=cwd, watchdog=self._watchdog, logins=self.logins)
        async with opening as session:
            try:
                async with asyncio.timeout(self.spec.connect_s):
                    offer = await session.offer()
            except TimeoutError:
                raise RondelError(f"it did not list its tools within {self.spec.connect_s:g} s") from None
            except Exception as error:
                raise RondelError(f"its tools cannot be listed: {module.explain(error)}") from None
            self._session = session
            self.status = Status("ready", "", session.client.protocol_version, session.about)
            self._take(offer)
            self._was_ready = True
            self._settled.set()

            async def changed() -> None:
                self._take(await session.offer())

            await session.watch(changed)
            self._session = None
            self.status = Status("connecting", session.lost_reason)

    def _take(self, offer: Offer) -> None:
        if offer != self.offer:
            self.offer = offer
            self.version += 1

    def _fail(self, error: RondelError, failures: int) -> bool:
        """Note a failure. Returns whether another attempt makes sense."""
        needs_login = isinstance(error, LoginNeeded)
        if failures > self.spec.retries or needs_login or str(error) == missing_sdk():
            self.status = Status("login" if needs_login else "down", str(error))
            self._take(Offer())
            self._was_ready = False
            self._settled.set()
        else:
            self.status = Status("connecting", str(error))
        return str(error) != missing_sdk()

    # --- what it is used for ------------------------------------------------------------------------------------------

    async def session(self) -> Session:
        """Return the open connection. Raises ToolError with the reason if there is none."""
        if not self.is_ready:
            self._retry_now.set()
            if self.status.state in ("connecting", "ready"):
                self._settled.clear()
                await self._has_imported.wait()  # our own work, however slow, does not count as the server's time
                await self.settled(self.spec.connect_s)
        if self._session is None or not self._session.is_open:
            reason = self.status.reason or "it is still being connected"
            raise ToolError(f"the MCP server {self.spec.name!r} is not available: {reason}")
        return self._session

    def tool(self, name: str) -> RemoteTool | None:
        return next((tool for tool in self.offer.tools if tool.name == name), None)

    async def call(
        self, tool: str, arguments: dict[str, Any], asker: Asker, progress: Callable[[str, float | None], None]
    ) -> ToolResult | NoResult | Hold:
        """Call a tool. If the server was not reached, the call is retried up to `retries` times."""
        for attempt in range(1, self.spec.retries + 2):
            session = await self.session()
            try:
                return await session.call(tool, arguments, asker, progress)
            except ToolError:
                raise
            except ConnectionLost as error:
                if error.was_sent:
                    raise self._failed(f"{error}; the call may have had its effect") from None
                if attempt > self.spec.retries:
                    raise ToolError(f"the MCP server {self.spec.name!r} is not available: {error}") from None
                await asyncio.sleep(retry_delay_s(attempt))
            except RondelError as error:
                raise self._failed(str(error)) from None
        raise AssertionError("unreachable")

    def _failed(self, reason: str) -> ToolError:
        return ToolError(f"the MCP server {self.spec.name!r} failed during the call: {reason}")

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> list[tuple[str, tuple[Text | Media, ...]]]:
        return await self._asked(lambda session: session.prompt(name, arguments))

    async def read(self, uri: str) -> tuple[Text | Media, ...]:
        return await self._asked(lambda session: session.read(uri))

    async def _asked(self, ask: Callable[[Session], Any]) -> Any:
        session = await self.session()
        try:
            async with asyncio.timeout(READ_S):
                return await ask(session)
        except TimeoutError:
            raise RondelError(f"the MCP server {self.spec.name!r} did not answer within {READ_S:g} s") from None
        except RondelError:
            raise
        except Exception as error:
            raise RondelError(f"the MCP server {self.spec.name!r} refused: {_explain(error)}") from None
