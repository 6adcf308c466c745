"""One thing that is wrong with a file, and all of them. Data only."""

from __future__ import annotations

from typing import Literal

from ..document import Where
from ..values import Value


class Problem(Value, frozen=True):
    """One thing that is wrong. Without a path it is in no file but in the environment."""

    severity: Literal["error", "warning"]
    message: str
    path: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = str(Where(self.path, self.line))
        return f"{where}: {self.severity}: {self.message}" if where else f"{self.severity}: {self.message}"


class Report(Value, frozen=True):
    """The problems in the order of files and lines, and the files that were read."""

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
