"""`rondel serve`: the gateway, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Generator, Iterator

import msgspec

from ..clock import Clock
from ..gateway.serving import Server, bind, run_fast
from ..settings import Config
from ._gateway import Running, at_place, check_place, open_gateway, unusable
from ._output import console, tell
from ._project import Project, load_project

REFRESH_S = 0.25
STOPPED_AT_ONCE = 130


class Choice(msgspec.Struct, frozen=True):
    host: str = ""
    port: int | None = None
    watch: bool = False


def serve(choice: Choice) -> int:
    project = load_project()
    gateway = project.config.gateway
    host, port = choice.host or gateway.host, gateway.port if choice.port is None else choice.port
    check_place(at_place(project.config, host, port))
    return run_fast(_serve(project, host, bind(host, port), watch=choice.watch))


async def _serve(project: Project, host: str, listening: socket.socket, *, watch: bool) -> int:
    try:
        async with open_gateway(project, host, listening, tell) as running:
            server = Server(running.gateway, listening)
            with _ending(server, running) as told:
                for line in opening(running):
                    tell(line)
                async with asyncio.TaskGroup() as group:
                    watcher = group.create_task(_watch(running)) if watch else None
                    await server.run()
                    if watcher is not None:
                        watcher.cancel()
    finally:
        listening.close()
    return STOPPED_AT_ONCE if len(told) > 1 else 0


def opening(running: Running) -> Iterator[str]:
    """What is said first: where it listens, who answers and why, and how clients find it."""
    config, default, address = running.config, running.default, running.address
    yield from (f"Warning: {warning}" for warning in config.warnings)
    yield from (f"Warning: {problem}" for problem in unusable(config))
    yield f"Listening on {address}. {default.name} answers by default – {default.why}."
    yield from (f"{hint[0].upper()}{hint[1:]}." for hint in default.hints[:2])
    yield f"Point clients at it with ANTHROPIC_BASE_URL={address} or OPENAI_BASE_URL={address}/v1;"
    yield '`rondel code` starts a coding agent on it, `eval "$(rondel activate)"` sets a shell up.'
    yield f"{_who(config)} Ctrl-C ends it."


def _who(config: Config) -> str:
    keys = config.gateway.keys
    if not keys:
        return "No key is needed, and only programs of this machine come in."
    return f"Callers need a key: {', '.join(keys)}."


@contextlib.contextmanager
def _ending(server: Server, running: Running) -> Generator[list[int]]:
    """Let the signals that end programs end this one: the first waits for requests under way, the second does not."""
    told: list[int] = []
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        told.append(number)
        server.stop(at_once=len(told) > 1)
        if len(told) == 1 and (left := running.open_requests):
            what = "the request that is" if left == 1 else f"the {left} requests that are"
            tell(f"Waiting for {what} under way; Ctrl-C again ends it at once.")

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stop, number)
    try:
        yield told
    finally:
        for number in numbers:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


async def _watch(running: Running) -> None:
    """Show the requests as they come: a table in a terminal, else a line for each that has ended."""
    records, clock = running.gateway.records, running.gateway.clock
    if sys.stdout.isatty():
        await _show_table(running, clock)
        return

    from ._requests import line_watcher

    def say(line: str) -> None:
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError:  # nobody reads any more; callers are served all the same
            unwatch()

    unwatch = records.watch(line_watcher(say))
    try:
        await asyncio.Event().wait()
    finally:
        unwatch()


async def _show_table(running: Running, clock: Clock) -> None:
    from rich.live import Live

    from ._requests import Watching

    shown, loop = console(), asyncio.get_running_loop()
    watching = Watching(running.gateway.records, shown, loop.time, f"{running.address} · Ctrl-C ends it")
    with Live(watching, console=shown, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.refresh()
            await clock.sleep_until(clock.now() + REFRESH_S)
