"""`rondel serve`: run the gateway until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from ..calling.threads import in_thread
from ..contracts.clock import Clock
from ..errors import ConfigError
from ..gateway.server.serving import Server, bind, run_fast
from ..project.config import money_warnings
from ..project.engines import best_present
from ..project.folder import Project
from ..surfaces.terminal.signals import signals
from ._gateway import NO_ENGINE, OpenGateway, check_address, open_gateway, open_page, unusable, with_options
from ._options import engine, flag, string
from ._output import console, path_hint, tell
from ._project import load_project
from ._running import remembered

if TYPE_CHECKING:
    from ._discord import Bot

REFRESH_S = 0.25
CUT_OFF = 5  # the exit code if requests were cut off because they did not finish in time
LEAVE_S = 0.5  # how long callers have to read the error that ends their streams after a second signal


@click.command()
@string("--host", help="the address to listen on")
@click.option("--port", "-p", type=click.IntRange(0, 65535), help="the port; 0 takes a free one")
@engine
@flag("--watch", help="show requests as they arrive")
@flag("--open", "open_page_", help="open the page in a browser")
@click.option("--drain", type=click.FloatRange(0), help="seconds to wait for open requests when stopped")
def serve(host: str, port: int | None, engine: str, watch: bool, open_page_: bool, drain: float | None) -> int:
    """Serve the page, models and agents (OpenAI and Anthropic protocols)."""
    project = load_project()
    gateway = project.config.gateway
    host, port = host or gateway.host, gateway.port if port is None else port
    check_address(with_options(project.config, host, port, engine))
    return run_fast(
        _serve(project, host, bind(host, port), engine=engine, watch=watch, opens=open_page_, drain_s=drain)
    )


async def _serve(
    project: Project,
    host: str,
    listening: socket.socket,
    *,
    engine: str,
    watch: bool,
    opens: bool,
    drain_s: float | None,
) -> int:
    try:
        port = listening.getsockname()[1]
        async with (
            open_gateway(project, host, listening, tell, engine=engine, has_page=True) as running,
            open_page(running) as application,
            asyncio.TaskGroup() as group,
        ):
            server = Server(application, listening, proxies=project.config.gateway.proxies)
            ending = _Ending(server, running, group, drain_s)
            with (
                remembered(project.config, host, port),
                signals(ending.stop, "SIGINT", "SIGTERM"),
                signals(ending.hang_up, "SIGHUP"),
            ):
                for line in opening(running):
                    tell(line)
                if opens:
                    await _open_browser(running.address)
                ending.bot = _start_bot(project, running, group)
                watcher = group.create_task(_watch(running)) if watch else None
                await server.run()
                if watcher is not None:
                    watcher.cancel()
                ending.cancel()
    finally:
        listening.close()
    return ending.code


def opening(running: OpenGateway) -> Iterator[str]:
    """Yield the first lines: the address, the default engine and why, and how to connect clients."""
    config, default, address = running.config, running.default, running.address
    yield from (f"Warning: {warning}" for warning in config.warnings)
    yield from (f"Warning: {problem}" for problem in unusable(config))
    yield from (f"Warning: {problem}" for problem in money_warnings(config, running.engines))
    yield f"Open {address} in a browser to talk to your agents."
    is_missing = default.name.startswith("local:") and not default.named and best_present() is None
    if default.name == NO_ENGINE:
        yield f"Listening on {address}. No model can answer yet: {default.why}."
    elif is_missing:
        yield f"Listening on {address}. No model is downloaded yet: {default.why}. The page offers to download one."
    else:
        yield f"Listening on {address}. Default engine: {default.name} ({default.why})."
    yield from (f"{hint[0].upper()}{hint[1:]}." for hint in default.hints[-1 if is_missing else 0 :][:2])
    yield f"Point clients at it with ANTHROPIC_BASE_URL={address}"
    yield f"or OPENAI_BASE_URL={address}/v1;"
    yield '`rondel code` runs a coding agent through it; `eval "$(rondel activate)"` sets up a shell.'
    keys = ", ".join(config.gateway.keys)
    who = f"Callers need a key: {keys}." if keys else "No key needed; only local programs can connect."
    yield from path_hint()
    yield f"{who} Ctrl-C stops it."


async def _open_browser(address: str) -> None:
    """Open the page. A machine without a browser says so."""
    import webbrowser

    if not await in_thread(webbrowser.open, address):
        tell(f"No browser was found; open {address} yourself.")


def _start_bot(project: Project, running: OpenGateway, group: asyncio.TaskGroup) -> Bot | None:
    """Start the Discord bot if there is a table `[discord]`."""
    if project.config.discord is None:
        return None
    from ._discord import Bot, allow_extensions, check_installed, log_to_stderr, token_of

    check_installed()
    if not project.agents:
        raise ConfigError("[discord] needs an agent in this project; `rondel init` writes one")
    log_to_stderr()
    allow_extensions(project.config)
    token, bot = token_of(project.config), Bot(running.app, project.config)
    group.create_task(bot.run(token))
    return bot


class _Ending:
    """Handles signals. The first SIGINT or SIGTERM waits for open requests, for `drain_s` or as configured; the second
    does not wait. SIGHUP reads the configuration again."""

    def __init__(self, server: Server, running: OpenGateway, group: asyncio.TaskGroup, drain_s: float | None) -> None:
        self._server, self._running, self._group, self._drain_s = server, running, group, drain_s
        self._told: list[int] = []
        self._drain: asyncio.Task[None] | None = None
        self._cut = 0
        self.bot: Bot | None = None
        self._had_terminal = sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]

    @property
    def code(self) -> int:
        if len(self._told) > 1:
            return 128 + self._told[-1]
        return CUT_OFF if self._cut else 0

    def cancel(self) -> None:
        if self._drain is not None:
            self._drain.cancel()

    def stop(self, number: int) -> None:
        self._told.append(number)
        if len(self._told) > 1:
            self._running.gateway.interrupt()
            asyncio.get_running_loop().call_later(LEAVE_S, partial(self._server.stop, at_once=True))
            return
        if left := self._running.open_requests:
            what = "1 open request" if left == 1 else f"{left} open requests"
            tell(f"Waiting for {what}; press Ctrl-C again to stop at once.")
        self._server.stop()
        if self.bot is not None:
            self.bot.stop_soon()
        self._drain = self._group.create_task(self._drained())

    async def _drained(self) -> None:
        gateway, loop = self._running.gateway, asyncio.get_running_loop()
        seconds = gateway.setup.config.gateway.drain_s if self._drain_s is None else self._drain_s
        until = loop.time() + seconds
        self._tell_cut(await gateway.drain(seconds), seconds)
        # Slow callers may still be reading finished answers, and requests may still be arriving. When all are done,
        # the server ends by itself, and this task with it.
        await asyncio.sleep(max(until - loop.time(), LEAVE_S))
        if not self._cut:
            self._tell_cut(self._server.connections, seconds)
        self._server.stop(at_once=True)

    def _tell_cut(self, count: int, seconds: float) -> None:
        self._cut = count
        if count:
            what = "1 request" if count == 1 else f"{count} requests"
            tell(f"Stopped {what} after {seconds:g} s; raise drain_s in [gateway] to wait longer.")

    def hang_up(self, number: int) -> None:
        if self._had_terminal and _terminal_is_gone():
            self.stop(number)
        else:
            self._group.create_task(self._running.updates.again())


def _terminal_is_gone() -> bool:
    """Return whether SIGHUP means that the terminal was closed, and not that a reload is wanted."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return True
    return False


async def _watch(running: OpenGateway) -> None:
    """Show requests live: a table in a terminal, otherwise a line for each finished one."""
    records, clock = running.gateway.records, running.gateway.clock
    if sys.stdout.isatty():
        await _show_table(running, clock)
        return

    from ._requests import line_watcher

    def say(line: str) -> None:
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError:  # the reader is gone; keep serving
            unwatch()

    unwatch = records.watch(line_watcher(say))
    try:
        await asyncio.Event().wait()
    finally:
        unwatch()


async def _show_table(running: OpenGateway, clock: Clock) -> None:
    from ..surfaces.terminal.console import live
    from ._requests import Watching

    shown, loop = console(), asyncio.get_running_loop()
    watching = Watching(running.gateway.records, shown, loop.time, f"{running.address} · Ctrl-C stops it")
    with live(shown, watching, vertical_overflow="crop") as picture:
        while True:
            picture.refresh()
            await clock.sleep_until(clock.now() + REFRESH_S)
