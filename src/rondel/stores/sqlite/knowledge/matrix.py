"""The vectors of one base as a matrix in memory: the only file that knows numpy. It is imported with the first search.

Rows are added at the end, and a removed one is replaced by the last, so the cost is that of the changed rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ....contracts.embedder import Vector
from ....contracts.knowledge import Hit
from ....errors import StoreError, install_extra

if TYPE_CHECKING:
    import numpy

GROWTH = 1.1
"""The factor by which a full matrix grows; a larger one would waste memory on a base that rarely grows."""


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise StoreError(f"searching by vectors needs the extra: {install_extra('knowledge')}") from error
    return numpy


class Matrix:
    def __init__(self, dimensions: int) -> None:
        np = _numpy()
        self.dimensions, self.version = dimensions, -1
        self._rows: numpy.ndarray[Any, Any] = np.empty((0, dimensions), dtype=np.float32)
        self._ids: numpy.ndarray[Any, Any] = np.empty(0, dtype=np.int64)
        self._documents: numpy.ndarray[Any, Any] = np.empty(0, dtype=np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def difference(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the ids that the matrix lacks, and its surplus rows, the last one first."""
        np = _numpy()
        wanted, have = np.asarray(ids, dtype=np.int64), self._ids[: self._size]
        missing = wanted[~np.isin(wanted, have)]
        spare = np.flatnonzero(~np.isin(have, wanted))
        return missing.tolist(), spare[::-1].tolist()

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows, the last one first."""
        for row in rows:
            last = self._size = self._size - 1
            if row != last:
                self._rows[row], self._ids[row] = self._rows[last], self._ids[last]
                self._documents[row] = self._documents[last]

    def add(self, count: int, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Add rows of chunk, document and vector; no more than `count`."""
        np = _numpy()
        if self._size + count > len(self._rows):
            room = max(self._size + count, int(len(self._rows) * GROWTH))
            self._rows.resize((room, self.dimensions), refcheck=False)
            self._ids.resize(room, refcheck=False)
            self._documents.resize(room, refcheck=False)
        for chunk, document, vector in rows:
            row = self._size
            self._rows[row] = np.frombuffer(vector, dtype="<f4")
            self._ids[row], self._documents[row] = chunk, document
            self._size += 1

    def nearest(self, vector: Vector, limit: int, documents: Sequence[int] | None = None) -> list[Hit]:
        """Return the nearest chunks, best first; with `documents`, only theirs."""
        np = _numpy()
        if not self._size:
            return []
        scores = self._rows[: self._size] @ np.frombuffer(vector, dtype=np.float32)
        if documents is not None:
            allowed = np.isin(self._documents[: self._size], np.asarray(documents, dtype=np.int64))
            scores[~allowed] = -2.0
        limit = min(limit, self._size)
        best = np.argpartition(scores, -limit)[-limit:]
        # Equal scores in a fixed order, so that a search gives the same result twice.
        best = best[np.lexsort((self._ids[best], -scores[best]))]
        return [Hit(int(self._ids[row]), float(scores[row])) for row in best if scores[row] > -2.0]
