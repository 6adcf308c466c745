"""`rondel lint`: the problems in a project's files, one line each."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec
from rich.text import Text

from ..project.lint import Problem, Report
from ..project.lint import lint as lint_files
from ..project.trust import trust_list
from ..text.printable import one_line
from ._options import as_json
from ._output import console, show_json, tell

_STYLES = {"error": "red", "warning": "yellow"}
MESSAGE_CHARS_MAX = 2_000


@click.command()
@click.argument("path", nargs=-1, type=click.Path(path_type=Path), help="files or projects; by default, this project")
@as_json
def lint(path: tuple[Path, ...], as_json: bool) -> int:
    """Check a project's files and list all problems. Exit codes: 0 no errors, 1 errors."""
    report = lint_files(path, trusts=trust_list().trusts)
    if as_json:
        show_json([msgspec.structs.asdict(problem) for problem in report.problems])
    else:
        out = console()
        for problem in report.problems:
            out.print(_line(problem), soft_wrap=True)  # one line each, however wide: programs read them
        tell(_summary(report))
    return 1 if report.errors else 0


def _line(problem: Problem) -> Text:
    where = f"{_short(problem.path)}:{problem.line}: " if problem.line else f"{_short(problem.path)}: "
    return Text.assemble(
        (where if problem.path else "", "bold"),
        (f"{problem.severity}: ", _STYLES[problem.severity]),
        one_line(problem.message, MESSAGE_CHARS_MAX),
    )


def _short(path: str) -> str:
    return min(path, os.path.relpath(path), key=len) if path else ""


def _summary(report: Report) -> str:
    files = _count(len(report.files), "file")
    if not report.problems:
        return f"No problems in {files}."
    found = (("error", report.errors), ("warning", report.warnings))
    return f"{' and '.join(_count(count, what) for what, count in found if count)} in {files}."


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
