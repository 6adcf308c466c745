"""A folder of text files as a source: split into passages at headings and blank lines, ranked by BM25.

Links are not followed and hidden files are skipped, so nothing outside of the folder is ever read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from ..contracts.source import Passage
from ..errors import RondelError
from .ranking import Counted, Ranking, counted, words_of

log = logging.getLogger("rondel.sources")

FILE_BYTES_MAX = 2_000_000  # how much of a file is read
FILES_MAX = 20_000

Signature: TypeAlias = tuple[int, int, int]
"""A file's modification time, size and inode: if they are the same, so is its text."""


class _File(msgspec.Struct, frozen=True, gc=False):
    signature: Signature
    pieces: tuple[Counted[Passage], ...]


class FolderSource:
    """`FolderSource("docs")` finds passages in `docs/**/*.md` and `docs/**/*.txt`."""

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "",
        suffixes: Sequence[str] = (".md", ".txt"),
        passage_chars: int = 1_200,
        project: str = "",
    ) -> None:
        folder = Path(project, Path(path).expanduser())
        if not folder.is_dir():
            raise RondelError(f"there is no folder {str(folder)!r} to search; make it, or name another")
        if isinstance(suffixes, str) or not suffixes or not all(suffix.startswith(".") for suffix in suffixes):
            raise RondelError(f"suffixes is a list such as ['.md', '.txt'], not {suffixes!r}")
        if passage_chars < 100:
            raise RondelError(f"passage_chars is {passage_chars!r}; a passage has at least 100 characters")
        self.name = name or folder.resolve().name
        self._folder = folder.resolve()
        self._suffixes = tuple(suffix.lower() for suffix in suffixes)
        self._passage_chars = passage_chars
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._index = Ranking[Passage](())
        self._told: set[str] = set()

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        return await asyncio.to_thread(self._search, query, limit)

    def _search(self, query: str, limit: int) -> list[Passage]:
        with self._lock:  # several turns may search at the same time
            self._refresh()
            index = self._index
        found = index.best(words_of(query), limit)
        return [msgspec.structs.replace(passage, score=score) for passage, score in found]

    def _refresh(self) -> None:
        try:
            found = dict(self._listed())
        except OSError as error:
            raise RondelError(f"the folder {str(self._folder)!r} cannot be read: {error.strerror or error}") from None
        files = {path: self._read(path, signature) for path, signature in sorted(found.items())}
        if files != self._files:
            self._files = files
            self._index = Ranking(piece for file in files.values() for piece in file.pieces)

    def _listed(self) -> Iterator[tuple[str, Signature]]:
        pending, count = [""], 0
        while pending:
            below = pending.pop()
            with os.scandir(self._folder / below) as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}" if below else entry.name
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.name.lower().endswith(self._suffixes) and entry.is_file(follow_symlinks=False):
                        if (count := count + 1) > FILES_MAX:
                            more = f"has more than {FILES_MAX:,} files; the rest is left out"
                            return self._warn(f"the folder {self.name!r} {more}")
                        found = entry.stat(follow_symlinks=False)
                        yield path, (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self, path: str, signature: Signature) -> _File:
        known = self._files.get(path)
        if known is not None and known.signature == signature:
            return known
        try:
            data = _bytes_of(self._folder / path)
        except OSError as error:  # deleted meanwhile, or not readable
            self._warn(f"{path!r} in the folder {self.name!r} cannot be read: {error.strerror or error}")
            return _File(signature, ())
        if len(data) > FILE_BYTES_MAX:
            longer = f"is longer than {FILE_BYTES_MAX:,} bytes; the rest is left out"
            self._warn(f"{path!r} in the folder {self.name!r} {longer}")
        passages = passages_of(_decoded(data[:FILE_BYTES_MAX]), where=path, chars_max=self._passage_chars)
        return _File(signature, tuple(map(_counted, passages)))

    def _warn(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            log.warning(message)


def _bytes_of(path: Path) -> bytes:
    # The file may have become a link or a pipe since it was listed; neither is opened.
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return b""
        return file.read(FILE_BYTES_MAX + 1)


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


_HEADING = re.compile(r"#{1,6}[ \t]+")
_BLANK = re.compile(r"\n[ \t\f\v]*\n\s*")
_ENDS = (". ", "! ", "? ", "。", "\n", " ")  # where a long paragraph is split, the best first


def passages_of(text: str, *, where: str, chars_max: int) -> Iterator[Passage]:
    """Join neighbouring paragraphs up to `chars_max`. A heading starts a new passage and is the title of those below
    it."""
    title, kept, length, has_body = "", list[str](), 0, False
    for paragraph in _paragraphs(text, chars_max):
        heading = _heading(paragraph)
        if has_body and (heading or length + len(paragraph) > chars_max):
            yield Passage("\n\n".join(kept), title, where)
            kept, length, has_body = [], 0, False
        title = heading or title
        has_body = has_body or not heading or "\n" in paragraph
        kept.append(paragraph)
        length += len(paragraph) + 2
    if kept:
        yield Passage("\n\n".join(kept), title, where)


def _heading(paragraph: str) -> str:
    found = _HEADING.match(paragraph)
    return paragraph[found.end() :].partition("\n")[0].strip().rstrip("#").rstrip() if found else ""


def _paragraphs(text: str, chars_max: int) -> Iterator[str]:
    for paragraph in _BLANK.split(text.strip()):
        start = 0
        while len(paragraph) - start > chars_max:
            least, most = start + chars_max // 2, start + chars_max
            ends = (paragraph.rfind(end, least, most) + len(end) for end in _ENDS)
            cut = next((end for end in ends if end > least), most)
            yield paragraph[start:cut].strip()
            start = cut
        if rest := paragraph[start:].strip():
            yield rest


def _counted(passage: Passage) -> Counted[Passage]:
    return counted(passage, f"{passage.where} {passage.title} {passage.text}")
