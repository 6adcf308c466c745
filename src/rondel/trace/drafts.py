"""Mutable drafts of the turns, rounds, calls and jobs of a conversation, which become nodes of the trace. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeAlias

from ..events import CallFinished, JobFinished, JobStarted, Outcome, RoundFinished, TurnFinished, TurnStarted
from ..text.citations import sources_of, with_markers
from ..text.template import MARK, Key, key_of, scan
from ..tool import NoResult
from ..values import Thinking, ToolCall, Usage
from .node import Price, TraceNode
from .text import CUT_OFF, DISCARDED, ERROR, NO_RESULT, OWN_WORDS, RESUMED, UNDONE

_FOUND_NOTHING = str(NoResult())


class Sources:
    """What a fold needs besides a conversation's own entries."""

    def __init__(self, turns_of: Callable[[str], list[TurnDraft]], price: Price | None = None) -> None:
        self.turns_of = turns_of  # returns the turns of a conversation inside this one
        self.facts: dict[str, list[TraceNode]] = {}
        """The facts that inner turns learned, by turn: they are stored in the conversation that people see."""
        self._price = price

    def priced(self, engine: str, model: str, usage: Usage, at: float) -> dict[str, Any]:
        if self._price is None or not (usage.tokens_in or usage.tokens_out):
            return {}
        cost = self._price(engine, model, usage, at)
        return {"unpriced": 1} if cost is None else {"cost": cost}


def totals(nodes: Iterable[TraceNode]) -> dict[str, Any]:
    usage, cost, unpriced = Usage(), None, 0
    for node in nodes:
        usage += node.usage
        unpriced += node.unpriced
        cost = node.cost if cost is None else cost + (node.cost or Decimal())
    return {"usage": usage, "cost": cost, "unpriced": unpriced}


class CallDraft:
    def __init__(self, call: ToolCall, turn: TurnDraft) -> None:
        self.call, self.turn = call, turn
        self.arguments = call.arguments
        self.at, self.started = 0.0, False
        self.ended_at: float | None = None
        self.finished: CallFinished | None = None
        self.question = self.question_id = self.answer = ""

    def freeze(self) -> TraceNode:
        result, inner = self.finished.result if self.finished else None, self._turns_inside()
        text = result.text if result else ""
        failed = result is not None and result.is_error
        seconds = self.finished.seconds if self.finished else None
        return TraceNode(
            "call",
            self.call.name,
            id=self.call.id,
            at=self.at if self.ended_at is None or not seconds else self.ended_at - seconds,
            ended_at=self.ended_at,
            seconds=seconds,
            arguments=self.arguments or ({"(broken)": self.call.broken} if self.call.broken else {}),
            output="" if failed else text,
            error=text if failed else "",
            ran=self.started or bool(inner or seconds) or (result is not None and not failed),
            outcome=self._outcome(text, failed),
            question=self.question,
            answer=self.answer,
            children=inner,
            **totals(inner),
        )

    def _turns_inside(self) -> tuple[TraceNode, ...]:
        # Models repeat the ids of calls in later turns, so an inner conversation may contain work for other calls.
        drafts = self.turn.sources.turns_of(f"{self.turn.conversation}/{self.call.id}")
        ours = [draft for draft in drafts if draft.id == f"{self.turn.id}/{self.call.id}"]
        return tuple(draft.freeze() for draft in ours or drafts)

    def inserted(self) -> list[tuple[Key, str]]:
        """Return the text that replaced the author's directive, if this call carried one out."""
        key = self.call.opaque.get(MARK, {}).get("words")
        if not key or self.finished is None or self.finished.result.is_error:
            return []
        return [(key_of(key), self.finished.result.text)]

    def _outcome(self, text: str, failed: bool) -> str:
        if self.finished is None:
            return Outcome.WAITING.value if self.question and not self.answer else CUT_OFF
        if failed:
            return Outcome.FAILED.value
        return NO_RESULT if text.startswith(_FOUND_NOTHING) else Outcome.DONE.value


class RoundDraft:
    def __init__(
        self, event: RoundFinished, at: float, calls: list[CallDraft], sources: Sources, before: RoundDraft | None
    ) -> None:
        self.event, self.at, self.calls = event, at, calls
        self._sources = sources
        self.did = self._did(before)

    def _did(self, before: RoundDraft | None) -> str:
        """Describe a round that asked no model. A sentence that directives interrupted continues afterwards."""
        engine, called = self.event.engine, self._called()
        if engine == "function" and not called and before is not None and before._called() == "output":
            return RESUMED
        return OWN_WORDS.get((engine, called), "")

    def _called(self) -> str:
        """Return whose directives the calls are: see `template.MARK`."""
        if not self.calls:
            return ""
        return next(iter(self.calls[0].call.opaque.get(MARK, {})), "step")

    def freeze(self) -> TraceNode:
        event, began = self.event, self.at - self.event.seconds
        return TraceNode(
            "round",
            event.engine,
            id=event.message.id,
            at=began,
            ended_at=self.at,
            seconds=event.seconds,
            first_token_s=event.first_token_s,
            usage=event.usage,
            agent=event.agent,
            model=event.model,
            answered_by=event.answered_by,
            thinking="".join(part.text for part in event.message.parts if isinstance(part, Thinking)),
            output=with_markers(event.message.parts)[0],
            sources=sources_of(event.message.parts),
            ran=event.ran,
            did=self.did,
            outcome=DISCARDED if event.next == "again" else event.stop,
            children=tuple(call.freeze() for call in self.calls),
            **self._sources.priced(event.answered_by or event.engine, event.model, event.usage, began),
        )


class JobDraft:
    """A background job, which may end long after the turn that started it."""

    def __init__(self, event: JobStarted, at: float, sources: Sources, conversation: str) -> None:
        self.event, self.at, self._sources = event, at, sources
        self._inner = f"{conversation}/{event.job}"
        self.finished: JobFinished | None = None
        self.ended_at: float | None = None

    def freeze(self) -> TraceNode:
        inner = tuple(draft.freeze() for draft in self._sources.turns_of(self._inner))
        digest = self.finished.digest if self.finished else None
        said = "\n".join(part for part in (digest.summary, digest.detail) if part) if digest else ""
        return TraceNode(
            "job",
            self.event.name,
            id=self.event.job,
            at=self.at,
            ended_at=self.ended_at,
            seconds=None if self.ended_at is None else self.ended_at - self.at,
            agent=self.event.agent,
            arguments={"steps": self.event.steps} if self.event.steps else {},
            output=said if digest and digest.success else "",
            error=said if digest and not digest.success else "",
            outcome=self.finished.status if self.finished else "at work",
            children=inner,
            **totals(inner),
        )


class TurnDraft:
    def __init__(self, event: TurnStarted, at: float, sources: Sources, conversation: str) -> None:
        self.started, self.at, self.sources, self.conversation = event, at, sources, conversation
        self.id = event.turn
        self.steps: list[Draft] = []
        self.input: list[str] = []
        self.by = ""
        self.inputs: dict[str, Any] = event.inputs
        self.facts: dict[str, Any] = {}
        self.finished: TurnFinished | None = None
        self.ended_at: float | None = None
        self.seconds = 0.0
        self.output, self.ran, self.undone = "", True, False

    def note(self, name: str, text: str, at: float) -> None:
        self.steps.append(TraceNode("note", name, at=at, output=text))

    def learn(self, note: TraceNode) -> None:
        self.facts |= note.facts
        self.steps.append(note)

    def freeze(self) -> TraceNode:
        started, finished = self.started, self.finished
        for note in self.sources.facts.pop(self.id, ()):
            self.learn(note)
        failure = finished.failure if finished else None
        nodes = [frozen(step) for step in self.steps]
        if failure is not None:  # the error message in the conversation repeats it
            nodes = [n for n in nodes if not (n.name == ERROR and n.kind == "note" and failure.message in n.output)]
        inside = [inner for node in nodes for inner in (node, *(node.children if node.kind == "round" else ()))]
        return TraceNode(
            "turn",
            started.agent,
            id=started.turn,
            at=self.at,
            ended_at=self.ended_at,
            seconds=self.seconds if finished else None,
            by=self.by,
            input="\n".join(self.input),
            inputs=self.inputs,
            prompt=started.instructions,
            sent=self._sent(),
            output=self.output,
            error=failure.message if failure else "",
            error_type=failure.name if failure else "",
            reason=finished.reason if finished else "",
            ran=self.ran,
            outcome=UNDONE if self.undone else finished.outcome.value if finished else CUT_OFF,
            facts=self.facts,
            children=tuple(nodes),
            **totals(inside),
        )

    def _sent(self) -> str:
        """Return the instructions as the model got them, if the result of every directive in them is known."""
        written = scan(self.started.instructions)
        rounds = [step for step in self.steps if isinstance(step, RoundDraft)]
        if written.is_plain or all(step.did for step in rounds):
            return ""
        values = {key: text for step in rounds for call in step.calls for key, text in call.inserted()}
        for directive in written.directives:
            if directive.name == "Input" and not directive.inner:
                given = self._input(*map(str, directive.arguments))
                values |= {directive.key: given} if isinstance(given, str) else {}
        return written.fill(values) if all(directive.key in values for directive in written.directives) else ""

    def _input(self, field: str = "", default: str = "") -> Any:
        return (self.inputs.get(field) or default) if field else "\n".join(self.input)


Draft: TypeAlias = RoundDraft | CallDraft | JobDraft | TraceNode


def frozen(draft: Draft) -> TraceNode:
    return draft if isinstance(draft, TraceNode) else draft.freeze()
