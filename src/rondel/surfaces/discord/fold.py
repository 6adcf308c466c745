"""What Discord must show of a message's answer, folded from the conversation's events. Pure.

The same entries give the same pieces in the same order, so a restart continues where the bot was: the journal is the
program counter here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, TypeAlias

from ...events import (
    CallFinished,
    CallHeld,
    CallStarted,
    Digest,
    Event,
    JobFinished,
    JobStarted,
    MessageAdded,
    Outcome,
    QuestionAnswered,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from ...files.media import image_type
from ...question import Answer, Question
from ...text.template import is_directive
from ...values import Media, PartDelta, PartFinished, PartStarted, ReplyStarted, Text, ToolCall

BETWEEN_ROUNDS = "\n\n"


class TextPiece:
    """Text of the answer. `end` is how the turn ended, once it has."""

    def __init__(self) -> None:
        self.rounds: list[str] = []
        self.live: dict[int, str] = {}
        self.end: TurnFinished | None = None

    @property
    def text(self) -> str:
        now = "".join(self.live[index] for index in sorted(self.live))
        return BETWEEN_ROUNDS.join((*self.rounds, now) if now.strip() else self.rounds)


class QuestionPiece:
    """A question, and its answer once there is one."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Answer | None = None


class JobPiece:
    """The end of a background job."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest


class ImagePiece:
    """A picture that a call returned."""

    def __init__(self, picture: Media) -> None:
        self.picture = picture


Piece: TypeAlias = TextPiece | QuestionPiece | JobPiece | ImagePiece
State: TypeAlias = Literal["queued", "working", "waiting", "over"]


class AnswerFold:
    """Feed it every event of the conversation after the position at which the message was sent."""

    def __init__(self, message: str, *, report_jobs: bool = True) -> None:
        self._message = message
        self._turns: set[str] = set()
        self._current = ""
        self._is_own = False  # whether the current turn is one of this answer
        self.reports_jobs = report_jobs
        self.pieces: list[Piece] = []
        self._last: TextPiece | None = None  # the newest text among the pieces
        self.turn_state: State = "queued"
        self.jobs: dict[str, JobStarted] = {}  # the background jobs of this answer that are not over
        self._follow_ups: set[str] = set()  # turns of inline jobs that have not ended
        self.running: dict[str, str] = {}  # the names of the calls that run now
        self.calls: list[ToolCall] = []

    def expect(self, turn: str) -> None:
        """Count this turn as part of the answer, even if it adds no message."""
        self._turns.add(turn)

    @property
    def state(self) -> State:
        """`over` when the answer will not change any more."""
        return "working" if self.turn_state == "over" and (self.jobs or self._follow_ups) else self.turn_state

    @property
    def turn(self) -> str:
        """The turn of this answer that runs; empty if none does."""
        return self._current if self._is_own and self.turn_state == "working" else ""

    @property
    def open_questions(self) -> list[str]:
        return [one.question.id for one in self.pieces if isinstance(one, QuestionPiece) and one.answer is None]

    @property
    def is_streaming(self) -> bool:
        """Whether text of a reply that has not ended may be there."""
        return self._is_own and self._last is not None and bool(self._last.live)

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            handlers = self._own_handlers if self._is_own else self._handlers
            if (handler := handlers.get(type(event))) is not None:
                handler(self, event)

    def _turn_started(self, event: TurnStarted) -> None:
        self._current, self._is_own = event.turn, event.turn in self._turns
        if self._is_own:
            self._begin()

    def _message_added(self, event: MessageAdded) -> None:
        if event.message.id == self._message:
            self._turns.add(self._current)
            self._is_own = True
            self._begin()

    def _turn_finished(self, event: TurnFinished) -> None:
        if event.turn not in self._turns:
            return
        self.running.clear()
        self._follow_ups.discard(event.turn)
        if event.outcome is Outcome.WAITING:
            self.turn_state = "waiting"
            return
        self.turn_state = "over"
        self._last_text.live = {}
        self._last_text.end = event

    def _begin(self) -> None:
        if self.turn_state != "working":
            self.turn_state = "working"
            self._add_text()

    def _add_text(self) -> TextPiece:
        self._last = TextPiece()
        self.pieces.append(self._last)
        return self._last

    @property
    def _last_text(self) -> TextPiece:
        return self._last or self._add_text()

    # --- events of a turn of this answer ------------------------------------------------------------------------------

    def _part_changed(self, event: PartStarted | PartFinished) -> None:
        if isinstance(event.part, Text):
            self._last_text.live[event.index] = event.part.text

    def _part_continued(self, event: PartDelta) -> None:
        if self._last is not None and event.index in (live := self._last.live):
            live[event.index] += event.text

    def _reply_started(self, event: ReplyStarted) -> None:
        self._last_text.live = {}

    def _call_started(self, event: CallStarted) -> None:
        self.running[event.call_id] = event.name

    def _call_finished(self, event: CallFinished) -> None:
        self.running.pop(event.result.call_id, None)
        pictures = (part for part in event.result.parts if isinstance(part, Media) and image_type(part.data))
        self.pieces += (ImagePiece(picture) for picture in pictures)

    def _call_held(self, event: CallHeld) -> None:
        self.running.pop(event.question.call_id, None)
        self.pieces.append(QuestionPiece(event.question))

    def _job_started(self, event: JobStarted) -> None:
        self.jobs[event.job] = event
        self._turns.add(f"{event.job}.turn")  # an inline job continues in a turn of this name

    def _round_finished(self, event: RoundFinished) -> None:
        calls = event.message.calls
        self.calls += calls
        if calls and is_directive(calls[0]):
            return  # the round after it has this text, too
        piece = self._last_text
        piece.live = {}
        if event.next != "again" and (text := event.message.text).strip():
            piece.rounds.append(text)

    def _job_finished(self, event: JobFinished) -> None:
        started = self.jobs.pop(event.job, None)
        if started is None:
            return
        if started.mode == "inline" and event.status != "cancelled":
            self._follow_ups.add(f"{event.job}.turn")
        elif self.reports_jobs:
            self.pieces.append(JobPiece(event.digest))

    def _question_answered(self, event: QuestionAnswered) -> None:
        for piece in self.pieces:
            if isinstance(piece, QuestionPiece) and piece.question.id == event.answer.question_id:
                piece.answer = event.answer

    _handlers: ClassVar[dict[type, Callable[..., None]]] = {
        TurnStarted: _turn_started,
        MessageAdded: _message_added,
        TurnFinished: _turn_finished,
        JobFinished: _job_finished,
        QuestionAnswered: _question_answered,
    }
    _own_handlers: ClassVar[dict[type, Callable[..., None]]] = {
        **_handlers,
        ReplyStarted: _reply_started,
        PartStarted: _part_changed,
        PartDelta: _part_continued,
        PartFinished: _part_changed,
        RoundFinished: _round_finished,
        CallStarted: _call_started,
        CallFinished: _call_finished,
        CallHeld: _call_held,
        JobStarted: _job_started,
    }
    """With those of events that count only in a turn of this answer."""
