"""A labelled set that nobody here wrote: the index of the Python documentation, from Debian's package `python3-doc`.

Its authors put terms ("shifting operations", "soft keyword") beside the sections that explain them. A term is a query,
and the sections are what a search should find. The package is downloaded with apt and kept in the user's cache.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

CACHE = Path.home() / ".cache" / "rondel-bench"
PAGE_BYTES_MAX = 60_000  # of a page of the library; those of the reference are all taken
TERMS_MAX = 1_000
SECTIONS_MAX = 3
_TERM = re.compile(r"[A-Za-z][A-Za-z' -]{3,60}")  # no code, no version, no number of a standard
_NUMBER = re.compile(r"\[\d+\]")


class Place(NamedTuple):
    """The lines of a page that a section takes, without those of the sections in it."""

    page: str
    first: int
    last: int

    def holds(self, page: str, line: int) -> bool:
        return page == self.page and self.first <= line <= self.last


class Term(NamedTuple):
    words: str
    places: tuple[Place, ...]

    @property
    def is_held_out(self) -> bool:
        """Half of the terms: nothing in Rondel was chosen by them."""
        return sha256(self.words.encode()).digest()[0] % 2 == 1


def documentation() -> Path | None:
    """The folder of the documentation's pages; None where there is no apt. Downloads it once."""
    known = next(CACHE.glob("python-doc/**/html/genindex-all.html"), None)
    if known is None:
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            return None
        depends = subprocess.run(["apt-cache", "depends", "python3-doc"], capture_output=True, text=True, check=False)
        if (package := re.search(r"Depends: (python3\.\d+-doc)", depends.stdout)) is None:
            return None
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["apt-get", "download", package[1]], cwd=folder, check=True, capture_output=True)
            (archive,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, CACHE / "python-doc"], check=True)
        known = next(CACHE.glob("python-doc/**/html/genindex-all.html"))
    return known.resolve().parent


def pages_and_terms(root: Path) -> tuple[list[str], list[Term]]:
    """The pages that are searched, and terms whose sections are all on them."""
    index = _Index()
    index.feed((root / "genindex-all.html").read_text())
    pages = sorted({link.partition("#")[0] for links in index.terms.values() for link in links})
    pages = [page for page in pages if _is_taken(root, page)]
    places = {page: _places(root / page, page) for page in pages}
    terms: list[Term] = []
    for words, links in index.terms.items():
        split = [link.partition("#")[::2] for link in links]
        if all(page in places for page, _ in split):
            found = {places[page][anchor] for page, anchor in split if anchor in places[page]}
            if 1 <= len(found) <= SECTIONS_MAX:
                terms.append(Term(words, tuple(sorted(found))))
    terms.sort(key=lambda term: sha256(term.words.encode()).digest()[1:])
    return pages, terms[:TERMS_MAX]


def _is_taken(root: Path, page: str) -> bool:
    folder = page.partition("/")[0]
    return folder == "reference" or (folder == "library" and (root / page).stat().st_size <= PAGE_BYTES_MAX)


class _Index(HTMLParser):
    """Reads terms and their links. A term below another is both together, as it is read: "class attribute"."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, list[str]] = {}
        self._open: list[tuple[list[str], list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "li":
            self._open.append(([], []))
        elif tag == "a" and self._open and "#index-" in (link := dict(attrs).get("href") or ""):
            self._open[-1][1].append(link)

    def handle_data(self, data: str) -> None:
        if self._open and not _NUMBER.fullmatch(data.strip()) and data.strip() != ",":
            self._open[-1][0].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "li" and self._open:
            words = " ".join(" ".join(piece for pieces, _ in self._open for piece in pieces).split())
            _, links = self._open.pop()
            if links and _TERM.fullmatch(words) and not words.startswith("Python Enhancement"):
                self.terms.setdefault(words, []).extend(links)


def _places(path: Path, page: str) -> dict[str, Place]:
    """The section of each anchor of a page."""
    places: dict[str, Place] = {}
    waiting: list[str] = []
    began = 1
    lines = path.read_text().splitlines()
    for number, line in enumerate((*lines, "<section"), 1):
        if "<section" in line or "</section>" in line:
            places |= {anchor: Place(page, began, number) for anchor in waiting}
            waiting, began = [], number
        waiting += re.findall(r'id="(index-\d+)"', line)
    return places
