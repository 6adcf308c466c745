"""The composition root: agents, engines, plugins, a store and a runtime, and their life from start to end.

What names stand for is in roster.py; what a surface talks to is conversation.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from .agent import Agent
from .assembly import Step, assemble
from .charge import Scope, Tell
from .clock import Clock, SystemClock
from .conversation import Conversation
from .crew import Crew
from .deadline import Deadlines
from .engine import Engine, EngineFace, Sealed
from .errors import QuestionError, RondelError
from .events import Failure, MessageAdded, Outcome, QuestionAnswered, TurnFinished, TurnStarted
from .job import Job, Runtime
from .journal import Journal
from .loop import run_turn
from .plugin import Plugin
from .question import Answer, Hold, Question, check_answer
from .recruiting import recruit
from .roster import Roster, default_plugins
from .store import Store
from .tool import CallContext, Tool
from .turn import Turn
from .values import AgentResult, Message

if TYPE_CHECKING:
    from .background import Background
    from .ledger import Ledger
    from .timetable import Timetable

__all__ = ["App", "ask", "default_plugins", "run"]

KEEP_UP_S = 10.0
"""How often a process that stays looks for what others have left."""
JOURNALS_MAX = 1_000
"""Journals kept open beside those in use; the oldest idle ones are read anew when they are needed again."""


class App:
    """Compose by constructor, live by context manager: `async with App(agent) as app: ...`."""

    def __init__(
        self,
        *agents: Agent,
        engine: str | Engine | None = None,
        store: Store | None = None,
        runtime: Runtime | None = None,
        plugins: Sequence[Plugin] | None = None,
        tools: Iterable[Tool] = (),
        make_engine: Callable[[str], Engine] | None = None,
        clock: Clock | None = None,
        ledger: Ledger | None = None,
        recover: bool = True,
    ) -> None:
        self.clock = clock or SystemClock()
        self.deadlines = Deadlines()
        self.store: Store = store or _memory_store(self.clock)
        self.ledger = ledger or _ledger(self.store, self.clock)
        """Where every engine call is charged."""
        self._runtime = runtime
        self._recover = recover
        self._roster = Roster(self, engine=engine, plugins=plugins, tools=tools, make_engine=make_engine)
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._alive: WeakValueDictionary[str, Journal] = WeakValueDictionary()
        """Forgotten, but still held by somebody: a conversation never has two open ends in one app."""
        self._opening: dict[str, asyncio.Future[Journal]] = {}
        self._turns: dict[str, Turn] = {}
        self._results: dict[str, asyncio.Future[AgentResult]] = {}
        self._messages: dict[str, Message] = {}
        self.background = _background(self)
        self.timetable = _timetable(self)
        self._life = contextlib.AsyncExitStack()
        self._id_seed = os.urandom(5).hex()
        self._id_count = 0
        for agent in agents:
            self.add_agent(agent)

    # --- agents -------------------------------------------------------------------------------------------------------

    @property
    def agents(self) -> tuple[Agent, ...]:
        return self._roster.agents

    def add_agent(self, agent: Agent) -> None:
        self._roster.add_agent(agent)

    def knows_agent(self, name: str) -> bool:
        return self._roster.knows_agent(name)

    def agent(self, name: str = "") -> Agent:
        """The agent of this name; the first one when no name is given."""
        return self._roster.agent(name)

    def tool_of(self, agent: str) -> Tool:
        """An agent as a tool."""
        return self._roster.tool_of(agent)

    def crew(self, agent: str, engine: str = "") -> Crew:
        """An agent with its engine, or with the one that is named, its plugins and its tools."""
        return self._roster.crew(agent, engine)

    def engine(self, name: str) -> Sealed:
        """The engine of this name. It can be looked at; to be asked it goes through `meter`."""
        return self._roster.engine(name)

    def meter(self, engine: EngineFace, scope: Scope | Callable[[], Scope], tell: Tell | None = None) -> Engine:
        """An engine that can be asked: what it spends is charged to the scope."""
        return self.ledger.meter(engine, scope, tell=tell)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> App:
        async with contextlib.AsyncExitStack() as life:
            life.push_async_callback(self._close)
            for agent in self.agents:
                for plugin in self.crew(agent.name).chain.plugins:
                    if type(plugin).lifespan is not Plugin.lifespan:
                        await life.enter_async_context(plugin.lifespan(self))
            runtime = self._runtime = self._runtime or _local_runtime(self.store, self.clock)
            handlers = {"turn": self._run_turn_job, "job": self._run_job, "schedule": self.timetable.run}
            await runtime.start(handlers, recover=self._recover)
            life.push_async_callback(runtime.stop)
            if self._recover:
                await self.timetable.open()
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def _close(self) -> None:
        await self._roster.aclose()
        self.deadlines.close()
        await self.ledger.aclose()
        await self.store.aclose()
        for result in self._results.values():
            if not result.done():
                result.set_exception(
                    RondelError("the app was closed before this turn ended; it goes on at the next start")
                )
                result.exception()  # nobody may be waiting

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise RondelError("the app has not started: use it in `async with App(...) as app:`")
        return self._runtime

    def new_id(self, prefix: str) -> str:
        """Unique, and in the order of time: milliseconds, this app's own random seed, a count."""
        self._id_count += 1
        return f"{prefix}_{int(self.clock.now() * 1000):011x}{self._id_seed}{self._id_count:x}"

    # --- conversations ------------------------------------------------------------------------------------------------

    def conversation(self, id: str = "", *, agent: str = "") -> Conversation:
        """A conversation by its id, or a new one."""
        if not id:
            id = self.new_id("c")
            self._journals[id] = Journal(id, self.store, self.clock)  # nobody else knows this id: nothing is to be read
            self._forget_idle_journals()
        return Conversation(self, id, agent)

    def open_journal(self, conversation: str) -> Journal | None:
        """The journal of a conversation, if it is in memory."""
        return self._journals.get(conversation)

    async def journal(self, conversation: str) -> Journal:
        """The open journal of a conversation; read from the store when it is not in memory."""
        journal = self._journals.get(conversation)
        if journal is not None and not journal.broken:
            self._journals.move_to_end(conversation)
            return journal
        if journal is None and (journal := self._alive.pop(conversation, None)) is not None and not journal.broken:
            self._journals[conversation] = journal
            return journal
        if (opening := self._opening.get(conversation)) is not None:
            return await opening
        future = self._opening[conversation] = asyncio.get_running_loop().create_future()
        try:
            fresh = await Journal.open(conversation, self.store, self.clock)
            if journal is not None:
                fresh.take_watchers(journal)
            self._journals[conversation] = fresh
            future.set_result(fresh)
        except BaseException as error:
            future.set_exception(error)
            future.exception()
            raise
        finally:
            del self._opening[conversation]
        self._forget_idle_journals()
        return fresh

    def forget(self, conversation: str) -> None:
        """What waits for a person, maybe for days, is on disk: it need not be in memory, too."""
        journal = self._journals.get(conversation)
        if journal is not None and not journal.is_watched and conversation not in self._turns:
            self._alive[conversation] = self._journals.pop(conversation)

    def _forget_idle_journals(self) -> None:
        for _ in range(min(4, len(self._journals) - JOURNALS_MAX)):
            conversation, journal = self._journals.popitem(last=False)
            if journal.is_watched or conversation in self._turns:
                self._journals[conversation] = journal  # in use, so it is not among the oldest
            else:
                self._alive[conversation] = journal

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start_turn(
        self,
        conversation: str,
        agent: str,
        message: Message | None = None,
        *,
        turn: str = "",
        again: str = "",
        answer: Answer | None = None,
        scope: Scope | None = None,
    ) -> bool:
        """Queue a turn behind those of its conversation. Returns when it would survive a crash.

        A turn that goes on (an answer came, a crash is over) says what lets it go on `again`. The same thing twice is
        once, and False.
        """
        turn = turn or self.new_id("t")
        self._results.setdefault(turn, asyncio.get_running_loop().create_future())
        payload: dict[str, Any] = {"turn": turn, "agent": agent}
        if message is not None:
            self._messages[turn] = message
            payload["message"] = msgspec.to_builtins(message)
        if answer is not None:
            payload["answer"] = msgspec.to_builtins(answer)
        if scope is not None:
            payload["scope"] = msgspec.to_builtins(scope)
        return await self.runtime.submit(Job(f"{turn}#{again}" if again else turn, "turn", conversation, payload))

    async def stop_queued_turn(self, conversation: str, turn: str) -> bool:
        """Stop a turn that has not begun. False when it has, or when there is none."""
        if not await self.runtime.cancel(turn):
            return False
        self._messages.pop(turn, None)
        journal = await self.journal(conversation)
        await journal.append(TurnFinished(turn, Outcome.STOPPED, "stopped before it began"))
        self._settle(turn, AgentResult(agent=journal.transcript.home, ran=False))
        return True

    async def preview(self, agent: str, message: Message) -> AsyncIterator[Step]:
        """How the prompt of a first round would come about, step by step. Nobody is asked, and nothing is kept."""
        journal = Journal("preview", _memory_store(self.clock), self.clock)
        turn = Turn(self, journal, id="preview", agent=self.agent(agent).name, messages=(message,))
        turn.previewing = True
        await journal.append(TurnStarted("preview", turn.agent.name), MessageAdded(message))
        await turn.plugins.start(turn)
        async for step in assemble(turn):
            yield step

    async def keep_up(self) -> None:
        """Take up what other processes leave when they end, for as long as somebody waits for this."""
        while True:
            await self.clock.sleep_until(self.clock.now() + KEEP_UP_S)
            await self.runtime.recover("")

    async def drain(self) -> None:
        """Wait until no turn is at work and none is queued. Questions may be open."""
        await self.runtime.drain()

    def result_of(self, turn: str) -> asyncio.Future[AgentResult]:
        return self._results.setdefault(turn, asyncio.get_running_loop().create_future())

    def is_under_way(self, turn: str) -> bool:
        """Whether a turn that was started here is queued or at work."""
        return turn in self._results

    def running_turn(self, conversation: str) -> Turn | None:
        return self._turns.get(conversation)

    async def _run_turn_job(self, job: Job) -> None:
        conversation, id = job.key, job.payload["turn"]
        try:
            turn = await self._open_turn(job)
            if turn is None:
                return
            self._turns[conversation] = turn
            try:
                await run_turn(turn)
            finally:
                del self._turns[conversation]
        except Exception as error:
            self._fail(conversation, id, job.payload["agent"], error)
            raise
        self._settle(id, turn.result() if turn.outcome is not Outcome.WAITING else self._waiting(turn))
        await self._after_turn(turn)

    async def _open_turn(self, job: Job) -> Turn | None:
        """The turn that a job stands for; None when it has come to rest already (a crash kept only the job)."""
        id, agent = job.payload["turn"], self.agent(job.payload["agent"]).name
        message = self._messages.pop(id, None)
        if message is None and "message" in job.payload:
            message = msgspec.convert(job.payload["message"], Message)
        journal = await self.journal(job.key)
        transcript = journal.transcript
        if transcript.jobs:
            await self.background.take_up(job.key)
        if id in transcript.turns_done:
            return None
        if "answer" not in job.payload and transcript.turn == id and transcript.outcome is Outcome.WAITING:
            await self._arm_deadlines(job.key, id, agent, transcript.questions)
            return None
        if "answer" in job.payload:
            answer = msgspec.convert(job.payload["answer"], Answer)
            if any(question.id == answer.question_id for question in transcript.questions):
                await journal.append(QuestionAnswered(answer))
        scope = msgspec.convert(job.payload["scope"], Scope) if "scope" in job.payload else None
        crew = self.crew(agent, transcript.engine) if transcript.engine else None
        return Turn(self, journal, id=id, agent=agent, messages=(message,) if message else (), crew=crew, scope=scope)

    def _fail(self, conversation: str, turn: str, agent: str, error: Exception) -> None:
        """A turn that could not even be opened: whoever waits for it is told."""
        failure = Failure(type(error).__name__, str(error), agent=agent)
        if journal := self._journals.get(conversation):
            journal.emit(TurnFinished(turn, Outcome.FAILED, failure=failure))
        self._settle(turn, AgentResult(error=str(error), ran=False, agent=agent))

    def _waiting(self, turn: Turn) -> AgentResult:
        asked = "; ".join(question.text for question in turn.held)
        return AgentResult(error=f"waiting for an answer: {asked}", agent=turn.agent.name)

    def _settle(self, turn: str, result: AgentResult) -> None:
        future = self._results.pop(turn, None)
        if future is not None and not future.done():
            future.set_result(result)

    async def _after_turn(self, turn: Turn) -> None:
        if turn.outcome is Outcome.WAITING:
            await self._arm_deadlines(turn.conversation, turn.id, turn.agent.name, turn.held)
            self.forget(turn.conversation)
        elif turn.outcome is Outcome.DONE and turn.transcript.is_spoken_to:
            await self.start_turn(turn.conversation, turn.agent.name)  # it came just as the turn ended

    async def _arm_deadlines(self, conversation: str, turn: str, agent: str, questions: list[Question]) -> None:
        for question in questions:
            if question.deadline is not None:
                payload = {"turn": turn, "agent": agent, "question": question.id}
                key = f"{conversation}#{question.id}"
                await self.runtime.submit(Job(f"deadline:{key}", "job", key, payload, at=question.deadline))

    async def _run_job(self, job: Job) -> None:
        await (self._run_deadline(job) if "question" in job.payload else self.background.run(job))

    async def _run_deadline(self, job: Job) -> None:
        conversation = job.key.removesuffix(f"#{job.payload['question']}")
        journal = await self.journal(conversation)
        for question in journal.transcript.questions:
            if question.id == job.payload["question"]:
                answer = Answer(question.id, question.default, by="deadline")
                await self.answer(conversation, answer, agent=job.payload["agent"])

    async def answer(self, conversation: str, answer: Answer, *, agent: str) -> None:
        """Keep a person's answer and let the turn go on. The answer rides in the job: one cannot be lost without the
        other."""
        transcript = (await self.journal(conversation)).transcript
        question = next((q for q in transcript.questions if q.id == answer.question_id), None)
        if question is not None:
            check_answer(question, answer)
        if question is None or not await self.start_turn(
            conversation, agent, turn=transcript.turn, again=answer.question_id, answer=answer
        ):
            raise QuestionError(_not_open(answer.question_id, transcript.closed.get(answer.question_id)))
        if answer.by != "deadline":
            await self.runtime.cancel(f"deadline:{conversation}#{question.id}")

    async def recruit(
        self, parent: Turn, agent: Agent, arguments: dict[str, Any], context: CallContext
    ) -> AgentResult | Hold | Any:
        """Run an agent for a call, on a transcript of its own, inside the turn that called."""
        self.add_agent(agent)
        return await recruit(self, parent, agent, arguments, context)


def _not_open(question: str, closed_by: str | None) -> str:
    """Why a question takes no answer."""
    if closed_by is None:
        why = "it was never asked here"
    elif closed_by == "deadline":
        why = "it has expired, nobody answered in time"
    elif closed_by == "stop":
        why = "its turn was stopped"
    else:
        why = f"it was answered already{f' by {closed_by}' if closed_by else ''}"
    return f"question {question!r} is not open: {why}"


# --- the defaults -----------------------------------------------------------------------------------------------------


def _memory_store(clock: Clock) -> Store:
    from .stores.memory import MemoryStore

    return MemoryStore(clock=clock)


def _ledger(store: Store, clock: Clock) -> Ledger:
    from .ledger import Ledger

    return Ledger(store.books, clock=clock)


def _background(app: App) -> Background:
    from .background import Background

    return Background(app)


def _timetable(app: App) -> Timetable:
    from .timetable import Timetable

    return Timetable(app)


def _local_runtime(store: Store, clock: Clock) -> Runtime:
    from .runtimes.local import LocalRuntime

    return LocalRuntime(store, clock)


async def ask(agent: Agent, content: str | Message, *, engine: str | Engine | None = None) -> AgentResult:
    """Run an agent once, in memory."""
    async with App(agent, engine=engine) as app:
        turn = await app.conversation().send(content)
        return await turn.result()


def run(agent: Agent, content: str | Message, *, engine: str | Engine | None = None) -> AgentResult:
    """Run an agent once, in memory, and wait for it."""
    return asyncio.run(ask(agent, content, engine=engine))
