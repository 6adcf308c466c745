"""The engine of a job: it asks nobody, calls the job's tools one after the other, and says what the last one gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from ..errors import AgentFailed, ToolError
from ..inputs import from_text
from ..prompt import Prompt
from ..tool import Tool
from ..values import Delta, Message, ModelFacts, Reply, Text, ToolCall, ToolResult, deltas_of
from .order import Order


class Steps:
    name = "job"
    facts = ModelFacts()

    asks_no_model = True
    """So nothing is charged for it, not even an estimate."""

    def __init__(self, order: Order, tools: dict[str, Tool]) -> None:
        self._order, self._tools = order, tools

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        said = [part for message in prompt.messages for part in message.parts if isinstance(part, ToolResult)]
        for delta in deltas_of(self._next(said)):
            yield delta

    def _next(self, results: Sequence[ToolResult]) -> Reply:
        order, done = self._order, len(results)
        if results and results[-1].is_error:
            self._give_up(order.steps[done - 1].tool, results[-1].text)
        text = results[-1].text if results else order.input
        if done == len(order.steps):
            return Reply(Message("assistant", (Text(text or "(done, nothing to show)"),)))
        step = order.steps[done]
        arguments = step.arguments if step.arguments is not None else _arguments(self._tools[step.tool], text)
        return Reply(Message("assistant", (ToolCall(order.call_id(done), step.tool, arguments),)), stop="calls")

    def _give_up(self, name: str, text: str) -> None:
        if len(self._order.steps) > 1 or "agent" in self._tools[name].tags:
            raise AgentFailed(name, text)
        raise ToolError(text)


def _arguments(tool: Tool, text: str) -> dict[str, Any]:
    fields = cast("dict[str, Any]", tool.schema.get("properties", {}))
    return from_text(fields, text) or {"input": text}
