"""What is wrong with a project's files, all of it at once.

Loading ends at the first mistake; here every file is read to its end, and agents are followed to those that they name.
Errors are what loading refuses or what must go wrong when it runs; warnings are what works though the author can hardly
have meant it. Modules that files name are imported, as loading does. Asks no engine, and knows no terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..agent_files import agent_paths, agents_of, no_such_default, read_drafts
from ..config import load
from ..document import Mistakes, going_on
from ..errors import ConfigError
from ..settings import Config, PluginSettings
from .problem import Problem, Report
from .targets import prompt_warnings
from .team import team_problems

__all__ = ["Problem", "Report", "lint"]

KINDS = (".yaml", ".yml", ".md")


def lint(paths: Sequence[Path] = (), env: Mapping[str, str] | None = None) -> Report:
    """What is wrong in these files and projects; without any, in the project of the current folder."""
    env = os.environ if env is None else env
    problems: dict[Problem, None] = {}
    files: dict[str, None] = {}
    for path in paths or (Path(),):
        report = _lint_one(Path(os.path.abspath(path)), env)
        problems |= dict.fromkeys(report.problems)
        files |= dict.fromkeys(report.files)
    order = list(files)
    ranked = sorted(problems, key=lambda p: (order.index(p.path) if p.path in files else -1, p.line or 0))
    return Report(tuple(ranked), tuple(files))


def _lint_one(path: Path, env: Mapping[str, str]) -> Report:
    if path.is_dir():
        return _project(path, env)
    if not path.is_file():
        raise ConfigError(f"there is no file or folder {str(path)!r}")
    if path.suffix == ".toml":
        report = _project(path.parent, {**env, "RONDEL_CONFIG": str(path)})
    elif path.suffix in KINDS:
        report = _project(path.parent, env, path)
    else:
        raise ConfigError(f"{str(path)!r} is neither an agent's file (.yaml, .md) nor a rondel.toml")
    file = str(path)
    return Report(tuple(p for p in report.problems if p.path in ("", file)), (file,))


# --- a project --------------------------------------------------------------------------------------------------------


def _project(folder: Path, env: Mapping[str, str], file: Path | None = None) -> Report:
    """All of a project. A file outside of its `agents/` is read as if it were there."""
    mistakes: Mistakes = []
    config = load(folder, env, mistakes=mistakes)
    if not config.path and file is None:
        raise ConfigError(f"there is no rondel.toml in {str(folder)!r} or above it; `rondel init` writes one")
    is_readable = not any(m.path == config.path and "is not TOML" in str(m) for m in mistakes)
    config = msgspec.structs.replace(config, plugins=tuple(_that_can_be_made(config, mistakes)))
    paths = agent_paths(config) if config.project else []
    if file is not None and file not in paths:
        paths.append(file)
    drafts = read_drafts(paths, env, mistakes)
    names = (*drafts, *(path.stem for path in paths if path.suffix == ".md" and path.stem not in drafts))
    if config.agent and config.agent not in names:
        mistakes.append(no_such_default(config, names))
    warnings = [_as_problem("warning", text, config.path) for text in config.warnings]
    agents = agents_of(drafts, config, names, mistakes)
    for draft in drafts.values():
        warnings.extend(prompt_warnings(draft, config.project))
    found = team_problems(drafts, agents, names, config.agent)
    if not is_readable:  # nobody knows which engines it names
        mistakes = [mistake for mistake in mistakes if "there is no engine" not in str(mistake)]
    errors = (_as_problem("error", str(mistake), mistake.path, mistake.line) for mistake in mistakes)
    files = [config.path] if config.path else []
    return Report((*errors, *warnings, *found), (*files, *(str(path) for path in paths if path.suffix in KINDS)))


def _that_can_be_made(config: Config, mistakes: Mistakes) -> Iterator[PluginSettings]:
    for settings in config.plugins:
        with going_on(mistakes):
            if settings.enabled:
                settings.make(config.project, mistakes=mistakes)
            yield settings


def _as_problem(severity: Literal["error", "warning"], text: str, path: str, line: int | None = None) -> Problem:
    """A sentence with or without its place before it, as a problem."""
    if path and text.startswith(f"{path}:"):
        place, _, rest = text.removeprefix(f"{path}:").partition(": ")
        if place.strip().isdigit():
            return Problem(severity, rest, path, int(place))
        return Problem(severity, text.removeprefix(f"{path}: "), path, line)
    return Problem(severity, text, path, line)
