"""One person's chat on one surface: sends, steers, stops, answers and runs commands, in one conversation at a time.

Knows no key, no screen and no protocol: it calls the surface (contracts/surface.py) to show what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from ..app.app import App
from ..contracts.command import Command, Models
from ..contracts.store import ConversationInfo
from ..contracts.surface import Surface
from ..engine import EngineInfo
from ..errors import RondelError
from ..events import Event, MessageAdded, Outcome, QuestionAnswered, TurnFinished, TurnStarted
from ..machine.conversation import Conversation, TurnView
from ..machine.journal import Watcher
from ..question import NO, YES, Question
from ..values import Media, Message, Person, user
from .commands import COMMANDS, is_command, run_command

STOP_S = 5.0
ATTACHED_MAX = 20  # files that one message takes
WORKING_ELSEWHERE = "Another process is answering in this conversation. Your messages wait until it is done."


class Session:
    """One person's chat on one surface, in one conversation at a time."""

    def __init__(self, app: App, surface: Surface, *, models: Models | None = None, model_line: str = "") -> None:
        self.app = app
        self.conversation = app.conversation()
        self.models = models or Models()
        self.model_line = model_line
        self.recent: list[ConversationInfo] = []
        self.question: Question | None = None  # the question that the next line answers
        self.busy = False  # a turn is running, or about to
        self.stop_wanted = False  # the person stopped a turn that has not started yet
        self._surface = surface
        self._engine = ""
        """An engine that was chosen before the first message. It is stored with that message, so that only choosing
        leaves no conversation behind."""
        self._settings: dict[str, Any] = {}  # the same for settings
        self._own: TurnView | None = None
        """The turn that this session started last, while it runs. Other processes may run turns here too."""
        self._attached: list[Media] = []  # what the next message brings
        self._typed: list[str] = []  # messages that were typed here and have not come back as events
        self.idle = asyncio.Event()  # set while nothing is running
        self._group: asyncio.TaskGroup | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(
        self, group: asyncio.TaskGroup, conversation: Conversation | None = None, *, resumes: bool = False
    ) -> None:
        """Open a conversation; by default, a new one. Watching it is a task of the group, until `close`."""
        self._group = group
        await self.switch(conversation or self.conversation, resumes=resumes)

    def close(self) -> None:
        """Stop watching the conversation."""
        if self._watching is not None:
            self._watching.cancel()

    @property
    def person(self) -> Person:
        """The person who types in this chat."""
        return self._surface.person

    @property
    def commands(self) -> list[Command]:
        """The shared commands, the surface's own and the plugins'. The first one of a name wins."""
        plugins = self.app.registry.resolve(self.conversation.agent).chain.plugins
        found: dict[str, Command] = {}
        for command in (*COMMANDS, *self._surface.commands, *(c for plugin in plugins for c in plugin.commands)):
            found.setdefault(command.name, command)
        return list(found.values())

    @property
    def tips(self) -> tuple[tuple[str, str], ...]:
        """What `/help` says about the surface itself."""
        return self._surface.tips

    # --- what the person does -----------------------------------------------------------------------------------------

    async def handle(self, line: str) -> None:
        """Run a command, answer the open question, or say something. Raises RondelError."""
        text = line.strip()
        if is_command(text):
            if (output := await run_command(self, text)) is not None:
                self._surface.show_output(output)
        elif text and self.question is not None:
            await self.answer(answer_text(self.question, text))
        elif text:
            await self._say(text)

    async def answer(self, text: str) -> None:
        """Answer the open question."""
        question = self.question
        if question is None:
            raise RondelError("no question is open")
        self.question = None
        self._set_busy(True)
        try:
            conversation, by = self.conversation, self.person.id
            self._remember(await conversation.answer(question.id, text, by=by, instead_of=question.person))
        except RondelError:
            self._set_busy(False)
            self.question = question
            raise

    async def _say(self, text: str) -> None:
        self._typed.append(text)
        message = user(text, *self._attached, author=self.person.id)
        if self.busy:
            await self.conversation.steer(message, person=self.person)
            self._attached.clear()
            return
        await self._start(self._send(message))
        self._attached.clear()

    async def _send(self, message: Message) -> TurnView:
        if self._engine:
            await self.conversation.use_engine(self._engine)
            self._engine = ""
        for key, value in self._settings.items():
            await self.conversation.set(key, value)
        self._settings = {}
        return await self.conversation.send(message, person=self.person)

    async def _start(self, turn: Coroutine[Any, Any, TurnView]) -> None:
        self._set_busy(True)
        try:
            self._remember(await turn)
        except BaseException:
            self._set_busy(False)
            raise

    async def retry(self) -> None:
        """Undo the last turn and send its message again."""
        self._check_idle()
        await self._start(self.conversation.retry(person=self.person))

    async def edit(self, text: str) -> None:
        """Undo the last turn and send this instead of its message."""
        self._check_idle()
        self._typed.append(text)
        await self._start(self.conversation.edit(text, person=self.person))

    def _check_idle(self) -> None:
        self.question = None
        if self.busy:
            raise RondelError("a turn is running; /stop it first")

    def attach(self, media: Media) -> None:
        """Send this with the next message."""
        if len(self._attached) == ATTACHED_MAX:
            raise RondelError(f"a message takes at most {ATTACHED_MAX} files; send it first")
        self._attached.append(media)

    def _remember(self, view: TurnView | None) -> None:
        """Remember our own turn. Its view is only used to stop it: the whole conversation is watched."""
        if view is not None:
            view.close()
        self._own = view

    async def stop(self) -> bool:
        """Stop our own turn, also while it waits for one of another process; otherwise, whatever is running."""
        own = self._own
        return (own is not None and await own.stop()) or await self.conversation.stop()

    async def leave(self) -> None:
        """Stop what is running and wait until it has stopped. A turn that does not stop in time is interrupted."""
        if self.busy:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    if await self.stop():
                        await self.idle.wait()

    # --- engines ------------------------------------------------------------------------------------------------------

    @property
    def chosen_engine(self) -> str:
        """The engine that was chosen for this conversation; empty if its agent uses its own."""
        return self._engine or self.conversation.chosen_engine

    @property
    def engine(self) -> EngineInfo:
        """The engine that answers in this conversation."""
        return self.app.registry.resolve(self.conversation.agent, self.chosen_engine).engine

    async def use_engine(self, name: str) -> None:
        """Use this engine in this conversation. The name of the agent's own engine undoes the choice."""
        if name == self.app.registry.resolve(self.conversation.agent).engine.name:
            name = ""
        if (await self.conversation.transcript()).turn:
            await self.conversation.use_engine(name)
        else:
            self._engine = name

    # --- settings -----------------------------------------------------------------------------------------------------

    async def settings(self) -> dict[str, Any]:
        """What this conversation overrides of its agent."""
        return {**(await self.conversation.transcript()).settings, **self._settings}

    async def set(self, key: str, value: Any) -> None:
        """Override a setting of the agent in this conversation; None restores the agent's own. Before the first
        message it is only kept here: a conversation in which nothing was said is not stored."""
        transcript = await self.conversation.transcript()
        if transcript.turn or key in transcript.settings:
            await self.conversation.set(key, value)
        elif value is None:
            self._settings.pop(key, None)
        else:
            self.app.registry.check_setting(self.conversation.agent, key, value)
            self._settings[key] = value

    # --- conversations ------------------------------------------------------------------------------------------------

    async def switch(self, conversation: Conversation, *, resumes: bool = False) -> None:
        """Continue in this conversation. What is running in the other one is stopped."""
        await self.leave()
        same = conversation.id == self.conversation.id
        self.conversation, self.question, self._own = conversation, None, None
        self._engine = self._engine if same else ""
        self._settings = self._settings if same else {}
        self._attached.clear()
        self._set_busy(False)
        self.close()
        watcher = await conversation.watch()
        assert self._group is not None
        self._watching = self._group.create_task(self._watch(watcher))
        transcript = await conversation.transcript()
        open_calls = [one.call for one in transcript.calls.values()]
        earlier = () if same else [message for message in transcript.messages if message.shown]
        self._surface.show_history(earlier, open_calls)
        if transcript.questions:
            self._ask(transcript.questions[0])
        elif resumes:
            await self._resume(conversation)
        elif await conversation.is_at_work():
            self._surface.show_note(WORKING_ELSEWHERE)
        elif transcript.turn and transcript.outcome is None:
            self._surface.show_note("This conversation was interrupted. /resume continues it.", "warning")

    async def _resume(self, conversation: Conversation) -> None:
        self._set_busy(True)
        elsewhere = await conversation.is_at_work()
        view = await conversation.resume()
        if view is None:
            self._set_busy(False)
            self._surface.show_note("Nothing was interrupted; type a message to continue.")
        else:
            self._surface.show_note(WORKING_ELSEWHERE if elsewhere else "Resuming the interrupted turn.")
            self._remember(view)

    # --- what happens -------------------------------------------------------------------------------------------------

    async def _watch(self, watcher: Watcher) -> None:
        with watcher:
            async for _, event in watcher:
                if isinstance(event, self._surface.shows):
                    self._surface.show(event)
                await self._apply(event)

    async def _apply(self, event: Event) -> None:
        match event:
            case TurnStarted(turn=turn):
                self.question = None
                self._set_busy(True)
                if self.stop_wanted and (self._own is None or turn == self._own.id):
                    self.stop_wanted = False
                    await self.stop()
            case QuestionAnswered():
                self.question = None
            case MessageAdded(message=message) if message.role == "user" and message.author in ("", self.person.id):
                if message.text in self._typed:
                    self._typed.remove(message.text)
                else:
                    self._surface.show_message(message.text)
            case TurnFinished(turn=turn, outcome=outcome):
                questions = await self.conversation.questions() if outcome is Outcome.WAITING else []
                if questions:
                    self._ask(questions[0])
                if self._own is None or turn == self._own.id:
                    self._own = None
                    self._typed.clear()
                    self._set_busy(False)
            case _:
                pass

    def _ask(self, question: Question) -> None:
        self.question = question
        self._surface.ask(question)

    def _set_busy(self, busy: bool) -> None:
        self.busy = busy
        if busy:
            self.idle.clear()
        else:
            self.stop_wanted = False
            self.idle.set()
        self._surface.show_working(busy)


def answer_text(question: Question, text: str) -> str:
    """Return what a typed answer means: a number picks an option, and `y` and `n` answer an approval."""
    if text.isdigit() and 0 < int(text) <= len(question.options):
        return question.options[int(text) - 1]
    if question.kind == "approve" and text.casefold() in ("y", "n"):
        return YES if text.casefold() == "y" else NO
    return text
