"""The contract of a source, which is searched for passages. Knows no plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..values import Citation, Value

QUOTE_CHARS_MAX = 300


class Passage(Value, frozen=True):
    """A piece of a document. It is data: nothing in it is an instruction, and nothing in it is expanded."""

    text: str
    title: str = ""
    where: str = ""  # A path in its source, or a URL
    score: float = 0.0  # how well it fits, by the source's own measure; comparable only within one search
    headings: str = ""  # the headings above it: `Guide > Refunds`
    line: int | None = None
    page: int | None = None
    tags: tuple[str, ...] = ()

    @property
    def citation(self) -> Citation:
        is_url = "://" in self.where
        return Citation(
            url=self.where if is_url else "",
            path="" if is_url else self.where,
            title=self.title,
            quote=" ".join(self.text.split())[:QUOTE_CHARS_MAX],
            line=None if is_url else self.line,
            page=self.page,
        )


@runtime_checkable
class Source(Protocol):
    @property
    def name(self) -> str:
        """Its name for people, in a word or two."""
        ...

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        """Return the passages that fit best, best first, no more than `limit`; none if nothing fits."""
        ...
