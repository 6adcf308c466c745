"""The resources of an MCP server as a source that agents search: `{retrieve: {source: {mcp: docs}}}`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..contracts.source import Passage
from ..errors import RondelError
from ..knowledge.ranking import Ranking, counted, words_of
from ..values import Text
from .hub import find_link
from .link import Link

RESOURCES_MAX = 100
TEXT_CHARS_MAX = 200_000
PASSAGE_CHARS = 1_200
REFRESH_S = 60.0  # how often resources are read again


class McpSource:
    """Reads the texts of a server's resources, and ranks their paragraphs by words."""

    def __init__(self, server: str, project: str = "") -> None:
        self.name = server
        self._project = project
        self._read_at = float("-inf")
        self._version = -1
        self._ranking: Ranking[Passage] | None = None
        self._reading = asyncio.Lock()

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        link = find_link(self.name, self._project)
        if link is None:
            raise RondelError(f"there is no MCP server {self.name!r}; add it to rondel.toml: [mcp.{self.name}]")
        await link.session()
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._ranking is None or link.version != self._version or now - self._read_at > REFRESH_S:
                self._ranking = Ranking([counted(passage, passage.text) for passage in await _passages(link)])
                self._read_at, self._version = now, link.version
        best = self._ranking.best(words_of(query), limit)
        return [Passage(found.text, found.title, found.where, score) for found, score in best]


async def _passages(link: Link) -> list[Passage]:
    found: list[Passage] = []
    left = TEXT_CHARS_MAX
    for resource in link.offer.resources[:RESOURCES_MAX]:
        try:
            parts = await link.read(resource.uri)
        except RondelError:
            continue  # an unreadable one must not hide the others
        for part in parts:
            text = part.text.partition("\n")[2][:left] if isinstance(part, Text) else ""  # without our own first line
            left -= len(text)
            found += (Passage(piece, resource.name, resource.uri) for piece in _pieces(text))
    return found


def _pieces(text: str) -> list[str]:
    """Return the paragraphs of a text, with short ones joined and long ones cut."""
    pieces: list[str] = []
    for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
        if pieces and len(pieces[-1]) + len(paragraph) < PASSAGE_CHARS:
            pieces[-1] += f"\n\n{paragraph}"
        else:
            pieces += (paragraph[at : at + PASSAGE_CHARS] for at in range(0, len(paragraph), PASSAGE_CHARS))
    return pieces
