"""Something that is downloaded once, with what a person must know before agreeing. Knows no address."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, TypeAlias, runtime_checkable

Step: TypeAlias = tuple[int, int, str]
"""How many bytes have arrived, of how many, and from where."""


class Downloadable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def size(self) -> str:
        """Its size, formatted for people."""
        ...

    @property
    def licence(self) -> str: ...


@runtime_checkable
class NeedsDownload(Protocol):
    """A part that works only after a download, such as an embedder with a model of its own."""

    @property
    def missing(self) -> Downloadable | None:
        """The missing download; None once it is complete."""
        ...

    def download(self) -> AsyncGenerator[Step]:
        """Download it, and yield the progress. Close it to stop; the part that has arrived is kept."""
        ...
