"""`knowledge.search`: passages from the app's knowledge bases, with numbers by which an answer cites them."""

from __future__ import annotations

from ..errors import ToolError
from ..machine.citing import numbered_passages, search_knowledge
from ..tool import CallContext, NoResult
from ..values import Text

LIMIT_MAX = 20


async def search(query: str, context: CallContext, limit: int = 3, base: str = "") -> Text | NoResult:
    """Find passages in the project's documents that match a question.

    Args:
        query: the question, or some words of it
        limit: how many passages at most
        base: the knowledge base to search; all of them by default
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise ToolError(f"limit is {limit}; it must be from 1 to {LIMIT_MAX}")
    found = await search_knowledge(context.turn, query, limit, bases=(base,) if base else ())
    if not found:
        return NoResult(f"Nothing in the project's knowledge matches {query[:200]!r}.", "Try other words.")
    return numbered_passages(context.turn, found)


AGENTS = (search,)
