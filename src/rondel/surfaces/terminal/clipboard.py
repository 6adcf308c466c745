"""Puts text on the clipboard: with the desktop's own program, or by asking the terminal, which also works over ssh."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import Mapping

TERMINAL_BYTES_MAX = 74_994  # what every terminal accepts in one request
PROGRAM_S = 3.0


def program(env: Mapping[str, str]) -> list[str] | None:
    """Return the command that reads the clipboard's new content from stdin, if this session has a desktop."""
    known = (
        (sys.platform == "darwin", ["pbcopy"]),
        (os.name == "nt", ["clip"]),
        (bool(env.get("WAYLAND_DISPLAY")), ["wl-copy"]),
        (bool(env.get("DISPLAY")), ["xclip", "-selection", "clipboard"]),
        (bool(env.get("DISPLAY")), ["xsel", "--clipboard", "--input"]),
    )
    return next((command for works, command in known if works and shutil.which(command[0])), None)


def request(text: str) -> str | None:
    """Return the escape sequence (OSC 52) that asks the terminal to copy a text; None if it is too long."""
    data = text.encode()
    return f"\x1b]52;c;{base64.b64encode(data).decode()}\x07" if len(data) <= TERMINAL_BYTES_MAX else None


async def copy(text: str, command: list[str]) -> bool:
    """Copy with a program. Return False if it does not work."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(PROGRAM_S):
            await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
    return process.returncode == 0
