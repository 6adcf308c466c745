"""Starts MCP servers as processes that never outlive this one, `kill -9` included.

Each server runs in a process group of its own. A watchdog, one small shell for all servers, knows the groups and reads
a pipe whose other end only this process holds: when this process ends, in any way, the pipe ends and the watchdog kills
the groups. A server waits at a gate until the watchdog knows it, so it can never be left behind. A process that leaves
its group (a daemon that calls setsid) escapes. This works on Linux, macOS and other POSIX systems; on Windows the SDK's
job object does it (stdio.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

from ..errors import RondelError

GRACE_S = 1.0  # how long a server has to exit when its input ends, and again after SIGTERM
POLL_S = 0.01

# Reads byte by byte, as POSIX requires of `read`, so everything after the first line is the server's.
_GATE = 'read -r gate || exit 1; unset gate; exec "$@"'
_WATCH = """
trap '' INT TERM HUP QUIT
groups=
while read -r change group; do
  if [ "$change" = + ]; then groups="$groups $group"; continue; fi
  kept=
  for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done
  groups=$kept
done
[ -n "$groups" ] || exit 0
for one in $groups; do kill -s TERM -- "-$one" 2>/dev/null; done
sleep 1
for one in $groups; do kill -s KILL -- "-$one" 2>/dev/null; done
"""


class Watchdog:
    """The process that ends servers if this one cannot. It starts with the first server."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting = asyncio.Lock()

    async def _open(self) -> Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await asyncio.create_subprocess_exec(
                    "/bin/sh", "-c", _WATCH, stdin=PIPE, stdout=-3, stderr=-3, start_new_session=True
                )
            return self._process

    async def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> Process:
        """Start a server. Raises RondelError if there is no such command or folder."""
        found = _find(command[0], env, cwd)
        watching = await self._open()
        server = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GATE, "sh", found, *command[1:]),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        try:
            await _tell(watching, f"+ {server.pid}\n")
            await _tell(server, "\n")
        except OSError as error:
            await self.stop(server)
            raise RondelError(f"{command[0]!r} could not be started: {error.strerror or error}") from None
        return server

    async def stop(self, server: Process) -> None:
        """End a server and everything in its group: its input ends, then SIGTERM, then SIGKILL."""
        if server.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                server.stdin.close()
        if not await _is_gone(server):
            _signal(server.pid, signal.SIGTERM)
            await _is_gone(server)
        _signal(server.pid, signal.SIGKILL)  # also kills what the server itself has left behind
        await _is_gone(server)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                await _tell(self._process, f"- {server.pid}\n")
        _close_pipes(server)

    async def aclose(self) -> None:
        if self._process is not None:
            watching, self._process = self._process, None
            if watching.stdin is not None:
                watching.stdin.close()
            await watching.wait()


async def _tell(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode())
    await process.stdin.drain()


async def _is_gone(server: Process) -> bool:
    """Wait a moment for a server to end. Return whether it has."""
    # Not `wait`, which also waits until the pipes are closed: a child of the server may have inherited them.
    for _ in range(round(GRACE_S / POLL_S)):
        if server.returncode is not None:
            break
        await asyncio.sleep(POLL_S)
    return server.returncode is not None


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _close_pipes(server: Process) -> None:
    # A process that inherited the pipes would keep the transport open, and cause a warning. No public API gives access
    # to it.
    transport = getattr(server, "_transport", None)
    if transport is not None:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            transport.close()


def _find(command: str, env: Mapping[str, str], cwd: str | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        raise RondelError(f"its folder {cwd!r} does not exist")
    if os.sep in command:
        path = os.path.join(cwd or "", os.path.expanduser(command))
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise RondelError(f"there is no program {command!r}; check the path in 'command'")
        return os.path.abspath(path)
    import shutil  # slow to import, and needed only here

    found = shutil.which(command, path=env.get("PATH"))
    if found is None:
        raise RondelError(f"there is no program {command!r} on the PATH; install it, or write its whole path")
    return found
