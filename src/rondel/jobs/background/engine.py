"""The engine of a job: asks no model, calls the job's tools one after the other and answers with the last result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from ...errors import AgentFailed, ToolError
from ...prompt import Prompt
from ...text.inputs import from_text
from ...tool import Tool
from ...values import Delta, Message, ModelFacts, Reply, Text, ToolCall, ToolResult, deltas_of
from .job import BackgroundJob


class JobEngine:
    name = "job"
    facts = ModelFacts()
    without_model = True

    def __init__(self, job: BackgroundJob, tools: dict[str, Tool]) -> None:
        self._job, self._tools = job, tools

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        said = [part for message in prompt.messages for part in message.parts if isinstance(part, ToolResult)]
        for delta in deltas_of(self._next(said)):
            yield delta

    def _next(self, results: Sequence[ToolResult]) -> Reply:
        job, done = self._job, len(results)
        if results and results[-1].is_error:
            self._give_up(job.steps[done - 1].tool, results[-1].text)
        text = results[-1].text if results else job.input
        if done == len(job.steps):
            return Reply(Message("assistant", (Text(text or "(done, nothing to show)"),)))
        step = job.steps[done]
        arguments = step.arguments if step.arguments is not None else _arguments(self._tools[step.tool], text)
        return Reply(Message("assistant", (ToolCall(job.call_id(done), step.tool, arguments),)), stop="calls")

    def _give_up(self, name: str, text: str) -> None:
        if len(self._job.steps) > 1 or "agent" in self._tools[name].tags:
            raise AgentFailed(name, text)
        raise ToolError(text)


def _arguments(tool: Tool, text: str) -> dict[str, Any]:
    fields = cast("dict[str, Any]", tool.schema.get("properties", {}))
    return from_text(fields, text) or {"input": text}
