"""Makes the knowledge bases of a project: those in `[knowledge]`, and the folders that are bases by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..contracts.embedder import Embedder
from ..knowledge.base import KnowledgeBase
from ..knowledge.bases import Knowledge
from ..knowledge.settings import WORDS_ONLY, KnowledgeSettings
from ..knowledge.web import ServiceSearch
from .embedders import default_embedder, make_embedder
from .settings import Config

FOLDERS = ("documents", "knowledge")  # folders of a project that are bases without any setting
MEMORY = ":memory:"


def bases_of(config: Config) -> dict[str, KnowledgeSettings]:
    """Return the settings of each base, by its name."""
    bases = dict(config.knowledge)
    for name in FOLDERS:
        if config.project and name not in bases and Path(config.project, name).is_dir():
            bases[name] = KnowledgeSettings(folders=(name,))
    return bases


def knowledge_path(config: Config) -> str:
    """Return the file of the knowledge bases, beside the store's; an empty text if the store is in memory."""
    if config.store.path in ("", MEMORY):
        return ""
    path = Path(config.store.path)
    return str(path.with_name(f"{path.stem}.knowledge{path.suffix or '.db'}"))


def make_web_search(config: Config) -> ServiceSearch | None:
    """Return the search of the web that the settings name; None if they name none."""
    if not config.web_search.provider:
        return None
    config.check_trusted()
    return ServiceSearch(config.web_search)


def embedder_of(settings: KnowledgeSettings) -> str:
    """Return the name of a base's embedder; an empty text if only words are searched."""
    return "" if settings.embedder == WORDS_ONLY else settings.embedder or default_embedder()


def make_tool_embedder(config: Config) -> Embedder | None:
    """Return the embedded embedder, which finds tools where no knowledge base has another one; None if one has, or the
    extra is not installed. Nothing is downloaded."""
    if any(map(embedder_of, bases_of(config).values())) or not (name := default_embedder()):
        return None
    return make_embedder(name, config)


def make_knowledge(config: Config, *, env: Mapping[str, str] | None = None) -> Knowledge | None:
    """Return the bases of a project with the store that they share; None if it has none. Nothing is opened yet."""
    settings = bases_of(config)
    if not settings:
        return None
    config.check_trusted()
    from ..stores.sqlite.knowledge import SqliteKnowledge

    store = SqliteKnowledge(knowledge_path(config))
    embedders: dict[str, Embedder] = {}
    bases: list[KnowledgeBase] = []
    for name, given in settings.items():
        embedder = embedder_of(given)
        if embedder and embedder not in embedders:
            embedders[embedder] = make_embedder(embedder, config, env=env)
        project = os.path.realpath(config.project or ".")
        bases.append(KnowledgeBase(name, given, store, project=project, embedder=embedders.get(embedder)))
    return Knowledge(bases, store)
