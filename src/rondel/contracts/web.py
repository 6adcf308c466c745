"""The contract of a search of the web: a query in, results out, each with its address. Knows no service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .source import Passage


class WebSearch(Protocol):
    @property
    def name(self) -> str: ...

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        """Return what was found, the best first, no more than `limit`. Raises RondelError if the service fails."""
        ...
