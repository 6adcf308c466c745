"""What Discord must show of a message's answer, folded from the conversation's events. Pure.

The same entries give the same pieces in the same order, so a restart continues where the bot was: the journal is the
program counter here, too.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

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


class Said:
    """Text of the answer. `end` is how the turn ended, once it has."""

    def __init__(self) -> None:
        self.rounds: list[str] = []
        self.live: dict[int, str] = {}
        self.end: TurnFinished | None = None

    @property
    def text(self) -> str:
        now = "".join(self.live[index] for index in sorted(self.live))
        return BETWEEN_ROUNDS.join(text for text in (*self.rounds, now) if text.strip())


class Asked:
    """A question, and its answer once there is one."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Answer | None = None


class Reported:
    """The end of a background job."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest


class Drawn:
    """A picture that a call returned."""

    def __init__(self, picture: Media) -> None:
        self.picture = picture


Piece: TypeAlias = Said | Asked | Reported | Drawn
State: TypeAlias = Literal["queued", "working", "waiting", "over"]


class AnswerFold:
    """Feed it every event of the conversation after the position at which the message was sent."""

    def __init__(self, message: str, turn: str, *, report_jobs: bool = True) -> None:
        self._message = message
        self._turns = {turn}
        self._current = ""
        self._is_own = False  # whether the current turn is one of this answer
        self._reports = report_jobs
        self.pieces: list[Piece] = []
        self._last: Said | None = None  # the newest text among the pieces
        self.turn_state: State = "queued"
        self.jobs: dict[str, JobStarted] = {}  # the background jobs of this answer that are not over
        self._follow_ups: set[str] = set()  # turns of inline jobs that have not ended
        self.running: dict[str, str] = {}  # the names of the calls that run now
        self.calls: list[ToolCall] = []

    @property
    def state(self) -> State:
        """`over` when nothing more will be said about the message."""
        return "working" if self.turn_state == "over" and (self.jobs or self._follow_ups) else self.turn_state

    @property
    def turn(self) -> str:
        """The turn of this answer that runs; empty if none does."""
        return self._current if self._is_own and self.turn_state == "working" else ""

    def feed(self, event: Event) -> None:
        if type(event) is PartDelta:  # first, because most events are deltas
            if self._is_own and self._last is not None and event.index in (live := self._last.live):
                live[event.index] += event.text
        elif isinstance(event, TurnStarted):
            self._current, self._is_own = event.turn, event.turn in self._turns
            if self._is_own:
                self._begin()
        elif isinstance(event, MessageAdded) and event.message.id == self._message:
            self._turns.add(self._current)
            self._is_own = True
            self._begin()
        elif isinstance(event, TurnFinished):
            if event.turn in self._turns:
                self._finish(event)
        elif isinstance(event, JobFinished):
            self._finish_job(event)
        elif isinstance(event, QuestionAnswered):
            self._answered(event.answer)
        elif self._is_own:
            self._feed_own(event)

    def _begin(self) -> None:
        if self.turn_state != "working":
            self.turn_state = "working"
            self._say()

    def _say(self) -> Said:
        self._last = Said()
        self.pieces.append(self._last)
        return self._last

    @property
    def _said(self) -> Said:
        return self._last or self._say()

    def _feed_own(self, event: Event) -> None:
        match event:
            case PartStarted(index=index, part=Text(text=text)) | PartFinished(index=index, part=Text(text=text)):
                self._said.live[index] = text
            case ReplyStarted():
                self._said.live = {}
            case RoundFinished():
                self._finish_round(event)
            case CallStarted(call_id=id, name=name):
                self.running[id] = name
            case CallFinished(result=result):
                self.running.pop(result.call_id, None)
                pictures = (part for part in result.parts if isinstance(part, Media) and image_type(part.data))
                self.pieces += (Drawn(picture) for picture in pictures)
            case CallHeld(question=question):
                self.running.pop(question.call_id, None)
                self.pieces.append(Asked(question))
            case JobStarted(job=id):
                self.jobs[id] = event
                self._turns.add(f"{id}.turn")  # an inline job continues in a turn of this name
            case _:
                pass

    def _finish_round(self, event: RoundFinished) -> None:
        calls = event.message.calls
        self.calls += calls
        if calls and is_directive(calls[0]):
            return  # the round after it has this text, too
        said = self._said
        said.live = {}
        if event.next != "again":
            said.rounds.append(event.message.text)

    def _finish(self, event: TurnFinished) -> None:
        self.running.clear()
        self._follow_ups.discard(event.turn)
        if event.outcome is Outcome.WAITING:
            self.turn_state = "waiting"
            return
        self.turn_state = "over"
        self._said.live = {}
        self._said.end = event

    def _finish_job(self, event: JobFinished) -> None:
        started = self.jobs.pop(event.job, None)
        if started is None:
            return
        if started.mode == "inline" and event.status != "cancelled":
            self._follow_ups.add(f"{event.job}.turn")
        elif self._reports:
            self.pieces.append(Reported(event.digest))

    def _answered(self, answer: Answer) -> None:
        for piece in self.pieces:
            if isinstance(piece, Asked) and piece.question.id == answer.question_id:
                piece.answer = answer
