"""The tool that runs a shell command on the user's machine. It always asks first; what it prints is cut, not kept.

The command runs in a process group of its own, which ends with the call: by its time-out, or when the turn is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

from ..errors import ToolError
from ..tool import CallContext, tool

COMMAND_S = 120.0
OUTPUT_BYTES_MAX = 64_000
_CHUNK_BYTES = 16_384


@tool(name="run_shell", approval="confirm", timeout_s=COMMAND_S, parallel=False)
async def run_shell(command: str, context: CallContext) -> str:
    """Run a shell command on the user's computer, after the user agreed, and give what it printed.

    Args:
        command: one command line; it gets no input, and two minutes
    """
    if not command.strip():
        raise ToolError("the command is empty; give a command line")
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        printed, left_out = await _read(process.stdout)
        code = await process.wait()
    finally:
        await _end(process)
    text = printed.decode("utf-8", errors="replace")
    if left_out:
        text += f"\n[... cut: {left_out:,} more bytes were printed]"
    return f"exit code {code}\n{text}" if text.strip() else f"exit code {code}, nothing was printed"


async def _read(stream: asyncio.StreamReader) -> tuple[bytes, int]:
    """The first bytes, and how many more there were: a command that prints for ever must not fill the memory."""
    kept, left_out = bytearray(), 0
    while chunk := await stream.read(_CHUNK_BYTES):
        room = OUTPUT_BYTES_MAX - len(kept)
        kept += chunk[:room]
        left_out += max(0, len(chunk) - room)
    return bytes(kept), left_out


async def _end(process: Any) -> None:
    """Nothing that the command started in its group outlives the call."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    if process.returncode is None:
        await process.wait()
