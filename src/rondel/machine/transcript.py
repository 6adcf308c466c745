"""A conversation's journal, folded into what the loop asks of it.

The transcript is the program counter: is a call unanswered, is one held, is a reply owed, by which agent? Each entry is
applied once, so an answer costs the same after ten entries and after ten thousand. Knows no store and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from ..charge import Scope
from ..contracts.runtime import JobInfo
from ..events import (
    AgentChanged,
    CallFinished,
    CallHeld,
    CallStarted,
    DurableEvent,
    EngineChanged,
    FactsLearned,
    Failure,
    HandedOff,
    HistoryGiven,
    InboxTaken,
    InputsRead,
    JobFinished,
    JobStarted,
    Learned,
    LimitHit,
    MessageAdded,
    MessageQueued,
    Outcome,
    QuestionAnswered,
    RoundFinished,
    SettingChanged,
    Spent,
    TurnFinished,
    TurnStarted,
    TurnsUndone,
)
from ..question import Answer, Question, is_always
from ..text.template import MARK, is_directive, said_before
from ..values import (
    NO_USAGE,
    Citation,
    Handoff,
    Message,
    Messages,
    Part,
    Person,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    Value,
    size_of,
)
from .repetition import Repetition

_NO_SCOPE, _NO_SPENT, _NOBODY, _NO_INPUT = Scope(), Spent(), Person(""), Message("user")
_EMPTY: frozenset[str] = frozenset()
_NONE: Mapping[str, Any] = MappingProxyType({})


class CarriedOut(Value, frozen=True):
    """A round of this turn whose calls were directives in an agent's text, and their results in the same order."""

    agent: str
    message: Message
    results: tuple[ToolResult, ...]

    @property
    def lasts(self) -> bool:
        """Whether it applies to the whole turn, as an author's text does, or to one answer only."""
        return "words" in self.message.calls[0].opaque[MARK]


class TurnStart(Value, frozen=True):
    """The state of a conversation when a turn began; undoing the turn restores it."""

    turn: str
    messages: int
    rounds: int
    owed: bool
    agent: str
    current_agent: str
    inputs: Mapping[str, InputsRead]
    facts: Mapping[str, Learned]
    old_facts: Mapping[str, Any]


class OpenCall(msgspec.Struct, eq=False):
    """A call of the newest round, and its state."""

    call: ToolCall
    index: int
    started: bool = False
    question: Question | None = None
    answers: dict[str, Answer] = {}
    result: ToolResult | None = None


def end_of(entries: Iterable[DurableEvent], turn: str, message: str = "") -> tuple[TurnFinished, Transcript] | None:
    """Return how a turn ended, or how the turn that answered a message did, and the transcript at that point."""
    transcript, asked = Transcript(), False
    found: TurnFinished | None = None
    for event in entries:
        transcript.apply(event)
        asked = asked or (bool(message) and message in transcript.ids and message not in transcript.inbox)
        if isinstance(event, TurnFinished):
            found = event
            open_still = transcript.owed and event.outcome is not Outcome.LIMITED
            answered = asked and not open_still and event.outcome is not Outcome.WAITING
            if answered or (event.turn == turn and event.outcome is not Outcome.WAITING):
                return event, transcript
    return None if found is None else (found, transcript)


class Transcript:
    """A conversation's entries, folded into what was said and what the loop asks."""

    # Without slots, an object of more than 30 attributes builds a dict of its own: 10 % of a small turn. Pyright names
    # an attribute that is missing here.
    __slots__ = (
        *("_after_calls", "_directing", "_fleeting", "_open", "_quiet", "_removed", "_size", "_spent_below"),
        *("_starts", "_unweighed", "agent", "always_allowed", "auto_replies", "called", "calls", "carried_out"),
        *("closed", "continuations", "current_agent", "engine", "facts", "failure", "handing_off", "handoffs"),
        *("ids", "inbox", "inputs", "jobs", "limit", "messages", "offered", "old_facts", "outcome", "output"),
        *("owed", "person", "ran", "reason", "repetition", "rerolls", "rounds", "scope", "settings", "sources"),
        *("starting_agent", "turn", "turn_calls", "turn_input", "turn_rounds", "turn_seconds", "turn_usage"),
        *("turns_done", "turns_learned", "undone", "usage"),
    )

    def __init__(self, entries: Iterable[DurableEvent] = ()) -> None:
        # Fields that nearly always stay empty share one empty value: they are replaced and never changed.
        self.messages: list[Message] = []
        self._size = 0  # of all texts and files that were ever added, without histories that were not measured yet
        self._unweighed: tuple[Message, ...] = ()
        self._fleeting: dict[int, int] = {}
        """The index of each message that models get for some rounds only, or not as it is, and the rounds before it."""
        self.rounds = 0
        self.calls: dict[str, OpenCall] = {}
        self.called: set[str] = set()  # the ids of all calls of this conversation
        self.sources: dict[int, Citation] = {}  # the sources that texts refer to by number
        self._open = 0
        self._directing: RoundFinished | None = None
        self._after_calls: tuple[Message, ...] = ()
        self.always_allowed = _EMPTY  # the `Question.covers` of approvals that were answered with `always`
        self.inbox: dict[str, Message] = {}
        self._quiet = _EMPTY
        self.jobs: dict[str, JobInfo] = {}
        """The background jobs in the order of their start, also those that have ended."""
        self.owed = False
        self.agent = ""
        self.starting_agent = ""  # the agent that the conversation started with
        self.usage = NO_USAGE
        self.outcome: Outcome | None = None
        self.reason = ""  # why the last turn ended, if it neither answered nor failed
        self.failure: Failure | None = None  # why the last turn failed, if it did
        self.turn = ""
        self.scope = _NO_SCOPE  # who and where, as far as known, in the newest turn
        self.person = _NOBODY  # who started the newest turn
        self.turns_done: set[str] = set()
        self.undone = _EMPTY  # the turns that no longer count
        self._starts: list[TurnStart] = []
        self._removed = 0  # how many messages undoing has removed
        self.ids: set[str] = set()
        self.inputs: Mapping[str, InputsRead] = _NONE  # the inputs that were last read from a text, by agent
        self.facts: Mapping[str, Learned] = _NONE
        self.old_facts: Mapping[str, Any] = _NONE  # the previous values of `facts` that have changed
        self.turns_learned: set[str] = set()
        self.closed: dict[str, str] = {}  # who closed each question that was open
        self.current_agent = ""  # the agent that turns start with since it was changed; empty if it never was
        self.settings = _NONE  # what this conversation overrides of its agent; see SettingChanged
        self.engine = ""  # the engine that was chosen for this conversation; empty for each agent's own
        self._begin_turn("")
        for event in entries:
            self.apply(event)

    def _begin_turn(self, turn: str) -> None:
        self.turn = turn
        self.output = ""  # the last text of this turn
        self.ran = True
        self.limit = ""  # the name of the limit that ended this turn
        self.turn_rounds = 0
        self.turn_usage = NO_USAGE
        self.turn_calls = 0
        self.turn_seconds = 0.0  # how long the turn ran before it last waited for a person
        self.turn_input = _NO_INPUT  # the first message that the turn was given
        self.repetition = Repetition()  # counts the calls of this turn that gave nothing new
        self.carried_out: tuple[CarriedOut, ...] = ()
        self._spent_below = _NO_SPENT
        self.offered: tuple[str, ...] = ()  # the agents that answers of this turn suggested
        self.handoffs = 0
        self.handing_off: Handoff | None = None  # who takes over when all calls of the round are answered
        self.rerolls = 0
        self._heard_a_person()

    def _heard_a_person(self) -> None:
        self.continuations = 0
        self.auto_replies = 0

    # --- what the loop asks -------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> list[ToolCall]:
        """The calls that have no result and wait for no answer."""
        return [c.call for c in self.calls.values() if c.result is None and c.question is None]

    @property
    def questions(self) -> list[Question]:
        """The questions that wait for an answer."""
        return [c.question for c in self.calls.values() if c.question is not None]

    @property
    def interrupted(self) -> str:
        """The part of a sentence that people saw, while it waits for its directives."""
        if self._directing is None or not self.calls:
            return ""
        return "".join(map(said_before, self._directing.message.parts))

    @property
    def offers(self) -> tuple[str, ...]:
        """The agents that the newest message suggests."""
        parts = self.messages[-1].parts if self.messages else ()
        marks = (part.opaque.get(MARK, {}) for part in parts if isinstance(part, Text))
        return tuple(name for mark in marks for name in mark.get("offers", ()))

    @property
    def turn_spent(self) -> Spent:
        """What this turn used, with the agents that work for it."""
        usage = self.turn_usage
        return Spent(self.turn_rounds, self.turn_calls, usage.tokens_in + usage.tokens_out) + self._spent_below

    @property
    def has_asked(self) -> bool:
        """Whether this turn has asked a model."""
        return self.turn_spent.rounds > 0

    @property
    def is_spoken_to(self) -> bool:
        """Whether a message in the inbox asks for a reply by itself; a digest does not."""
        return len(self.inbox) > len(self._quiet)

    @property
    def size(self) -> int:
        """The approximate memory of all texts and files that were ever added."""
        if self._unweighed:
            self._size += sum([size_of(message.parts) for message in self._unweighed])
            self._unweighed = ()
        return self._size

    @property
    def index(self) -> int:
        """How many messages were ever added, including those that no longer count. A number is never reused."""
        return len(self.messages) + self._removed

    def start_of(self, turns: int = 1) -> TurnStart | None:
        """Return where the last turns began; None if there are fewer."""
        return self._starts[-turns] if 0 < turns <= len(self._starts) else None

    def history(self) -> Messages:
        """Return the messages for models. A message with a duration of n is sent for n rounds only.

        Errors are sent as user messages: models do not know their role.
        """
        if not self._fleeting:
            return Messages(self.messages)
        return Messages(
            message if message.role != "error" else msgspec.structs.replace(message, role="user")
            for index, message in enumerate(self.messages)
            if message.duration is None or self.rounds - self._fleeting[index] < message.duration
        )

    # --- what happened ------------------------------------------------------------------------------------------------

    def apply(self, event: DurableEvent) -> None:
        """Fold one more event."""
        if handler := self._handlers.get(type(event)):
            handler(self, event)

    def _turn_started(self, event: TurnStarted) -> None:
        self.outcome = None
        self.starting_agent = self.starting_agent or event.agent
        if event.turn != self.turn:
            self._starts.append(self._start(event.turn))
            self._begin_turn(event.turn)
            self.agent = event.agent
            self.scope, self.person = event.scope, event.person

    def _message_added(self, event: MessageAdded) -> None:
        message = event.message
        if message.role == "user":
            if message.author and message.author.startswith("plugin:"):
                self.auto_replies += 1
            else:
                self._heard_a_person()
        elif message.role == "assistant":
            self.output = message.text
        if message.id:
            self.ids.add(message.id)
        if self.calls:
            self._after_calls += (message,)
        else:
            self._add(message)

    def _add(self, message: Message) -> None:
        if message.id:
            self.ids.add(message.id)
        if self.turn_input is _NO_INPUT and message.role == "user":
            self.turn_input = message
        if message.duration is not None or message.role == "error":
            self._fleeting[len(self.messages)] = self.rounds
        self.messages.append(message)
        self._size += size_of(message.parts)
        self._note_sources(message.parts)
        if message.role != "error":
            self.owed = message.role != "assistant"

    def _note_sources(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if type(part) is Text:
                if part.citations:
                    for citation in part.citations:
                        if citation.number:
                            self.sources.setdefault(citation.number, citation)
            elif type(part) is ToolResult:
                self._note_sources(part.parts)

    def _history_given(self, event: HistoryGiven) -> None:
        for index, message in enumerate(event.messages, len(self.messages)):
            if message.duration is not None or message.role == "error":
                self._fleeting[index] = self.rounds
        self.messages.extend(event.messages)
        self._unweighed += event.messages  # a caller's history, which comes with each request
        self.turn_input = next((m for m in reversed(event.messages) if m.role == "user"), _NO_INPUT)
        self.owed = event.owed

    def _message_queued(self, event: MessageQueued) -> None:
        self.ids.add(event.message.id)
        self.inbox[event.message.id] = event.message
        if event.quiet:
            self._quiet |= {event.message.id}

    def _inbox_taken(self, event: InboxTaken) -> None:
        quiet = self._quiet.issuperset(event.ids)
        for id in event.ids:
            self._add(self.inbox.pop(id))
        self._quiet -= set(event.ids)
        if not quiet:
            self._heard_a_person()

    def _round_finished(self, event: RoundFinished) -> None:
        self.turn_rounds += not event.without_model
        self._spent(event.usage)
        self.ran = event.ran
        if event.next == "again":
            self.rerolls += 1
            return
        self.rounds += not event.without_model
        self.rerolls = 0
        if event.message.parts:
            self._add(event.message)
        calls = event.message.calls
        self.calls = {call.id: OpenCall(call, index) for index, call in enumerate(calls)}
        self._open = len(self.calls)
        self._directing = self.handing_off = None
        self.owed = event.next == "self" and not calls
        if calls:
            self.turn_calls += len(calls)
            self.called.update(self.calls)
            self._directing = event if is_directive(calls[0]) else None
            if event.next.startswith("agent:"):
                self.handing_off = Handoff(event.next.removeprefix("agent:"))
        else:
            self.continuations += self.owed
            self.output = event.message.text
            self.carried_out = tuple([done for done in self.carried_out if done.lasts])

    def _call_started(self, event: CallStarted) -> None:
        if call := self.calls.get(event.call_id):
            call.started = True

    def _call_held(self, event: CallHeld) -> None:
        if call := self.calls.get(event.question.call_id):
            call.question, call.started = event.question, False

    def _question_answered(self, event: QuestionAnswered) -> None:
        for call in self.calls.values():
            if call.question is not None and call.question.id == event.answer.question_id:
                if call.question.covers and is_always(event.answer.text):
                    self.always_allowed |= {call.question.covers}
                call.question = None
                call.answers[event.answer.question_id] = event.answer
                self.closed[event.answer.question_id] = event.answer.by

    def _call_finished(self, event: CallFinished) -> None:
        call = self.calls.get(event.result.call_id)
        if call is None or call.result is not None:
            return
        call.result, call.question = event.result, None
        self.handing_off = self.handing_off or event.result.handoff
        if not is_directive(call.call):
            self.repetition.add(call.call, event.result, self.rounds)
        if event.spent != _NO_SPENT:
            self._spent_below += event.spent
        if event.offers:
            self.offered = tuple(dict.fromkeys((*self.offered, *event.offers)))
        self._open -= 1
        if self._open == 0:
            self._all_answered()

    def _all_answered(self) -> None:
        results = tuple([c.result for c in self.calls.values() if c.result is not None])
        self.calls = {}
        if (asked := self._directing) is not None:
            self.carried_out += (CarriedOut(asked.agent, asked.message, results),)
        self._add(Message("tool", results, duration=asked.message.duration if asked else None))
        for message in self._after_calls:
            self._add(message)
        self._after_calls = ()
        if any([result.final for result in results]):
            self.owed = False

    def _handed_off(self, event: HandedOff) -> None:
        self.handing_off = None
        self.agent = event.agent
        self.handoffs += 1
        self.owed = True

    def _agent_changed(self, event: AgentChanged) -> None:
        self.current_agent = event.agent

    def _engine_changed(self, event: EngineChanged) -> None:
        self.engine = event.engine

    def _setting_changed(self, event: SettingChanged) -> None:
        others = {key: value for key, value in self.settings.items() if key != event.key}
        self.settings = others if event.value is None else {**others, event.key: event.value}

    def _turns_undone(self, event: TurnsUndone) -> None:
        index = next((n for n, start in enumerate(self._starts) if start.turn == event.turn), None)
        if index is None:
            return
        start, undone = self._starts[index], [start.turn for start in self._starts[index:]]
        del self._starts[index:]
        self._removed += len(self.messages) - start.messages
        del self.messages[start.messages :]
        self._fleeting = {index: rounds for index, rounds in self._fleeting.items() if index < start.messages}
        self.rounds, self.owed, self.agent = start.rounds, start.owed, start.agent
        self.current_agent = start.current_agent
        self.inputs, self.facts, self.old_facts = start.inputs, start.facts, start.old_facts
        self.calls, self._open, self._directing, self._after_calls = {}, 0, None, ()
        self.turns_done.update(undone)
        self.undone |= set(undone)
        self._begin_turn(self._starts[-1].turn if self._starts else "")
        self.outcome, self.reason, self.failure = Outcome.DONE, "", None

    def _start(self, turn: str) -> TurnStart:
        # The mappings are replaced and never changed, so keeping them costs no copy.
        return TurnStart(
            turn,
            len(self.messages),
            self.rounds,
            self.owed,
            self.agent,
            self.current_agent,
            self.inputs,
            self.facts,
            self.old_facts,
        )

    def _inputs_read(self, event: InputsRead) -> None:
        self.inputs = {**self.inputs, event.agent: event}
        self._spent(event.usage)

    def _facts_learned(self, event: FactsLearned) -> None:
        self.turns_learned.add(event.turn)
        self._spent(event.usage)
        facts, old_facts = dict(self.facts), dict(self.old_facts)
        for fact in event.facts:
            known = facts.get(fact.name)
            if known is not None and known.value != fact.value:
                old_facts[fact.name] = known.value
            facts[fact.name] = fact
        self.facts, self.old_facts = facts, old_facts

    def _job_started(self, event: JobStarted) -> None:
        self.jobs[event.job] = JobInfo(
            event.job, event.name, event.agent, event.mode, started_at=event.at, steps=event.steps
        )

    def _job_finished(self, event: JobFinished) -> None:
        self.jobs[event.job] = self.jobs[event.job].after(event)

    def _spent(self, usage: Usage) -> None:
        self.usage += usage
        self.turn_usage += usage

    def _limit_hit(self, event: LimitHit) -> None:
        self.limit = event.name

    def _turn_finished(self, event: TurnFinished) -> None:
        self.outcome, self.reason, self.failure = event.outcome, event.reason, event.failure
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
        AgentChanged: _agent_changed,
        EngineChanged: _engine_changed,
        SettingChanged: _setting_changed,
        TurnsUndone: _turns_undone,
        InputsRead: _inputs_read,
        FactsLearned: _facts_learned,
        JobStarted: _job_started,
        JobFinished: _job_finished,
        LimitHit: _limit_hit,
        TurnFinished: _turn_finished,
    }
