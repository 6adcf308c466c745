"""From entries to nodes: what a conversation's entries say of its turns, rounds and calls, in their order.

A draft changes until the last entry was applied, and then becomes a node. Pure: entries come from whoever has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..events import (
    CallFinished,
    CallHeld,
    CallStarted,
    Entry,
    HandedOff,
    InboxTaken,
    LimitHit,
    MessageAdded,
    MessageQueued,
    Outcome,
    PluginFailed,
    QuestionAnswered,
    RoundFinished,
    Trimmed,
    TurnFinished,
    TurnStarted,
)
from ..values import Message, Thinking, ToolCall, Usage
from .node import TraceNode

CUT_OFF = "cut off"
"""The outcome of a turn that neither finished nor waits: it is at work now, or a crash ended it."""


class _CallDraft:
    def __init__(self, call: ToolCall, agents: Mapping[str, Sequence[Entry]], conversation: str) -> None:
        self.call = call
        self.arguments = call.arguments
        self.at, self.started = 0.0, False
        self.finished: CallFinished | None = None
        self.question = self.question_id = self.answer = ""
        self._agents, self._inner = agents, f"{conversation}/{call.id}"

    def freeze(self) -> TraceNode:
        inner = self._agents.get(self._inner, ())
        result = self.finished.result if self.finished else None
        text = result.text if result else ""
        failed = result is not None and result.is_error
        return TraceNode(
            "call",
            self.call.name,
            id=self.call.id,
            at=self.at,
            seconds=self.finished.seconds if self.finished else None,
            arguments=self.arguments or ({"(broken)": self.call.broken} if self.call.broken else {}),
            output="" if failed else text,
            error=text if failed else "",
            ran=self.started,
            outcome=self._outcome(failed),
            question=self.question,
            answer=self.answer,
            children=tuple(draft.freeze() for draft in turn_drafts(inner, self._agents, self._inner)),
        )

    def _outcome(self, failed: bool) -> str:
        if self.finished is not None:
            return Outcome.FAILED.value if failed else Outcome.DONE.value
        return Outcome.WAITING.value if self.question and not self.answer else CUT_OFF


class _RoundDraft:
    def __init__(self, event: RoundFinished, at: float, calls: list[_CallDraft]) -> None:
        self.event, self.at, self.calls = event, at, calls

    def freeze(self) -> TraceNode:
        event = self.event
        return TraceNode(
            "round",
            event.engine,
            id=event.message.id,
            at=self.at,
            seconds=event.seconds,
            first_token_s=event.first_token_s,
            usage=event.usage,
            agent=event.agent,
            model=event.model,
            thinking="".join(part.text for part in event.message.parts if isinstance(part, Thinking)),
            output=event.message.text,
            ran=event.ran,
            outcome=event.stop,
            children=tuple(call.freeze() for call in self.calls),
        )


class _TurnDraft:
    def __init__(self, event: TurnStarted, at: float) -> None:
        self.started, self.at = event, at
        self.steps: list[_RoundDraft | TraceNode] = []
        self.input: list[str] = []
        self.finished: TurnFinished | None = None
        self.seconds = 0.0
        self.output, self.ran = "", True

    def note(self, name: str, text: str, at: float) -> None:
        self.steps.append(TraceNode("note", name, at=at, output=text))

    def freeze(self) -> TraceNode:
        started, finished = self.started, self.finished
        nodes = tuple(step if isinstance(step, TraceNode) else step.freeze() for step in self.steps)
        failure = finished.failure if finished else None
        return TraceNode(
            "turn",
            started.agent,
            id=started.turn,
            at=self.at,
            seconds=self.seconds if finished else None,
            usage=sum((node.usage for node in nodes), Usage()),
            input="\n".join(self.input),
            inputs=started.inputs,
            prompt=started.instructions,
            output=self.output,
            error=failure.message if failure else "",
            ran=self.ran,
            outcome=finished.outcome.value if finished else CUT_OFF,
            children=nodes,
        )


class _Folder:
    """Applies entries in order; each lands in the turn that was the newest at its time."""

    def __init__(self, children: Mapping[str, Sequence[Entry]], conversation: str) -> None:
        self._children, self._conversation = children, conversation
        self.turns: list[_TurnDraft] = []
        self._calls: dict[str, _CallDraft] = {}
        self._queued: dict[str, Message] = {}

    def apply(self, entry: Entry) -> None:
        event, at = entry.event, entry.at
        match event:
            case TurnStarted():
                self._turn_started(event, at)
            case CallStarted() | CallFinished() | CallHeld() | QuestionAnswered():
                self._call_changed(event, at)
            case MessageQueued(message=message):
                self._queued[message.id] = message
            case _ if self.turns:
                self._step(self.turns[-1], event, at)
            case _:
                pass  # a message before the first turn belongs to none

    def _turn_started(self, event: TurnStarted, at: float) -> None:
        if self.turns and self.turns[-1].started.turn == event.turn:
            self.turns[-1].finished = None  # it goes on after an answer or a crash
        else:
            self.turns.append(_TurnDraft(event, at))

    def _call_changed(self, event: CallStarted | CallFinished | CallHeld | QuestionAnswered, at: float) -> None:
        if isinstance(event, QuestionAnswered):
            for call in self._calls.values():
                if call.question_id == event.answer.question_id:
                    by = f" (by {event.answer.by})" if event.answer.by else ""
                    call.answer = f"{event.answer.text or '(nothing)'}{by}"
            return
        id = event.result.call_id if isinstance(event, CallFinished) else ""
        id = event.question.call_id if isinstance(event, CallHeld) else id
        call = self._calls.get(event.call_id if isinstance(event, CallStarted) else id)
        if call is None:
            return
        if isinstance(event, CallStarted):
            call.at, call.started, call.arguments = at, True, event.arguments
        elif isinstance(event, CallFinished):
            call.finished = event
            if event.result.final:
                self.turns[-1].output = event.result.text
        else:
            call.question, call.question_id, call.answer = event.question.text, event.question.id, ""

    def _step(self, turn: _TurnDraft, event: object, at: float) -> None:
        match event:
            case RoundFinished():
                calls = [_CallDraft(call, self._children, self._conversation) for call in event.message.calls]
                self._calls = {draft.call.id: draft for draft in calls}
                turn.steps.append(_RoundDraft(event, at, calls))
                turn.output, turn.ran = event.message.text, event.ran
            case MessageAdded(message=message) if message.role == "user" and not turn.steps:
                turn.input.append(message.text)
            case MessageAdded(message=message) if message.role != "error":
                turn.note(f"message of {message.author or message.role}", message.text, at)
            case InboxTaken(ids=ids):
                for id in ids:
                    if id in self._queued:
                        turn.note("steered", self._queued.pop(id).text, at)
            case HandedOff(agent=agent, reason=reason):
                turn.note("handed off", f"to {agent}{f': {reason}' if reason else ''}", at)
            case Trimmed(messages=count):
                turn.note("trimmed", f"the oldest {count} messages were left out of the prompt", at)
            case PluginFailed(plugin=plugin, hook=hook, message=message):
                turn.note("plugin failed", f"{plugin}, {hook}: {message}", at)
            case LimitHit(message=message):
                turn.note("limit reached", message, at)
            case TurnFinished():
                turn.finished = event
                turn.seconds += event.seconds
            case _:
                pass


def turn_drafts(
    entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]], conversation: str
) -> Sequence[_TurnDraft]:
    folder = _Folder(children, conversation)
    for entry in entries:
        folder.apply(entry)
    return folder.turns
