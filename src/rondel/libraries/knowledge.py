"""`knowledge.search`: passages from the texts in the project's folder `knowledge/`, the only folder it ever reads."""

from __future__ import annotations

import functools
from pathlib import Path

from ..contracts.source import Passage
from ..errors import ToolError
from ..knowledge.folder import FolderSource
from ..tool import NoResult

FOLDER = "knowledge"
LIMIT_MAX = 20


async def search(query: str, limit: int = 3, project: str = "") -> str | NoResult:
    """Find passages in the project's knowledge that match a question.

    Args:
        query: the question, or some words of it
        limit: how many passages at most
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise ToolError(f"limit is {limit}; it must be from 1 to {LIMIT_MAX}")
    found = await _source(project).search(query, limit)
    if not found:
        return NoResult(f"Nothing in the project's knowledge matches {query[:200]!r}.", "Try other words.")
    return "\n\n".join(_block(number, passage) for number, passage in enumerate(found, 1))


@functools.lru_cache(maxsize=8)
def _source(project: str) -> FolderSource:
    # Cached: a source reads only what has changed since the last search.
    folder = Path(project, FOLDER)
    if not folder.is_dir():
        raise ToolError(f"there is nothing to search: the project has no folder {FOLDER!r} with .md or .txt files")
    return FolderSource(folder.resolve())


def _block(number: int, passage: Passage) -> str:
    head = " ".join(" ".join(part.split()) for part in (passage.title, f"({passage.where})") if part)
    return "\n".join((f"[{number}] {head}", *(f"> {line}".rstrip() for line in passage.text.splitlines())))


AGENTS = (search,)
