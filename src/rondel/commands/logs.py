"""`rondel logs`: what the gateway wrote about its requests. Opens files of the log folder, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..clock import Clock, SystemClock
from ..errors import RondelError
from ..gateway.log import NAME, log_names, open_log, read_line
from ..surfaces.terminal.clean import one_line
from ._output import tell
from ._project import state_folder
from ._requests import request_line

POLL_S = 0.5
CHARS_MAX = 400


class View(msgspec.Struct, frozen=True):
    name: str = ""
    limit: int = 50
    follow: bool = False
    json: bool = False


def logs(view: View) -> None:
    folder = state_folder() / "logs"
    if not view.name and not view.follow and NAME not in log_names(folder):
        tell("There are no logs yet; `rondel serve` and `rondel code` write them.")
        return
    asyncio.run(show_log(folder, view, SystemClock()))


async def show_log(folder: Path, view: View, clock: Clock) -> None:
    """The newest lines; with `follow`, those that come, until somebody ends this."""
    if view.name or not view.follow:
        with open_log(folder, view.name or NAME) as file:
            newest = deque(file, maxlen=view.limit)
            for line in newest:
                _print(line, view)
            if not view.follow:
                return
            at = file.tell()
    else:
        at = 0
    async for line in follow(folder, view.name or NAME, clock, at=at):
        _print(line, view)


async def follow(folder: Path, name: str, clock: Clock, *, at: int = 0) -> AsyncIterator[bytes]:
    """Each line as it is written, from this place on; when the file is put aside, those of the next one."""
    file: BinaryIO | None = None
    rest = b""
    try:
        while True:
            if file is None:
                with contextlib.suppress(RondelError):  # it is not there yet
                    file = open_log(folder, name)
                    file.seek(min(at, os.fstat(file.fileno()).st_size))
                    at = 0
            if file is not None:
                rest += file.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    yield line
                if not lines and _is_aside(folder, name, file):
                    file.close()
                    file, rest = None, b""
                    continue
            await clock.sleep_until(clock.now() + POLL_S)
    finally:
        if file is not None:
            file.close()


def _is_aside(folder: Path, name: str, file: BinaryIO) -> bool:
    """Whether another file has the name now."""
    try:
        with open_log(folder, name) as now:
            return not os.path.samestat(os.fstat(now.fileno()), os.fstat(file.fileno()))
    except RondelError:
        return False


def _print(data: bytes, view: View) -> None:
    line = read_line(data)
    if line is None:
        text = "" if view.json else one_line(data.decode("utf-8", "replace"), CHARS_MAX)
    else:
        text = msgspec.json.encode(line).decode() if view.json else request_line(line)
    if text:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
