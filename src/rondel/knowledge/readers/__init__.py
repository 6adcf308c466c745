"""Readers of documents, one file each, chosen by the suffix of a document's name. Importing this package imports none
of them.

Other packages add readers with the entry points `rondel.readers`: an object with `suffixes` and `read`
(contracts/knowledge.py). One of them replaces a built-in reader of the same suffix.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from ...contracts.knowledge import Document, DocumentReader, Unreadable

CODE = (
    *(".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".java", ".kt", ".scala", ".go", ".rs", ".c"),
    *(".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php", ".swift", ".lua", ".pl", ".r", ".jl", ".sh", ".bash", ".sql"),
)
READERS: dict[str, tuple[str, ...]] = {
    "text": (".txt", ".text", ".rst", ".adoc", ".org", ".log", ".tex", ".toml", ".yaml", ".yml", ".ini", ".cfg"),
    "markdown": (".md", ".markdown", ".mdx"),
    "html": (".html", ".htm", ".xhtml"),
    "pdf": (".pdf",),
    "docx": (".docx",),
    "table": (".csv", ".tsv"),
    "json_text": (".json", ".jsonl", ".ndjson"),
    "code": CODE,
}
"""The modules of this folder, and the files that each reads."""
ENTRY_POINTS = "rondel.readers"


@cache
def _installed() -> dict[str, DocumentReader]:
    """Return the readers of other packages, by suffix."""
    from importlib.metadata import entry_points

    found: dict[str, DocumentReader] = {}
    for point in entry_points(group=ENTRY_POINTS):
        reader: Any = point.load()
        if isinstance(reader, type):
            reader = reader()
        found |= {suffix.lower(): reader for suffix in reader.suffixes}
    return found


@cache
def suffixes() -> frozenset[str]:
    """Return the suffixes that some reader supports."""
    return frozenset((*_installed(), *(suffix for own in READERS.values() for suffix in own)))


def reader_of(name: str) -> Callable[[bytes, str], Document] | None:
    """Return the function that reads a file of this name; None if no reader supports it."""
    dot = name.rfind(".")
    suffix = name[dot:].lower() if dot >= 0 else ""
    if suffix in _installed():
        return _installed()[suffix].read
    for module, own in READERS.items():
        if suffix in own:
            return importlib.import_module(f"{__name__}.{module}").read
    return None


def read(data: bytes, name: str) -> Document:
    """Read a document by the kind of its file; one of an unknown kind as text. Raises Unreadable."""
    function = reader_of(name)
    if function is None:
        function = importlib.import_module(f"{__name__}.text").read
    try:
        return function(data, name)
    except Unreadable:
        raise
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except Exception as error:  # a bug in a reader, or a file that its library does not expect
        raise Unreadable(f"could not be read: {type(error).__name__}: {error}") from error
