"""The chat in a terminal: a person's lines go to a conversation, its events to the screen.

IO only: it sends, steers, stops and answers, and shows what comes back. It runs no tool and holds no policy.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...app import App
from ...conversation import Conversation, TurnView
from ...engine import EngineFace
from ...errors import RondelError
from ...events import Event, Outcome, QuestionAnswered, TurnFinished, TurnStarted
from ...journal import Watcher
from ...question import NO, YES, Question
from ...store import ConversationInfo
from .clean import clean, one_line
from .device import console_for, signals
from .reader import PlainReader, Reader, TerminalReader, is_interactive
from .screen import Screen
from .slash import Models, completions, is_command, run_command
from .views import messages_view

SPIN_S = 0.125
EARLIER_MESSAGES = 4
LIVE_ROWS_MIN = 4
STATUS_CHARS_MAX = 44
PERSON = "user"
STOP_S = 5.0


class Terminal:
    """One chat. `opening` is what is said first: which model it talks to, and why."""

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
        self.app = app
        self.conversation = app.conversation()
        self.model_line = model_line
        self.models = models or Models()
        self.recent: list[ConversationInfo] = []
        self._opening = opening
        source, shown = source or sys.stdin, target or sys.stdout
        interactive = is_interactive(source, shown, os.environ.get)
        self._sheet = io.StringIO()
        console = console_for(self._sheet, shown, interactive=interactive)
        self.screen = Screen(console, now=app.clock.now, rich=interactive)
        self._reader: Reader = TerminalReader(self, history) if interactive else PlainReader(source, shown)
        self._question: Question | None = None
        self._chosen = 0
        self._wanted = ""
        """The engine that was chosen before anything was said: who only chooses leaves no conversation behind."""
        self._busy = False
        self._rest = asyncio.Event()
        self._wake = asyncio.Event()
        self._hinted = False
        self._stop_wanted = False
        """Ctrl-C came before the turn began that it is meant for."""
        self._over = False
        self._leaving_stops = True
        self._group: asyncio.TaskGroup | None = None
        self._watching: asyncio.Task[None] | None = None

    async def run(self, conversation: Conversation, *, go_on: bool = False) -> None:
        """Talk until the person leaves. `go_on` takes up what a crash cut off."""
        for line in self._opening:
            self.screen.note(line)
        with signals(self._on_signal):
            async with asyncio.TaskGroup() as self._group:
                spinner = self._group.create_task(self._spin())
                self._reader.start(self._group)
                await self.switch(conversation, go_on=go_on)
                await self._converse()
                self._reader.close()
                spinner.cancel()
                if self._watching is not None:
                    self._watching.cancel()
        self._flush()

    async def _converse(self) -> None:
        while not self._over:
            self._flush()
            if self._reader.waits_for_rest:
                await self._until_rest()
            try:
                line = await self._reader.read()
            except EOFError:
                self._over = True
                break
            self._hinted = False
            try:
                await self._handle(line)
            except RondelError as error:
                self.screen.note(f"✗ {error}", "red")
            self._stop_wanted = self._stop_wanted and self._busy
        if self._busy and self._leaving_stops:
            await self._stop_and_wait()

    async def _stop_and_wait(self) -> None:
        """Whoever leaves does not want the answer any more; a turn that does not stop in time is cut off instead."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                if await self.stop():
                    await self._rest.wait()

    async def _until_rest(self) -> None:
        while self._busy and not self._over:
            self._wake.clear()
            await self._wake.wait()
        if self._question is not None:
            self._ask_plainly(self._question)
        self._flush()

    async def _handle(self, line: str) -> None:
        text = line.strip()
        if is_command(text):
            self._echo(text)
            if (shown := await run_command(self, text)) is not None:
                self.screen.print(shown)
        elif self._question is not None:
            await self._answer(self._question, text)
        elif text:
            self._echo(text)
            await self._say(text)

    def _echo(self, text: str, mark: str = "›") -> None:
        if not self._reader.waits_for_rest:  # there the terminal echoed it already
            self.screen.echo(text, mark)

    async def _say(self, text: str) -> None:
        if self._busy:
            await self.conversation.steer(text)
            return
        self._set_busy(True)
        try:
            if self._wanted:
                await self.conversation.use_engine(self._wanted)
                self._wanted = ""
            self._take(await self.conversation.send(text))
        except BaseException:
            self._set_busy(False)
            raise

    def _take(self, view: TurnView | None) -> None:
        """The whole conversation is watched, so the view of one turn is not needed."""
        if view is not None:
            view.close()

    # --- conversations ------------------------------------------------------------------------------------------------

    async def switch(self, conversation: Conversation, *, go_on: bool = False) -> None:
        """Talk in this conversation from now on. What is under way in the other one is stopped."""
        if self._busy:
            await self._stop_and_wait()
        same = conversation.id == self.conversation.id
        self.conversation, self._question = conversation, None
        self._wanted = self._wanted if same else ""
        self._set_busy(False)
        if self._watching is not None:
            self._watching.cancel()
        watcher = await conversation.watch()
        assert self._group is not None
        self._watching = self._group.create_task(self._watch(watcher))
        transcript = await conversation.transcript()
        self.screen.learn(open_call.call for open_call in transcript.calls.values())
        if not same:
            for role, text in messages_view(transcript.messages, EARLIER_MESSAGES):
                self.screen.note(f"{'›' if role == 'user' else ' '} {one_line(text, 400)}")
        if transcript.questions:
            self._show_question(transcript.questions[0])
        elif go_on:
            await self._go_on(conversation)
        elif transcript.turn and transcript.outcome is None:
            self.screen.note("This conversation was cut off. /resume goes on with it.", "yellow")

    async def _go_on(self, conversation: Conversation) -> None:
        self._set_busy(True)
        view = await conversation.resume()
        if view is None:
            self._set_busy(False)
            self.screen.note("Nothing was left to do in this conversation.")
        else:
            self.screen.note("Going on where it was cut off.")
            self._take(view)

    async def _watch(self, watcher: Watcher) -> None:
        with watcher:
            async for event in watcher:
                self.screen.show(event)
                await self._note(event)
                self._flush()

    async def _note(self, event: Event) -> None:
        """What an event means for the next line that is typed."""
        match event:
            case TurnStarted():
                self._question = None
                self._set_busy(True)
                if self._stop_wanted:
                    self._stop_wanted = False
                    await self.stop()
            case QuestionAnswered():
                self._question = None
            case TurnFinished(outcome=outcome):
                questions = await self.conversation.questions() if outcome is Outcome.WAITING else []
                if questions:
                    self._show_question(questions[0])
                self._set_busy(False)
            case _:
                pass

    def _set_busy(self, busy: bool) -> None:
        self._busy = busy
        if busy:
            self._rest.clear()
        else:
            self._stop_wanted = False
            self._rest.set()
            self._wake.set()
            self.screen.working = False

    # --- questions ----------------------------------------------------------------------------------------------------

    def _show_question(self, question: Question) -> None:
        options = [option.casefold() for option in question.options]
        default = question.default.casefold()  # of an approval it is no: an Enter too many must not allow anything
        self._question, self._chosen = question, options.index(default) if default in options else 0
        self.screen.print(Text.assemble(("? ", "bold yellow"), (clean(question.text), "bold")))

    def _ask_plainly(self, question: Question) -> None:
        for place, option in enumerate(question.options, 1):
            self.screen.note(f"  {place}. {one_line(option, 200)}", "")

    async def _answer(self, question: Question, text: str) -> None:
        answer = self._meant(question, text)
        if not answer:
            return
        self._echo(answer)
        self._question = None
        self._set_busy(True)
        try:
            self._take(await self.conversation.answer(question.id, answer, by=question.person or PERSON))
        except RondelError:
            self._set_busy(False)
            self._question = question
            raise

    def _meant(self, question: Question, text: str) -> str:
        """A number picks an option; so does an empty line, on a screen that shows which one."""
        options = question.options
        if not text:
            return options[self._chosen] if options and not self._reader.waits_for_rest else ""
        if text.isdigit() and 0 < int(text) <= len(options):
            return options[int(text) - 1]
        if question.kind == "approve" and text.casefold() in ("y", "n"):
            return YES if text.casefold() == "y" else NO
        return text

    # --- what the reader asks -----------------------------------------------------------------------------------------

    def live(self) -> str:
        shown: list[RenderableType] = [*self.screen.live(), *self._live_question()]
        if not shown:
            return ""
        columns, rows = shutil.get_terminal_size()
        console = Console(
            file=io.StringIO(),
            width=columns,
            force_terminal=True,
            color_system=self.screen.console.color_system,  # type: ignore[arg-type]
            legacy_windows=False,
        )
        with console.capture() as captured:
            console.print(Group(*shown))
        lines = captured.get().rstrip("\n").split("\n")
        return "\n".join(("", *lines[-max(LIVE_ROWS_MIN, rows - 8) :]))

    def _live_question(self) -> list[RenderableType]:
        question = self._question
        if question is None:
            return []
        lines = [
            Text(f"{'›' if place == self._chosen else ' '} {place + 1}. {one_line(option, 200)}")
            for place, option in enumerate(question.options)
        ]
        if question.options:
            lines[self._chosen].stylize("bold")
            more = ", or type an answer" if question.free_text or question.kind == "approve" else ""
            lines.append(Text(f"arrows or a number, then Enter{more}; Ctrl-C stops", "dim"))
        else:
            lines.append(Text("type the answer; Ctrl-C stops", "dim"))
        return [*lines]

    def status(self) -> str:
        who = f"{self.conversation.agent} · {self.engine.name}"
        state = "waits for your answer" if self._question else "at work: type to steer it" if self._busy else ""
        room = min(STATUS_CHARS_MAX, shutil.get_terminal_size().columns - 1)
        return f"\x1b[2m{one_line(state or who, room)}\x1b[0m"

    def completions(self, text: str) -> Iterable[tuple[str, str]]:
        return completions(self, text)

    def moved(self, step: int) -> bool:
        if self._question is None or not self._question.options:
            return False
        self._chosen = (self._chosen + step) % len(self._question.options)
        return True

    def interrupted(self, has_text: bool) -> None:
        if self._busy or self._question is not None or self._reader.has_lines:
            if self._group is not None:
                self._group.create_task(self._stop_quietly())
        elif has_text and isinstance(self._reader, TerminalReader):
            self._reader.clear()
        elif self._hinted or self._reader.waits_for_rest:
            self.quit()
        else:
            self._hinted = True
            self.screen.note("Ctrl-C once more quits, and so does Ctrl-D.")
            self._flush()

    async def _stop_quietly(self) -> None:
        try:
            self._stop_wanted = not await self.stop() and (self._busy or self._reader.has_lines)
        except RondelError as error:
            self.screen.note(f"✗ {error}", "red")
            self._flush()

    # --- what commands ask --------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        return await self.conversation.stop()

    def quit(self) -> None:
        self._over = True
        self._wake.set()
        self._reader.close()

    @property
    def chosen(self) -> str:
        """The engine that was chosen for this conversation; empty: the agent asks its own."""
        return self._wanted or self.conversation.chosen_engine

    @property
    def engine(self) -> EngineFace:
        return self.app.crew(self.conversation.agent, self.chosen).engine

    async def use_engine(self, name: str) -> None:
        """Let this engine answer in this conversation; the name of the agent's own one chooses none."""
        if name == self.app.crew(self.conversation.agent).engine.name:
            name = ""
        if (await self.conversation.transcript()).turn:
            await self.conversation.use_engine(name)
        else:
            self._wanted = name

    def show_thinking(self, on: bool) -> None:
        self.screen.thinking = on

    # --- output -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand what the screen finished to the reader, which knows where it belongs."""
        self.screen.console.width = shutil.get_terminal_size().columns
        if text := self._sheet.getvalue():
            self._sheet.seek(0)
            self._sheet.truncate()
            self._reader.write(text)
        self._reader.refresh()

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(SPIN_S)
            if self._busy:
                self._reader.refresh()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.interrupted(False)
        else:
            self._leaving_stops = False  # the machine goes down: what is cut off can be resumed
            self.quit()
