"""Finds everything that is wrong with a project's files at once, also between agents. Calls no engine.

Errors are what loading refuses or what must fail at run time; warnings are what works but was probably not intended.
Modules that a trusted project names are imported, as in loading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ...errors import ConfigError, NotTrusted
from ...text.document import Mistakes, collecting
from ..agents.bind import agents_of
from ..agents.drafts import Draft, agent_paths, is_agent_file, no_such_default, read_drafts
from ..config import load, money_warnings
from ..settings import Config, PluginSettings
from ..trust import UntrustedFolder
from .problem import Problem, Report
from .start import start_problems, unset_variables
from .targets import prompt_warnings
from .team import team_problems

__all__ = ["Problem", "Report", "lint"]

Trusts: TypeAlias = Callable[[Path], bool] | None


def lint(paths: Sequence[Path] = (), env: Mapping[str, str] | None = None, *, trusts: Trusts = None) -> Report:
    """Check these files and projects, by default the project of the current folder.

    Nothing is imported from a project that `trusts` refuses; what was not checked is a warning.
    """
    env = os.environ if env is None else env
    problems: dict[Problem, None] = {}
    files: dict[str, None] = {}
    for path in paths or (Path(),):
        report = _lint_one(Path(os.path.abspath(path)), env, trusts)
        problems |= dict.fromkeys(report.problems)
        files |= dict.fromkeys(report.files)
    order = list(files)
    ranked = sorted(problems, key=lambda p: (order.index(p.path) if p.path in files else -1, p.line or 0))
    return Report(tuple(ranked), tuple(files))


def _lint_one(path: Path, env: Mapping[str, str], trusts: Trusts) -> Report:
    if path.is_dir():
        return _project(path, env, trusts)
    if not path.is_file():
        raise ConfigError(f"there is no file or folder {str(path)!r}")
    if path.suffix == ".toml":
        report = _project(path.parent, {**env, "RONDEL_CONFIG": str(path)}, trusts)
    elif is_agent_file(path):
        report = _project(path.parent, env, trusts, path)
    else:
        raise ConfigError(f"{str(path)!r} is neither an agent's file (.yaml, .json, .md) nor a rondel.toml")
    file = str(path)
    return Report(tuple(p for p in report.problems if p.path in ("", file)), (file,))


# --- a project --------------------------------------------------------------------------------------------------------


def _project(folder: Path, env: Mapping[str, str], trusts: Trusts, file: Path | None = None) -> Report:
    """Check a project. A `file` outside of its `agents/` is read as if it were there."""
    mistakes: Mistakes = []
    config = load(folder, env, mistakes=mistakes, trusts=trusts)
    if not config.path and file is None:
        raise ConfigError(f"there is no rondel.toml in {str(folder)!r} or above it; `rondel init` writes one")
    is_readable = not any(m.path == config.path and "not valid TOML" in str(m) for m in mistakes)
    config = msgspec.structs.replace(config, plugins=tuple(_valid_plugins(config, mistakes)))
    paths = agent_paths(config) if config.project else []
    if file is not None and file not in paths:
        paths.append(file)
        if trusts is not None and not trusts(file.parent):
            config = msgspec.structs.replace(config, project=UntrustedFolder(config.project or str(file.parent)))
    duplicates = list[Draft]()
    drafts = read_drafts(paths, env if config.is_trusted else None, mistakes, duplicates)
    names = (*drafts, *(path.stem for path in paths if path.suffix.lower() == ".md" and path.stem not in drafts))
    if config.agent and config.agent not in names:
        mistakes.append(no_such_default(config, names))
    agents = agents_of(drafts, config, names, mistakes)
    for draft in duplicates:  # as if it were the only one of its name; what is found again is reported once
        agents_of({**drafts, draft.name: draft}, config, names, mistakes)
    engines = [agent.engine for agent in agents.values() if isinstance(agent.engine, str)]
    warnings = [_as_problem("warning", text, config.path) for text in money_warnings(config, engines)]
    for text in config.warnings:  # the gateway does not start with a key that others can read
        warnings.append(_as_problem("error" if text in config.exposed else "warning", text, config.path))
    warnings += start_problems(config, names, engines)
    for draft in (*drafts.values(), *duplicates):
        warnings.extend(prompt_warnings(draft, config.project))
    found = team_problems(drafts, agents, names, config.agent)
    if isinstance(config.project, UntrustedFolder):
        mistakes = [m for m in mistakes if not isinstance(m, NotTrusted) and "${" not in str(m)]
        warnings += [*unset_variables(config, env), *_not_checked(config.project, config.path)]
    if not is_readable:  # its engines are unknown
        mistakes = [mistake for mistake in mistakes if "there is no engine" not in str(mistake)]
    errors = (_as_problem("error", str(mistake), mistake.path, mistake.line) for mistake in mistakes)
    files = [config.path] if config.path else []
    return Report((*errors, *warnings, *found), (*files, *(str(path) for path in paths if is_agent_file(path))))


def _not_checked(folder: UntrustedFolder, path: str) -> list[Problem]:
    if not folder.wanted:
        return []
    names, were = ", ".join(folder.wanted), "was" if len(folder.wanted) == 1 else "were"
    sentence = f"the project is not trusted, so {names} {were} not checked; run `rondel trust` to trust it"
    return [Problem("warning", sentence, path)]


def _valid_plugins(config: Config, mistakes: Mistakes) -> Iterator[PluginSettings]:
    for settings in config.plugins:
        with collecting(mistakes):
            if settings.enabled:
                settings.make(config.project, mistakes=mistakes)
            yield settings


def _as_problem(severity: Literal["error", "warning"], text: str, path: str, line: int | None = None) -> Problem:
    """Make a problem from a sentence, which may start with its path and line."""
    if path and text.startswith(f"{path}:"):
        number, _, rest = text.removeprefix(f"{path}:").partition(": ")
        if number.strip().isdigit():
            return Problem(severity, rest, path, int(number))
        return Problem(severity, text.removeprefix(f"{path}: "), path, line)
    return Problem(severity, text, path, line)
