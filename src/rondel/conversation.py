"""A conversation and a turn as a surface sees them: send, steer, stop, answer, watch, wait.

Handles only: they hold no state that a second handle of the same conversation would miss. Knows no engine and no
plugin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from .charge import Scope
from .engine import EngineFace
from .events import STATES, EngineChanged, Entry, Event, MessageQueued, TurnFinished, TurnStarted
from .journal import Journal, Watcher
from .question import Answer, Question
from .transcript import Transcript
from .turn import Turn
from .values import AgentResult, Media, Message, Text, user

if TYPE_CHECKING:
    from .app import App


class Conversation:
    """A conversation as a surface sees it: send, steer, stop, answer, watch."""

    def __init__(self, app: App, id: str, agent: str = "") -> None:
        self.app = app
        self.id = id
        self._agent = agent

    @property
    def agent(self) -> str:
        """Who answers: the agent that was named, else the one that the conversation began with, once it is read."""
        journal = self.app.open_journal(self.id)
        return self._agent_in(journal) if journal else self._agent or self.app.agent().name

    @property
    def chosen_engine(self) -> str:
        """The engine that was chosen for this conversation, once it is read; empty when its agents ask their own."""
        journal = self.app.open_journal(self.id)
        return journal.transcript.engine if journal else ""

    @property
    def engine(self) -> EngineFace:
        """What answers: the engine that was chosen, else the agent's own. It can be looked at."""
        return self.app.crew(self.agent, self.chosen_engine).engine

    async def use_engine(self, name: str) -> None:
        """Let the turns that begin here from now on ask this engine; without a name, their agent's own again. Agents
        that take over, or that work for a call, ask their own."""
        journal = await self.app.journal(self.id)
        if name != journal.transcript.engine:
            if name:
                self.app.engine(name)  # a wrong name is said to whoever gave it
            await journal.append(EngineChanged(name))

    async def send(
        self,
        content: str | Message | Sequence[str | Text | Media],
        *,
        author: str = "",
        id: str = "",
        scope: Scope | None = None,
    ) -> TurnView:
        """Say something: a new turn, behind those that are under way. The same `id` twice is once.

        `scope` is what the surface knows of who and where (the channel, the roles); the ledger charges it.
        """
        message = _as_message(content, author, id or self.app.new_id("msg"))
        journal = await self.app.journal(self.id)
        view = TurnView(self, journal.watch(), self.app.new_id("t"))
        await self.app.start_turn(self.id, self._agent_in(journal), message, turn=view.id, scope=scope)
        return view

    async def steer(self, content: str | Message, *, author: str = "") -> None:
        """Say something to the turn that is at work; it hears it between two rounds."""
        journal = await self.app.journal(self.id)
        message = _as_message(content, author, self.app.new_id("msg"))
        await journal.append(MessageQueued(message))
        if self.app.running_turn(self.id) is None:
            await self.app.start_turn(self.id, self._agent_in(journal))

    async def resume(self) -> TurnView | None:
        """Go on where a crash or a failure cut the conversation off. None when nothing is left to do."""
        journal = await self.app.journal(self.id)
        transcript = journal.transcript
        watcher = journal.watch()
        if jobs := await self.app.runtime.recover(self.id):
            turn = jobs[-1].payload["turn"]
            return TurnView(self, watcher, turn, goes_on=turn == transcript.turn)
        watcher.close()
        if not (transcript.unanswered or transcript.owed or transcript.is_spoken_to):
            return None
        goes_on = bool(transcript.turn) and transcript.outcome is None
        view = TurnView(self, journal.watch(), transcript.turn if goes_on else self.app.new_id("t"), goes_on=goes_on)
        if self.app.running_turn(self.id) is not None:
            return view
        again = f"seq-{journal.seq}" if goes_on else ""
        await self.app.start_turn(self.id, self._agent_in(journal), turn=view.id, again=again)
        return view

    async def answer(self, question: str, text: str, *, by: str = "") -> TurnView:
        """Answer a question that is held; the turn goes on."""
        journal = await self.app.journal(self.id)
        view = TurnView(self, journal.watch(), journal.transcript.turn, goes_on=True)
        try:
            await self.app.answer(self.id, Answer(question, text, by), agent=self._agent_in(journal))
        except BaseException:
            view.close()
            raise
        return view

    async def stop(self) -> bool:
        """Stop what is at work or waits. False when nothing is."""
        if (turn := self.app.running_turn(self.id)) is not None:
            turn.stop()
            return True
        journal = await self.app.journal(self.id)
        if not journal.transcript.questions:
            return False
        turn = Turn(self.app, journal, id=journal.transcript.turn, agent=self._agent_in(journal))
        await turn.settle()
        return True

    async def questions(self) -> list[Question]:
        """What is held for a person."""
        return (await self.app.journal(self.id)).transcript.questions

    async def transcript(self) -> Transcript:
        return (await self.app.journal(self.id)).transcript

    async def entries(self, after: int = 0) -> list[Entry]:
        return await self.app.store.read(self.id, after)

    async def watch(self) -> Watcher:
        """Every event from now on, of every turn."""
        return (await self.app.journal(self.id)).watch()

    def _agent_in(self, journal: Journal) -> str:
        """Who answers: the agent that was named, else the one that the conversation began with, or moved to."""
        home, moved_to = journal.transcript.home, journal.transcript.moved_to
        if self._agent in ("", home) and self.app.knows_agent(moved_to):
            return moved_to
        return self._agent or (home if self.app.knows_agent(home) else self.app.agent().name)


class TurnView:
    """One turn as its sender sees it: iterate over its events, or wait for its result."""

    def __init__(self, conversation: Conversation, watcher: Watcher, id: str, *, goes_on: bool = False) -> None:
        self.id = id
        self.conversation = conversation
        self._watcher = watcher
        self._goes_on = goes_on
        self._result = conversation.app.result_of(id)

    async def result(self) -> AgentResult:
        """How it ended. A turn that waits for an answer says so in `error`."""
        self.close()
        return await self._result

    async def __aiter__(self) -> AsyncIterator[Event]:
        ours = self._goes_on
        with self._watcher:
            while True:
                for event in await self._watcher.batch():
                    kind = type(event)
                    if kind is TurnStarted:
                        ours = cast(TurnStarted, event).turn == self.id
                    ended = kind is TurnFinished and cast(TurnFinished, event).turn == self.id
                    if ours or ended:
                        yield event
                    if ended:
                        return

    async def states(self) -> AsyncIterator[str]:
        """The turn's states by their A2A names: working, then completed, input-required, canceled or failed."""
        yield STATES["working"]
        async for event in self:
            if isinstance(event, TurnFinished) and event.turn == self.id:
                yield event.state

    async def stop(self) -> bool:
        """Stop this turn, whether it waits for its place, is at work, or is held."""
        conversation = self.conversation
        running = conversation.app.running_turn(conversation.id)
        if running is not None and running.id == self.id:
            return await conversation.stop()
        if await conversation.app.stop_queued_turn(conversation.id, self.id):
            return True
        return running is None and await conversation.stop()

    def close(self) -> None:
        """Stop watching. The turn goes on."""
        self._watcher.close()

    def __del__(self) -> None:
        self._watcher.close()  # a view that nobody iterates must not pile up events


def _as_message(content: str | Message | Sequence[str | Text | Media], author: str, id: str) -> Message:
    if isinstance(content, Message):
        return msgspec.structs.replace(content, id=content.id or id, author=content.author or author)
    return user(*([content] if isinstance(content, str) else content), author=author, id=id)
