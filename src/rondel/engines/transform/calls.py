"""Transforms of calls: forces a model to call a tool in every reply, and repairs arguments."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...prompt import Prompt
from ...text.lenient import repair_arguments
from ...values import Delta, PartDelta, PartFinished, PartStarted, ReplyFinished, Text, ToolCall, ToolSpec
from .base import ANTHROPIC, Editor, Transform

EXIT = ToolSpec(
    "ExitTool",
    "Ends the work with an answer. Call it when you are done, when no other tool helps, or to ask the user something.",
    {
        "type": "object",
        "properties": {"response": {"type": "string", "description": "what the user is told, word for word"}},
        "required": ["response"],
    },
)
INSTRUCTION = (
    f"Tool mode is on: every reply calls a tool. While there is work to do, call the tool that does the next step. "
    f"When there is none, call {EXIT.name} with your whole answer as its `response`."
)


class ToolUse(Transform, frozen=True):
    """Forces a model that forgets its tools to call one in every reply. Its final answer comes as a call of an extra
    tool, which is turned into plain text. Requests with a tool choice of their own are not changed."""

    name = "tooluse"

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        if not _is_free(prompt):
            return prompt
        options = msgspec.structs.replace(prompt.options, tool_choice="required")
        if dialect == ANTHROPIC:  # it refuses a request that both thinks and must call a tool
            options = msgspec.structs.replace(options, thinking=None, thinking_tokens_max=None)
        return prompt.replace(tools=(*prompt.tools, EXIT), options=options).instruct(INSTRUCTION, id="tooluse")

    def editor(self, prompt: Prompt) -> Editor | None:
        return _ExitAsText() if _is_free(prompt) else None


def _is_free(prompt: Prompt) -> bool:
    return bool(prompt.tools) and prompt.options.tool_choice in (None, "auto")


class _ExitAsText:
    def __init__(self) -> None:
        self._exits: set[int] = set()
        self._has_others = False

    def __call__(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCall):
            if delta.part.name != EXIT.name:
                self._has_others = True
                return (delta,)
            self._exits.add(delta.index)
            return ()
        if isinstance(delta, PartDelta) and delta.index in self._exits:
            return ()
        if isinstance(delta, PartFinished) and delta.index in self._exits:
            return _said(delta)
        if isinstance(delta, ReplyFinished) and delta.stop == "calls" and not self._has_others:
            return (msgspec.structs.replace(delta, stop="end"),)
        return (delta,)


def _said(delta: PartFinished) -> Iterable[Delta]:
    call = delta.part
    assert isinstance(call, ToolCall)
    said = (repair_arguments(call.broken) if call.broken else call.arguments).get("response")
    text = said if isinstance(said, str) else "" if said is None else msgspec.json.encode(said).decode()
    if not text:
        return ()
    return (PartStarted(delta.index, Text("")), PartDelta(delta.index, text), PartFinished(delta.index, Text(text)))


class EnhanceTool(Transform, frozen=True):
    """Repairs arguments that are not JSON; if that fails, the call has none. Calls are then not streamed in pieces. A
    call that was cut off for its length is not repaired: it might write half a file."""

    name = "enhancetool"

    def editor(self, prompt: Prompt) -> Editor:
        return _Repaired()


class _Repaired:
    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._broken: list[PartFinished] = []
        self._last = -1

    def __call__(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCall):
            self._calls.add(delta.index)
            self._last = delta.index
        elif isinstance(delta, PartDelta) and delta.index in self._calls:
            return ()
        elif isinstance(delta, PartFinished) and isinstance(delta.part, ToolCall) and delta.part.broken:
            self._broken.append(delta)  # whether it was cut off is known at the end
            return ()
        elif isinstance(delta, ReplyFinished):
            cut_off = self._last if delta.stop == "length" else -1
            return [*(f if f.index == cut_off else _repaired(f) for f in self._broken), delta]
        return (delta,)


def _repaired(finished: PartFinished) -> PartFinished:
    call = finished.part
    assert isinstance(call, ToolCall)
    part = msgspec.structs.replace(call, arguments=repair_arguments(call.broken), broken="")
    return PartFinished(finished.index, part)
