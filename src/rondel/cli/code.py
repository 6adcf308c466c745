"""`rondel code`: run a coding agent, or any other program, through the gateway.

Uses the running gateway; without one, starts one in this process that ends with the program. The program gets its own
environment and the terminal, and its exit code is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence

import click

from ..errors import RondelError
from ..gateway.server.serving import Server, bind, run_fast
from ..project.config import secrets_in
from ..project.folder import Project
from ..surfaces.terminal.signals import signals
from ..text.redaction import Redactor
from ._client import check_key, client_arguments, client_environment, is_gateway, key_of, url_of
from ._gateway import check_address, open_gateway, with_options
from ._options import key
from ._output import tell
from ._project import load_project
from ._running import gateway_address

AGENT = "claude"
BY_KEY = ("SIGINT", "SIGQUIT")  # a terminal itself sends these to all programs in the foreground
HOST = "127.0.0.1"  # a gateway for one program serves this machine only, whatever the configuration says


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, help=f"a program and its arguments; by default, {AGENT}")
@key
def code(command: tuple[str, ...], key: str) -> int:
    """Run a coding agent or another program through the gateway. Exit codes: those of the program."""
    if not command or command[0].startswith("-"):
        command = (AGENT, *command)  # options without a program are for the default one
    program = _program(command[0])
    project = load_project()
    key = key_of(project.config.gateway, key, time.time())
    host, port = gateway_address(project.config)
    if is_gateway(host, port):
        check_key(host, port, key)
        url = url_of(host, port)
        tell(f"Running `{command[0]}` through the running gateway at {url}.")
        arguments = [*client_arguments(command[0], url), *command[1:]]
        return run_fast(_run(program, arguments, client_environment(url, key, os.environ, _upstream_keys(project))))
    check_address(with_options(project.config, HOST, port))
    return run_fast(_run_with_gateway(project, _listen(port), program, command, key))


def _upstream_keys(project: Project) -> Redactor:
    """Return a redactor that hides the keys of models. The client keeps its proxy settings, because it may not reach
    the network without them."""
    return Redactor(secrets_in(project.config, {}))


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    hint = "" if name != AGENT else ", or name another program: `rondel code codex`"
    raise RondelError(f"the program {name!r} was not found; install it, or check its name and PATH{hint}")


def _listen(port: int) -> socket.socket:
    """Listen on the configured port, or on a free one if another program uses it."""
    try:
        return bind(HOST, port)
    except RondelError as error:
        listening = bind(HOST, 0)
        why = str(error).partition(";")[0]
        tell(f"{why[0].upper()}{why[1:]}; using port {listening.getsockname()[1]} instead.")
        return listening


async def _run_with_gateway(
    project: Project, listening: socket.socket, program: str, command: Sequence[str], key: str
) -> int:
    for warning in project.config.warnings:
        tell(f"Warning: {warning}")
    try:
        # The terminal belongs to the program: changes of the configuration go to the log only.
        async with open_gateway(project, HOST, listening, lambda _: None) as running:
            answers = f"{running.default.name}: {running.default.why}"
            tell(f"Running `{command[0]}` through the gateway at {running.address}, with {answers}.")
            server = Server(running.gateway, listening)
            env = client_environment(running.address, key, os.environ, _upstream_keys(project))
            arguments = [*client_arguments(command[0], running.address), *command[1:]]
            async with asyncio.TaskGroup() as group:
                group.create_task(server.run())
                try:
                    return await _run(program, arguments, env)
                finally:
                    server.stop(at_once=True)
    finally:
        listening.close()


async def _run(program: str, arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the program and return its exit code; if a signal ended it, 128 plus the signal's number, as shells do."""
    process: asyncio.subprocess.Process | None = None
    early: list[int] = []

    def pass_on(number: int) -> None:
        if signal.Signals(number).name in BY_KEY and _is_in_foreground():
            return
        if process is None:
            early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    with signals(pass_on, *BY_KEY, "SIGTERM", "SIGHUP"):  # before it starts, so that none ends this process first
        try:
            process = await asyncio.create_subprocess_exec(program, *arguments, env=dict(env))
        except OSError as error:
            raise RondelError(f"{program!r} cannot be started: {error.strerror or error}") from None
        try:
            for number in early:
                pass_on(number)
            ended = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    return ended if ended >= 0 else 128 - ended


def _is_in_foreground() -> bool:
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
