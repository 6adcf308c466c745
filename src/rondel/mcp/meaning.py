"""Finds tools by their meaning, with the app's embedder. Without one, or if it fails, only words are searched.

A tool's vector is computed once for its name and description. The first search starts that and waits a moment; the rest
is done in the background, for later searches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import mul

from ..calling.threads import in_thread
from ..contracts.embedder import Embedder, Vector
from ..errors import RondelError
from ..machine.spending import charged_embedder
from ..machine.turn import Turn

log = logging.getLogger("rondel.mcp")

TOOLS_MAX = 2_000  # more tools than this are only found by their words
TEXT_CHARS_MAX = 1_000
QUERY_CHARS_MAX = 4_000
BATCH = 64
WAIT_S = 10.0  # 300 tools took the embedded embedder 9 s on two busy cores, once


class Meanings:
    """The vectors of an agent's tools."""

    def __init__(self) -> None:
        self._vectors: dict[bytes, Vector] = {}
        self._making: asyncio.Task[None] | None = None

    async def nearest(
        self, turn: Turn, embedder: Embedder, query: str, texts: Mapping[str, str], limit: int
    ) -> list[str]:
        """Return the names of the tools that are nearest to a query, nearest first; none if the embedder fails or takes
        too long. The turn is charged."""
        keys = {name: _key(embedder, text) for name, text in list(texts.items())[:TOOLS_MAX]}
        wanted = {key: texts[name][:TEXT_CHARS_MAX] for name, key in keys.items()}
        is_searching = True
        charged = charged_embedder(turn, embedder, lambda: is_searching)
        try:
            async with asyncio.timeout(WAIT_S):
                while not wanted.keys() <= self._vectors.keys():
                    making = self._started(wanted, charged)
                    await asyncio.wait([making])  # a search that is cancelled does not end it
                    making.result()
                (vector,) = (await charged.embed([query[:QUERY_CHARS_MAX]])).vectors
        except (RondelError, TimeoutError) as error:
            log.info("tools are searched by words only: %s", error or "the embedder takes too long")
            return []
        finally:
            is_searching = False
        rows = [(name, self._vectors[key]) for name, key in keys.items() if key in self._vectors]
        return await in_thread(_nearest, vector, rows, limit)

    async def aclose(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])

    def _started(self, wanted: Mapping[bytes, str], embedder: Embedder) -> asyncio.Task[None]:
        if self._making is None or self._making.done():
            # A task without a group, because it may outlive the turn; `aclose` awaits it.
            self._making = asyncio.create_task(self._make(wanted, embedder), name="mcp-meanings")  # noqa: TID251
            self._making.add_done_callback(_retrieve)
        return self._making

    async def _make(self, wanted: Mapping[bytes, str], embedder: Embedder) -> None:
        self._vectors = {key: vector for key, vector in self._vectors.items() if key in wanted}
        missing = [key for key in wanted if key not in self._vectors]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            embedded = await embedder.embed([wanted[key] for key in batch])
            self._vectors.update(zip(batch, embedded.vectors, strict=True))


def _key(embedder: Embedder, text: str) -> bytes:
    return sha256(f"{embedder.name}\0{text}".encode("utf-8", "surrogatepass")).digest()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark a failure as retrieved: perhaps no search waits for it any more, and the next one tries again."""
    if not task.cancelled():
        task.exception()


def _nearest(vector: Vector, rows: Sequence[tuple[str, Vector]], limit: int) -> list[str]:
    from ..knowledge.ranking import NEAR_MIN  # slow to import, and needed only here

    scores = sorted(((-sum(map(mul, vector, row)), name) for name, row in rows))
    return [name for score, name in scores[:limit] if -score >= NEAR_MIN]
