"""Anthropic's Messages API as a dialect."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...contracts.dialect import ReplyReader
from ...prompt import Prompt
from ...values import ToolSpec
from .._names import reader_for
from .meter import Meter
from .parts import NAME, TOOL_NAME_MAX, carries, edit_images
from .prompt import THINKING_TOKENS_MIN, TOKENS_MAX_DEFAULT, read_prompt, takes, write_prompt
from .reader import AnthropicReader
from .writer import AnthropicWriter

__all__ = ["THINKING_TOKENS_MIN", "TOKENS_MAX_DEFAULT", "Anthropic"]


BETA = "anthropic-beta"
MCP_BETA = "mcp-client-2025-11-20"
_MCP = b'"type":"mcp_tool'  # begins the type of a toolset, and of calls and results in the history


class Anthropic:
    name = NAME
    path = "/v1/messages"
    messages_field = "messages"
    headers: Mapping[str, str] = {"anthropic-version": "2023-06-01", "x-api-key": "{key}"}

    carries = staticmethod(carries)
    read_prompt = staticmethod(read_prompt)
    write_prompt = staticmethod(write_prompt)

    def headers_for(self, body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Announce MCP servers and their earlier calls; a caller that announced them keeps its own version."""
        given = headers.get(BETA, "")
        if _MCP not in body or "mcp-client-" in given:
            return headers
        return {**headers, BETA: f"{given},{MCP_BETA}" if given else MCP_BETA}

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(AnthropicReader(), tools, TOOL_NAME_MAX)

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> AnthropicWriter:
        """`prompt` and `created_s` are for dialects that repeat them; this one does not."""
        return AnthropicWriter(model=model, id=id)

    # --- Passthrough --------------------------------------------------------------------------------------------------

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    takes = staticmethod(takes)
    edit_images = staticmethod(edit_images)
