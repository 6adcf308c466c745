"""Turns as tasks of A2A 1.0: what the journal says of a turn, as the protocol's JSON. Does no IO."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ...events import (
    STATES,
    CallFinished,
    CallHeld,
    Entry,
    Event,
    InboxTaken,
    Lagged,
    MessageAdded,
    MessageQueued,
    QuestionAnswered,
    RoundFinished,
    TurnFinished,
    TurnStarted,
    TurnsUndone,
)
from ...machine.answer_text import BETWEEN_ROUNDS, AnswerText
from ...question import Question
from ...values import Media, Message, Outcome, Text

Wire = dict[str, Any]

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
INPUT_REQUIRED, CANCELED = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_CANCELED"
TERMINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", CANCELED, "TASK_STATE_REJECTED"})
RAW_BYTES_MAX = 8_000_000  # larger files are given by their address


class Task:
    """One turn of a conversation, as far as the journal tells of it."""

    def __init__(self, context: str, turn: str, agent: str, at: float) -> None:
        self.context, self.turn, self.agent, self.at = context, turn, agent, at
        self.state = WORKING
        self.text = ""
        self.media: list[tuple[str, int, Media]] = []
        self.history: list[Wire] = []
        self.questions: dict[str, Question] = {}
        self.messages: set[str] = set()
        self.why = ""
        self._answer = AnswerText()

    @property
    def id(self) -> str:
        return task_id(self.context, self.turn)

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    def take(self, event: Event, at: float) -> None:
        match event:
            case MessageAdded(message=message):
                self._said(message)
            case RoundFinished(message=message):
                self._answer.feed(Lagged(0))
                self.text += self._answer.feed(event)
                if event.next != "again":
                    self._made(message.id, message.parts)
            case CallFinished(result=result):
                self._made(result.call_id, result.parts)
            case CallHeld(question=question):
                self.questions[question.id] = question
            case QuestionAnswered(answer=answer):
                if (asked := self.questions.pop(answer.question_id, None)) is not None:
                    self._note(f"{asked.id}-asked", "ROLE_AGENT", [{"text": asked.text}])
                    self._note(f"{asked.id}-answer", "ROLE_USER", [{"text": answer.text}])
            case TurnFinished():
                self.state = state_of(event.outcome)
                self.why = event.failure.message if event.failure else event.reason
                if event.outcome is not Outcome.WAITING:
                    self.questions.clear()
            case _:
                return
        self.at = at

    def _said(self, message: Message) -> None:
        self.messages.add(message.id)
        if message.role == "assistant":
            self.text += (BETWEEN_ROUNDS if self.text else "") + message.text
        elif message.role == "user" and message.shown:
            self._note(
                message.id, "ROLE_USER", [_part(part) for part in message.parts if isinstance(part, Text | Media)]
            )

    def _made(self, id: str, parts: Iterable[object]) -> None:
        self.media += [(id, index, part) for index, part in enumerate(parts) if isinstance(part, Media)]

    def _note(self, id: str, role: str, parts: list[Wire]) -> None:
        self.history.append(self.message(id, role, parts))

    def message(self, id: str, role: str, parts: list[Wire]) -> Wire:
        return {"messageId": id, "contextId": self.context, "taskId": self.id, "role": role, "parts": parts}

    # --- as JSON ------------------------------------------------------------------------------------------------------

    def status(self, state: str = "", said: str = "") -> Wire:
        state = state or self.state
        status: Wire = {"state": state, "timestamp": _time(self.at)}
        if said := said or self.why:
            status["message"] = self.message(f"{self.turn}-status", "ROLE_AGENT", [{"text": said}])
        if state == INPUT_REQUIRED and self.questions:
            parts: list[Wire] = []
            for question in self.questions.values():
                parts.append({"text": question.text})
                about = {"questionId": question.id, "kind": question.kind, "options": list(question.options)}
                parts.append({"data": about, "mediaType": "application/json"})
            status["message"] = self.message(f"{next(iter(self.questions))}-asked", "ROLE_AGENT", parts)
        return status

    def artifacts(self, address: str) -> list[Wire]:
        made = [self.answer(self.text)] if self.text else []
        return [*made, *(self.file(id, index, part, address) for id, index, part in self.media)]

    def answer(self, text: str) -> Wire:
        return {"artifactId": f"{self.turn}-answer", "name": "answer", "parts": [{"text": text}]}

    def file(self, id: str, index: int, part: Media, address: str) -> Wire:
        made = _part(part)
        if not made:
            made = {"url": f"{address}/api/conversations/{self.context}/media/{id}/{index}", "mediaType": part.mime}
        return {"artifactId": f"{id}-{index}", "name": part.name or part.kind, "parts": [made]}

    def wire(self, address: str, *, history: int | None = None, artifacts: bool = True) -> Wire:
        made: Wire = {"id": self.id, "contextId": self.context, "status": self.status()}
        if artifacts:
            made["artifacts"] = self.artifacts(address)
        if kept := self.history if history is None else self.history[-history:] if history > 0 else []:
            made["history"] = kept
        return made


def task_id(context: str, turn: str) -> str:
    return f"{context}~{turn}"


def state_of(outcome: Outcome) -> str:
    return f"TASK_STATE_{STATES[outcome].upper().replace('-', '_')}"


def tasks_of(context: str, entries: Iterable[Entry]) -> dict[str, Task]:
    """Return a conversation's turns that count, in their order, by id."""
    tasks: dict[str, Task] = {}
    queued: dict[str, Message] = {}
    current: Task | None = None
    for entry in entries:
        event, at = entry.event, entry.at
        if isinstance(event, TurnStarted):
            current = tasks.setdefault(event.turn, Task(context, event.turn, event.agent, at))
            current.state, current.why, current.at = WORKING, "", at
        elif isinstance(event, MessageQueued):
            queued[event.message.id] = event.message
        elif isinstance(event, TurnsUndone):
            kept = list(tasks)
            for turn in kept[kept.index(event.turn) :] if event.turn in tasks else ():
                del tasks[turn]
            current = None
        elif isinstance(event, TurnFinished) and event.turn not in tasks:  # stopped before it began
            ended = tasks[event.turn] = Task(context, event.turn, "", at)
            ended.take(event, at)
        elif current is not None and isinstance(event, InboxTaken):
            for id in event.ids:
                if id in queued:
                    current.take(MessageAdded(queued.pop(id)), at)
        elif current is not None:
            current.take(event, at)
    return tasks


def _part(part: Text | Media) -> Wire:
    """Return a part as JSON; empty for a file that must be given by its address."""
    if isinstance(part, Text):
        return {"text": part.text}
    about = {"mediaType": part.mime} if part.mime else {}
    if part.name:
        about["filename"] = part.name
    if part.url:
        return {"url": part.url, **about}
    if part.data and len(part.data) <= RAW_BYTES_MAX:
        return {"raw": base64.b64encode(part.data).decode(), **about}
    return {}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
