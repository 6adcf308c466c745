"""A folder as a source, without a store: its files are read like those of a knowledge base, and ranked by words."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..calling.threads import in_thread
from ..contracts.knowledge import Chunk
from ..contracts.source import Passage
from ..errors import RondelError
from .ranking import Counted, Ranking, counted, words_of
from .scan import ReadFile, read_file, scan
from .settings import KnowledgeSettings

log = logging.getLogger("rondel.sources")

FILES_MAX = 20_000  # all of them are held in memory


class FolderSource:
    """`FolderSource("docs")` finds passages in the files below `docs/` that some reader can read."""

    def __init__(self, path: str | Path, *, name: str = "", project: str = "") -> None:
        folder = Path(project, Path(path).expanduser())
        self._folder = folder.resolve()
        self._check_folder()
        self.name = name or self._folder.name
        self._settings = KnowledgeSettings(folders=(str(self._folder),))
        self._lock = threading.Lock()
        self._files: dict[str, ReadFile] = {}
        self._pieces: dict[str, tuple[Counted[Passage], ...]] = {}
        self._index = Ranking[Passage](())
        self._warned: set[str] = set()

    def _check_folder(self) -> None:
        if not self._folder.is_dir():
            raise RondelError(f"there is no folder {str(self._folder)!r} to search; create it, or name another")

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        return await in_thread(self._search, query, limit)

    def _search(self, query: str, limit: int) -> list[Passage]:
        with self._lock:  # several turns may search at the same time
            self._refresh()
            index = self._index
        found = index.best(words_of(query), limit)
        return [msgspec.structs.replace(passage, score=score) for passage, score in found]

    def _refresh(self) -> None:
        """Read the files that are new or have changed since the last search."""
        self._check_folder()
        found = scan(self._settings, str(self._folder))
        if len(found.files) > FILES_MAX:
            self._warn(f"the folder {self.name!r} has more than {FILES_MAX:,} files; the rest is left out")
        files: dict[str, ReadFile] = {}
        for path in sorted(found.files)[:FILES_MAX]:
            known = self._files.get(path)
            if known is None or known.document.signature != found.files[path]:
                known = self._read(path, read_file(path, found, self._settings))
            files[path] = known
        if files != self._files:
            self._files = files
            self._pieces = {path: self._pieces[path] for path in files}
            self._index = Ranking(piece for pieces in self._pieces.values() for piece in pieces)

    def _read(self, path: str, read: ReadFile) -> ReadFile:
        if read.document.problem:
            self._warn(f"{path!r} in the folder {self.name!r} {read.document.problem}")
        title = read.document.title or path.rpartition("/")[2]
        self._pieces[path] = tuple(_counted(chunk, path, title) for chunk in read.chunks)
        return read

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message)


def _counted(chunk: Chunk, path: str, title: str) -> Counted[Passage]:
    passage = Passage(chunk.text, title, path, 0.0, chunk.headings, chunk.line, chunk.page)
    return counted(passage, f"{path} {title} {chunk.headings} {chunk.text}")
