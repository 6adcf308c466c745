"""`rondel lint`: what is wrong with the files of a project, one line for each thing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.text import Text

from ..lint import Problem, Report
from ..lint import lint as lint_files
from ..surfaces.terminal.clean import one_line
from ._output import console, show_json, tell

_STYLES = {"error": "red", "warning": "yellow"}
MESSAGE_CHARS_MAX = 2_000


def lint(paths: Sequence[Path], *, as_json: bool) -> int:
    report = lint_files(paths)
    if as_json:
        show_json([msgspec.structs.asdict(problem) for problem in report.problems])
    else:
        out = console()
        for problem in report.problems:
            out.print(_line(problem), soft_wrap=True)  # one line each, however wide: programs read them
        tell(_summary(report))
    return 1 if report.errors else 0


def _line(problem: Problem) -> Text:
    place = f"{_short(problem.path)}:{problem.line}: " if problem.line else f"{_short(problem.path)}: "
    return Text.assemble(
        (place if problem.path else "", "bold"),
        (f"{problem.severity}: ", _STYLES[problem.severity]),
        one_line(problem.message, MESSAGE_CHARS_MAX),
    )


def _short(path: str) -> str:
    """A path as seen from here, where that is shorter."""
    return min(path, os.path.relpath(path), key=len) if path else ""


def _summary(report: Report) -> str:
    files = _count(len(report.files), "file")
    if not report.problems:
        return f"Nothing is wrong in {files}."
    found = (("error", report.errors), ("warning", report.warnings))
    return f"{' and '.join(_count(count, what) for what, count in found if count)} in {files}."


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
