"""Numbers the sources that a tree of agents is given, and reads the markers `[n]` in what a model answers.

A source keeps its number for the whole conversation: results of tools and replies store it. Knows no surface.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import msgspec

from ..engine import Engine, Wrapper, dialect_of
from ..errors import RondelError
from ..prompt import Prompt
from ..text.citations import MarkerFilter, source_key, sources_of
from ..values import Citation, Delta, PartDelta, PartFinished, PartStarted, Text
from .spending import charged_embedder

if TYPE_CHECKING:
    from ..contracts.knowledge import Filter
    from ..contracts.source import Passage
    from .turn import Turn

BY = "citations"  # the name under which warnings are recorded
SOURCES_MAX = 9_999


class Sources:
    """The numbered sources of a conversation, shared by all agents that work in it."""

    def __init__(self, known: dict[int, Citation]) -> None:
        self.known = known
        self._numbers = {source_key(citation): number for number, citation in known.items()}

    def learn(self, known: dict[int, Citation]) -> None:
        """Add the sources of another transcript of the same tree."""
        for number, citation in known.items():
            self.known.setdefault(number, citation)
            self._numbers.setdefault(source_key(citation), number)

    def add(self, citation: Citation) -> Citation:
        """Return the citation with its source's number, which is new if the source is."""
        key = source_key(citation)
        number = self._numbers.get(key, 0)
        if not number:
            number = max(self.known, default=0) + 1
            if number > SOURCES_MAX:
                raise RondelError(f"this conversation has more than {SOURCES_MAX:,} sources; start a new one")
            self._numbers[key] = number
        numbered = msgspec.structs.replace(citation, number=number)
        self.known.setdefault(number, numbered)
        return numbered

    def cited_in(self, text: str) -> tuple[Citation, ...]:
        """Return the sources that a text refers to."""
        if not self.known:
            return ()
        markers = MarkerFilter(self.known)
        markers.feed(text)
        markers.finish()
        return sources_of((Text(text, citations=tuple(markers.citations)),))


class CitingEngine(Wrapper):
    """An engine whose replies cite: markers of known sources become citations, and others are removed."""

    def __init__(self, engine: Engine, turn: Turn) -> None:
        super().__init__(engine)
        self._turn = turn

    @property
    def dialect(self) -> str:
        return dialect_of(self._engine)

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        deltas = self._engine.stream(prompt)
        return self._cited(deltas) if self._turn.sources.known else deltas

    async def _cited(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        known, filters, unknown = self._turn.sources.known, dict[int, MarkerFilter](), set[int]()
        async with aclosing(cast(AsyncGenerator[Delta], deltas)) as stream:
            async for delta in stream:
                if type(delta) is PartDelta and delta.index in filters:
                    if text := filters[delta.index].feed(delta.text):
                        yield PartDelta(delta.index, text)
                    continue
                if isinstance(delta, PartStarted) and isinstance(delta.part, Text):
                    filters[delta.index] = MarkerFilter(known)
                elif isinstance(delta, PartFinished) and isinstance(delta.part, Text) and not delta.part.refusal:
                    delta, more = _finished(delta, delta.part, known)
                    unknown |= more
                yield delta
        if unknown:
            numbers = ", ".join(f"[{number}]" for number in sorted(unknown)[:10])
            await self._turn.warn(BY, f"the model cited {numbers}, but no such source exists; the marker was removed")


def _finished(delta: PartFinished, part: Text, known: dict[int, Citation]) -> tuple[PartFinished, set[int]]:
    markers = MarkerFilter(known)
    text = markers.feed(part.text) + markers.finish()
    citations = (*part.citations, *markers.citations)
    return PartFinished(delta.index, msgspec.structs.replace(part, text=text, citations=citations)), markers.unknown


# --- passages ---------------------------------------------------------------------------------------------------------


async def search_knowledge(
    turn: Turn, query: str, limit: int, *, bases: tuple[str, ...] = (), filter: Filter | None = None
) -> list[Passage]:
    """Search the app's knowledge bases. The cost is charged to the turn."""
    return await turn.services.knowledge.search(
        query,
        limit,
        bases=bases,
        filter=filter,
        charged=lambda embedder: charged_embedder(turn, embedder),
        engine=lambda name: turn.engine_named(name, kind="rerank"),
    )


def numbered_passages(turn: Turn, passages: Iterable[Passage]) -> Text:
    """Return passages for a model, each with the number of its source, and every line marked as data."""
    citations = [turn.sources.add(passage.citation) for passage in passages]
    blocks = [_block(citation, passage) for citation, passage in zip(citations, passages, strict=True)]
    return Text("\n\n".join(blocks), citations=tuple(citations))


def _block(citation: Citation, passage: Passage) -> str:
    where = f"({_line(citation.address)})" if citation.address else ""
    named = (_line(passage.title), _line(passage.headings), where)
    title = " ".join(part for part in named if part)
    lines = [*((title,) if title else ()), *passage.text.splitlines()]
    return "\n".join((f"[{citation.number}]", *(f"> {line}".rstrip() for line in lines)))


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
