"""A conversation and a turn as a surface sees them: send, steer, stop, answer, watch, wait.

These are handles: they hold no state that a second handle of the same conversation would lack.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..charge import Scope
from ..contracts.runtime import Signal
from ..contracts.store import TITLE_CHARS_MAX
from ..engine import EngineInfo
from ..errors import QuestionError, RondelError, TurnFailed
from ..events import (
    STATES,
    EngineChanged,
    Entry,
    Event,
    MessageQueued,
    Nested,
    QuestionAnswered,
    Renamed,
    SettingChanged,
    TurnFinished,
    TurnStarted,
)
from ..question import Answer, Question
from ..values import AgentResult, Delta, Media, Message, Outcome, Person, Played, Text, user
from .answer_text import AnswerText
from .journal import Journal, Watcher
from .runner import SAID_MEANWHILE, Undo, turn_of
from .transcript import Transcript
from .turn import Turn

if TYPE_CHECKING:
    from ..app.app import App


class Conversation:
    """A conversation as a surface sees it: send, steer, stop, answer, watch."""

    def __init__(self, app: App, id: str, agent: str = "") -> None:
        self.app = app
        self.id = id
        self._agent = agent

    @property
    def agent(self) -> str:
        """The agent that answers: the named one, else the conversation's current one if the journal has been read."""
        journal = self.app.journals.get(self.id)
        return self._agent_in(journal) if journal else self._agent or self.app.registry.agent().name

    @property
    def chosen_engine(self) -> str:
        """The engine that was chosen for this conversation, if the journal has been read; empty if each agent uses its
        own."""
        journal = self.app.journals.get(self.id)
        return journal.transcript.engine if journal else ""

    @property
    def engine(self) -> EngineInfo:
        """The engine that answers the next message."""
        return self.app.registry.resolve(self.agent, self.chosen_engine).engine

    async def use_engine(self, name: str) -> None:
        """Use this engine for all turns that begin from now on. Without a name, each agent uses its own again.

        Agents that take over, or that work for a call, use their own.
        """

        async def change(journal: Journal) -> None:
            if name != journal.transcript.engine:
                if name:
                    self.app.registry.engine(name)  # raises for a wrong name
                await journal.append(EngineChanged(name))

        await self.app.journals.change(self.id, change)

    @property
    def settings(self) -> dict[str, Any]:
        """The agent's settings that this conversation overrides, if the journal has been read."""
        journal = self.app.journals.get(self.id)
        return dict(journal.transcript.settings) if journal else {}

    async def set(self, key: str, value: Any) -> None:
        """Override a setting of the agent for all turns that begin from now on; None restores the agent's own.

        `key` is `model`, `options.<name>`, `prompt.<node>` or `plugins.<name>.<parameter>`. Directives in the text of a
        node are not carried out.
        """
        if key == "model":
            await self.use_engine(str(value) if value is not None else "")
            return

        async def change(journal: Journal) -> None:
            if value is not None:
                self.app.registry.check_setting(self._agent_in(journal), key, value)
            if value != journal.transcript.settings.get(key):
                await journal.append(SettingChanged(key, value))

        await self.app.journals.change(self.id, change)

    async def send(
        self,
        content: str | Message | Sequence[str | Text | Media],
        *,
        person: Person | None = None,
        id: str = "",
        scope: Scope | None = None,
        before: Sequence[Message] = (),
        watcher: Watcher | None = None,
    ) -> TurnView:
        """Send a message: it starts a turn, behind those that are queued or running in this process and in others.

        A message with a known `id` adds nothing: the view ends with the turn that answers the first one. `person` is
        the author, and `scope` is what else the surface knows, such as the channel; the ledger charges both. `before`
        are messages that the model must read first, such as what others said in the channel. The view uses the
        `watcher`, if one is given.
        """
        message = self._as_message(content, person, id)
        journal = await self.app.journals.open(self.id)
        view = TurnView(self, watcher or journal.watch(), self.app.new_id("t"))
        await self.app.turns.start(
            self.id,
            self._agent_in(journal),
            message,
            turn=view.id,
            scope=scope,
            person=person,
            named=self._agent,
            before=before,
        )
        return view

    async def ask(
        self,
        content: str | Message | Sequence[str | Text | Media],
        *,
        person: Person | None = None,
        id: str = "",
        check: bool = True,
    ) -> AgentResult:
        """Send a message and wait for the answer. Raises TurnFailed as `TurnView.result` does."""
        return await (await self.send(content, person=person, id=id)).result(check=check)

    async def stream_text(
        self,
        content: str | Message | Sequence[str | Text | Media],
        *,
        person: Person | None = None,
        id: str = "",
        check: bool = True,
    ) -> AsyncIterator[str]:
        """Send a message and yield the text of the answer as it streams. Raises TurnFailed at its end, as
        `TurnView.result` does. The turn continues if you stop iterating."""
        view = await self.send(content, person=person, id=id)
        async for text in view.text_stream():
            yield text
        await view.result(check=check)

    async def undo(self, turns: int = 1, *, by: str = "") -> tuple[Message, ...]:
        """Undo the last turns, and return the messages that no longer count. The journal and the trace keep them."""
        undo, undone = self._undoing(await self.app.journals.current(self.id), turns, by)

        async def change(journal: Journal) -> None:
            if journal.transcript.turn != undo.last:
                raise RondelError(SAID_MEANWHILE)
            await self.app.turns.undo(journal, undo)

        await self.app.journals.change(self.id, change)
        return undone

    async def retry(self, *, person: Person | None = None, scope: Scope | None = None) -> TurnView:
        """Undo the last turn and send its message again."""
        return await self._send_instead(None, person, scope)

    async def edit(self, text: str, *, person: Person | None = None, scope: Scope | None = None) -> TurnView:
        """Undo the last turn and send its message again with another text and the same attachments."""
        if not text.strip():
            raise RondelError("the new text is empty; `undo` takes the message back")
        return await self._send_instead(text, person, scope)

    async def _send_instead(self, text: str | None, person: Person | None, scope: Scope | None) -> TurnView:
        journal = await self.app.journals.current(self.id)
        undo, undone = self._undoing(journal, 1, person.id if person else "")
        said = undone[0] if undone else Message("system")
        if said.role != "user" or said.author.startswith(("plugin:", "job:")):
            raise RondelError("the last turn did not start with a person's message, so there is nothing to send again")
        parts = said.parts
        if text is not None:
            parts = (Text(text), *(part for part in parts if not isinstance(part, Text)))
        message = msgspec.structs.replace(said, parts=parts, id=self.app.new_id("msg"))
        view = TurnView(self, journal.watch(), self.app.new_id("t"))
        scope, who = scope or journal.transcript.scope, person or journal.transcript.person
        agent, turns = self._agent_in(journal), self.app.turns
        await turns.start(self.id, agent, message, turn=view.id, scope=scope, person=who, named=self._agent, undo=undo)
        return view

    def _undoing(self, journal: Journal, turns: int, by: str) -> tuple[Undo, tuple[Message, ...]]:
        transcript = journal.transcript
        if self.app.turns.running(self.id) is not None:
            raise RondelError("a turn is running; stop it first")
        if (start := transcript.start_of(turns)) is None:
            raise RondelError(
                "nothing has been said here yet" if turns == 1 else f"there are fewer than {turns} turns to undo"
            )
        return Undo(start.turn, transcript.turn, by), tuple(transcript.messages[start.messages :])

    async def rename(self, title: str) -> None:
        """Give the conversation a title; an empty one is replaced by the next message."""

        async def change(journal: Journal) -> None:
            if journal.seq == 0:
                raise RondelError("nothing has been said here yet, so there is nothing to name")
            await journal.append(Renamed(" ".join(title.split())[:TITLE_CHARS_MAX]))

        await self.app.journals.change(self.id, change)

    async def steer(self, content: str | Message, *, person: Person | None = None) -> None:
        """Send a message to the running turn, which reads it between two rounds."""
        journal = await self.app.journals.open(self.id)
        message = self._as_message(content, person)
        if self.app.turns.running(self.id) is not None:
            await journal.append(MessageQueued(message))
            if self.app.turns.running(self.id) is None:
                await self.app.turns.start(self.id, self._agent_in(journal), named=self._agent)
            return
        # Stored first, as a turn of its own, so that it survives the other process. If the turn that runs there reads
        # it earlier, this turn finds that its message is known. It must not overtake messages that wait here.
        is_first = not self.app.runtime.is_pending(self.id)
        await self.app.turns.start(self.id, self._agent_in(journal), message, person=person, named=self._agent)
        if is_first:
            await self.app.runtime.signal(Signal("steer", {"message": msgspec.to_builtins(message)}, self.id))

    async def revise(self, content: str | Message, questions: Sequence[str], *, person: Person | None = None) -> None:
        """Send a message to the turn that waits for an answer, and close these questions, to which an older text of the
        message has led: a call that waits for an approval is denied, and the agent may ask again."""
        message = self._as_message(content, person)
        await self.app.journals.change(self.id, lambda journal: journal.append(MessageQueued(message)))
        for question in await self.questions():
            if question.id in questions:
                with suppress(QuestionError):  # somebody has just answered it
                    (await self.answer(question.id, question.default, by="edit")).close()

    async def resume(self) -> TurnView | None:
        """Resume a conversation that a crash or a failure cut off. Returns None if nothing is left to do.

        A turn that runs in another process is left to it: the view ends when that turn does.
        """
        journal = await self.app.journals.current(self.id)
        if (running := self.app.turns.running(self.id)) is not None:
            return TurnView(self, journal.watch(), running.id, goes_on=True)
        transcript = journal.transcript
        watcher = journal.watch()
        if jobs := [job for job in await self.app.runtime.recover(self.id) if job.kind == "turn"]:
            turn = turn_of(jobs[-1].id)
            return TurnView(self, watcher, turn, goes_on=turn == transcript.turn)
        is_open = transcript.unanswered or transcript.owed or transcript.is_spoken_to
        if not is_open and not await self.app.store.is_claimed(self.id):
            watcher.close()
            return None
        goes_on = bool(transcript.turn) and transcript.outcome is None
        view = TurnView(self, watcher, transcript.turn if goes_on else self.app.new_id("t"), goes_on=goes_on)
        again = self.app.new_id("again") if goes_on else ""
        await self.app.turns.start(self.id, self._agent_in(journal), turn=view.id, again=again, named=self._agent)
        return view

    async def answer(self, question: str, text: str, *, by: str = "", instead_of: str = "") -> TurnView:
        """Answer an open question, and resume its turn. A surface that lets others answer for the person who was asked
        gives that person as `instead_of`."""
        journal = await self.app.journals.current(self.id)
        view = TurnView(self, journal.watch(), journal.transcript.turn, goes_on=True, question=question)
        try:
            agent = self._agent_in(journal)
            await self.app.turns.answer(self.id, Answer(question, text, by), agent=agent, instead_of=instead_of)
        except BaseException:
            view.close()
            raise
        return view

    async def stop(self, turn: str = "", *, played: Played | None = None) -> bool:
        """Stop the turn that runs or waits for an answer in any process, or only the one with this id. Returns False if
        there is none. The text so far is kept, or only as much of the reply as was `played`."""
        if (running := self.app.turns.running(self.id)) is not None:
            if turn in ("", running.id):
                self.app.turns.stop(running, played)
            return turn in ("", running.id)
        payload = {"turn": turn} if turn else {}
        if played is not None:
            payload["played"] = msgspec.to_builtins(played)
        if await self.app.runtime.signal(Signal("stop", payload, self.id)):
            return True
        return await self.app.journals.change(self.id, partial(self.app.turns.close_questions, turn=turn))

    def reply_so_far(self) -> tuple[Delta, ...]:
        """Return what a turn in this process has streamed of its reply, for a watcher that starts now. Empty if nothing
        streams, or if a plugin must see the whole reply first."""
        turn = self.app.turns.running(self.id)
        if turn is None or turn.builder is None or turn.plugins.holds_stream:
            return ()
        return tuple(turn.builder.so_far())

    def agents_so_far(self) -> tuple[Nested, ...]:
        """Return what agents that work for the running turn have streamed of their replies, as `reply_so_far` does."""
        turn = self.app.turns.running(self.id)
        return () if turn is None else tuple(_said_below(turn))

    async def is_at_work(self) -> bool:
        """Return whether a turn is running in any process."""
        return self.app.turns.running(self.id) is not None or await self.app.store.is_claimed(self.id)

    async def questions(self) -> list[Question]:
        """Return the questions that wait for an answer."""
        return (await self.app.journals.current(self.id)).transcript.questions

    async def transcript(self) -> Transcript:
        """Return the transcript so far."""
        return (await self.app.journals.current(self.id)).transcript

    async def entries(self, after: int = 0) -> list[Entry]:
        """Return the journal's entries after a position."""
        return await self.app.store.read(self.id, after)

    async def watch(self, after: int | None = None) -> Watcher:
        """Watch the events of every turn, in any process: `async for seq, event in watcher`.

        `after` is the last `seq` that a watcher saw; the entries that it missed come first. Without it, watch from now
        on.
        """
        return (await self.app.journals.current(self.id)).watch(after, follow=True)

    def _agent_in(self, journal: Journal) -> str:
        return self.app.turns.who_answers(journal.transcript, self._agent)

    def _as_message(
        self, content: str | Message | Sequence[str | Text | Media], person: Person | None, id: str = ""
    ) -> Message:
        author = person.id if person else ""
        if not isinstance(content, Message):
            parts = [content] if isinstance(content, str) else content
            return user(*parts, author=author, id=id or self.app.new_id("msg"))
        if content.id and content.author:
            return content
        id = content.id or id or self.app.new_id("msg")
        return msgspec.structs.replace(content, id=id, author=content.author or author)


class TurnView:
    """A turn as its sender sees it: iterate over its events, or wait for its result.

    `question` is what the sender answered: the turn may wait again for another answer before it takes this one.
    """

    def __init__(
        self, conversation: Conversation, watcher: Watcher, id: str, *, goes_on: bool = False, question: str = ""
    ) -> None:
        self.id = id
        self.conversation = conversation
        self._watcher = watcher
        self._goes_on = goes_on
        self._question = question
        self._end = conversation.app.turns.end_of(id)

    async def result(self, *, check: bool = True) -> AgentResult:
        """Wait for the result. Raises TurnFailed if the turn failed or a limit ended it, unless `check` is False.

        A turn that was stopped, or that waits for the answer of a person, has a result whose `outcome` says so.
        """
        self.close()
        result, cause = await self._end
        if check and result.outcome in (Outcome.FAILED, Outcome.LIMITED):
            raise TurnFailed(result.error, result) from cause
        return result

    async def __aiter__(self) -> AsyncIterator[Event]:
        ours, question = self._goes_on, self._question
        with self._watcher:
            while True:
                for event in await self._watcher.events():
                    if type(event) is TurnStarted:
                        ours = event.turn == self.id
                    elif type(event) is TurnFinished and event.turn == self.id:
                        if question and event.outcome is Outcome.WAITING:
                            continue  # after an earlier answer; this one is queued
                        yield event
                        return
                    elif question and type(event) is QuestionAnswered and event.answer.question_id == question:
                        question = ""
                    if ours:
                        yield event

    async def text_stream(self) -> AsyncIterator[str]:
        """Yield the agent's text piece by piece, without thinking and arguments of calls."""
        answer = AnswerText()
        async for event in self:
            if text := answer.feed(event):
                yield text

    async def states(self) -> AsyncIterator[str]:
        """Yield the turn's states by their A2A names: working, then completed, input-required, canceled or failed."""
        yield STATES["working"]
        async for event in self:
            if isinstance(event, TurnFinished) and event.turn == self.id:
                yield event.state

    async def stop(self, *, played: Played | None = None) -> bool:
        """Stop this turn, whether it is queued, runs or waits for an answer; see `Conversation.stop`."""
        conversation = self.conversation
        running = conversation.app.turns.running(conversation.id)
        is_running = running is not None and running.id == self.id
        if not is_running and await conversation.app.turns.stop_queued(conversation.id, self.id):
            return True
        return await conversation.stop(self.id, played=played)

    def close(self) -> None:
        """Stop watching. The turn continues."""
        self._watcher.close()

    def __del__(self) -> None:
        self._watcher.close()  # an abandoned view must not collect events


def _said_below(turn: Turn) -> Iterator[Nested]:
    for call_id, child in turn.agents_at_work.items():
        name = child.agent.name
        if child.builder is not None and not child.plugins.holds_stream:
            yield from (Nested(call_id, name, delta) for delta in child.builder.so_far())
        yield from (Nested(call_id, name, event) for event in _said_below(child))
