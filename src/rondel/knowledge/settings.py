"""The settings of a knowledge base."""

from __future__ import annotations

from ..values import Value

CHUNK_TOKENS = 200
WORDS_ONLY = "none"  # the name of no embedder


class KnowledgeSettings(Value, frozen=True):
    """`[knowledge.<name>]`: what belongs to a base, and how it is searched. Paths are relative to the project."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # single files, and patterns such as `docs/**/*.md`
    urls: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # patterns of files that do not belong to it
    tags: dict[str, tuple[str, ...]] = {}
    """The patterns of the files that have a tag, by the tag."""
    embedder: str = ""  # `provider:model`, or `none` to search words only; the default is the embedded model
    chunk_tokens: int = CHUNK_TOKENS
    rerank: str = ""  # the engine that orders what was found; none if this is empty
    refresh_s: float = 10.0
    """How often a search looks for changed files at most; 0 leaves that to `rondel knowledge sync`."""
