"""What happened in a conversation, as a tree: turns, rounds, calls, and the agents that worked for a call.

Built from the journal's entries alone, so a trace of yesterday and one of a turn that is still at work are made the
same way. Only `read` touches a store; everything else is pure. Knows no terminal and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .events import (
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
from .store import Store
from .values import Message, Thinking, ToolCall, Usage, Value

NodeKind: TypeAlias = Literal["conversation", "turn", "round", "call", "note"]

LEVELS_MAX = 32
"""Agents inside agents that `read` follows; the loop's own limits are far lower."""
CUT_OFF = "cut off"
"""The outcome of a turn that neither finished nor waits: it is at work now, or a crash ended it."""


class TraceNode(Value, frozen=True):
    """One step. `name` is the agent of a turn, the engine of a round, the tool of a call, the kind of a note."""

    kind: NodeKind
    name: str
    id: str = ""
    at: float = 0.0
    seconds: float | None = None
    first_token_s: float | None = None
    usage: Usage = Usage()
    agent: str = ""
    model: str = ""
    input: str = ""
    inputs: dict[str, Any] = {}
    prompt: str = ""
    """The agent's own instructions."""
    arguments: dict[str, Any] = {}
    thinking: str = ""
    output: str = ""
    error: str = ""
    ran: bool = True
    outcome: str = ""
    question: str = ""
    answer: str = ""
    children: tuple[TraceNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, TraceNode]]:
        """Every node with its depth. Calls and the turns inside them go deeper; rounds and notes do not."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + (child.kind == "call"))

    def lines(self) -> list[str]:
        """One line for each thing that was done."""
        return [line for depth, node in self.walk() if (line := _line(node, depth))]

    def to_json(self) -> bytes:
        """A tree of plain values; a node never refers to another, so there is no cycle."""
        return msgspec.json.encode(self)

    def markdown(self, *, short: bool = False) -> str:
        return "\n".join(_short_markdown(self) if short else _long_markdown(self)) + "\n"


async def read(store: Store, conversation: str) -> TraceNode:
    """The trace of a stored conversation and of every agent that worked for it."""
    entries = await store.read(conversation)
    children: dict[str, Sequence[Entry]] = {}
    pending = [(conversation, entries, 0)]
    while pending:
        id, known, level = pending.pop()
        for entry in known:
            if isinstance(entry.event, CallStarted) and level < LEVELS_MAX:
                child = f"{id}/{entry.event.call_id}"
                if child not in children and (inner := await store.read(child)):
                    children[child] = inner
                    pending.append((child, inner, level + 1))
    return build(entries, children, conversation=conversation)


def build(entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]], *, conversation: str = "") -> TraceNode:
    """The tree of a conversation. `children` has the entries of the agents inside, by `<conversation>/<call id>`."""
    turns = tuple(draft.freeze() for draft in _drafts(entries, children, conversation))
    usage = sum((turn.usage for turn in turns), Usage())
    agent = turns[0].name if turns else ""
    at = entries[0].at if entries else 0.0
    seconds = sum(turn.seconds or 0.0 for turn in turns)
    outcome = turns[-1].outcome if turns else ""
    return TraceNode(
        "conversation",
        conversation,
        id=conversation,
        at=at,
        seconds=seconds,
        usage=usage,
        agent=agent,
        outcome=outcome,
        children=turns,
    )


# --- from entries to drafts -------------------------------------------------------------------------------------------


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
            children=tuple(draft.freeze() for draft in _drafts(inner, self._agents, self._inner)),
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


def _drafts(
    entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]], conversation: str
) -> Sequence[_TurnDraft]:
    folder = _Folder(children, conversation)
    for entry in entries:
        folder.apply(entry)
    return folder.turns


# --- as text ----------------------------------------------------------------------------------------------------------


def arguments_text(arguments: Mapping[str, Any], chars_max: int | None = None) -> str:
    """Arguments as JSON on one line, cut where they are long."""
    text = msgspec.json.encode(dict(arguments), enc_hook=str).decode()
    return text if chars_max is None or len(text) <= chars_max else text[: chars_max - 1] + "…"


def tokens_text(usage: Usage) -> str:
    """`120 in (80 cached), 40 out`, or nothing when nobody counted."""
    if not (usage.tokens_in or usage.tokens_out):
        return ""
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    about = "about " if usage.estimated else ""
    return f"{about}{usage.tokens_in:,} in{cached}, {usage.tokens_out:,} out"


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def facts_text(node: TraceNode) -> str:
    """Time and tokens, as far as they are known."""
    return ", ".join(part for part in (seconds_text(node.seconds), tokens_text(node.usage)) if part)


def _line(node: TraceNode, depth: int) -> str:
    at = f"Depth {depth}: "
    match node.kind:
        case "turn":
            error = f", failed: {node.error}" if node.error else ""
            return f"{at}agent {node.name} was asked {_one_line(node.input)!r}: {node.outcome}{error}"
        case "round":
            asked = f"{at}asked {node.name}" + (f" ({facts})" if (facts := facts_text(node)) else "")
            return asked if node.ran else f"{at}asked nobody: the prompt was blank"
        case "call":
            answer = f", held for {node.question!r}, answered {node.answer or '(not yet)'}" if node.question else ""
            failed = f", failed: {_one_line(node.error)}" if node.error else ""
            return f"{at}called tool {node.name} with args {arguments_text(node.arguments)}{answer}{failed}"
        case "note":
            return f"{at}{node.name}: {_one_line(node.output)}"
        case "conversation":
            return ""


def _one_line(text: str, chars_max: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _short_markdown(root: TraceNode) -> list[str]:
    lines = [f"# Trace of {root.name or 'a conversation'}", ""]
    for depth, node in root.walk():
        indent = "  " * (depth + (node.kind != "turn"))
        if node.kind == "turn":
            lines.append(f"{indent}- **{node.name}** ({_status(node)}): {_one_line(node.input)}")
        elif node.kind == "call":
            lines.append(f"{indent}- `{node.name}` {_code(arguments_text(node.arguments, 200))} ({_status(node)})")
        elif node.kind == "note":
            lines.append(f"{indent}- {node.name}: {_one_line(node.output)}")
        elif node.kind == "round" and node.output:
            lines.append(f"{indent}- said: {_one_line(node.output)}")
    return lines


def _status(node: TraceNode) -> str:
    return ", ".join(part for part in (node.outcome, facts_text(node), _one_line(node.error)) if part)


def _long_markdown(root: TraceNode) -> list[str]:
    lines = [f"# Trace of {root.name or 'a conversation'}", ""]
    for depth, node in root.walk():
        if node.kind == "conversation":
            continue
        level = "#" * min(6, depth + (2 if node.kind == "turn" else 3))
        title = {"turn": f"Agent {node.name}", "round": f"Asked {node.name}", "call": f"Called {node.name}"}
        lines += [f"{level} {title.get(node.kind, node.name.capitalize())}", ""]
        if status := _status(node):
            lines += [f"*{status}*", ""]
        for label, text in _fields(node):
            lines += [f"{label}:", "", *_fenced(text), ""]
    return lines


def _fields(node: TraceNode) -> Iterator[tuple[str, str]]:
    named = (
        ("Instructions", node.prompt),
        ("Input", node.input),
        ("Inputs", arguments_text(node.inputs) if node.inputs else ""),
        ("Arguments", arguments_text(node.arguments) if node.kind == "call" else ""),
        ("Thinking", node.thinking),
        ("Question", node.question),
        ("Answer", node.answer),
        ("Output", node.output if node.kind != "turn" else ""),
        ("Error", node.error),
    )
    return ((label, text) for label, text in named if text)


def _code(text: str) -> str:
    ticks = "`" * (_longest_run(text) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _fenced(text: str) -> list[str]:
    """A code block whose fence is longer than any in the text: what it holds cannot end it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return [f"{fence}text", *text.splitlines(), fence]


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
