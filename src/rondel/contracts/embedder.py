"""The contract of an embedder: it turns texts into vectors whose cosine says how similar their meanings are. Knows no
model."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from ..values import Usage

Vector: TypeAlias = "array[float]"
"""32-bit floats of length 1, so that the product of two vectors is their cosine."""


class Embedded(msgspec.Struct, frozen=True):
    """The vectors of some texts, in their order, and what they cost. `model` is the upstream's own name for its model;
    it may be empty."""

    vectors: list[Vector]
    usage: Usage = Usage()
    model: str = ""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. It may also be a `Closes` (engine.py)."""

    @property
    def name(self) -> str:
        """`provider:model`, as people write it. Vectors of different names cannot be compared."""
        ...

    @property
    def dimensions(self) -> int | None:
        """The length of its vectors; None before the first answer, if only the server knows it."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text, or raise an EngineError. If a text is too long for the model, only its
        beginning counts."""
        ...
