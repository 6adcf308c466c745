"""The settings of a knowledge base, and of the search of the web."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from ..text.document import Amount, PositiveAmount
from ..values import Value

CHUNK_TOKENS = 200
WORDS_ONLY = "none"  # the name that means no embedder


class KnowledgeSettings(Value, frozen=True):
    """`[knowledge.<name>]`: what belongs to a base, and how it is searched. Paths are relative to the project."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # single files, and patterns such as `docs/**/*.md`
    urls: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # patterns of files that do not belong to it
    tags: dict[str, tuple[str, ...]] = {}
    """The patterns of the files that have a tag, by the tag."""
    embedder: str = ""  # `provider:model`, or `none` to search words only; the default is the embedded model
    chunk_tokens: Annotated[int, Meta(ge=20, le=8_000)] = CHUNK_TOKENS
    rerank: str = ""  # the engine that reranks the results; none if empty
    refresh_s: Amount = 10.0
    """How often, at most, a search looks for changed files; 0 leaves that to `rondel knowledge sync`."""


class WebSearchSettings(Value, frozen=True):
    """`[web_search]`: the service that searches the web; without a provider, there is none."""

    provider: Literal["", "searxng", "brave", "tavily"] = ""
    url: str = ""  # the service's address; needed for SearXNG only
    key: str = ""
    timeout_s: PositiveAmount = 15.0

    def __repr__(self) -> str:
        return f"WebSearchSettings({self.provider!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("provider", self.provider)]
