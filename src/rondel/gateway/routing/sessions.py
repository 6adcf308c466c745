"""Remembers callers' sessions: how long the last prompt was, and which project the session belongs to.

Kept in memory and bounded; lost at a restart. Lists the folder where a coding agent keeps its sessions, but reads no
file.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from ...project.settings import ProjectSettings

SESSIONS_MAX = 100
PROJECTS_MAX = 1_000
LOOK_AGAIN_S = 5.0  # A session's file may appear after its first request, so it is looked for again after this time

_ID = re.compile(r"[\w-]{1,128}")
V = TypeVar("V")


class Sessions:
    """`folder` is where a coding agent keeps a folder for each project, with a file for each session."""

    def __init__(self, folder: str | os.PathLike[str] = "") -> None:
        self._folder = os.path.expanduser(folder) if folder else ""
        self._tokens: OrderedDict[str, int] = OrderedDict()
        self._projects: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def remember(self, session: str, tokens_in: int) -> None:
        if session:
            _put(self._tokens, session, tokens_in, SESSIONS_MAX)

    def last_tokens(self, session: str) -> int:
        return self._tokens.get(session, 0)

    def project_of(self, session: str, now: float) -> str:
        """Return the name of the folder that has the session's file, or an empty text."""
        if not self._folder or not _ID.fullmatch(session):  # a caller's text must not act as a path
            return ""
        found, again_at = self._projects.get(session, ("", 0.0))
        if found or now < again_at:
            return found
        found = self._look(f"{session}.jsonl")
        _put(self._projects, session, (found, now + LOOK_AGAIN_S), PROJECTS_MAX)
        return found

    def _look(self, file: str) -> str:
        try:
            with os.scandir(self._folder) as entries:
                folders = [entry.name for entry in entries if entry.is_dir()]
        except OSError:
            return ""
        return next((name for name in folders if os.path.isfile(os.path.join(self._folder, name, file))), "")


def project_named(name: str, projects: Mapping[str, ProjectSettings]) -> str:
    """Return the configured project that a caller or a coding agent calls by this name, or an empty text."""
    if name in projects:
        return name
    return next((known for known, project in projects.items() if name in _folder_names(project.folder)), "")


def _folder_names(folder: str) -> Iterable[str]:
    # A coding agent names a folder after the project's path, with dashes for all but letters and digits.
    if not folder:
        return ()
    path = str(Path(folder).expanduser())
    return (folder, path, re.sub(r"[^A-Za-z0-9]", "-", path))


def _put(table: OrderedDict[str, V], key: str, value: V, count_max: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > count_max:
        table.popitem(last=False)
