"""A turn's events as events of AG-UI 1.0. Does no IO.

The journal's entries and the live deltas are the source. What streams is sent as it comes; the entry that ends a round
has the whole reply, so whatever was not streamed (a watcher that fell behind, a plugin that must see the reply first)
is sent then. If something that was sent no longer holds, a snapshot of all messages corrects it at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...app.adjust import CLIENT_QUESTION
from ...events import (
    CallFinished,
    CallHeld,
    CallProgressed,
    Event,
    FactsLearned,
    HandedOff,
    InboxTaken,
    JobChanged,
    JobFinished,
    JobStarted,
    LimitHit,
    MessageAdded,
    MessageQueued,
    Nested,
    QuestionAnswered,
    RoundFinished,
    RoundStarted,
    TurnFinished,
    TurnStarted,
)
from ...machine.transcript import Transcript
from ...question import Question
from ...values import (
    Media,
    Message,
    Notice,
    Outcome,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    arguments_json,
)
from .agui_messages import Address, Wire, content_of, content_part, result_id, thought_id

VERSION = "1.0"
OURS = "rondel"  # the key of what is ours in `state` and `metadata`


class RunEvents:
    """Call `feed` with every event of a conversation; it returns the AG-UI events of one run of it.

    `turn` is the turn that the run is; `answered` are the questions that the run's input has answered. `known` are the
    ids of messages and the calls whose results the client has. When `is_over`, the run has ended.
    """

    def __init__(
        self,
        thread: str,
        run: str,
        turn: str,
        transcript: Transcript,
        address: Address,
        *,
        known: Iterable[str] = (),
        answered: Iterable[str] = (),
        state: Any = None,
        is_running: bool = False,
    ) -> None:
        self.is_over = False
        self.is_changed = False
        """Whether something that was sent does not hold any more, so that the client needs all messages again."""
        self.questions: dict[str, Question] = {}
        self.out: list[Wire] = []
        self.address = address
        self._thread, self._run, self._turn = thread, run, turn
        self._known, self._unanswered = set(known), set(answered)
        self._state = state
        self._is_ours = is_running
        self._step = ""
        self._limit = ""
        self._usage: dict[tuple[str, str], Usage] = {}
        self._queued: dict[str, Message] = {}
        self._ids = 0
        self._facts = {fact.name: fact.value for fact in transcript.facts.values()}
        self._jobs: dict[str, Wire] = {
            job.id: {"name": job.name, "status": job.status} for job in transcript.jobs.values()
        }
        self._main = Voice(self, "", called=transcript.called)
        self._voices: dict[str, Voice] = {}
        self._ended: dict[str, int] = {}
        self._has_state = False
        if self._facts or self._jobs:
            self._send_state()

    def feed(self, event: Event) -> list[Wire]:
        """Return what a client is sent for an event, which may be nothing."""
        if isinstance(event, TurnStarted):
            self._is_ours = event.turn == self._turn
            if self._is_ours:
                self._begin_step(event.agent)
        elif isinstance(event, TurnFinished) and event.turn == self._turn:
            self._end(event)
        elif isinstance(event, MessageQueued):
            self._queued[event.message.id] = event.message
        elif self._is_ours:
            self._take(event)
        return self._sent()

    def _sent(self) -> list[Wire]:
        sent, self.out = self.out, []
        return sent

    def send(self, kind: str, **fields: Any) -> None:
        self.out.append({"type": kind, **{name: value for name, value in fields.items() if value is not None}})

    def _take(self, event: Event) -> None:  # noqa: C901 - one case for each kind of event
        match event:
            case Nested():
                self._nested("", event)
            case RoundFinished():
                self.count(event)
                self._main.feed(event)
            case MessageAdded(message=message):
                self._said(message)
            case InboxTaken(ids=ids):
                for id in ids:
                    if id in self._queued:
                        self._said(self._queued.pop(id))
            case CallFinished(result=result):
                if result.call_id not in self._known:
                    self._main.result(result)
                self.questions = {id: one for id, one in self.questions.items() if one.call_id != result.call_id}
            case CallHeld(question=question):
                self.questions[question.id] = question
            case QuestionAnswered(answer=answer):
                self._unanswered.discard(answer.question_id)
                self.questions.pop(answer.question_id, None)
            case HandedOff(agent=agent):
                self._begin_step(agent)
            case LimitHit(name=name):
                self._limit = name
            case FactsLearned(facts=facts):
                for fact in facts:
                    self._facts[fact.name] = fact.value
                    self._change_state("facts", fact.name, fact.value)
            case JobStarted():
                self._job(event.job, {"name": event.name, "status": "running"})
            case JobFinished():
                self._job(event.job, {"status": event.status, "text": event.digest.summary})
            case JobChanged():
                self._job(event.job, {"status": event.status, "progress": event.progress, "text": event.text})
            case _:
                self._main.feed(event)

    # --- who speaks ---------------------------------------------------------------------------------------------------

    def _begin_step(self, agent: str) -> None:
        if agent != self._step:
            self._end_step()
            self._step = agent
            self.send("STEP_STARTED", stepName=agent)

    def _end_step(self) -> None:
        if self._step:
            self.send("STEP_FINISHED", stepName=self._step)
            self._step = ""

    def _said(self, message: Message) -> None:
        """Send a message that no engine wrote: of a person elsewhere, or of the agent itself."""
        if message.id in self._known or not message.shown or message.role not in ("user", "assistant"):
            return
        self._main.whole(message)

    def _nested(self, above: str, nested: Nested) -> None:
        path, event = f"{above}/{nested.call_id}" if above else nested.call_id, nested.event
        voice = self._voices.get(path)
        if voice is None:
            if isinstance(event, TurnFinished):
                return
            voice = self._begin_voice(path, above, nested)
        if isinstance(event, Nested):
            self._nested(path, event)
        elif isinstance(event, TurnFinished):
            self._end_voice(path, event)
        elif isinstance(event, CallFinished):
            voice.result(event.result)
        else:
            if isinstance(event, RoundFinished):
                self.count(event)
            voice.feed(event)

    def _begin_voice(self, path: str, above: str, nested: Nested) -> Voice:
        again = self._ended.get(path, 0)  # an id is for one invocation, and this one was suspended in this run
        voice = self._voices[path] = Voice(self, f"{path}#{again + 1}" if again else path)
        parent = self._voices.get(above)
        call = parent.call(nested.call_id) if parent else nested.call_id
        self.send(
            "SUBAGENT_STARTED", subagentRunId=voice.run, name=nested.agent, parentToolCallId=call,
            parentSubagentRunId=parent.run if parent else None,
        )  # fmt: skip
        return voice

    def _end_voice(self, path: str, event: TurnFinished) -> None:
        for below in [one for one in reversed(self._voices) if one.startswith(f"{path}/")]:
            self._end_voice(below, event)
        voice = self._voices.pop(path)
        self._ended[path] = self._ended.get(path, 0) + 1
        voice.close()
        if event.outcome in (Outcome.DONE, Outcome.WAITING):
            kind = "suspended" if event.outcome is Outcome.WAITING else "success"
            self.send("SUBAGENT_FINISHED", subagentRunId=voice.run, outcome={"type": kind})
        else:
            why = event.failure.message if event.failure else event.reason or "the agent was stopped"
            self.send("SUBAGENT_ERROR", subagentRunId=voice.run, message=why)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, event: TurnFinished) -> None:
        if event.outcome is Outcome.WAITING and self._unanswered:
            return  # another answer of this run resumes it
        for path in [one for one in reversed(self._voices) if "/" not in one]:
            self._end_voice(path, event)
        self._main.close()
        self._end_step()
        self.is_over = True
        self._ending = event

    def ending(self) -> list[Wire]:
        """Return the last event of the run. A snapshot of the messages comes before it if one is needed."""
        event, usage = self._ending, self._token_usage()
        if event.outcome in (Outcome.FAILED, Outcome.LIMITED):
            code = self._limit or (event.failure.name if event.failure else "limit")
            message = event.failure.message if event.failure else event.reason
            self.send("RUN_ERROR", message=message, code=code, usage=usage)
        else:
            outcome = self._outcome(event.outcome)
            self.send("RUN_FINISHED", threadId=self._thread, runId=self._run, outcome=outcome, usage=usage)
        return self._sent()

    def shown(self) -> list[Wire]:
        """Return the end of a run in which nothing happened: what the thread waits for, if it does."""
        outcome = self._outcome(Outcome.DONE)
        self.send("RUN_FINISHED", threadId=self._thread, runId=self._run, outcome=outcome)
        return self._sent()

    def _outcome(self, outcome: Outcome) -> Wire:
        if outcome is Outcome.STOPPED:
            return {"type": "cancelled"}
        if interrupts := [interrupt(one) for one in self.questions.values() if not is_clients(one)]:
            return {"type": "interrupt", "interrupts": interrupts}
        pending = [one.call_id for one in self.questions.values() if is_clients(one)]
        return {"type": "success", "pendingToolCallIds": pending} if pending else {"type": "success"}

    def count(self, event: RoundFinished) -> None:
        if event.without_model or not event.ran:
            return
        provider, _, model = (event.answered_by or event.engine).partition(":")
        key = provider, event.model or model
        self._usage[key] = self._usage.get(key, Usage()) + event.usage

    def _token_usage(self) -> list[Wire] | None:
        return [
            {
                "provider": provider,
                "model": model,
                "inputTokens": used.tokens_in,
                "outputTokens": used.tokens_out,
                "totalTokens": used.tokens_in + used.tokens_out,
                "reasoningTokens": used.tokens_reasoning,
                "cachedInputTokens": used.tokens_cached,
                "cacheWriteInputTokens": used.tokens_cache_written,
            }
            for (provider, model), used in self._usage.items()
        ] or None

    # --- state: facts and background jobs -----------------------------------------------------------------------------

    def _send_state(self) -> None:
        state: Any = self._state or {}
        if not isinstance(state, dict):
            return  # the client's own state is not an object, so ours cannot be added to it
        self._has_state = True
        snapshot: Wire = {**state, OURS: {"facts": self._facts, "jobs": self._jobs}}
        self.send("STATE_SNAPSHOT", snapshot=msgspec.to_builtins(snapshot, enc_hook=str))

    def _change_state(self, kind: str, name: str, value: Any) -> None:
        if not self._has_state:
            self._send_state()
            return
        path = f"/{OURS}/{kind}/{name.replace('~', '~0').replace('/', '~1')}"
        value = msgspec.to_builtins(value, enc_hook=str)
        self.send("STATE_DELTA", delta=[{"op": "add", "path": path, "value": value}])

    def _job(self, id: str, changed: Wire) -> None:
        job = self._jobs[id] = {**self._jobs.get(id, {}), **{k: v for k, v in changed.items() if v is not None}}
        self._change_state("jobs", id, job)

    def new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{self._run}-{kind}-{self._ids}"

    def notice(self, id: str, kind: str, content: Wire, **tag: Any) -> None:
        """Show something that is not part of the conversation: progress, a retry, an image."""
        self.send("ACTIVITY_SNAPSHOT", messageId=id or self.new_id("notice"), activityType=kind, content=content, **tag)


class Voice:
    """What one agent says: the main one, or one that works for a call (`run` is then its invocation)."""

    def __init__(self, events: RunEvents, run: str, called: Iterable[str] = ()) -> None:
        self.run = run
        self._events = events
        self._tag = {"subagentRunId": run} if run else {}
        self._called = set(called)  # the calls that a new one must not have the id of: the machine gives it another
        self._begin("")

    def _begin(self, id: str) -> None:
        self._id = id
        self._kinds: dict[int, Part] = {}
        self._chars: dict[int, int] = {}
        self._said = ""  # the text of this reply so far, with what an earlier round has shown of it
        self._is_open = False
        self._thoughts = 0
        self._thinking = ""  # the id of the open reasoning message
        self._open_calls: dict[int, str] = {}
        self._calls: set[str] = set()

    def call(self, id: str) -> str:
        """Return a call's id as clients know it: calls of agents below may have the same ids."""
        return f"{self.run}/{id}" if self.run else id

    def _send(self, kind: str, **fields: Any) -> None:
        self._events.send(kind, **fields, **self._tag)

    def feed(self, event: Event) -> None:
        match event:
            case RoundStarted():
                self.close()
                self._begin(event.message)
            case PartStarted(index=index, part=part):
                self._part_started(index, part)
            case PartDelta(index=index, text=text):
                self._more(index, text)
            case PartFinished(index=index, part=part):
                self._part_finished(index, part)
            case RoundFinished():
                self._round_finished(event)
            case CallProgressed():
                content = {"toolCallId": self.call(event.call_id), "text": event.text, "progress": event.progress}
                self._events.notice(f"{self.call(event.call_id)}-progress", "progress", content, **self._tag)
            case Notice():
                self._events.notice("", "notice", {"text": event.text}, **self._tag)
            case MessageAdded(message=message) if message.role == "assistant" and message.shown and message.text:
                self.whole(message)
            case _:
                pass

    def whole(self, message: Message) -> None:
        """Send a message that does not stream."""
        self._send("TEXT_MESSAGE_START", messageId=message.id, role=message.role)
        if message.text:
            self._send("TEXT_MESSAGE_CONTENT", messageId=message.id, delta=message.text)
        self._send("TEXT_MESSAGE_END", messageId=message.id)

    # --- a reply as it streams ----------------------------------------------------------------------------------------

    def _part_started(self, index: int, part: Part) -> None:
        self._kinds[index] = part
        self._chars[index] = 0
        if not isinstance(part, Thinking):
            self._end_thinking()
        if isinstance(part, Text):
            self._chars[index] = len(part.text)
            self._said += part.text
        elif isinstance(part, ToolCall) and part.id and part.name and part.id not in self._called:
            self._open_calls[index] = part.id
            self._start_call(part)

    def _more(self, index: int, text: str) -> None:
        part = self._kinds.get(index)
        if not text or part is None:
            return
        if isinstance(part, ToolCall):
            if index in self._open_calls:
                self._send("TOOL_CALL_ARGS", toolCallId=self.call(self._open_calls[index]), delta=text)
        elif isinstance(part, Text):
            self._say(text)
        elif isinstance(part, Thinking):
            self._think(text)
        self._chars[index] += len(text)

    def _part_finished(self, index: int, part: Part) -> None:
        sent = self._chars.get(index, 0)
        if isinstance(part, Text | Thinking):
            self._kinds.setdefault(index, part)
            self._chars.setdefault(index, 0)
            self._more(index, part.text[sent:])
            if isinstance(part, Thinking):
                self._end_thinking()
        elif isinstance(part, ToolCall) and index in self._open_calls:
            if not sent:
                self._more(index, part.broken or arguments_json(part.arguments))
            self._send("TOOL_CALL_END", toolCallId=self.call(self._open_calls.pop(index)))

    def _round_finished(self, event: RoundFinished) -> None:
        message = event.message
        was_sent = bool(self._is_open or self._thoughts or self._calls)
        if event.next == "again":
            self._events.is_changed |= was_sent
            self.close()
            return
        self._events.is_changed |= was_sent and self._id != message.id
        self._id = self._id or message.id
        if not self._thoughts:
            for part in message.parts:
                if isinstance(part, Thinking) and part.text:
                    self._think(part.text)
                    self._end_thinking()
        if message.text.startswith(self._said):
            self._say(message.text[len(self._said) :])
        else:
            self._events.is_changed = True
        for call in message.calls:
            if call.id not in self._calls:
                self._start_call(call)
                if text := call.broken or arguments_json(call.arguments):
                    self._send("TOOL_CALL_ARGS", toolCallId=self.call(call.id), delta=text)
                self._send("TOOL_CALL_END", toolCallId=self.call(call.id))
        self._events.is_changed |= not self._calls <= {call.id for call in message.calls}
        for index, part in enumerate(message.parts):
            if isinstance(part, Media):
                content = {"parts": [content_part(part, self._events.address(message.id, index))]}
                self._events.notice(f"{message.id}-media-{index}", "media", content, **self._tag)
        self.close()

    def close(self) -> None:
        """End what is open of a reply."""
        self._end_thinking()
        if self._is_open:
            self._send("TEXT_MESSAGE_END", messageId=self._id)
        for id in self._open_calls.values():
            self._send("TOOL_CALL_END", toolCallId=self.call(id))
        self._begin("")

    def _say(self, text: str) -> None:
        if not text:
            return
        self._end_thinking()
        if not self._is_open:
            self._is_open = True
            self._ensure_id()
            self._send("TEXT_MESSAGE_START", messageId=self._id, role="assistant")
        self._said += text
        self._send("TEXT_MESSAGE_CONTENT", messageId=self._id, delta=text)

    def _think(self, text: str) -> None:
        if not self._thinking:
            self._thoughts += 1
            self._ensure_id()
            self._thinking = thought_id(self._id, self._thoughts)
            self._send("REASONING_START", messageId=self._thinking)
            self._send("REASONING_MESSAGE_START", messageId=self._thinking, role="reasoning")
        self._send("REASONING_MESSAGE_CONTENT", messageId=self._thinking, delta=text)

    def _ensure_id(self) -> None:
        # A client that starts to watch in the middle of a reply has missed its id, which is in the entry at its end.
        self._id = self._id or self._events.new_id("reply")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._send("REASONING_MESSAGE_END", messageId=self._thinking)
            self._send("REASONING_END", messageId=self._thinking)
            self._thinking = ""

    def _start_call(self, call: ToolCall) -> None:
        self._calls.add(call.id)
        self._called.add(call.id)
        parent = self._id or None
        self._send("TOOL_CALL_START", toolCallId=self.call(call.id), toolCallName=call.name, parentMessageId=parent)

    def result(self, result: ToolResult) -> None:
        id = self.call(result.call_id)
        failed = {OURS: {"isError": True}} if result.is_error else None
        content = content_of(result.parts, result.call_id, self._events.address)
        self._send(
            "TOOL_CALL_RESULT", messageId=result_id(id), toolCallId=id, content=content, role="tool", metadata=failed
        )


# --- values -----------------------------------------------------------------------------------------------------------


def is_clients(question: Question) -> bool:
    """Whether a question waits for the result of a client's tool and not for a person."""
    return question.id.startswith(CLIENT_QUESTION)


def interrupt(question: Question) -> Wire:
    """Return a question as an interrupt."""
    expires = None if question.deadline is None else datetime.fromtimestamp(question.deadline, UTC).isoformat()
    made = {
        "id": question.id,
        "reason": "tool_call" if question.kind == "approve" else "input_required",
        "message": question.text,
        "toolCallId": question.call_id or None,
        "responseSchema": response_schema(question),
        "expiresAt": expires,
        "metadata": {OURS: {"kind": question.kind, "options": list(question.options)}},
    }
    return {name: value for name, value in made.items() if value is not None}


def response_schema(question: Question) -> Wire:
    if question.kind == "approve":
        always = {"type": "boolean", "description": "also allow the same call later in this conversation"}
        properties: Wire = {"approved": {"type": "boolean"}, "always": always, "reason": {"type": "string"}}
        return {"type": "object", "properties": properties, "required": ["approved"]}
    answer: Wire = {"type": "string"}
    if question.options:
        answer["examples" if question.free_text else "enum"] = list(question.options)
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
