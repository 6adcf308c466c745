"""Runs the turns of an app's conversations: each is a job whose key is its conversation.

Opens the turn of a job, runs the loop, and sets the result; stops turns, and resumes those that wait for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..agent import Agent
from ..charge import Scope
from ..contracts.runtime import Job, Signal
from ..errors import QuestionError, RondelError, StoreConflict
from ..events import Failure, MessageQueued, Outcome, QuestionAnswered, TurnFinished, TurnsUndone
from ..question import Answer, Hold, Question, check_answer
from ..tool import CallContext
from ..values import AgentResult, Message, Person, Played, Value
from .ending import close_waiting_turn
from .journal import EphemeralJournal, Journal
from .loop import run_turn
from .recruit import recruit
from .transcript import Transcript, end_of
from .turn import Turn

if TYPE_CHECKING:
    from .services import Services


SAID_MEANWHILE = "the conversation has changed in the meantime, so nothing was undone; check it and try again"


class Undo(Value, frozen=True):
    """Undo the turns from `turn` to `last`, which must be the newest."""

    turn: str
    last: str
    by: str = ""


class TurnPayload(Value, frozen=True):
    """The payload of a turn's job: what `TurnRunner.start` was given."""

    turn: str
    agent: str
    message: Message | None = None
    named: str | None = None
    answer: Answer | None = None
    scope: Scope | None = None
    person: Person | None = None
    undo: Undo | None = None
    before: tuple[Message, ...] = ()


class TurnEnd(NamedTuple):
    """The result of a turn, and the exception behind it if this process saw one."""

    result: AgentResult
    cause: BaseException | None = None


class TurnRunner:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._running: dict[str, Turn] = {}
        self._claimed: dict[str, str] = {}
        """The turn whose job runs in each conversation, also before the turn is open and after it has ended."""
        self._stopped: set[str] = set()
        """Claimed turns to stop as soon as they are open, or when they wait for an answer."""
        self._ends: dict[str, asyncio.Future[TurnEnd]] = {}
        self._resuming: set[str] = set()  # jobs that are queued here and resume a turn

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(
        self,
        conversation: str,
        agent: str,
        message: Message | None = None,
        *,
        turn: str = "",
        again: str = "",
        answer: Answer | None = None,
        scope: Scope | None = None,
        person: Person | None = None,
        named: str | None = None,
        undo: Undo | None = None,
        before: Sequence[Message] = (),
    ) -> bool:
        """Queue a turn behind those of its conversation. Returns when it would survive a crash.

        `again` names what resumes a turn; the same value resumes it only once, and returns False after that. With
        `undo`, the turn first undoes other turns; if someone wrote in the meantime, it fails and changes nothing. With
        `named`, `who_answers` chooses the agent when the turn begins, because another process may have changed it. The
        messages in `before` are added to the transcript ahead of `message`.
        """
        turn = turn or self._services.new_id("t")
        self.end_of(turn)
        payload = TurnPayload(turn, agent, message, named, answer, scope, person, undo, tuple(before))
        job = Job(f"{turn}#{again}" if again else turn, "turn", conversation, payload)
        submitted = await self._services.runtime.submit(job)
        if again and submitted:
            self._resuming.add(job.id)
        return submitted

    def _is_resumed(self, turn: str) -> bool:
        return any(turn_of(job) == turn for job in self._resuming)

    def who_answers(self, transcript: Transcript, named: str) -> str:
        """Return the named agent, else the conversation's current one, else the one that it started with."""
        registry, starting, current = self._services.registry, transcript.starting_agent, transcript.current_agent
        if current and named in ("", starting) and registry.knows_agent(current):
            return current
        return named or (starting if starting and registry.knows_agent(starting) else registry.agent().name)

    def running(self, conversation: str) -> Turn | None:
        return self._running.get(conversation)

    def end_of(self, turn: str) -> asyncio.Future[TurnEnd]:
        end = self._ends.get(turn)
        if end is None:
            end = self._ends[turn] = asyncio.get_running_loop().create_future()
        return end

    def is_under_way(self, turn: str) -> bool:
        return turn in self._ends

    @property
    def waiting(self) -> Iterable[asyncio.Future[TurnEnd]]:
        return self._ends.values()

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, turn: Turn, played: Played | None = None) -> None:
        """Stop a running turn. If it is about to wait for an answer, it stops then."""
        turn.stop(played)
        self._stopped.add(turn.id)

    async def stop_queued(self, conversation: str, turn: str) -> bool:
        """Stop a turn that has not begun. Returns False if it has, or if there is none."""
        if self._claimed.get(conversation) == turn:
            self._stopped.add(turn)
            return True
        if self._is_resumed(turn):
            self._stopped.add(turn)  # stops as soon as it begins here; if it runs in another process, it stops there
            await self._services.runtime.signal(Signal("stop", {"turn": turn}, conversation))
            return True
        journals = self._services.journals
        journal = journals.get(conversation)
        if journal is not None and (turn == journal.transcript.turn or turn in journal.transcript.turns_done):
            return False
        if not await self._services.runtime.cancel(turn):
            return False
        journal, why = await journals.current(conversation), "the turn was stopped before it began"
        finished = TurnFinished(turn, Outcome.STOPPED, why)
        try:
            await journal.append(finished)
        except StoreConflict:  # another process works on the conversation; without its job, this turn is gone anyway
            journal.repeat(finished)
        agent = journal.transcript.starting_agent
        self._settle(turn, AgentResult(error=why, agent=agent, ran=False, outcome=Outcome.STOPPED))
        return True

    async def handle_signal(self, signal: Signal) -> bool:
        """Do what another process asks of a turn that runs here or has just ended. Returns whether it was done."""
        if signal.kind == "cancel":
            return self._services.background.hear_cancel(signal.job)
        if self._services.journals.is_change(signal.job):
            return False  # not a turn, and a caller waits for it
        turn, wanted = self._running.get(signal.key), turn_of(signal.job)
        if signal.payload.get("turn", wanted) != wanted:
            return False  # that turn has ended, or has not begun
        if turn is None or turn.id != wanted:
            return signal.kind == "stop" and await self._stop_waiting(signal, wanted)
        if signal.kind == "steer":
            message = msgspec.convert(signal.payload["message"], Message)
            if message.id not in turn.transcript.ids:
                await turn.journal.append(MessageQueued(message))
        else:
            played = signal.payload.get("played")
            self.stop(turn, played and msgspec.convert(played, Played))
        return True

    async def _stop_waiting(self, signal: Signal, turn: str) -> bool:
        """Stop a turn that waits for an answer, or that has not begun."""
        conversation = signal.key
        if self._claimed.get(conversation) not in (None, turn):
            return False  # that turn has ended
        if conversation not in self._claimed:
            journal = await self._services.journals.current(conversation)
            if turn == journal.transcript.turn or turn in journal.transcript.turns_done:
                try:
                    return await self.close_questions(journal, turn)
                except StoreConflict:  # another process has resumed it. Waiting here for its end could deadlock.
                    return await self._services.store.signal_job(signal)
        return await self.stop_queued(conversation, turn)

    async def close_questions(self, journal: Journal, turn: str = "") -> bool:
        """Stop the turn that waits for an answer, or only the one with this id. Returns False if none does."""
        transcript = journal.transcript
        if not transcript.questions or turn not in ("", transcript.turn):
            return False
        agent = self.who_answers(transcript, "")
        await close_waiting_turn(Turn(self._services, journal, id=transcript.turn, agent=agent))
        return True

    async def _stop_if_waiting(self, turn: Turn) -> None:
        if turn.outcome is Outcome.WAITING and turn.id in self._stopped:
            await close_waiting_turn(turn)

    # --- undoing ------------------------------------------------------------------------------------------------------

    async def undo(self, journal: Journal, undo: Undo, *, wait: bool = True) -> None:
        """Undo turns. A question that one of them asked is closed first."""
        await self.close_questions(journal)
        await journal.append(TurnsUndone(undo.turn, undo.by), wait=wait)

    # --- running ------------------------------------------------------------------------------------------------------

    async def run_job(self, job: Job) -> None:
        conversation, id = job.key, turn_of(job.id)
        self._claimed[conversation] = id
        self._resuming.discard(job.id)
        try:
            await self._run(job, conversation, id)
        finally:
            del self._claimed[conversation]
            self._stopped.discard(id)

    async def _run(self, job: Job, conversation: str, id: str) -> None:
        agent = ""
        try:
            given = msgspec.convert(job.payload, TurnPayload)
            agent = given.agent
            turn = await self._open(conversation, given)
            if turn is None:
                return
            self._running[conversation] = turn
            if id in self._stopped:
                turn.stop()
            try:
                await run_turn(turn)
                await self._stop_if_waiting(turn)
            finally:
                del self._running[conversation]
        except Exception as error:
            self._fail(conversation, id, agent, error)
            raise
        if turn.outcome is not Outcome.WAITING or not self._is_resumed(id):  # else another answer is queued
            self._settle(id, turn.result(), turn.error)
        await self._after_turn(turn)
        await self._stop_if_waiting(turn)

    async def _open(self, conversation: str, given: TurnPayload) -> Turn | None:
        """Return the turn of a job.

        Returns None if nothing is left to do: the turn has ended and a crash left its job, or an earlier turn has
        answered its message. Then the result is that of the earlier turn.
        """
        services = self._services
        id, agent, message, undo, answer = given.turn, given.agent, given.message, given.undo, given.answer
        journal = await services.journals.open(conversation)
        if journal.seq != await services.store.last_seq(conversation):
            journal = await services.journals.current(conversation)
        transcript = journal.transcript
        if undo is not None and undo.turn not in transcript.undone and transcript.turn != id:
            if transcript.turn != undo.last:
                self._fail(conversation, id, agent, RondelError(SAID_MEANWHILE))
                return None
            await self.undo(journal, undo, wait=False)
        if given.named is not None:
            agent = self.who_answers(transcript, given.named)
        agent = services.registry.agent(agent).name
        if transcript.jobs:
            await services.background.take_up(conversation)
        if answer is not None and any(question.id == answer.question_id for question in transcript.questions):
            await journal.append(QuestionAnswered(answer))
        if _has_ended(transcript, id, message):
            await self._end_again(journal, id, agent, message)
            return None
        return Turn(
            services,
            journal,
            id=id,
            agent=agent,
            messages=(*given.before, message) if message else given.before,
            resolved=services.registry.resolve(agent, transcript.engine, transcript.settings),
            scope=given.scope,
            person=given.person,
        )

    async def _end_again(self, journal: Journal, id: str, agent: str, message: Message | None) -> None:
        """Report how a turn ended, or how the turn that answered its message did, and do what follows a turn, in case a
        crash cut that off."""
        entries = await self._services.store.read(journal.conversation)
        end = end_of((entry.event for entry in entries), id, message.id if message else "")
        finished, past = end or (TurnFinished(id, Outcome.DONE), journal.transcript)
        ended = EphemeralJournal(journal.conversation)
        ended.transcript = past
        known = self._services.registry.knows_agent(past.starting_agent)
        turn = Turn(self._services, ended, id=finished.turn, agent=past.starting_agent if known else agent)
        turn.outcome, turn.reason, turn.failure = finished.outcome, finished.reason, finished.failure
        seq = next((entry.seq for entry in entries if entry.event is finished and finished.turn == id), 0)
        journal.repeat(msgspec.structs.replace(finished, turn=id), seq)
        self._settle(id, turn.result())
        await self._after_turn(turn)

    def _fail(self, conversation: str, turn: str, agent: str, error: Exception) -> None:
        failure = Failure(type(error).__name__, str(error), agent=agent)
        if journal := self._services.journals.get(conversation):
            journal.repeat(TurnFinished(turn, Outcome.FAILED, failure=failure))
        self._settle(turn, AgentResult(error=str(error), ran=False, agent=agent, outcome=Outcome.FAILED), error)

    def _settle(self, turn: str, result: AgentResult, cause: BaseException | None = None) -> None:
        end = self._ends.pop(turn, None)
        if end is not None and not end.done():
            end.set_result(TurnEnd(result, cause))

    async def _after_turn(self, turn: Turn) -> None:
        conversation = turn.conversation
        if turn.outcome is Outcome.WAITING:
            await self._arm_deadlines(conversation, turn.id, turn.agent.name, turn.held)
            self._services.journals.close(conversation)
            return
        spoken_to = (await self._services.journals.open(conversation)).transcript.is_spoken_to
        self._services.journals.weigh(conversation)
        if turn.outcome in (Outcome.DONE, Outcome.LIMITED) and spoken_to:
            await self.start(conversation, turn.agent.name)  # a message arrived just as the turn ended

    async def recruit(
        self, parent: Turn, agent: Agent, arguments: dict[str, Any], context: CallContext
    ) -> AgentResult | Hold | Any:
        self._services.registry.add_agent(agent)
        await self._services.registry.choose_engine(agent)
        return await recruit(self._services, parent, agent, arguments, context)

    # --- questions ----------------------------------------------------------------------------------------------------

    async def answer(self, conversation: str, answer: Answer, *, agent: str, instead_of: str = "") -> None:
        """Store a person's answer and resume the turn. The answer is part of the job: a crash cannot separate them."""
        runtime = self._services.runtime
        transcript = (await self._services.journals.current(conversation)).transcript
        question = next((q for q in transcript.questions if q.id == answer.question_id), None)
        if question is None:
            raise QuestionError(_not_open(answer.question_id, transcript.closed.get(answer.question_id)))
        check_answer(question, answer, instead_of=instead_of)
        if not await self.start(conversation, agent, turn=transcript.turn, again=answer.question_id, answer=answer):
            await runtime.recover(conversation)  # the first answer may be from a process that has died
            raise QuestionError(_not_open(answer.question_id, transcript.closed.get(answer.question_id, "")))
        if answer.by != "deadline":
            await runtime.cancel(f"deadline:{conversation}#{question.id}")

    async def _arm_deadlines(self, conversation: str, turn: str, agent: str, questions: list[Question]) -> None:
        for question in questions:
            if question.deadline is not None:
                payload = {"turn": turn, "agent": agent, "question": question.id}
                key = f"{conversation}#{question.id}"
                await self._services.runtime.submit(Job(f"deadline:{key}", "job", key, payload, at=question.deadline))

    async def run_deadline(self, job: Job) -> None:
        conversation = job.key.removesuffix(f"#{job.payload['question']}")
        journal = await self._services.journals.current(conversation)
        for question in journal.transcript.questions:
            if question.id == job.payload["question"]:
                answer = Answer(question.id, question.default, by="deadline")
                await self.answer(conversation, answer, agent=job.payload["agent"])


def turn_of(job: str) -> str:
    """Return the turn that the job with this id starts or resumes."""
    return job.partition("#")[0]


def _has_ended(transcript: Transcript, turn: str, message: Message | None) -> bool:
    """Return whether nothing is left to do for a turn and its message."""
    if turn in transcript.turns_done:
        return True
    if transcript.turn == turn and transcript.outcome is None:
        return False
    if message is not None and message.id not in transcript.ids:
        return False
    if message is not None and transcript.outcome is Outcome.LIMITED:
        return True  # a limit has ended the turn of this message; a new message, or `resume`, continues from there
    return not (transcript.unanswered or transcript.owed or transcript.is_spoken_to)


def _not_open(question: str, closed_by: str | None) -> str:
    """Return why a question cannot be answered."""
    whys = {
        None: "it was never asked here",
        "deadline": "no answer came in time",
        "stop": "its turn was stopped",
        "edit": "the message that led to it was edited",
        "": "it was answered already",
    }
    return f"question {question!r} is not open: {whys.get(closed_by, f'it was answered already by {closed_by}')}"
