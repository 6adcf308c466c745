"""Imports Rondel once, and forks a process that runs a command or a script for each request of `tests/forked.py`.

A forked process has its own arguments, environment, folder and streams, and ends like any Python program. It saves only
the time to import Rondel, which is most of the time of a command.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import termios
import time
import warnings
from pathlib import Path
from typing import Any

import rondel

PIECE_BYTES = 65_536


def preload() -> None:
    """Import Rondel and the event loop of `rondel serve`, without what few commands need: the bot and the MCP SDK."""
    source = Path(rondel.__path__[0])
    for path in source.rglob("*.py"):
        *folders, name = path.relative_to(source.parent).with_suffix("").parts
        if not {"discord", "mcp", "__main__", "_sandbox"} & {*folders, name}:
            importlib.import_module(".".join((*folders, *([] if name == "__init__" else [name]))))
    importlib.import_module("uvloop")


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request. Returns the request in the new process, and None when the tests are over."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the processes that wait for the new ones
    while True:
        data, fds, _, _ = socket.recv_fds(requests, PIECE_BYTES, 4)
        while data and not data.endswith(b"\n"):
            data += requests.recv(PIECE_BYTES)
        if not data:
            return None
        if os.fork() == 0:
            requests.close()
            fork_and_wait(*fds)
            return json.loads(data)
        for fd in fds:
            os.close(fd)


def fork_and_wait(*fds: int) -> None:
    """Fork the process with these streams, and tell the test its id and its exit code. Only the new process returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, report = fds
    if pid := os.fork():
        for fd in streams:
            os.close(fd)
        os.write(report, b"%d " % pid)
        _, status = os.waitpid(pid, 0)
        os.write(report, b"%d " % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(report)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in streams:
        os.close(fd)


def become(request: dict[str, Any]) -> None:
    """Be like a process that was started just now."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that runs the tests with `&` ignores it
    if request["controlled"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = ["rondel", *request["arguments"]]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    out, err = io.BufferedWriter(io.FileIO(1, "w")), io.BufferedWriter(io.FileIO(2, "w"))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        out, "utf-8", "surrogateescape", line_buffering=out.isatty(), write_through=unbuffered
    )
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(err, "utf-8", "backslashreplace", line_buffering=True)
    if request["closes_stdin"]:
        os.close(0)
        sys.stdin = sys.__stdin__ = None
    else:
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8", "surrogateescape")
    if request["warns"]:
        warnings.simplefilter("default")


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    preload()
    gc.freeze()
    if (request := serve(connection)) is not None:
        become(request)
        if request["script"]:
            exec(request["script"], {"__name__": "__main__"})
        else:
            from rondel.cli.main import main

            sys.exit(main(request["arguments"]))
