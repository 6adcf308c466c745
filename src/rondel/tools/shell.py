"""The tool that runs a shell command on the user's machine. It always asks first; long output is cut.

The command runs in its own process group, which is killed when the call ends. Its environment contains no secrets,
because the output goes to a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess

from ..errors import ToolError
from ..tool import CallContext, tool
from ..values import Example

COMMAND_S = 120.0
OUTPUT_BYTES_MAX = 64_000
GRACE_S = 0.5  # how long output is still read after the command has exited: its children may keep the pipe open
REAP_S = 1.0
_CHUNK_BYTES = 16_384


_EXAMPLES = (
    Example(
        {"command": "ls"},
        "Which files are in this folder?",
        "exit code 0\nletter.txt\nphoto.jpg",
        "There are two files: letter.txt and photo.jpg.",
    ),
    Example(
        {"command": "wc -l letter.txt"},
        "How many lines does letter.txt have?",
        "exit code 0\n12 letter.txt",
        "letter.txt has 12 lines.",
    ),
)


@tool(name="run_shell", approval="confirm", timeout_s=COMMAND_S, parallel=False, tags=["shell"], examples=_EXAMPLES)
async def run_shell(command: str, context: CallContext) -> str:
    """Only for files and programs of the user's computer: run a shell command, after the user agreed.

    Args:
        command: one command line; it gets no input, and two minutes
    """
    if not command.strip():
        raise ToolError("the command is empty; give a command line")
    # No await before the process is known: a turn that is stopped at this moment must be able to kill it.
    process = subprocess.Popen(  # noqa: ASYNC220
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=context.turn.environment,
    )
    output = _Output()
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(output.read(process))
            code = await asyncio.to_thread(process.wait)
            await asyncio.wait([reading], timeout=GRACE_S)
            reading.cancel()
    finally:
        _end(process)
    text = output.text
    return f"exit code {code}\n{text}" if text.strip() else f"exit code {code}, nothing was printed"


class _Output:
    """The first bytes of the output and the number of the rest, so that endless output does not fill the memory."""

    def __init__(self) -> None:
        self._kept, self._left_out = bytearray(), 0

    async def read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), process.stdout
        )
        try:
            while chunk := await stream.read(_CHUNK_BYTES):
                room = OUTPUT_BYTES_MAX - len(self._kept)
                self._kept += chunk[:room]
                self._left_out += max(0, len(chunk) - room)
        finally:
            transport.close()

    @property
    def text(self) -> str:
        text = self._kept.decode("utf-8", errors="replace")
        return text + f"\n[... cut: {self._left_out:,} more bytes were printed]" if self._left_out else text


def _end(process: subprocess.Popen[bytes]) -> None:
    # Kills everything that the command has started in its group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # A call that is cancelled before its waiting thread started would leave a zombie. After SIGKILL this returns at
    # once; the time-out is for a process that the kernel cannot end yet.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=REAP_S)
