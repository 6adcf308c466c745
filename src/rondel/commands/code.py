"""`rondel code`: a coding agent, or any program, with the gateway behind it.

The gateway that runs already is used; else one runs in this process and ends with the program. The program has its own
environment, the terminal is its own, and its exit code is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Generator, Mapping, Sequence

import msgspec

from ..errors import RondelError
from ..gateway.serving import Server, bind, run_fast
from ._client import check_key, client_arguments, client_environment, is_gateway, key_of, local_address, url_of
from ._gateway import at_place, check_place, open_gateway
from ._output import tell
from ._project import Project, load_project

AGENT = "claude"
HOST = "127.0.0.1"
"""A gateway for one program is for this machine only, whatever the configuration says."""


class Choice(msgspec.Struct, frozen=True):
    command: tuple[str, ...] = ()
    key: str = ""


def code(choice: Choice) -> int:
    command = _command(choice.command)
    program = _program(command[0])
    project = load_project()
    key = key_of(project.config.gateway, choice.key, time.time())
    host, port = local_address(project.config.gateway)
    if is_gateway(host, port):
        check_key(host, port, key)
        url = url_of(host, port)
        tell(f"{command[0]} asks the gateway that runs at {url}.")
        arguments = [*client_arguments(command[0], url), *command[1:]]
        return run_fast(_run(program, arguments, client_environment(url, key, os.environ)))
    check_place(at_place(project.config, HOST, port))
    return run_fast(_run_with_gateway(project, _listen(port), program, command, key))


def _command(given: tuple[str, ...]) -> Sequence[str]:
    """What to run. Options alone are those of the agent that is run by default."""
    return (AGENT, *given) if not given or given[0].startswith("-") else given


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    hint = "" if name != AGENT else ", or name another program: rondel code -- codex"
    raise RondelError(f"there is no program {name!r} on this machine; install it, or check its name and PATH{hint}")


def _listen(port: int) -> socket.socket:
    """The configured port, or a free one where something else has it."""
    try:
        return bind(HOST, port)
    except RondelError as error:
        listening = bind(HOST, 0)
        why = str(error).partition(";")[0]
        tell(f"{why[0].upper()}{why[1:]}; this gateway has port {listening.getsockname()[1]}.")
        return listening


async def _run_with_gateway(
    project: Project, listening: socket.socket, program: str, command: Sequence[str], key: str
) -> int:
    for warning in project.config.warnings:
        tell(f"Warning: {warning}")
    try:
        async with open_gateway(project, HOST, listening, _nothing) as running:
            tell(f"{command[0]} asks {running.address}: {running.default.name} – {running.default.why}.")
            server = Server(running.gateway, listening)
            env = client_environment(running.address, key, os.environ)
            arguments = [*client_arguments(command[0], running.address), *command[1:]]
            async with asyncio.TaskGroup() as group:
                group.create_task(server.run())
                try:
                    return await _run(program, arguments, env)
                finally:
                    server.stop(at_once=True)
    finally:
        listening.close()


def _nothing(_: str) -> None:
    """The terminal is the program's; the log has what there is to say."""


async def _run(program: str, arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the program to its end. Its exit code; 128 and the signal's number when one ended it, as shells say it."""
    signals = _Signals()
    with signals.caught():
        try:
            process = await asyncio.create_subprocess_exec(program, *arguments, env=dict(env))
        except OSError as error:
            raise RondelError(f"{program!r} cannot be started: {error.strerror or error}") from None
        try:
            signals.go_to(process)
            ended = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    return ended if ended >= 0 else 128 - ended


BY_KEY = tuple(number for name in ("SIGINT", "SIGQUIT") if (number := getattr(signal, name, None)))
"""A terminal sends these to all of its foreground: the program has them without us."""
OTHERS = tuple(number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)))


class _Signals:
    """Signals to this process are for the program. They are caught before it is there, so that none ends us first."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._early: list[int] = []

    @contextlib.contextmanager
    def caught(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        numbers = (*BY_KEY, *OTHERS)
        for number in numbers:
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, self._pass_on, number)
        try:
            yield
        finally:
            for number in numbers:
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    def go_to(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        for number in self._early:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if number in BY_KEY and _is_in_foreground():
            return
        if self._process is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether the keys of a terminal are for this process and those it started."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
