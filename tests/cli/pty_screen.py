"""A program in a real terminal of 80 by 24, as a person sees it: wait for text on the screen, press keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

from tests.forked import Forked

WAIT_S = 30.0
END_S = 1.0  # how long a program may take to end when its terminal is closed
REST = re.compile(r" \w+ · \S+\n›\s*$")


class _Screen(pyte.HistoryScreen):
    """Answers what a program asks its terminal, such as where the cursor is."""

    def __init__(self, columns: int, lines: int, terminal: int) -> None:
        self._terminal = terminal
        super().__init__(columns, lines, history=2000, ratio=0.5)

    def write_process_input(self, data: str) -> None:
        os.write(self._terminal, data.encode())


class PtyScreen:
    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str], columns: int, rows: int) -> None:
        """Start a command. `rondel` is forked: that saves most of the time that it takes to start."""
        self._terminal, theirs = pty.openpty()
        self._screen = _Screen(columns, rows, self._terminal)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, rows)
        self._process = _start(command, theirs, cwd, env)
        os.close(theirs)
        self.raw: bytes = b""
        self._ended = False

    @property
    def text(self) -> str:
        """Everything on the screen now, without the spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def all_text(self) -> str:
        """What has scrolled away, and the screen."""
        gone = [
            "".join(line[x].data for x in range(self._screen.columns)).rstrip() for line in self._screen.history.top
        ]
        return "\n".join((*gone, self.text))

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, wanted: str, *, count: int = 1) -> str:
        """Read until the text is there (so often); fail with the screen if it never is."""
        self._wait(lambda: self.all_text.count(wanted) >= count, wanted)
        return self.text

    def wait_for_rest(self) -> None:
        """Read until the chat waits for a line: the agent and its engine stand above an empty prompt."""
        self._wait(lambda: REST.search(self.text) is not None, "an empty prompt")

    def wait_for_line(self, *pieces: str, end: str) -> str:
        """Read until some line has these pieces and ends so; that line."""

        def found() -> str:
            lines = (line.rstrip() for line in self.text.splitlines())
            return next((line for line in lines if line.endswith(end) and all(piece in line for piece in pieces)), "")

        self._wait(lambda: bool(found()), f"a line with {pieces}")
        return found()

    def wait_until(self, is_there: Callable[[], bool], wanted: str) -> None:
        """Read until that is so."""
        self._wait(is_there, wanted)

    def _wait(self, is_there: Callable[[], bool], wanted: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_there():
            if not self._read(deadline):
                raise AssertionError(f"{wanted!r} never came; the screen is:\n{self.all_text}")

    def _read(self, deadline: float) -> bool:
        if not select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # no program has the terminal open any more
            data = b""
        if not data:
            self._ended = True
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def press(self, keys: str, *, until: str = "") -> None:
        """Press keys; then read until a text is there."""
        os.write(self._terminal, keys.encode())
        if until:
            self.wait_for(until)

    def type(self, line: str, *, until: str = "") -> None:
        self.press(f"{line}\r", until=until)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)
        self.wait_end()

    def wait_end(self) -> int:
        """Read to the end; the exit code, or minus the signal."""
        deadline = time.monotonic() + WAIT_S
        while self._read(deadline):
            pass
        assert self._ended, f"the program did not end; the screen is:\n{self.all_text}"
        return self._process.wait(WAIT_S)

    def __enter__(self) -> PtyScreen:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S)


def _start(command: list[str], terminal: int, cwd: Path, env: dict[str, str]) -> Forked | subprocess.Popen[bytes]:
    program, *arguments = command
    if program == "rondel":
        process = Forked(
            tuple(arguments), cwd=cwd, env=env, stdin=terminal, stdout=terminal, stderr=terminal, controlled=True
        )
    else:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
        )
    return process
