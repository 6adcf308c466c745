"""Makes spans from the trace of a turn: agents, model calls and tool calls. Pure.

Names with `gen_ai` follow OpenTelemetry's semantic conventions for generative AI. What people, models and tools said is
sent only with `content`. The ids derive from the turn's id, so a turn that resumes in another process is one trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ...contracts.endpoint import known_provider
from ...values import Usage, Value
from .. import TraceNode, arguments_text, note_text

_FINISHED = {"end": "stop", "calls": "tool_calls", "stop_sequence": "stop", "refusal": "content_filter"}
"""The conventions' name of a stop reason, if it differs from ours."""


class SpanEvent(Value, frozen=True):
    name: str
    at: float
    attributes: dict[str, Any] = {}


class Span(Value, frozen=True):
    """Times are seconds since the epoch. `error` is the error's message, if texts are wanted."""

    name: str
    trace_id: int
    id: int
    parent_id: int | None
    start: float
    end: float
    attributes: dict[str, Any]
    kind: Literal["internal", "client"] = "internal"
    failed: bool = False
    error: str = ""
    events: tuple[SpanEvent, ...] = ()


def spans_of(root: TraceNode, *, content: bool = False) -> Iterator[Span]:
    for turn in root.children:
        if turn.kind == "turn":
            maker = _Maker(root.name, f"{root.name}\n{turn.id}", content)
            yield from maker.spans(turn)


class _Maker:
    def __init__(self, conversation: str, key: str, content: bool) -> None:
        self._conversation, self._key, self._content = conversation, key, content
        self._trace_id = _number(key, 16)

    def spans(self, turn: TraceNode) -> Iterator[Span]:
        pending: list[tuple[TraceNode, TraceNode, int | None, str]] = [(turn, turn, None, f"{turn.at!r}")]
        while pending:
            node, owner, parent, path = pending.pop()
            made = self._span(node, owner, parent, path)
            if made is not None:
                yield made
                if node.kind != "round":  # its calls run after it, so they are its siblings
                    parent = made.id
            owner = node if node.kind == "turn" else owner
            inner = [(child, owner, parent, f"{path}/{i}") for i, child in enumerate(node.children)]
            pending += reversed(inner)

    def _span(self, node: TraceNode, owner: TraceNode, parent: int | None, path: str) -> Span | None:
        makers = {"turn": self._invoke_agent, "round": self._chat, "call": self._execute_tool}
        if (make := makers.get(node.kind)) is None or (node.kind == "round" and not node.asked):
            return None
        operation, subject, attributes = make(node, owner)
        common = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": self._conversation}
        start, failed = node.at or node.ended_at or owner.at, bool(node.error)
        if failed:
            attributes["error.type"] = node.error_type or "_OTHER"
        return Span(
            name=f"{operation} {subject}" if subject else operation,
            trace_id=self._trace_id,
            id=_number(f"{self._key}\n{path}", 8),
            parent_id=parent,
            start=start,
            end=max(start, node.ended_at or start),
            attributes=common | {name: value for name, value in attributes.items() if value not in ("", None, [])},
            kind="client" if node.kind == "round" else "internal",
            failed=failed,
            error=node.error if self._content else "",
            events=tuple(self._events(node)) if node.kind == "turn" else (),
        )

    def _invoke_agent(self, node: TraceNode, owner: TraceNode) -> tuple[str, str, dict[str, Any]]:
        asked = next((inner for _, inner in node.walk() if inner.asked), None)
        attributes: dict[str, Any] = {
            "gen_ai.agent.name": node.name,
            "gen_ai.provider.name": _provider(asked.name) if asked else "",
            "rondel.turn.id": node.id,
            "rondel.outcome": node.outcome,
            "rondel.ran": None if node.ran else False,
            **_tokens(node.usage),
        }
        if self._content:
            attributes |= {
                "gen_ai.system_instructions": _json([_text(node.sent or node.prompt)]) if node.prompt else "",
                "gen_ai.input.messages": _json([{"role": "user", "parts": [_text(node.input)]}]) if node.input else "",
                "gen_ai.output.messages": _json([_answer(node.output, "stop")]) if node.output else "",
            }
        return "invoke_agent", node.name, attributes

    def _chat(self, node: TraceNode, owner: TraceNode) -> tuple[str, str, dict[str, Any]]:
        provider, _, model = node.name.partition(":")
        finish = _FINISHED.get(node.outcome, node.outcome)
        attributes: dict[str, Any] = {
            "gen_ai.provider.name": _provider(provider),
            "gen_ai.request.model": model or node.model,
            "gen_ai.request.stream": True,
            "gen_ai.response.model": node.model,
            "gen_ai.response.finish_reasons": [finish] if finish else [],
            "gen_ai.response.time_to_first_chunk": node.first_token_s,
            "gen_ai.agent.name": node.agent or owner.name,
            **_tokens(node.usage),
        }
        if self._content:
            calls = [
                {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
                for call in node.children
            ]
            attributes["gen_ai.output.messages"] = _json([_answer(node.output, finish, calls)])
        return "chat", model or node.model or provider, attributes

    def _execute_tool(self, node: TraceNode, owner: TraceNode) -> tuple[str, str, dict[str, Any]]:
        attributes: dict[str, Any] = {
            "gen_ai.tool.name": node.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": node.id,
            "gen_ai.agent.name": owner.name,
            "rondel.outcome": node.outcome,
        }
        if self._content:
            attributes |= {
                "gen_ai.tool.call.arguments": arguments_text(node.arguments),
                "gen_ai.tool.call.result": node.output or node.error,
            }
        return "execute_tool", node.name, attributes

    def _events(self, turn: TraceNode) -> Iterator[SpanEvent]:
        for note in turn.children:
            if note.kind in ("note", "job"):
                said = {"rondel.note.text": note_text(note)} if self._content else {}
                yield SpanEvent(
                    "rondel.note", note.at, {"rondel.note": note.name if note.kind == "note" else "job"} | said
                )


def _number(text: str, size: int) -> int:
    """Return an id of `size` bytes. Never zero, which is invalid."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:size], "big") or 1


def _provider(engine: str) -> str:
    name = engine.partition(":")[0]
    return known_provider(name).otel_name or name


def _tokens(usage: Usage) -> dict[str, int | None]:
    if not (usage.tokens_in or usage.tokens_out):
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.tokens_cache_written or None,
        "gen_ai.usage.reasoning.output_tokens": usage.tokens_reasoning or None,
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _answer(text: str, finish: str, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    parts = [*([_text(text)] if text else []), *(calls or ())]
    return {"role": "assistant", "parts": parts, "finish_reason": finish}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
