"""The chat in a terminal: passes each typed line to the session, and shows on the screen what it is told to show."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from rich.console import Group, RenderableType
from rich.text import Text

from ...app.app import App
from ...calling.threads import in_thread
from ...contracts.command import Chat, Clip, Command, Document, Draft, Models, Output
from ...contracts.surface import Level, Surface
from ...errors import RondelError
from ...events import Event
from ...files.media import read_media
from ...files.private import save_new
from ...files.regular import size_text
from ...machine.conversation import Conversation
from ...question import QUOTE_BAR, Question, is_yes
from ...text.printable import clean, one_line
from ...values import Message, ToolCall
from ..commands import completions, is_command, needs_model
from ..session import Session, answer_text
from . import clipboard
from .console import SafeConsole
from .device import USER, console_for
from .reader import LineReader, PlainReader, TerminalReader, is_interactive
from .screen import SHOWN, Screen
from .signals import signals
from .views import render

SPIN_S = 0.125
EARLIER_MESSAGES = 4
LIVE_ROWS_MIN = 4
PAGE_ROWS_LESS = 10  # how many rows of the screen a page of a long question leaves free
STATUS_CHARS_MAX = 44
LEAVING = ("exit", "quit")
"""What people type to leave other programs. In a pipe it is a message, as any other line is."""
STYLES = {"info": "dim", "warning": "yellow", "error": "red"}


class Terminal(Surface):
    """One chat. `opening` is printed first: which model is used, and why."""

    person = USER
    shows = SHOWN
    tips = (
        ("Ctrl-C", "stop the turn; twice on an empty line: quit"),
        ("Alt-Enter", "insert a line break"),
        ("while it works", "a message steers the turn; it is read between two steps"),
    )

    def __init__(
        self,
        app: App,
        *,
        opening: Sequence[str] = (),
        model_line: str = "",
        models: Models | None = None,
        history: Path | None = None,
        source: IO[str] | None = None,
        target: IO[str] | None = None,
    ) -> None:
        self.session = Session(app, self, models=models, model_line=model_line)
        self.commands = (
            Command("file", "attach a file or an image to the next message", self._attach, "PATH"),
            Command("thinking", "show or hide the model's thinking", self._set_thinking, "on|off"),
            Command("quit", "leave the chat", self._leave),
        )
        self._opening = opening
        source, shown = source or sys.stdin, target or sys.stdout
        interactive = is_interactive(source, shown, os.environ.get)
        self._buffer = io.StringIO()
        console = console_for(self._buffer, shown, interactive=interactive)
        self.screen = Screen(console, now=app.clock.now, rich=interactive, person=self.person.id)
        self._reader: LineReader = TerminalReader(self, history) if interactive else PlainReader(source, shown)
        self._unread: list[Text] = []
        """Rows of a question that were not shown yet. Until they are, nothing can be allowed."""
        self._chosen = 0
        self._wake = asyncio.Event()
        self._hinted = False
        self._over = False
        self._leaving_stops = True
        self._group: asyncio.TaskGroup | None = None

    async def run(self, conversation: Conversation, *, resumes: bool = False) -> None:
        """Chat until the person leaves. `resumes` continues an interrupted turn."""
        for line in self._opening:
            self.screen.note(line)
        with signals(self._on_signal, "SIGINT", "SIGTERM"):
            async with asyncio.TaskGroup() as self._group:
                spinner = self._group.create_task(self._spin())
                self._reader.start(self._group)
                await self.session.start(self._group, conversation, resumes=resumes)
                await self._converse()
                self._reader.close()
                spinner.cancel()
                self.session.close()
        self._flush()

    async def _converse(self) -> None:
        while not self._over:
            self._flush()
            if self._reader.waits_for_rest:
                await self._until_idle()
            try:
                line = await self._reader.read()
            except EOFError:
                self._over = True
                break
            self._hinted = False
            self._flush()  # the window may have been resized while nothing was printed
            try:
                await self._handle(line)
            except RondelError as error:
                self.show_note(str(error), "error")
            self.session.stop_wanted = self.session.stop_wanted and self.session.busy
        if self._leaving_stops:
            await self.session.leave()

    async def _until_idle(self) -> None:
        while self.session.busy and not self._over:
            self._wake.clear()
            await self._wake.wait()
        if self.session.question is not None:
            self._ask_plainly(self.session.question)
        self._flush()

    async def _handle(self, line: str) -> None:
        text = line.strip()
        if (question := self.session.question) is not None and not is_command(text):
            await self._answer(question, text)
        elif text in LEAVING and not self._reader.waits_for_rest:
            self.quit()
        elif text:
            self._echo(text)
            await self.session.handle(text)

    def _echo(self, text: str) -> None:
        if not self._reader.waits_for_rest:  # plain lines were echoed by the terminal
            self.screen.echo(text)

    # --- what the session shows ---------------------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        self.screen.show(event)
        self._flush()

    def show_output(self, output: Output) -> None:
        match output:
            case Clip(text=text):
                self._copy(text)
            case Document():
                self._save(output)
            case Draft(text=text) if isinstance(self._reader, TerminalReader):
                self._reader.fill(clean(text))
            case _:
                self.screen.print(render(output))
        self._flush()

    def _copy(self, text: str) -> None:
        if isinstance(self._reader, PlainReader) or self._group is None:
            self.screen.print(render(text))
            return
        command, asked = clipboard.program(os.environ), clipboard.request(text)
        if command is not None:
            self._group.create_task(self._copy_with(command, text))
        elif asked is not None:
            self._reader.write(asked)
            self.show_note(f"Asked the terminal to copy {len(text):,} characters.")
        else:
            self.show_note("The answer is too long for the terminal's clipboard; /export saves it.", "error")

    async def _copy_with(self, command: list[str], text: str) -> None:
        copied = await clipboard.copy(text, command)
        failed = f"{command[0]} did not work; /export saves the conversation."
        self.show_note(f"Copied {len(text):,} characters." if copied else failed)

    def _save(self, document: Document) -> None:
        try:
            self.show_note(f"Saved as {save_new(Path.cwd(), document.name, document.text)}.")
        except OSError as error:
            self.show_note(f"{document.name} cannot be saved here: {error.strerror or error}", "error")

    def show_note(self, text: str, level: Level = "info") -> None:
        self.screen.note(f"✗ {text}" if level == "error" else text, STYLES[level])
        self._flush()

    def show_message(self, text: str) -> None:
        self.screen.echo(text)
        self._flush()

    def show_history(self, messages: Sequence[Message], open_calls: Sequence[ToolCall]) -> None:
        self.screen.learn(open_calls)
        said = [message for message in messages if message.role in ("user", "assistant") and message.text.strip()]
        for message in said[-EARLIER_MESSAGES:]:
            self.screen.note(f"{'›' if message.role == 'user' else ' '} {one_line(message.text, 400)}")
        self._flush()

    def show_working(self, working: bool) -> None:
        if not working:
            self.screen.working = False
            self._wake.set()

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        options = [option.casefold() for option in question.options]
        default = question.default.casefold()  # the default of an approval is no: a stray Enter must not allow anything
        self._chosen = options.index(default) if default in options else 0
        shown = Text.assemble(("? ", "bold yellow"), (clean(question.text), "bold"))
        if question.deadline is not None:
            seconds = max(0, round(question.deadline - self.session.app.clock.now()))
            counts = f"counts as {question.default!r}" if question.default else "is closed"
            self.screen.note(f"Without an answer, this {counts} in {seconds} s.")
        if question.kind != "approve" or self._reader.waits_for_rest:  # without a screen there are no pages
            self._unread = []
            self.screen.print(shown)
        else:
            self._unread = self._rows(shown)
            self._show_page()
        self._flush()

    def _rows(self, text: Text) -> list[Text]:
        """Wrap a question to the screen; a quoted line keeps its bar on every row."""
        columns, rows = shutil.get_terminal_size().columns, list[Text]()
        for line in text.split(allow_blank=True):
            bar = QUOTE_BAR if line.plain.startswith(QUOTE_BAR) else ""
            width = max(1, columns - len(bar))
            rows += [Text(bar).append_text(row) for row in line[len(bar) :].wrap(self.screen.console, width)]
        return rows

    def _show_page(self, *, all: bool = False) -> None:
        """Print as much of a question as the screen has room for above the options."""
        rows = len(self._unread) if all else max(LIVE_ROWS_MIN, shutil.get_terminal_size().lines - PAGE_ROWS_LESS)
        page, self._unread = self._unread[:rows], self._unread[rows:]
        for line in page:
            self.screen.print(line)

    def _ask_plainly(self, question: Question) -> None:
        for number, option in enumerate(question.options, 1):
            self.screen.note(f"  {number}. {one_line(option, 200)}", "")

    async def _answer(self, question: Question, text: str) -> None:
        if self._unread and text.casefold() in ("", "all"):
            self._show_page(all=bool(text))
            return
        if text:
            answer = answer_text(question, text)
        elif question.options and not self._reader.waits_for_rest:
            answer = question.options[self._chosen]  # the screen shows which one
        else:
            return
        if self._unread and is_yes(answer):
            self.show_note("There is more to read first: press Enter for the next page, or type all.", "warning")
            return
        self._echo(answer)
        await self.session.answer(answer)

    # --- for the reader -----------------------------------------------------------------------------------------------

    def live(self) -> str:
        shown: list[RenderableType] = [*self.screen.live(), *self._live_question()]
        if not shown:
            return ""
        columns, rows = shutil.get_terminal_size()
        colours = self.screen.console.color_system
        console = SafeConsole(io.StringIO(), width=columns, force_terminal=True, color_system=colours)
        with console.capture() as captured:
            console.print(Group(*shown))
        lines = captured.get().rstrip("\n").split("\n")
        return "\n".join(("", *lines[-max(LIVE_ROWS_MIN, rows - 8) :]))

    def _live_question(self) -> list[RenderableType]:
        question = self.session.question
        if question is None:
            return []
        if self._unread:
            left = len(self._unread)
            more = f"{left:,} more line{'s'[: left > 1]}: Enter shows the next page, all shows everything, no refuses"
            return [Text(f"{more}; Ctrl-C stops", "dim")]
        lines = [
            Text(f"{'›' if index == self._chosen else ' '} {index + 1}. {one_line(option, 200)}")
            for index, option in enumerate(question.options)
        ]
        if question.options:
            lines[self._chosen].stylize("bold")
            more = ", or type why not" if question.kind == "approve" else ", or type an answer"
            more = more if question.free_text or question.kind == "approve" else ""
            lines.append(Text(f"choose with the arrows or a number, then Enter{more}; Ctrl-C stops", "dim"))
        else:
            lines.append(Text("type your answer; Ctrl-C stops", "dim"))
        return [*lines]

    def status(self) -> str:
        session = self.session
        agent = session.conversation.agent
        who = f"{agent} · {session.engine.name}" if needs_model(session.conversation) else agent
        state = "waiting for your answer" if session.question else "working: type to steer" if session.busy else ""
        if session.busy and session.question is None and (elapsed := self.screen.elapsed):
            state = f"{elapsed} · {state}"
        room = min(STATUS_CHARS_MAX, shutil.get_terminal_size().columns - 1)
        return f"\x1b[2m{one_line(state or who, room)}\x1b[0m"

    def completions(self, text: str) -> Iterable[tuple[str, str]]:
        return completions(self.session, text)

    def moved(self, step: int) -> bool:
        question = self.session.question
        if question is None or not question.options or self._unread:
            return False
        self._chosen = (self._chosen + step) % len(question.options)
        return True

    def interrupted(self, has_text: bool) -> None:
        if self.session.busy or self.session.question is not None or self._reader.has_lines:
            if self._group is not None:
                self._group.create_task(self._stop_quietly())
        elif has_text and isinstance(self._reader, TerminalReader):
            self._reader.clear()
        elif self._hinted or self._reader.waits_for_rest:
            self.quit()
        else:
            self._hinted = True
            self.show_note("Press Ctrl-C again to quit, or Ctrl-D.")

    async def _stop_quietly(self) -> None:
        session = self.session
        session.stop_wanted = True  # the turn may start while another process is asked to stop
        try:
            stopped = await session.stop()
            session.stop_wanted = session.stop_wanted and not stopped and (session.busy or self._reader.has_lines)
        except RondelError as error:
            session.stop_wanted = False
            self.show_note(str(error), "error")

    # --- its own commands ---------------------------------------------------------------------------------------------

    async def _set_thinking(self, chat: Chat, rest: str) -> Output:
        if rest not in ("on", "off"):
            raise RondelError(f"/thinking takes 'on' or 'off', not {rest!r}")
        self.screen.thinking = rest == "on"
        return "The model's thinking is shown." if rest == "on" else "The model's thinking is hidden."

    async def _attach(self, chat: Chat, rest: str) -> Output:
        if not rest:
            raise RondelError("/file takes the path of a file; a model gets it with the next message")
        media = await in_thread(read_media, rest)
        chat.attach(media)
        return f"{media.name} ({size_text(len(media.data))}) goes with the next message."

    async def _leave(self, chat: Chat, rest: str) -> None:
        self.quit()

    def quit(self) -> None:
        self._over = True
        self._wake.set()
        self._reader.close()

    # --- output -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Pass the screen's finished text to the reader, which prints it above the prompt."""
        self.screen.console.width = shutil.get_terminal_size().columns
        if text := self._buffer.getvalue():
            self._buffer.seek(0)
            self._buffer.truncate()
            self._reader.write(text)
        self._reader.refresh()

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(SPIN_S)
            if self.session.busy:
                self._reader.refresh()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.interrupted(False)
        else:
            self._leaving_stops = False  # the machine may be shutting down: the turn can be resumed
            self.quit()
