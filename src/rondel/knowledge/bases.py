"""The knowledge bases of a project, together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..contracts.embedder import Embedder
from ..contracts.knowledge import Filter, KnowledgeStore
from ..contracts.source import Passage
from ..engine import Engine, close
from ..errors import RondelError, nearest
from .base import KnowledgeBase
from .ranking import RANK_OFFSET

QUERY_CHARS_MAX = 4_000


class Knowledge:
    """The bases of a project, and the store that they share. `app.knowledge` is one."""

    def __init__(self, bases: Iterable[KnowledgeBase], store: KnowledgeStore) -> None:
        self._bases = {base.name: base for base in bases}
        self.store = store

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._bases)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the first base that has one."""
        return next((base.embedder for base in self._bases.values() if base.embedder is not None), None)

    def base(self, name: str) -> KnowledgeBase:
        if name not in self._bases:
            hint = (
                nearest(name, self.names) if self._bases else "; create a folder documents/, or add [knowledge.<name>]"
            )
            raise RondelError(f"there is no knowledge base {name!r}{hint}")
        return self._bases[name]

    async def search(
        self,
        query: str,
        limit: int,
        *,
        bases: Sequence[str] = (),
        filter: Filter | None = None,
        charged: Callable[[Embedder], Embedder] | None = None,
        engine: Callable[[str], Engine] | None = None,
    ) -> list[Passage]:
        """Return the best passages of the named bases, or of all. `charged` wraps a base's embedder, `engine` returns
        the engine of a base that reranks."""
        searched = [self.base(name) for name in dict.fromkeys(bases)] or list(self._bases.values())
        rankings: list[list[Passage]] = []
        for base in searched:
            embedder = base.embedder if base.embedder is None or charged is None else charged(base.embedder)
            rerank = engine(base.settings.rerank) if base.settings.rerank and engine is not None else None
            found = await base.search(query[:QUERY_CHARS_MAX], limit, filter=filter, embedder=embedder, rerank=rerank)
            rankings.append(found)
        if len(rankings) == 1:
            return rankings[0]
        # Scores of different bases cannot be compared, but ranks can.
        ranked = [(RANK_OFFSET + rank, passage) for found in rankings for rank, passage in enumerate(found)]
        return [passage for _, passage in sorted(ranked, key=lambda pair: pair[0])][:limit]

    async def aclose(self) -> None:
        for embedder in {id(base.embedder): base.embedder for base in self._bases.values()}.values():
            await close(embedder)
        await self.store.aclose()
