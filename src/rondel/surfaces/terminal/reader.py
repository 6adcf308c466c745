"""Reads a person's lines: from a real terminal with history, completion and a live part, or as plain lines.

Knows keys and files, but no conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from ...files.private import private_folder
from ...text.printable import clean, raw_stream

REDRAW_S = 0.04
ESCAPE_S = 0.05  # how long to wait after Escape for the rest of a key sequence
LINE_CHARS_MAX = 10_000_000
"""The longest line. A device may send one that never ends."""
PROMPT = "\x1b[1;36m›\x1b[0m "
PLAIN_PROMPT = "› "


class ReaderHost(Protocol):
    """What a reader needs from the surface that it reads for."""

    def live(self) -> str:
        """Return the lines above the input, as ANSI text. They may change with each call."""
        ...

    def status(self) -> str:
        """Return the text to the right of the input, as ANSI text."""
        ...

    def completions(self, text: str) -> Iterable[tuple[str, str]]:
        """Return whole lines that this text may become, each with a description."""
        ...

    def interrupted(self, has_text: bool) -> None:
        """Ctrl-C."""
        ...

    def moved(self, step: int) -> bool:
        """An arrow key on an empty line. Return True if it was used."""
        ...


# --- plain lines ------------------------------------------------------------------------------------------------------


class PlainReader:
    """Reads a pipe, a file or a dumb terminal, in a thread because not all of them support asynchronous reads."""

    waits_for_rest = True  # a line is read only when the one before was handled
    has_lines = False  # whether a typed line has not been read yet; those that wait in a pipe were not typed now

    def __init__(self, source: IO[str] | None, target: IO[str]) -> None:
        self._source, self._target = source, target
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = False

    def start(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        # A daemon, so that a blocked read does not keep the program from ending.
        threading.Thread(target=self._run, args=(loop,), name="rondel-stdin", daemon=True).start()

    async def read(self) -> str:
        """Return the next line. Raises EOFError at the end."""
        if self._source is not None and self._source.isatty() and self._target.isatty():
            self.write(PLAIN_PROMPT)
        line = None if self._ended else await self._lines.get()
        if line is None:
            self._ended = True
            raise EOFError
        return line.rstrip("\r\n")

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        line: str | None = ""
        while line is not None:
            try:
                line = (self._source.readline(LINE_CHARS_MAX + 1) if self._source is not None else "") or None
            except (OSError, ValueError):  # closed, or not text
                line = None
            if line is not None and len(line) > LINE_CHARS_MAX:
                self._target.write(f"A line has more than {LINE_CHARS_MAX:,} characters; no more input is read.\n")
                line = None
            with contextlib.suppress(RuntimeError):  # the loop ended first
                loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def write(self, text: str) -> None:
        self._target.write(text)
        self._target.flush()

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._lines.put_nowait(None)


# --- a real terminal --------------------------------------------------------------------------------------------------


class _Words(Completer):
    def __init__(self, host: ReaderHost) -> None:
        self._host = host

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        for line, meaning in self._host.completions(text):
            shown = line if " " not in text else line.rpartition(" ")[2]
            yield Completion(line, start_position=-len(text), display=clean(shown), display_meta=clean(meaning))


class TerminalReader:
    """The prompt stays at the bottom for the whole chat, with the live lines above it; finished text scrolls away.

    The terminal stays in raw mode throughout, so no key is echoed or lost while something is printed.
    """

    waits_for_rest = False

    def __init__(self, host: ReaderHost, history: Path | None = None) -> None:
        self._host = host
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        output = create_output(raw_stream(sys.stdout))  # the host's text is already cleaned
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # the cursor's position is not needed, and some terminals never report it
        self._session: PromptSession[str] = PromptSession(
            lambda: ANSI(f"{host.live()}\n{PROMPT}"),
            output=output,
            history=_history(history),
            completer=_Words(host),
            complete_while_typing=Condition(self._types_command),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=self._bindings(),
            rprompt=lambda: ANSI(host.status()),
            style=Style.from_dict({"rprompt": ""}),
            erase_when_done=True,
            reserve_space_for_menu=6,
        )
        self._session.app.min_redraw_interval = REDRAW_S
        self._session.app.ttimeoutlen = ESCAPE_S

    @property
    def has_lines(self) -> bool:
        return not self._lines.empty()

    def start(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._run())

    async def _run(self) -> None:
        with contextlib.suppress(EOFError):
            await self._session.prompt_async(handle_sigint=False)
        self._lines.put_nowait(None)

    async def read(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise EOFError
        return line

    def write(self, text: str) -> None:
        app = self._session.app
        if not app.is_running or app.is_done:
            target = raw_stream(sys.stdout)
            target.write(text)
            target.flush()
            return
        app.renderer.erase()
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.output.flush()
        app.render_counter += 1  # makes prompt_toolkit read the live lines again
        app.renderer.render(app, app.layout)

    def refresh(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    def close(self) -> None:
        self._lines.put_nowait(None)
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError)

    def clear(self) -> None:
        self._session.default_buffer.reset()

    def fill(self, text: str) -> None:
        """Put a text into the input for the person to change, unless something is being typed."""
        if not self._session.default_buffer.text:
            self._session.default_buffer.document = Document(text)

    def _types_command(self) -> bool:
        text = self._session.default_buffer.text
        return text.startswith("/") and "\n" not in text

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        at_line = has_focus(DEFAULT_BUFFER)
        empty = at_line & Condition(lambda: not self._session.default_buffer.text)

        @keys.add("enter", filter=at_line)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            self._lines.put_nowait(buffer.text)
            buffer.reset(append_to_history=bool(buffer.text.strip()))

        @keys.add("c-d", filter=empty)
        def _(event: KeyPressEvent) -> None:
            self._lines.put_nowait(None)

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._host.interrupted(bool(event.current_buffer.text))

        @keys.add("escape", "enter", filter=at_line)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("up", filter=empty)
        def _(event: KeyPressEvent) -> None:
            if not self._host.moved(-1):
                event.current_buffer.auto_up()

        @keys.add("down", filter=empty)
        def _(event: KeyPressEvent) -> None:
            if not self._host.moved(1):
                event.current_buffer.auto_down()

        return keys


LineReader: TypeAlias = PlainReader | TerminalReader


def _history(path: Path | None) -> History:
    """Return the history of typed lines, in a private file. If that cannot be written, it lasts as long as the chat."""
    if path is None:
        return InMemoryHistory()
    try:
        private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def is_interactive(source: IO[str] | None, target: IO[str] | None, variables: Callable[[str], str | None]) -> bool:
    if source is None or target is None or not (source.isatty() and target.isatty()):
        return False
    return (variables("TERM") or "dumb") not in ("dumb", "unknown") or sys.platform == "win32"
