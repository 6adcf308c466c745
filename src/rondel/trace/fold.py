"""Applies a conversation's entries in order: each changes a draft, or adds a note to the newest turn.

An unknown kind of event becomes a note with its fields, so that no stored entry is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..events import (
    CallFinished,
    CallHeld,
    CallStarted,
    EngineChanged,
    Entry,
    FactsLearned,
    HandedOff,
    HistoryGiven,
    InboxTaken,
    InputsRead,
    JobFinished,
    JobStarted,
    LimitHit,
    MessageAdded,
    MessageQueued,
    PluginFailed,
    QuestionAnswered,
    Renamed,
    RoundFinished,
    SettingChanged,
    Trimmed,
    TurnFinished,
    TurnStarted,
    TurnsUndone,
    Warned,
)
from ..values import Message, ToolCall, Usage, Value
from .drafts import CallDraft, Draft, JobDraft, RoundDraft, Sources, TurnDraft
from .node import Price, TraceNode
from .text import ERROR, LIMIT, NOTICE, PLUGIN_FAILED, WARNING

_MEASURED = ("usage", "engine", "model", "seconds")  # fields that have the same meaning in every event


def sources_of(children: Mapping[str, Sequence[Entry]], price: Price | None) -> Sources:
    """Return what drafts need besides their own entries: those of inner conversations, by `<conversation>/<id>`."""

    def turns_of(conversation: str) -> list[TurnDraft]:
        entries = children.get(conversation, ())
        return Folder(sources, conversation).fold(entries).turns if entries else []

    sources = Sources(turns_of, price)
    return sources


class Folder:
    """Applies entries in order, each to the turn that was the newest at its time."""

    def __init__(self, sources: Sources, conversation: str) -> None:
        self._sources, self._conversation = sources, conversation
        self.turns: list[TurnDraft] = []
        self.before: list[Draft] = []  # what happened before the first turn
        self._calls: dict[str, CallDraft] = {}
        self._jobs: dict[str, JobDraft] = {}
        self._queued: dict[str, tuple[Message, float]] = {}

    def fold(self, entries: Iterable[Entry]) -> Folder:
        for entry in entries:
            self._apply(entry.event, entry.at)
        for message, at in self._queued.values():
            self._add(TraceNode("note", "not read yet", at=at, output=message.text))
        return self

    def _apply(self, event: object, at: float) -> None:
        match event:
            case TurnStarted():
                self._turn_started(event, at)
            case TurnFinished():
                self._turn_finished(event, at)
            case RoundFinished() if self.turns:
                self._round_finished(self.turns[-1], event, at)
            case CallStarted() | CallFinished() | CallHeld() if self.turns:
                self._call_changed(self.turns[-1], event, at)
            case QuestionAnswered():
                self._answered(event)
            case MessageQueued(message=message):
                self._queued[message.id] = message, at
            case InboxTaken(ids=ids):
                self._inbox_taken(ids, at)
            case MessageAdded(message=message) if self.turns:
                self._message_added(self.turns[-1], message, at)
            case HistoryGiven() if self.turns:
                self._history_given(self.turns[-1], event, at)
            case InputsRead() | FactsLearned():
                self._read(event, at)
            case TurnsUndone():
                self._undone(event, at)
            case JobStarted() | JobFinished():
                self._job_changed(event, at)
            case _:
                self._add(self._note_of(event, at))

    def _add(self, draft: Draft) -> None:
        (self.turns[-1].steps if self.turns else self.before).append(draft)

    # --- turns --------------------------------------------------------------------------------------------------------

    def _turn_started(self, event: TurnStarted, at: float) -> None:
        if self.turns and self.turns[-1].id == event.turn:
            self.turns[-1].finished = None  # it resumes after an answer or a crash
        else:
            self.turns.append(TurnDraft(event, at, self._sources, self._conversation))

    def _turn_finished(self, event: TurnFinished, at: float) -> None:
        turn = next((turn for turn in reversed(self.turns) if turn.id == event.turn), None)
        if turn is None:
            self._add(TraceNode("note", f"a turn was {event.outcome.value}", at=at, output=event.reason))
            return
        turn.finished, turn.ended_at = event, at
        turn.seconds += event.seconds

    def _undone(self, event: TurnsUndone, at: float) -> None:
        first = next((n for n, turn in enumerate(self.turns) if turn.id == event.turn and not turn.undone), None)
        if first is None:
            self._add(self._note_of(event, at))
            return
        for turn in self.turns[first:]:
            turn.undone = True
        self.turns[-1].note("undone", f"by {event.by}" if event.by else "", at)

    def _message_added(self, turn: TurnDraft, message: Message, at: float) -> None:
        if message.role == "user" and not turn.steps:
            turn.input.append(message.text)
            turn.by = turn.by or message.author
        elif message.role == "error":
            turn.note(ERROR, message.text, at)
        elif message.role != "assistant" or message.text != turn.output:  # a finish tool's message repeats its result
            turn.note(f"message from {message.author or message.role}", message.text, at)

    def _history_given(self, turn: TurnDraft, event: HistoryGiven, at: float) -> None:
        # A gateway request contains the whole conversation; its input is the last message of a person.
        asked = [message.text for message in event.messages if message.role == "user" and message.text]
        turn.input += asked[-1:]
        turn.note("history given", f"{len(event.messages)} messages", at)

    def _inbox_taken(self, ids: Sequence[str], at: float) -> None:
        for message, _ in (self._queued.pop(id) for id in ids if id in self._queued):
            name = "job result" if message.author.startswith("job:") else "steered"
            self._add(TraceNode("note", name, at=at, agent=message.author, output=message.text))

    def _job_changed(self, event: JobStarted | JobFinished, at: float) -> None:
        if isinstance(event, JobStarted):
            job = self._jobs[event.job] = JobDraft(event, at, self._sources, self._conversation)
            self._add(job)
        elif (job := self._jobs.get(event.job)) is not None:
            job.finished, job.ended_at = event, at
        else:
            self._add(self._note_of(event, at))

    def _read(self, event: InputsRead | FactsLearned, at: float) -> None:
        # The event names the agent that the inputs or facts belong to: agents may work inside others.
        turn = next((turn for turn in reversed(self.turns) if turn.id == event.turn), None)
        note = self._note_of(event, at)
        if turn is not None:
            turn.learn(note)
            if isinstance(event, InputsRead):
                turn.inputs = {**turn.inputs, **event.values}
        elif self.turns and event.turn.startswith(f"{self.turns[-1].id}/"):
            self._sources.facts.setdefault(event.turn, []).append(note)
        else:
            self._add(note)

    # --- rounds and calls ---------------------------------------------------------------------------------------------

    def _round_finished(self, turn: TurnDraft, event: RoundFinished, at: float) -> None:
        calls = [CallDraft(call, turn) for call in event.message.calls]
        self._calls |= {draft.call.id: draft for draft in calls}
        before = next((step for step in reversed(turn.steps) if isinstance(step, RoundDraft)), None)
        for notice in event.notices:
            turn.note(NOTICE, notice, at - event.seconds)
        turn.steps.append(RoundDraft(event, at, calls, self._sources, before))
        turn.output, turn.ran = event.message.text, event.ran

    def _call_changed(self, turn: TurnDraft, event: CallStarted | CallFinished | CallHeld, at: float) -> None:
        call = self._call_of(turn, event)
        call.at = call.at or at
        if isinstance(event, CallStarted):
            call.started, call.arguments = True, event.arguments
        elif isinstance(event, CallFinished):
            call.finished, call.ended_at = event, at
            if event.result.final:
                turn.output = event.result.text
        else:
            call.question, call.question_id, call.answer = event.question.text, event.question.id, ""

    def _call_of(self, turn: TurnDraft, event: CallStarted | CallFinished | CallHeld) -> CallDraft:
        """Return the call that an event is about; its round may not be in this trace."""
        if isinstance(event, CallStarted):
            id, name = event.call_id, event.name
        elif isinstance(event, CallFinished):
            id, name = event.result.call_id, event.result.name
        else:
            id, name = event.question.call_id, "a tool"
        if id not in self._calls:
            call = self._calls[id] = CallDraft(ToolCall(id, name or "a tool"), turn)
            turn.steps.append(call)
        return self._calls[id]

    def _answered(self, event: QuestionAnswered) -> None:
        for call in reversed(self._calls.values()):
            if call.question_id == event.answer.question_id:
                by = f" (by {event.answer.by})" if event.answer.by else ""
                call.answer = f"{event.answer.text or '(nothing)'}{by}"
                return

    # --- notes --------------------------------------------------------------------------------------------------------

    def _note_of(self, event: object, at: float) -> TraceNode:
        match event:
            case HandedOff(agent=agent, reason=reason, by=by):
                name, said = "handed off", f"{f'by {by} ' if by else ''}to {agent}{f': {reason}' if reason else ''}"
            case EngineChanged(engine=engine):
                name = "model changed"
                said = f"{engine} answers from here on" if engine else "each agent uses its own engine again"
            case SettingChanged(key=key, value=value):
                name, said = "setting changed", f"{key} is the agent's own again"
                if value is not None:
                    said = f"{key} = {msgspec.json.encode(value, enc_hook=str).decode()}"
            case Renamed(title=title):
                name, said = "renamed", title or "its first message is its title again"
            case Trimmed(messages=count):
                name, said = "trimmed", f"the oldest {count} messages were left out of the prompt"
            case PluginFailed(plugin=plugin, hook=hook, message=message):
                name, said = PLUGIN_FAILED, f"{plugin}, {hook}: {message}"
            case Warned(plugin=plugin, message=message):
                name, said = WARNING, f"{plugin}: {message}"
            case LimitHit(message=message):
                name, said = LIMIT, message
            case MessageAdded(message=message):
                name, said = f"message from {message.author or message.role}", message.text
            case FactsLearned(facts=facts):
                return self._measured(event, at, facts={fact.name: fact.value for fact in facts})
            case InputsRead(values=values):
                return self._measured(event, at, inputs=values)
            case _:
                left_out = {*_MEASURED, "type", "turn", "agent"}
                known = msgspec.to_builtins(event, enc_hook=str)
                return self._measured(event, at, arguments={k: v for k, v in known.items() if k not in left_out})
        return TraceNode("note", name, at=at, output=said)

    def _measured(self, event: object, at: float, **fields: Any) -> TraceNode:
        """Return a note for an event that may have called an engine."""
        usage = getattr(event, "usage", Usage())
        model, engine = getattr(event, "model", ""), getattr(event, "engine", "")
        seconds = getattr(event, "seconds", 0.0) or None
        return TraceNode(
            "note",
            _name_of(event),
            at=at - (seconds or 0.0),
            ended_at=at,
            seconds=seconds,
            usage=usage,
            agent=getattr(event, "agent", ""),
            model=model,
            **fields,
            **self._sources.priced(engine, model, usage, at),
        )


def _name_of(event: object) -> str:
    tag = type(event).__struct_config__.tag if isinstance(event, Value) else type(event).__name__
    return str(tag or type(event).__name__).replace("_", " ")
