"""Finds tools by name and meaning, for models whose window could not hold the schemas of all of them.

The model gets one tool that searches; the tools that it finds are offered from the next round on, for the rest of the
conversation. The results of the search in the transcript record which tools were found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..machine.tokens import estimate_tokens
from ..machine.turn import Turn
from ..plugin import Key
from ..tool import CallContext, NoResult, Tool, tool
from ..values import ToolResult
from .meaning import Meanings

if TYPE_CHECKING:
    from ..knowledge.ranking import Ranking

NAME = "find_mcp_tools"
LIMIT_MAX = 20
WORDS_WEIGHT = 1.0  # a description is a sentence or two: many words in it fit by chance
FOUND_MAX = 40  # the newest ones are offered
DESCRIPTION_CHARS = 200
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LINE = re.compile(r"^- ([a-zA-Z0-9_-]{1,64}): ", re.M)


class Catalog:
    """All tools of an agent's servers, and their size. Immutable: a new one is created when they change."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self.specs = {name: one.spec for name, one in tools.items()}
        self.tokens = sum(estimate_tokens(msgspec.json.encode(spec).decode()) for spec in self.specs.values())
        self._ranking: Ranking[str] | None = None

    async def find(self, turn: Turn, query: str, limit: int, meanings: Meanings) -> list[str]:
        """Return the names of the tools that fit best by their words and, if the app has an embedder, by their meaning,
        best first."""
        from ..knowledge.ranking import fused

        embedder = turn.services.embedder
        words = self.search(query, limit)
        if embedder is None or query in self.tools:
            return words
        texts = {name: f"{_split(name.removeprefix('mcp-'))}: {one.description}" for name, one in self.tools.items()}
        near = await meanings.nearest(turn, embedder, query, texts, limit)
        return [name for name, _ in fused(words, near, words_weight=WORDS_WEIGHT)[:limit]]

    def search(self, query: str, limit: int) -> list[str]:
        """Return the names of the tools whose words fit best, best first."""
        from ..knowledge.ranking import Ranking, counted, words_of  # slow to import, and needed only for a search

        if query in self.tools:
            return [query]
        if self._ranking is None:
            self._ranking = Ranking(counted(name, _words(one)) for name, one in self.tools.items())
        return [name for name, _ in self._ranking.best(words_of(_split(query)), limit)]


def _split(text: str) -> str:
    return _CAMEL.sub(" ", text).replace("_", " ").replace("-", " ")


def _words(one: Tool) -> str:
    """Return the words by which a tool is found: its name, which counts most, its description, and its arguments."""
    properties = cast("dict[str, Any]", one.schema.get("properties", {}))
    arguments = " ".join(
        f"{_split(str(name))} {cast('dict[str, Any]', field).get('description', '') if isinstance(field, dict) else ''}"
        for name, field in properties.items()
    )
    name = _split(one.name.removeprefix("mcp-"))
    return f"{name} {name} {name} {one.description} {arguments}"


def search_tool(catalog: Catalog, meanings: Meanings) -> Tool:
    """Return the tool that searches the catalog."""
    count = f"{len(catalog.tools):,}"

    @tool(
        name=NAME,
        idempotent=True,
        description=f"Find tools by what they do. {count} tools are available that are not listed here: describe what "
        "you want to do, and the tools that fit are listed, and can be called from your next step on.",
    )
    async def find_mcp_tools(query: str, context: CallContext, limit: int = 8) -> str | NoResult:
        found = await catalog.find(context.turn, query, max(1, min(limit, LIMIT_MAX)), meanings)
        if not found:
            return NoResult(f"None of the {count} tools fits.", "Describe it in other words.")
        lines = (f"- {name}: {' '.join(catalog.tools[name].description.split())[:DESCRIPTION_CHARS]}" for name in found)
        return "\n".join(("These tools can be called now:", *lines))

    return find_mcp_tools


class _Found:
    def __init__(self) -> None:
        self.scanned = 0
        self.names: dict[str, None] = {}


_FOUND = Key("mcp.found", _Found)


def found_tools(turn: Turn, catalog: Catalog) -> Iterable[str]:
    """Return the names of the tools that this conversation has found, as far as they still exist."""
    seen, messages = turn.state[_FOUND], turn.transcript.messages
    if seen.scanned > len(messages):
        seen.scanned = 0
    for message in messages[seen.scanned :]:
        for part in message.parts if message.role == "tool" else ():
            if isinstance(part, ToolResult) and part.name == NAME and not part.is_error:
                for name in _LINE.findall(part.text):
                    seen.names.pop(name, None)
                    seen.names[name] = None
    seen.scanned = len(messages)
    return [name for name in list(seen.names)[-FOUND_MAX:] if name in catalog.tools]
