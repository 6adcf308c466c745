"""Continues without the MCP servers that a provider cannot reach.

OpenAI and Anthropic connect to MCP servers themselves, and the whole request fails if one of the servers does. It is
sent again after 500 ms, then after twice as long each time, at most 2 s; then without the servers that failed, with a
note that names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, Notice, ReplyStarted, ToolSpec

LABELS = {"mcp": "server_label", "mcp_toolset": "mcp_server_name"}  # the field with which a tool names its server
EXTRA, BASE_S, CAP_S = 1, 0.5, 2.0
STATUSES = (408, 409, 424, 429)


class RemoteMcp(Wrapper):
    def __init__(self, engine: Engine, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        super().__init__(engine)
        self._sleep = sleep

    @property
    def dialect(self) -> str:
        return dialect_of(self._engine)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        return await cast(Relays, self._engine).relay(fields, headers, path=path)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        missing: list[str] = []
        failures = 0
        while True:
            labels = [label for spec in prompt.tools if (label := _label(spec))]
            shown = False
            deltas = self._engine.stream(prompt)
            try:
                async for delta in deltas:
                    shown = shown or not isinstance(delta, (Notice, ReplyStarted))
                    yield delta
                return
            except EngineError as error:
                if shown or not labels or not _may_be_theirs(error):
                    raise
                failure = error
            finally:
                await close(deltas)
            failures += 1
            lost = failure.attempts_of(self.name)
            if failures <= EXTRA:
                wait_s = min(CAP_S, BASE_S * 2 ** (failures - 1))
                yield Notice(f"{failure} (asked again in {wait_s:g} s)", lost=lost)
                await self._sleep(wait_s)
                continue
            failed = [label for label in labels if label in str(failure)] or labels
            missing += failed
            yield Notice(f"{failure} (asked again without the MCP servers {', '.join(failed)})", lost=lost)
            prompt = _without(prompt, failed, missing)


def _label(spec: ToolSpec) -> str:
    for raw in spec.opaque.values():
        form = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        if key := LABELS.get(form.get("type", "")):
            return str(form.get(key, ""))
    return ""


def _may_be_theirs(error: EngineError) -> bool:
    return error.retryable or error.status in STATUSES or error.status >= 500 or "mcp" in str(error).lower()


def _without(prompt: Prompt, failed: list[str], missing: list[str]) -> Prompt:
    kept = tuple(spec for spec in prompt.tools if _label(spec) not in failed)
    note = (
        f"MCP status: these servers were not available, so their tools were not used: {', '.join(missing)}. If their "
        "tools were needed for what the user asked, tell the user so."
    )
    nodes = tuple(node for node in prompt.nodes if getattr(node, "id", "") != "mcp-remote")
    return prompt.replace(tools=kept, nodes=nodes).instruct(note, id="mcp-remote")
