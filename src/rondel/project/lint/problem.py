"""A problem in a file, and a report of all problems."""

from __future__ import annotations

from typing import Literal

from ...text.document import Where
from ...values import Value


class Problem(Value, frozen=True):
    """A problem. Without a path it is in the environment, not in a file."""

    severity: Literal["error", "warning"]
    message: str
    path: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = str(Where(self.path, self.line))
        return f"{where}: {self.severity}: {self.message}" if where else f"{self.severity}: {self.message}"


class Report(Value, frozen=True):
    """The problems, sorted by file and line, and the files that were read."""

    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def errors(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def warnings(self) -> int:
        return len(self.problems) - self.errors


def warning(where: Where, message: str) -> Problem:
    return Problem("warning", message, where.path, where.line)


def error(where: Where, message: str) -> Problem:
    return Problem("error", message, where.path, where.line)
