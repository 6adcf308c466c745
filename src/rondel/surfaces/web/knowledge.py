"""Routes of the knowledge bases: what is in them, search, and sync with progress."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from ...charge import Scope
from ...contracts.download import NeedsDownload
from ...contracts.embedder import Embedded, Embedder
from ...contracts.knowledge import BaseInfo, KnowledgeStore, StoredDocument
from ...contracts.source import Passage
from ...errors import EngineError, RondelError
from ...knowledge.base import KnowledgeBase
from ...knowledge.bases import Knowledge
from ...values import Value
from .models import Download, download_of
from .route import Call, Done, Nothing, Problem, Route
from .work import Work, WorkInfo

PASSAGES_MAX = 50
DOCUMENTS_MAX = 1_000


class BaseStatus(Value, frozen=True):
    """A base: what is stored of it, what it is read from, the download that a sync needs first, and the last sync."""

    name: str
    embedder: str
    documents: int
    chunks: int
    vectors: int
    problems: int
    synced_at: float
    sources: tuple[str, ...]
    download: Download | None = None
    sync: WorkInfo | None = None


class SearchQuery(Value, frozen=True):
    query: str
    base: str = ""
    limit: int = 8


class SyncOptions(Value, frozen=True):
    """`download` agrees to download the embedding model, if it is missing. `rebuild` reads everything again."""

    rebuild: bool = False
    download: bool = False


class DocumentsQuery(Value, frozen=True):
    filter: str = ""


class Documents(Value, frozen=True):
    documents: tuple[StoredDocument, ...]
    total: int


def _bases(call: Call[Any, Any]) -> tuple[list[KnowledgeBase], KnowledgeStore | None]:
    knowledge = call.app.knowledge
    if not isinstance(knowledge, Knowledge):
        return [], None
    return [knowledge.base(name) for name in knowledge.names], knowledge.store


def _find(call: Call[Any, Any]) -> tuple[KnowledgeBase, KnowledgeStore]:
    name = call.path("base")
    bases, store = _bases(call)
    base = next((base for base in bases if base.name == name), None)
    if base is None or store is None:
        raise Problem(404, f"there is no knowledge base {name[:80]!r}")
    return base, store


async def list_bases(call: Call[Nothing, Nothing]) -> tuple[BaseStatus, ...]:
    bases, store = _bases(call)
    return tuple([await _status(call, base, store) for base in bases if store is not None])


async def _status(call: Call[Any, Any], base: KnowledgeBase, store: KnowledgeStore) -> BaseStatus:
    info = await store.info(base.key) or BaseInfo(base.key)
    settings, embedder = base.settings, base.embedder
    return BaseStatus(
        base.name,
        embedder.name if embedder is not None else "",
        info.documents,
        info.chunks,
        info.vectors,
        info.problems,
        info.synced_at,
        (*settings.folders, *settings.files, *settings.urls),
        _missing(base),
        call.web.works.info(_key(base)),
    )


def _missing(base: KnowledgeBase) -> Download | None:
    missing = base.embedder.missing if isinstance(base.embedder, NeedsDownload) else None
    return None if missing is None else download_of(missing)


def _key(base: KnowledgeBase) -> str:
    return f"sync {base.name}"


async def sync(call: Call[SyncOptions, Nothing]) -> WorkInfo:
    base, _ = _find(call)
    if (missing := _missing(base)) is not None and not call.body.download:
        raise Problem(
            409,
            f"the embedding model {missing.title} is not downloaded ({missing.size}, {missing.licence}); "
            'agree with {"download": true}',
        )
    options, scope = call.body, Scope("embedding", person=call.person.id, key=call.key)

    async def run(work: Work) -> str:
        embedder: Embedder | None = base.embedder
        if isinstance(embedder, NeedsDownload) and embedder.missing is not None:
            async with aclosing(embedder.download()) as steps:
                async for done, total, _ in steps:
                    work.step("downloading the embedding model", done, total)
        charged = None if embedder is None else call.app.charge_embedder(embedder, scope)
        verbs = {"read": "reading files", "embed": "embedding"}
        report = await base.sync(
            embedder=charged,
            progress=lambda what, done, total: work.step(verbs.get(what, what), done, total),
            rebuild=options.rebuild,
        )
        return report.summary

    return call.web.works.start(_key(base), run)


async def cancel_sync(call: Call[Nothing, Nothing]) -> Done:
    base, _ = _find(call)
    call.web.works.cancel(_key(base))
    return Done()


async def search(call: Call[Nothing, SearchQuery]) -> tuple[Passage, ...]:
    query = call.query
    if not query.query.strip():
        raise Problem(400, "the query is empty; say what to look for")
    scope, charge = Scope("embedding", person=call.person.id, key=call.key), call.app.charge_embedder
    try:
        found = await call.app.knowledge.search(
            query.query,
            max(1, min(query.limit, PASSAGES_MAX)),
            bases=(query.base,) if query.base else (),
            charged=lambda embedder: _Absent(embedder) if _is_missing(embedder) else charge(embedder, scope),
            engine=lambda name: call.app.charge(name, scope),
        )
    except RondelError as error:
        raise Problem(404 if query.base not in call.app.knowledge.names else 502, str(error)) from None
    return tuple(found)


class _Absent:
    """An embedder whose model is not downloaded. A search must not download it: it finds by words only."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimensions = embedder.name, embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise EngineError("its embedding model is not downloaded", provider="local", model=self.name)


def _is_missing(embedder: Embedder) -> bool:
    return isinstance(embedder, NeedsDownload) and embedder.missing is not None


async def documents(call: Call[Nothing, DocumentsQuery]) -> Documents:
    """Return the documents, those that could not be read first."""
    base, store = _find(call)
    wanted = call.query.filter.lower()
    found = [one for one in await store.documents(base.key) if wanted in f"{one.path}\n{one.title}".lower()]
    found.sort(key=lambda one: (not one.problem, one.path))
    return Documents(tuple(found[:DOCUMENTS_MAX]), len(found))


_BASE = "/api/knowledge/{base}"
ROUTES = (
    Route("GET", "/api/knowledge", list_bases, "List the knowledge bases, with the progress of a sync.", "admin",
          returns=tuple[BaseStatus, ...]),
    Route("GET", "/api/knowledge/search", search, "Find passages by their words and their meaning.", "admin",
          query=SearchQuery, returns=tuple[Passage, ...]),
    Route("GET", f"{_BASE}/documents", documents, "List the documents of a base.", "admin", query=DocumentsQuery,
          returns=Documents),
    Route("POST", f"{_BASE}/sync", sync, "Read new and changed files, and forget deleted ones.", "admin",
          body=SyncOptions, returns=WorkInfo),
    Route("POST", f"{_BASE}/cancel", cancel_sync, "Cancel a sync; what was embedded is kept.", "admin"),
)  # fmt: skip
