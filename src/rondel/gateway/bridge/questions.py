"""Stores turns that wait for a caller's answer, so that the caller's next request can resume them.

The caller keeps the conversation, and reads a question as the text of a reply. So a waiting turn is stored under the
caller's key and a hash of the conversation; the request that continues the conversation finds it. Approvals are never
resumed: a key does not give its holder the right to approve calls. Does not know dialects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from ...contracts.clock import Clock
from ...contracts.store import Store
from ...errors import QuestionError
from ...events import DurableEvent, Event
from ...question import Answer, Question, check_answer
from ...values import Message, Value

NAMESPACE = "gateway.questions"
KEPT_S = 7 * 24 * 3600.0  # how long a turn waits for an answer. A later answer starts a new turn.
EVENTS_BYTES_MAX = 4_000_000  # A turn whose events are larger than this is not resumed


class Waiting(Value, frozen=True):
    turn: str
    question: Question
    text: str  # the question as the caller read it
    given: int  # how many messages the conversation had when the turn started
    events: tuple[DurableEvent, ...]  # what has happened in the turn since then


class Recorder:
    """Collects a turn's stored events, in case the turn has to wait."""

    def __init__(self, events: Sequence[DurableEvent] = ()) -> None:
        self.events: list[DurableEvent] = list(events)

    def put(self, event: Event, seq: int) -> None:
        if seq:
            self.events.append(event)  # pyright: ignore[reportArgumentType]  # an event with a sequence number is a stored one


def question_text(question: Question) -> str:
    return question.text + "".join(f"\n- {option}" for option in question.options)


class Questions:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def remember(self, key: str, agent: str, history: Sequence[Message], waiting: Waiting) -> None:
        if waiting.question.kind == "approve" or waiting.question.person:
            return
        data = msgspec.json.encode(waiting)
        if len(data) <= EVENTS_BYTES_MAX:
            await self._store.put(NAMESPACE, _store_key(key, agent, history), data, until=self._clock.now() + KEPT_S)

    async def find(self, key: str, agent: str, history: Sequence[Message]) -> tuple[Waiting, Answer | None] | None:
        """Return the turn that the last message answers, with the answer; None for an answer that is not an option."""
        if len(history) < 3 or history[-1].role != "user" or history[-2].role != "assistant":
            return None
        found = await self._store.get(NAMESPACE, _store_key(key, agent, history[:-2]))
        if found is None:
            return None
        waiting = msgspec.json.decode(found, type=Waiting)
        if not history[-2].text.rstrip().endswith(waiting.text.rstrip()):
            return None
        answer = Answer(waiting.question.id, history[-1].text)
        try:
            check_answer(waiting.question, answer)
        except QuestionError:
            return waiting, None
        return waiting, answer


def _store_key(key: str, agent: str, history: Sequence[Message]) -> str:
    said = [(message.role, message.text) for message in history]
    return f"{key}/{hashlib.sha256(msgspec.json.encode((agent, said))).hexdigest()}"
