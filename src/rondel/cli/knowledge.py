"""`rondel knowledge`: the knowledge bases of a project: sync, search and look at them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..charge import Scope
from ..contracts.embedder import Embedder
from ..contracts.knowledge import BaseInfo, Filter, KnowledgeStore, StoredDocument
from ..contracts.source import Passage
from ..engines.local.minilm import LocalEmbedder
from ..errors import RondelError
from ..knowledge.base import KnowledgeBase, Progress, SyncReport
from ..knowledge.bases import Knowledge
from ..knowledge.scan import scan
from ..ledger.ledger import Ledger
from ..project.config import make_ledger
from ..project.folder import open_store
from ..project.knowledge import make_knowledge
from ..project.settings import Config
from ..surfaces.terminal.console import progress_bar
from ..surfaces.terminal.listing import Listing, cut
from ..text.printable import clean, one_line
from ._options import CommandGroup, as_json, flag, limit
from ._output import ADD_EMBEDDER, console, show, show_json, tell
from ._trust import load_config
from ._weights import download_if_agreed

T = TypeVar("T")

TEXT_LINES = 6
WATCH_S = 2.0
base_argument = click.argument("base", default="", help="the knowledge base; by default, all of them")
one_base = click.argument("base", help="the knowledge base")


class OpenBases(msgspec.Struct, frozen=True):
    """The knowledge bases of the project, and the ledger that charges their embedders."""

    knowledge: Knowledge
    ledger: Ledger
    config: Config

    @property
    def store(self) -> KnowledgeStore:
        return self.knowledge.store

    def bases(self, name: str) -> list[KnowledgeBase]:
        names = (name,) if name else self.knowledge.names
        return [self.knowledge.base(each) for each in names]

    def charged(self, embedder: Embedder) -> Embedder:
        return self.ledger.charge_embedder(embedder, Scope())

    def embedder(self, base: KnowledgeBase) -> Embedder | None:
        return None if base.embedder is None else self.charged(base.embedder)


@asynccontextmanager
async def _opened() -> AsyncGenerator[OpenBases]:
    config = load_config()
    knowledge = make_knowledge(config)
    if knowledge is None:
        raise RondelError(
            "there is no knowledge base: put files into a folder documents/ of a project, or add [knowledge.<name>] "
            "to rondel.toml"
        )
    store = open_store(config)
    ledger = make_ledger(store.ledger_store, config)
    try:
        yield OpenBases(knowledge, ledger, config)
    finally:
        await knowledge.aclose()
        await ledger.aclose()
        await store.aclose()


def _run(work: Callable[[OpenBases], Awaitable[T]]) -> T:
    async def main() -> T:
        async with _opened() as opened:
            return await work(opened)

    return asyncio.run(main())


@click.group(cls=CommandGroup)
def knowledge() -> None:
    """Manage and search the knowledge bases."""


# --- sync -------------------------------------------------------------------------------------------------------------


@knowledge.command()
@base_argument
@flag("--dry-run", "dry_run", help="show what would change, without reading it into the base")
@flag("--rebuild", help="read and embed everything again, for example with another embedder")
@as_json
def sync(base: str, dry_run: bool, rebuild: bool, as_json: bool) -> None:
    """Read new and changed files, and forget deleted ones."""

    async def work(opened: OpenBases) -> list[SyncReport]:
        reports: list[SyncReport] = []
        bases = opened.bases(base)
        _tell_of_words_only(bases)
        if not dry_run:
            await _fetch_weights(bases)
        for one in bases:
            with _progress(one.name) as progress:
                embedder = opened.embedder(one)
                report = await one.sync(embedder=embedder, progress=progress, rebuild=rebuild, dry_run=dry_run)
            reports.append(report)
            if not as_json:
                _show_report(report, dry_run=dry_run)
        return reports

    reports = _run(work)
    if as_json:
        show_json(reports)


def _tell_of_words_only(bases: Iterable[KnowledgeBase]) -> None:
    """Say once if a base would be searched by meaning, too, with the extra."""
    if any(base.embedder is None and not base.settings.embedder for base in bases):
        tell(f"Only words are searched, because no embedder is installed; {ADD_EMBEDDER}.")


async def _fetch_weights(bases: Iterable[KnowledgeBase]) -> None:
    """Ask for each embedding model once; without it, a base is searched by words only."""
    fetched: dict[str, bool] = {}
    for base in bases:
        if not isinstance(base.embedder, LocalEmbedder):
            continue
        name = base.embedder.weights.name
        if name not in fetched:
            fetched[name] = await download_if_agreed(base.embedder.weights)
        if not fetched[name]:
            tell(f"{base.name} is searched by words only; for meaning, run `rondel model pull {name}` and sync again.")
            base.embedder = None


@contextmanager
def _progress(name: str) -> Generator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bar(console(sys.stderr), *columns, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)
        verbs = {"read": "reading files", "embed": "embedding"}
        yield lambda what, done, total: bar.update(
            task, completed=done, total=total, description=f"{name}: {verbs.get(what, what)}"
        )


def _show_report(report: SyncReport, *, dry_run: bool = False) -> None:
    would = "would be: " if dry_run and (report.added or report.changed or report.moved or report.removed) else ""
    tell(f"{report.base}: {would}{report.summary}.")
    if dry_run:
        for mark, paths in (("+", report.added), ("~", report.changed), ("-", report.removed)):
            for path in paths:
                tell(f"  {mark} {one_line(path, 200)}")
        for new, old in report.moved.items():
            tell(f"  > {one_line(old, 200)} -> {one_line(new, 200)}")
    for path, problem in sorted(report.problems.items()):
        tell(f"  ! {one_line(path, 200)} {one_line(problem, 300)}")


@knowledge.command()
@base_argument
def watch(base: str) -> None:
    """Sync whenever a file changes, until Ctrl-C."""

    async def work(opened: OpenBases) -> None:
        bases = opened.bases(base)
        await _fetch_weights(bases)
        tell(f"Watching {', '.join(one.name for one in bases)}. Ctrl-C stops this.")
        seen: dict[str, object] = {}
        while True:
            for one in bases:
                # Only what the file system says is compared here: web pages are fetched by `sync`.
                found = await asyncio.to_thread(scan, one.settings, one.project)
                now = (found.files, found.problems)
                if seen.get(one.name) == now:
                    continue
                with _progress(one.name) as progress:
                    report = await one.sync(embedder=opened.embedder(one), progress=progress)
                if one.name not in seen or report.added or report.changed or report.moved or report.removed:
                    _show_report(report)
                seen[one.name] = now
            await asyncio.sleep(WATCH_S)

    _run(work)


# --- search -----------------------------------------------------------------------------------------------------------


@knowledge.command()
@click.argument("query", help="what to look for")
@click.option("--base", "-b", multiple=True, help="search only this knowledge base; may be repeated")
@click.option("--path", "-p", multiple=True, help="only documents whose path matches: guides/*")
@click.option("--tag", "-t", multiple=True, help="only documents with this tag")
@limit(5)
@as_json
def search(
    query: str, base: tuple[str, ...], path: tuple[str, ...], tag: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Find passages by their words and their meaning."""

    async def work(opened: OpenBases) -> list[Passage]:
        filter = Filter(path, tag)
        _tell_of_words_only([one for one in opened.bases("") if not base or one.name in base])
        return await opened.knowledge.search(query, limit, bases=base, filter=filter, charged=opened.charged)

    found = _run(work)
    if as_json:
        show_json([{**msgspec.to_builtins(passage), "address": passage.citation.address} for passage in found])
    elif not found:
        tell("Nothing matches. `rondel knowledge sync` reads new files.")
    else:
        for number, passage in enumerate(found, 1):
            show(_shown(number, passage))


def _shown(number: int, passage: Passage) -> Text:
    head = Text.assemble((f"[{number}] ", "bold"), (one_line(passage.title, 100), "bold"))
    if passage.headings:
        head.append(f" {one_line(passage.headings, 100)}")
    head.append(f"  {one_line(passage.citation.address, 200)}", "dim")
    lines = [line for line in passage.text.splitlines() if line.strip()]
    for line in lines[:TEXT_LINES]:
        head.append(f"\n    {one_line(line, 200)}")
    if len(lines) > TEXT_LINES:
        head.append(f"\n    … {len(lines) - TEXT_LINES} more lines", "dim")
    return head


# --- what is there ----------------------------------------------------------------------------------------------------


@knowledge.command(name="list")
@as_json
def list_bases(as_json: bool) -> None:
    """List the knowledge bases."""

    async def work(opened: OpenBases) -> list[tuple[KnowledgeBase, BaseInfo]]:
        return [(base, await opened.store.info(base.key) or BaseInfo(base.key)) for base in opened.bases("")]

    found = _run(work)
    if as_json:
        show_json([_described(base, info) for base, info in found])
        return
    made = Listing("base", "documents", "chunks", "embedded", "problems", "synced", "from", growing=1)
    for base, info in found:
        counts = (f"{info.documents:,}", f"{info.chunks:,}", f"{info.vectors:,}", f"{info.problems:,}")
        made.add_row(base.name, *counts, _when(info.synced_at), cut(one_line(_from(base), 200)))
    show(made)


def _described(base: KnowledgeBase, info: BaseInfo) -> dict[str, Any]:
    return {
        "name": base.name,
        "embedder": base.embedder.name if base.embedder is not None else "",
        **{name: getattr(info, name) for name in ("documents", "chunks", "vectors", "problems", "synced_at")},
        **{name: getattr(base.settings, name) for name in ("folders", "files", "urls")},
    }


def _from(base: KnowledgeBase) -> str:
    return ", ".join((*base.settings.folders, *base.settings.files, *base.settings.urls))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M") if at else "never"


@knowledge.command(name="show")
@one_base
@click.argument("path", default="", help="a document; by default, all are listed")
@as_json
def show_base(base: str, path: str, as_json: bool) -> None:
    """Show the documents of a base, or the chunks of one document."""

    async def documents(opened: OpenBases) -> list[StoredDocument]:
        return await opened.store.documents(opened.knowledge.base(base).key)

    async def chunks(opened: OpenBases) -> list[dict[str, Any]]:
        found = await opened.store.chunks_of(opened.knowledge.base(base).key, path)
        if not found:
            raise RondelError(f"the knowledge base {base!r} has no document {path!r}; `rondel knowledge show {base}`")
        return [msgspec.to_builtins(stored.chunk) for stored in found]

    if path:
        rows = _run(chunks)
        if as_json:
            show_json(rows)
            return
        for number, row in enumerate(rows, 1):
            place = f"line {row['line']}" if row.get("line") else f"page {row['page']}" if row.get("page") else ""
            head = Text.assemble((f"{number} ", "bold"), one_line(row.get("headings", ""), 100), (f"  {place}", "dim"))
            # Cleaned here: later, a sequence whose end the console drops would hide the rest of the text.
            show(head.append(f"\n{clean(row['text'])}\n"))
        return
    found = _run(documents)
    if as_json:
        show_json(found)
        return
    made = Listing("document", "chunks", "title or problem", growing=1)
    for document in found:
        about = f"! {document.problem}" if document.problem else document.title
        made.add_row(one_line(document.path, 200), f"{document.chunks:,}", cut(one_line(about, 200)))
    show(made)


@knowledge.command()
@one_base
def remove(base: str) -> None:
    """Remove a base from the store. Its files stay; the next sync reads them again."""

    async def work(opened: OpenBases) -> bool:
        key = opened.knowledge.base(base).key
        async with opened.store.lock(key):
            return await opened.store.remove(key)

    if not _run(work):
        raise RondelError(f"nothing is stored for the knowledge base {base!r}")
    tell(f"Removed {base} from the store; its files stay.")
