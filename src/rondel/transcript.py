"""A conversation's journal, folded into what the loop asks of it.

The transcript is the program counter: is a call unanswered, is something held, is a reply owed, by whom? Each entry is
applied once, so a question costs the same at entry ten and at entry ten thousand. Pure: knows no store and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec

from .charge import Scope
from .events import (
    CallFinished,
    CallHeld,
    CallStarted,
    EngineChanged,
    FactsLearned,
    Failure,
    HandedOff,
    HistoryGiven,
    HomeChanged,
    InboxTaken,
    InputsRead,
    JobFinished,
    JobStarted,
    Kept,
    Learned,
    MessageAdded,
    MessageQueued,
    Outcome,
    QuestionAnswered,
    RoundFinished,
    Spent,
    TurnFinished,
    TurnStarted,
)
from .job import JobInfo
from .question import ALWAYS, Answer, Question
from .template import MARK, is_directive, said_before
from .values import NO_USAGE, Message, Messages, Text, ToolCall, ToolResult, Usage, Value

_NO_SCOPE, _NO_SPENT = Scope(), Spent()


class CarriedOut(Value, frozen=True):
    """A round of this turn whose calls were directives in an agent's words, and their results, in the calls' order."""

    agent: str
    message: Message
    results: tuple[ToolResult, ...]

    @property
    def lasts(self) -> bool:
        """Whether it holds for the whole turn, as an author's words do, and not only for one answer."""
        return "words" in self.message.calls[0].opaque[MARK]


class OpenCall:
    """A call of the newest round and how far it is."""

    __slots__ = ("answers", "call", "place", "question", "result", "started")

    def __init__(self, call: ToolCall, place: int) -> None:
        self.call = call
        self.place = place
        self.started = False
        self.question: Question | None = None
        self.answers: dict[str, Answer] = {}
        self.result: ToolResult | None = None


class Transcript:
    def __init__(self, entries: Iterable[Kept] = ()) -> None:
        self.messages: list[Message] = []
        self._born: list[int] = []
        self._fleeting = False
        self.rounds = 0
        self.calls: dict[str, OpenCall] = {}
        self.called: set[str] = set()
        """The ids of all calls that were ever made here."""
        self._open = 0
        self._directing: RoundFinished | None = None
        self._after_calls: list[Message] = []
        self.always_allowed: set[str] = set()
        self.inbox: dict[str, Message] = {}
        self._quiet: set[str] = set()
        self.jobs: dict[str, JobInfo] = {}
        """The work that was handed to the background, in the order in which it was; kept after its end."""
        self.owed = False
        self.agent = ""
        self.home = ""
        self.output = ""
        self.ran = True
        self.usage = NO_USAGE
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        """Why the last turn failed, if it did."""
        self.turn = ""
        self.scope = _NO_SCOPE
        """What is known of who and where, of the newest turn."""
        self.turns_done: set[str] = set()
        self.ids: set[str] = set()
        self.inputs: dict[str, InputsRead] = {}
        """What was last read out of a text, by agent."""
        self.facts: dict[str, Learned] = {}
        self.old_facts: dict[str, Any] = {}
        """The values before those in `facts`, where they were others."""
        self.turns_learned: set[str] = set()
        self.closed: dict[str, str] = {}
        """Questions that are no longer open, and who closed them."""
        self.moved_to = ""
        """The agent that turns begin with since somebody changed that."""
        self.engine = ""
        """The engine that turns ask since somebody chose one; empty: each agent's own."""
        self._begin_turn("")
        for event in entries:
            self.apply(event)

    def _begin_turn(self, turn: str) -> None:
        self.turn = turn
        self.turn_rounds = 0
        self.turn_usage = NO_USAGE
        self.turn_calls = 0
        self.turn_seconds = 0.0
        """How long the turn was at work before it waited for a person the last time."""
        self.turn_input: str | None = None
        """What the turn was told first."""
        self.carried_out: list[CarriedOut] = []
        self._spent_below = _NO_SPENT
        self.offered: dict[str, None] = {}
        """Agents that answers of this turn suggested."""
        self.handoffs = 0
        self.rerolls = 0
        self._heard_a_person()

    def _heard_a_person(self) -> None:
        self.continuations = 0
        self.auto_replies = 0

    # --- what the loop asks -------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> list[ToolCall]:
        return [c.call for c in self.calls.values() if c.result is None and c.question is None]

    @property
    def questions(self) -> list[Question]:
        return [c.question for c in self.calls.values() if c.question is not None]

    @property
    def interrupted(self) -> str:
        """What was shown of a sentence that waits for its directives."""
        if self._directing is None or not self.calls:
            return ""
        return "".join(map(said_before, self._directing.message.parts))

    @property
    def offers(self) -> tuple[str, ...]:
        """Agents that what was said last suggests to whoever asked."""
        parts = self.messages[-1].parts if self.messages else ()
        marks = (part.opaque.get(MARK, {}) for part in parts if isinstance(part, Text))
        return tuple(name for mark in marks for name in mark.get("offers", ()))

    @property
    def turn_spent(self) -> Spent:
        """What this turn used so far, and the agents whose work for it is finished."""
        usage = self.turn_usage
        return Spent(self.turn_rounds, self.turn_calls, usage.tokens_in + usage.tokens_out) + self._spent_below

    @property
    def is_spoken_to(self) -> bool:
        """Whether something in the inbox owes a reply by itself; a digest does not."""
        return len(self.inbox) > len(self._quiet)

    def history(self) -> Messages:
        """The messages that models are sent. One with a duration of n is sent for n rounds, then kept unsent.

        Errors go as user messages: no model knows their role.
        """
        if not self._fleeting:
            return Messages(self.messages)
        return Messages(
            message if message.role != "error" else msgspec.structs.replace(message, role="user")
            for message, born in zip(self.messages, self._born, strict=True)
            if message.duration is None or self.rounds - born < message.duration
        )

    # --- what happened ------------------------------------------------------------------------------------------------

    def apply(self, event: Kept) -> None:
        if handler := self._handlers.get(type(event)):
            handler(self, event)

    def _turn_started(self, event: TurnStarted) -> None:
        self.outcome = None
        self.home = self.home or event.agent
        if event.turn != self.turn:
            self._begin_turn(event.turn)
            self.agent = event.agent
            self.scope = event.scope

    def _message_added(self, event: MessageAdded) -> None:
        message = event.message
        if message.role == "user":
            if message.author and message.author.startswith("plugin:"):
                self.auto_replies += 1
            else:
                self._heard_a_person()
        elif message.role == "assistant":
            self.output = message.text
        if self.calls:
            self._after_calls.append(message)
        else:
            self._add(message)

    def _add(self, message: Message) -> None:
        if message.id:
            self.ids.add(message.id)
        if self.turn_input is None and message.role == "user":
            self.turn_input = message.text
        self.messages.append(message)
        self._born.append(self.rounds)
        self._fleeting = self._fleeting or message.duration is not None or message.role == "error"
        if message.role != "error":
            self.owed = message.role != "assistant"

    def _history_given(self, event: HistoryGiven) -> None:
        self.messages.extend(event.messages)
        self._born.extend([self.rounds] * len(event.messages))
        self.owed = True

    def _message_queued(self, event: MessageQueued) -> None:
        self.ids.add(event.message.id)
        self.inbox[event.message.id] = event.message
        if event.quiet:
            self._quiet.add(event.message.id)

    def _inbox_taken(self, event: InboxTaken) -> None:
        quiet = self._quiet.issuperset(event.ids)
        for id in event.ids:
            self._add(self.inbox.pop(id))
            self._quiet.discard(id)
        if not quiet:
            self._heard_a_person()

    def _round_finished(self, event: RoundFinished) -> None:
        self.turn_rounds += not event.free
        self._spent(event.usage)
        self.ran = event.ran
        if event.next == "again":
            self.rerolls += 1
            return
        self.rounds += not event.free
        self.rerolls = 0
        if event.message.parts:
            self._add(event.message)
        calls = event.message.calls
        self.turn_calls += len(calls)
        self.calls = {call.id: OpenCall(call, place) for place, call in enumerate(calls)}
        self.called.update(self.calls)
        self._open = len(self.calls)
        self._directing = event if calls and is_directive(calls[0]) else None
        self.owed = event.next == "self" and not calls
        if event.next == "self" and not calls:
            self.continuations += 1
        if not calls:
            self.output = event.message.text
            self.carried_out = [done for done in self.carried_out if done.lasts]

    def _call_started(self, event: CallStarted) -> None:
        if call := self.calls.get(event.call_id):
            call.started = True

    def _call_held(self, event: CallHeld) -> None:
        if call := self.calls.get(event.question.call_id):
            call.question, call.started = event.question, False

    def _question_answered(self, event: QuestionAnswered) -> None:
        for call in self.calls.values():
            if call.question is not None and call.question.id == event.answer.question_id:
                if call.question.kind == "approve" and event.answer.text.strip().casefold() == ALWAYS:
                    self.always_allowed.add(call.call.name)
                call.question = None
                call.answers[event.answer.question_id] = event.answer
                self.closed[event.answer.question_id] = event.answer.by

    def _call_finished(self, event: CallFinished) -> None:
        call = self.calls.get(event.result.call_id)
        if call is None or call.result is not None:
            return
        call.result, call.question = event.result, None
        self._spent_below += event.spent
        self.offered |= dict.fromkeys(event.offers)
        self._open -= 1
        if self._open == 0:
            self._all_answered()

    def _all_answered(self) -> None:
        results = tuple(c.result for c in self.calls.values() if c.result is not None)
        self.calls = {}
        if (asked := self._directing) is not None:
            self.carried_out.append(CarriedOut(asked.agent, asked.message, results))
        self._add(Message("tool", results, duration=asked.message.duration if asked else None))
        for message in self._after_calls:
            self._add(message)
        self._after_calls = []
        if any(result.final for result in results):
            self.owed = False

    def _handed_off(self, event: HandedOff) -> None:
        self.agent = event.agent
        self.handoffs += 1
        self.owed = True

    def _home_changed(self, event: HomeChanged) -> None:
        self.moved_to = event.agent

    def _engine_changed(self, event: EngineChanged) -> None:
        self.engine = event.engine

    def _inputs_read(self, event: InputsRead) -> None:
        self.inputs[event.agent] = event
        self._spent(event.usage)

    def _facts_learned(self, event: FactsLearned) -> None:
        self.turns_learned.add(event.turn)
        self._spent(event.usage)
        for fact in event.facts:
            known = self.facts.get(fact.name)
            if known is not None and known.value != fact.value:
                self.old_facts[fact.name] = known.value
            self.facts[fact.name] = fact

    def _job_started(self, event: JobStarted) -> None:
        self.jobs[event.job] = JobInfo(
            event.job, event.name, event.agent, event.mode, started_at=event.at, steps=event.steps
        )

    def _job_finished(self, event: JobFinished) -> None:
        self.jobs[event.job] = self.jobs[event.job].after(event)

    def _spent(self, usage: Usage) -> None:
        self.usage += usage
        self.turn_usage += usage

    def _turn_finished(self, event: TurnFinished) -> None:
        self.outcome, self.failure = event.outcome, event.failure
        self.turn_seconds += event.seconds
        if event.outcome is not Outcome.WAITING:
            self.turns_done.add(event.turn)
        if event.outcome is Outcome.STOPPED:
            self.owed = False

    _handlers: ClassVar[dict[type, Callable[..., None]]] = {
        TurnStarted: _turn_started,
        MessageAdded: _message_added,
        HistoryGiven: _history_given,
        MessageQueued: _message_queued,
        InboxTaken: _inbox_taken,
        RoundFinished: _round_finished,
        CallStarted: _call_started,
        CallHeld: _call_held,
        QuestionAnswered: _question_answered,
        CallFinished: _call_finished,
        HandedOff: _handed_off,
        HomeChanged: _home_changed,
        EngineChanged: _engine_changed,
        InputsRead: _inputs_read,
        FactsLearned: _facts_learned,
        JobStarted: _job_started,
        JobFinished: _job_finished,
        TurnFinished: _turn_finished,
    }
