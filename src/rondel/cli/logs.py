"""`rondel logs`: the gateway's request log. Opens files in the log folder, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from ..contracts.clock import Clock, SystemClock
from ..errors import RondelError
from ..files.private import state_folder
from ..gateway.server.log import NAME, log_names, open_log, read_line
from ..text.printable import one_line
from ._options import as_json, flag, limit
from ._output import tell, write_json
from ._requests import request_line

POLL_S = 0.5
CHARS_MAX = 400


@click.command()
@click.argument("name", default="", help="which log; by default, the newest")
@limit(50)
@flag("--follow", "-f", help="show new lines as they are written, until Ctrl-C")
@as_json
def logs(name: str, limit: int, follow: bool, as_json: bool) -> None:
    """Show the gateway's request log."""
    folder, at = state_folder() / "logs", 0
    if not name and not follow and NAME not in log_names(folder):
        tell("There are no logs yet; `rondel serve` and `rondel code` write them.")
        return
    if name or not follow:
        with open_log(folder, name or NAME) as file:
            for line in deque(file, maxlen=limit):
                _print(line, as_json=as_json)
            at = file.tell()
    if follow:
        asyncio.run(_follow(folder, name or NAME, at, as_json=as_json))


async def _follow(folder: Path, name: str, at: int, *, as_json: bool) -> None:
    async for line in new_lines(folder, name, SystemClock(), at=at):
        _print(line, as_json=as_json)


async def new_lines(folder: Path, name: str, clock: Clock, *, at: int = 0) -> AsyncIterator[bytes]:
    """Yield each line written after the offset `at`. After a rotation, continue with the new file."""
    file: BinaryIO | None = None
    rest = b""
    try:
        while True:
            if file is None:
                with contextlib.suppress(RondelError):  # it does not exist yet
                    file = open_log(folder, name)
                    file.seek(min(at, os.fstat(file.fileno()).st_size))
                    at = 0
            if file is not None:
                is_rotated = _is_rotated(folder, name, file)  # asked first: nothing is written to the file after that
                rest += file.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    yield line
                if is_rotated:
                    file.close()
                    file, rest = None, b""
                    continue
            await clock.sleep_until(clock.now() + POLL_S)
    finally:
        if file is not None:
            file.close()


def _is_rotated(folder: Path, name: str, file: BinaryIO) -> bool:
    try:
        with open_log(folder, name) as now:
            return not os.path.samestat(os.fstat(now.fileno()), os.fstat(file.fileno()))
    except RondelError:
        return False


def _print(data: bytes, *, as_json: bool) -> None:
    line = read_line(data)
    if line is None:
        text = "" if as_json else one_line(data.decode("utf-8", "replace"), CHARS_MAX)
    else:
        text = msgspec.json.encode(line).decode() if as_json else request_line(line)
    if text and as_json:
        write_json(text)
    elif text:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
