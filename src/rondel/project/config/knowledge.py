"""Checks `[knowledge.<name>]` and `[web_search]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import ConfigError
from ...knowledge.settings import WORDS_ONLY, KnowledgeSettings, WebSearchSettings
from ...text.document import Document, KeyPath
from ...text.redaction import is_web_address, shown_url
from ...tool import NAME
from ..settings import EngineSettings
from .engines import engine_problem


def knowledge_mistakes(
    document: Document, bases: Mapping[str, KnowledgeSettings], engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    for name, base in bases.items():
        path: KeyPath = ("knowledge", name)
        if not NAME.fullmatch(name):
            yield document.error(path, f"{name!r} is not a valid name: use 1 to 64 letters, digits, '_' or '-'")
        if not (base.folders or base.files or base.urls):
            yield document.error(path, f"the knowledge base {name!r} is empty: give it folders, files or urls")
        for index, url in enumerate(base.urls):
            if not is_web_address(url or "http://x"):  # None replaces a wrong value that was reported
                message = f"{shown_url(url)!r} is not a web address; write http://host/path"
                yield document.error((*path, "urls", index), message)
        if base.embedder and base.embedder != WORDS_ONLY:
            from ..embedders import embedder_problem

            if problem := embedder_problem(base.embedder, engines):
                yield document.error((*path, "embedder"), problem)
        if base.rerank and (problem := engine_problem(base.rerank, engines)):
            yield document.error((*path, "rerank"), problem)


def web_search_mistakes(document: Document, given: WebSearchSettings) -> Iterator[ConfigError]:
    path: KeyPath = ("web_search",)
    if not given.provider:
        if given.url or given.key:
            yield document.error(path, "[web_search] names no provider: write searxng, brave or tavily")
        return
    if given.provider == "searxng" and not given.url:
        yield document.error(path, "searxng needs the address of its server: set `url`")
    if given.provider != "searxng" and not given.key:
        yield document.error(path, f"{given.provider} needs a key: set `key`, such as ${{NAME}}")
    if given.url and not is_web_address(given.url):
        message = f"{shown_url(given.url)!r} is not a web address; write http://host:port"
        yield document.error((*path, "url"), message)
