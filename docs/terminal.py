"""Makes docs/terminal.svg: `rondel` in a real terminal, with a real model. Nothing in the picture is made up.

    python docs/terminal.py docs/terminal.svg "What is 1234 * 5678?" "What does haiku.txt say?"

Each further argument is a line that is typed. It waits until the answer is there, says `yes` to whatever is asked, and
draws what is on the screen. The model is the one that `rondel` picks here; RONDEL_ENGINE names another. Needs the
packages of the tests (pexpect, pyte).
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pexpect
import pyte
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 92, 60
WAIT_S = 300.0
QUIET_S = 1.0
READY, ASKS = "/help lists the commands", "waiting for your answer"
AT_REST = re.compile(r"\n\s+\S+ · \S+\n›$")
"""The end of the screen when nothing is at work: who would answer, and an empty input line."""
POEM = "The terminal waits.\nA cursor blinks in the dark.\nSomebody answers.\n"


class Session:
    """A program in a terminal. What it prints is drawn on `screen` as a terminal would."""

    def __init__(self, command: Sequence[str], folder: Path, home: Path) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        env = os.environ | {"TERM": "xterm-256color", "COLORTERM": "", "RONDEL_STORE": str(home / "talks.db")}
        env |= {"XDG_STATE_HOME": str(home), "RONDEL_TRUST": str(folder)}
        self._child: Any = pexpect.spawn(
            command[0], list(command[1:]), cwd=str(folder), env=env, dimensions=(ROWS, COLUMNS), encoding=None
        )

    @property
    def shown(self) -> str:
        """What is on the screen, to the last line that is not empty."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def wait(self, done: Callable[[str], bool]) -> None:
        """Read until this is on the screen and nothing moves any more: while something is at work, a sign turns."""
        deadline = time.monotonic() + WAIT_S
        quiet = False
        while not (quiet and done(self.shown)):
            if time.monotonic() > deadline:
                raise SystemExit("the answer did not come; the screen is:\n" + self.shown)
            try:
                self._stream.feed(_dim_as_grey(self._child.read_nonblocking(65536, timeout=QUIET_S)))
                quiet = False
            except pexpect.TIMEOUT:
                quiet = True

    def type(self, line: str) -> None:
        self._child.send(f"{line}\r")

    def close(self) -> None:
        self._child.close(force=True)


def _dim_as_grey(data: bytes) -> bytes:
    """pyte knows no dim text. A sequence that is cut in two by a read stays as it is, and is only less grey."""
    return re.sub(rb"\x1b\[(?:0;)?2m", b"\x1b[0;90m", data)


def talk(lines: Sequence[str], *, engine: str = "") -> Session:
    """Type the lines into a chat, one after the other, and give the session with its screen as it is then."""
    command = [sys.executable, "-m", "rondel", *(("--engine", engine) if engine else ())]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        Path(folder, "haiku.txt").write_text(POEM, encoding="utf-8")
        session = Session(command, Path(folder), Path(home))
        try:
            session.wait(lambda shown: READY in shown)
            for line in lines:
                session.type(line)
                session.wait(lambda shown, line=line: f"› {line}" in shown and _rests(shown))
                while ASKS in session.shown:
                    session.type("yes")
                    session.wait(lambda shown: ASKS not in shown and _rests(shown))
        finally:
            session.close()
    return session


def _rests(shown: str) -> bool:
    return ASKS in shown or AT_REST.search(shown) is not None


def picture(screen: pyte.Screen, title: str) -> str:
    """What is on the screen as an SVG, with its colours."""
    rows = [_row(screen, y) for y in range(screen.lines)]
    while rows and not rows[-1].plain.strip():
        rows.pop()
    console = Console(record=True, width=screen.columns, file=io.StringIO(), force_terminal=True)
    for row in rows:
        console.print(row, soft_wrap=True)
    svg = console.export_svg(title=title, unique_id="rondel")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # a picture fetches nothing


def _row(screen: pyte.Screen, y: int) -> Text:
    text = Text()
    for style, chars in groupby((screen.buffer[y][x] for x in range(screen.columns)), _style):
        text.append("".join(char.data for char in chars), style)
    text.rstrip()
    return text


def _style(char: pyte.screens.Char) -> str:
    colour = {"brown": "yellow", "default": ""}.get(char.fg, char.fg)
    if re.fullmatch("[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    kinds = {"bold": char.bold, "italic": char.italics, "underline": char.underscore, "reverse": char.reverse}
    return " ".join([*(kind for kind, on in kinds.items() if on), colour.replace("bright", "bright_")]).strip()


if __name__ == "__main__":
    target, *typed = sys.argv[1:]
    Path(target).write_text(picture(talk(typed).screen, "rondel"), encoding="utf-8")
