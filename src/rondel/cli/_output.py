"""How commands print: results on stdout, everything else on stderr, colour only on a terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
from typing import IO, TYPE_CHECKING, Any

import msgspec

from ..errors import ConfigError
from ..text.printable import json_for_terminal

if TYPE_CHECKING:  # rich is slow to import, and most commands only write lines
    from rich.console import RenderableType

    from ..surfaces.terminal.console import SafeConsole

WIDTH_WITHOUT_TERMINAL = 120
SPACE_INSIDE = "\0"
ADD_EMBEDDER = "pip install '.[knowledge]' in a checkout adds one, which searches by meaning, too"
INSTALLERS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}
"""Tools that install programs, by the file that each leaves in the environment, where pip installs nothing."""


def console(target: IO[str] | None = None) -> SafeConsole:
    """Return a console for stdout or another stream. It never reads text as markup."""
    from ..surfaces.terminal.console import SafeConsole

    shown = target or sys.stdout
    return SafeConsole(
        shown,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
        width=None if shown.isatty() else WIDTH_WITHOUT_TERMINAL,
    )


def show(renderable: RenderableType) -> None:
    console().print(renderable)


def show_json(value: Any) -> None:
    write_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def write_json(text: str) -> None:
    """Print a JSON document. On a terminal, control characters are escaped, which keeps the values the same."""
    sys.stdout.write((json_for_terminal(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def path_hint() -> list[str]:
    """Return how to make the commands in messages work, if a shell would not find `rondel`."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) != "rondel" or shutil.which("rondel") is not None:
        return []
    folder = shlex.quote(os.path.dirname(program))
    return [f'`rondel` is not on your PATH. In this shell: export PATH={folder}:"$PATH"']


def installer_hint(text: str) -> list[str]:
    """Return what to type instead of the `pip install` in a text, if another tool installed Rondel."""
    tools = [tool for mark, tool in INSTALLERS.items() if os.path.isfile(os.path.join(sys.prefix, mark))]
    if not tools or not re.search(r"pip install (-e )?'\.\[", text):
        return []
    command = f"`{tools[0]} install --force`"
    return [
        f"Instead of `pip install`, use {command}, which made this installation, and name all extras that you need."
    ]


def tell(text: str) -> None:
    sys.stderr.write(wrapped(text) + "\n")
    sys.stderr.flush()


def wrapped(text: str) -> str:
    """Return a text for stderr. On a terminal, its lines are broken between words, and not inside a `command`."""
    if not sys.stderr.isatty():
        return text
    width = os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH_WITHOUT_TERMINAL  # some say 0
    whole = re.sub("`[^`\n]*`", lambda command: command[0].replace(" ", SPACE_INSIDE), text)
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    lines: list[str] = []
    for line in whole.split("\n"):
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" ")))
        lines.append(wrapper.fill(line))
    return "\n".join(lines).replace(SPACE_INSIDE, " ")


def can_ask() -> bool:
    """Return whether a person can read a question and answer it."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())


def ask(question: str) -> str:
    """Return what the user types, in lower case. Ctrl-C ends the program at once, also inside an event loop."""
    # First, so that a Ctrl-C right behind the question counts. An event loop's own handler would wait for the answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{wrapped(question)} ")
        sys.stderr.flush()
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if not line:
        raise ConfigError("the input ended before the question was answered")
    return line.strip().casefold()


def agrees(question: str, *, default: bool = False) -> bool:
    """Ask a question that is answered with yes or no. Without a terminal, the answer is no."""
    if not can_ask():
        return False
    answer = ask(f"{question} {'[Y/n]' if default else '[y/N]'}")
    return answer in ("y", "yes") or (default and not answer)
