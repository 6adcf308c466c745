"""Plain text: one section."""

from __future__ import annotations

from ...contracts.knowledge import Document, Section
from ._decode import decoded


def read(data: bytes, name: str) -> Document:
    text = decoded(data)
    return Document("", (Section(text, line=1),) if text.strip() else ())
