"""The tool with which a model ends its work: its text is the turn's answer."""

from __future__ import annotations

from ..tool import CallContext, tool
from ..values import Text, ToolResult


@tool(name="finish", idempotent=True)
async def finish(text: str, context: CallContext) -> ToolResult:
    """End the work. The text is what the user gets as the answer; nothing follows it.

    Args:
        text: the whole answer
    """
    return ToolResult(context.call.id, (Text(text),), final=True)
