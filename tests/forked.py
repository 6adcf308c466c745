"""`rondel`, or a script that uses it, as a process of its own: forked from one that has imported it already, which is
`tests/forkserver.py`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parent.parent
SCRIPT_S = 60.0


class Forked:
    """A running `rondel`, or a script, as `subprocess.Popen` would have started it. Without `stdin`, that is closed. If
    the streams are a terminal, `controlled` makes it the one whose keys send signals."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int | BinaryIO,
        stderr: int | BinaryIO,
        stdin: int | BinaryIO | None,
        script: str = "",
        warns: bool = False,
        controlled: bool = False,
    ) -> None:
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "env": dict(env),
            "script": script,
            "closes_stdin": stdin is None,
            "warns": warns,
            "controlled": controlled,
        }
        self._report, theirs = socket.socketpair()
        with theirs, open(os.devnull, "rb") as nothing:
            given = nothing if stdin in (None, subprocess.DEVNULL) else stdin
            fds = [one if isinstance(one, int) else one.fileno() for one in (given, stdout, stderr, theirs)]
            socket.send_fds(_server(), [json.dumps(request).encode() + b"\n"], fds)
        self._said = b""
        self._read(None)
        self.pid = int(self._said.split()[0])

    def poll(self) -> int | None:
        self._read(0)
        said = self._said.split()
        return int(said[1]) if len(said) > 1 else None

    def wait(self, timeout_s: float) -> int:
        until = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("rondel", timeout_s)
            select.select([self._report], [], [], max(0.0, until - time.monotonic()))
        self._report.close()
        return code

    def _read(self, timeout_s: float | None) -> None:
        while self._report.fileno() >= 0 and select.select([self._report], [], [], timeout_s)[0]:
            data = self._report.recv(100)
            if not data and len(self._said.split()) < 2:
                raise AssertionError("the fork server has ended")
            self._said += data
            if not data or timeout_s is None:
                return

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def pipe() -> tuple[BinaryIO, BinaryIO]:
    read, write = os.pipe()
    return open(read, "rb"), open(write, "wb")


def run_rondel(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | BinaryIO | None,
    timeout_s: float,
    script: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command, or a script, to its end. Its stdin is a file, or a pipe with these bytes; without, stdin is
    closed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        theirs, ours = pipe()
        with ours:
            with theirs:
                given = theirs if isinstance(stdin, bytes) else stdin
                process = Forked(arguments, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err, script=script)
            feeding = threading.Thread(target=_feed, args=(ours, stdin if isinstance(stdin, bytes) else b""))
            feeding.start()
            try:
                code = process.wait(timeout_s)
            finally:
                process.kill()
                feeding.join()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script that uses Rondel to its end, as `python -c` does."""
    words = tuple(map(str, arguments))
    done = run_rondel(*words, cwd=Path.cwd(), env=os.environ, stdin=b"", timeout_s=SCRIPT_S, script=script)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def _feed(pipe: BinaryIO, data: bytes) -> None:
    try:
        pipe.write(data)
        pipe.close()
    except BrokenPipeError:
        pass  # it does not read all of it


@cache
def _server() -> socket.socket:
    """Start the server, which ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())]
        env = {**os.environ, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}
        server = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    return ours
