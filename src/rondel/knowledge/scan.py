"""Finds the files of a knowledge base and reads them safely: no link leads out of a folder, and every size is limited.

Knows no store and no embedder.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..contracts.knowledge import Chunk, StoredDocument, Unreadable
from ..errors import RondelError
from .chunks import chunks_of
from .readers import read, suffixes
from .settings import KnowledgeSettings

FILE_BYTES_MAX = 50_000_000
FILES_MAX = 500_000
ATTEMPTS = 3  # how often a file is read if it changes meanwhile
FRESH_NS = 50_000_000
"""A file that changed this recently may change again without a new time, so its signature is unreliable."""


class Scan:
    """The signatures of a base's files, by their paths relative to the project; problems by path; how many others were
    skipped."""

    def __init__(self, project: str) -> None:
        self.files: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        self.skipped = 0
        self.links: dict[str, str] = {}  # the targets of links
        self._top = os.path.realpath(project or ".")

    def real(self, path: str) -> str:
        """Return the path that is opened to read a file."""
        return self.links.get(path) or os.path.join(self._top, path)


def scan(settings: KnowledgeSettings, project: str) -> Scan:
    """Find all files of a base. Blocks."""
    found = Scan(project)
    excluded = pattern_of(settings.exclude)
    for folder in settings.folders:
        root = Path(project, Path(folder).expanduser())
        if not root.is_dir():
            raise RondelError(f"there is no folder {str(root)!r}; create it, or correct `folders`")
        _walk(found, root, project, excluded, suffixes())
    for pattern in settings.files:
        if any(mark in pattern for mark in "*?["):
            _match(found, pattern, project, excluded)
            continue
        path = Path(project, Path(pattern).expanduser())
        if not os.path.lexists(path):
            raise RondelError(f"there is no file {str(path)!r}; correct it in `files`")
        _add(found, str(path.absolute()), os.stat(path), project, excluded)
    return found


def _walk(found: Scan, root: Path, project: str, excluded: Callable[[str], bool], known: frozenset[str] | None) -> None:
    """Add the files below a folder with one of these suffixes, or all files if they are None."""
    top = os.path.realpath(root)
    base = _named(top, project)
    prefix = f"{base}/" if base else ""
    pending = [""]
    files, skipped = found.files, 0
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(f"{top}/{folder}" if folder else top))
        except OSError as error:
            found.problems[f"{prefix}{folder}"] = f"cannot be read: {error.strerror or error}"
            continue
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            inner = f"{folder}/{name}" if folder else name
            if not name.isascii() and (shown := _shown(name)) != name:
                found.problems[f"{prefix}{inner.removesuffix(name)}{shown}"] = "has a name that is not UTF-8; rename it"
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(inner)
                continue
            dot = name.rfind(".")
            if known is not None and (dot < 0 or name[dot:].lower() not in known):
                skipped += 1
                continue
            path = prefix + inner
            if excluded(path):
                continue
            if entry.is_symlink():
                _add_link(found, path, entry.path, top)
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            if len(files) >= FILES_MAX:
                raise RondelError(
                    f"{str(root)!r} has more than {FILES_MAX:,} files; narrow `folders`, or use `exclude`"
                )
            files[path] = signature_of(info)
    found.skipped += skipped


def _shown(name: str) -> str:
    """Return a name with a question mark for each byte that is not UTF-8: no store and no prompt can carry these."""
    return name.encode("utf-8", "replace").decode()


def _add_link(found: Scan, path: str, link: str, top: str) -> None:
    real = os.path.realpath(link)
    if not real.startswith(f"{top}{os.sep}"):
        found.problems[path] = "is a link that leads out of the folder; it was not followed"
        return
    try:
        info = os.stat(real, follow_symlinks=False)
    except OSError as error:
        found.problems[path] = f"is a link that leads nowhere: {error.strerror or error}"
        return
    if stat.S_ISREG(info.st_mode):
        found.files[path], found.links[path] = signature_of(info), real


def _match(found: Scan, pattern: str, project: str, excluded: Callable[[str], bool]) -> None:
    """Add the files that a pattern matches, walking from the last folder before its first wildcard."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    root = Path(project, Path(fixed).expanduser())
    if not root.is_dir():
        return
    matches = pattern_of((_named(os.path.realpath(root), project) + pattern[len(fixed) :],))
    inside = Scan(project)
    _walk(inside, root, project, excluded, None)
    found.files |= {path: signature for path, signature in inside.files.items() if matches(path)}
    found.links |= inside.links
    found.problems |= {path: problem for path, problem in inside.problems.items() if matches(path)}


def _add(found: Scan, real: str, info: os.stat_result, project: str, excluded: Callable[[str], bool]) -> None:
    path = _named(os.path.realpath(real), project)
    if excluded(path):
        return
    if stat.S_ISREG(info.st_mode):
        found.files[path] = signature_of(info)
    else:
        found.problems[path] = "is not a regular file"


def _named(real: str, project: str) -> str:
    """Return a path relative to the project, if it is inside; `/` separates on every system."""
    top = os.path.realpath(project or ".")
    if real == top:
        return ""
    inside = real[len(top) + 1 :] if real.startswith(f"{top}{os.sep}") else real
    return inside.replace(os.sep, "/")


def signature_of(info: os.stat_result) -> str:
    """Return a value that changes whenever the file does: no tool can set back the time of a file's last change."""
    return f"{info.st_mtime_ns}.{info.st_ctime_ns}.{info.st_size}.{info.st_ino}"


# --- patterns ---------------------------------------------------------------------------------------------------------


def pattern_of(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that returns whether a path matches one of the patterns: `*` matches within a folder, `**` any
    number of folders."""
    if not patterns:
        return lambda path: False
    expression = re.compile("|".join(f"(?:{_expression(pattern)})" for pattern in patterns))
    return lambda path: expression.fullmatch(path) is not None


def _expression(pattern: str) -> str:
    if pattern.endswith("/"):
        pattern += "**"
    written, at = "", 0
    for mark in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        written += re.escape(pattern[at : mark.start()])
        written += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[mark[0]]
        at = mark.end()
    return written + re.escape(pattern[at:])


def tags_of(path: str, tags: dict[str, Callable[[str], bool]]) -> tuple[str, ...]:
    return tuple(tag for tag, matches in tags.items() if matches(path))


# --- reading ----------------------------------------------------------------------------------------------------------


class _Restless(Unreadable):
    """A file changed during every attempt to read it."""


class ReadFile(NamedTuple):
    document: StoredDocument
    chunks: tuple[Chunk, ...] = ()


def read_file(path: str, found: Scan, settings: KnowledgeSettings, known_hash: str = "") -> ReadFile:
    """Read a file and cut it into chunks; not again if its content has the known hash. A file that cannot be read is a
    document with a problem. Blocks."""
    try:
        data, signature = _content(found.real(path))
    except _Restless as problem:
        return ReadFile(StoredDocument(path, "", problem=str(problem)))
    except Unreadable as problem:
        return ReadFile(StoredDocument(path, found.files[path], problem=str(problem)))
    except OSError as error:
        return ReadFile(StoredDocument(path, "", problem=f"cannot be read: {error.strerror or error}"))
    hash = sha256(data).hexdigest()
    if hash == known_hash:
        return ReadFile(StoredDocument(path, signature, hash))
    return made(path, data, hash, settings, signature)


def made(path: str, data: bytes, hash: str, settings: KnowledgeSettings, signature: str = "") -> ReadFile:
    try:
        document = read(data, path)
    except Unreadable as problem:
        return ReadFile(StoredDocument(path, signature, hash, problem=str(problem)))
    chunks = chunks_of(document, settings.chunk_tokens)
    title = " ".join(document.title.split())[:300]
    return ReadFile(StoredDocument(path, signature, hash, title, chunks=len(chunks)), chunks)


def _content(path: str) -> tuple[bytes, str]:
    """Return a consistent copy of a file's bytes, and its signature, which is empty if the file may change again
    unnoticed."""
    for _ in range(ATTEMPTS):
        # It may have become a link or a pipe since it was found; neither is opened.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb") as file:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise Unreadable("is not a regular file")
            if before.st_size > FILE_BYTES_MAX:
                raise Unreadable(f"is larger than {FILE_BYTES_MAX // 1_000_000} MB")
            data = file.read(FILE_BYTES_MAX + 1)
            after = os.fstat(handle)
        if len(data) == after.st_size and signature_of(before) == signature_of(after):
            fresh = time.time_ns() - after.st_ctime_ns < FRESH_NS
            return data, "" if fresh else signature_of(after)
    raise _Restless("changes while it is read; the next sync reads it again")


def exists(path: str, project: str) -> bool:
    """Return whether the file of a document still exists. A web page counts as existing until the next sync."""
    return "://" in path or os.path.lexists(os.path.join(project, path))
