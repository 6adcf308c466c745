"""What is wrong with a project's files, all of it at once.

Loading ends at the first mistake; here every file is read to its end. Errors are what loading refuses; warnings are
what it takes though the author can hardly have meant it. Modules that files name are imported, as loading does. Asks no
engine, and knows no terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from .agent_files import Draft, NodeSettings, agent_of, agent_paths, no_such_default, read_drafts
from .config import load
from .document import KeyPath, Mistakes, Where, going_on
from .errors import ConfigError, nearest
from .lookup import plugin_class
from .plugin import Plugin
from .prompt import HISTORY
from .settings import Config, PluginSettings
from .values import Value

KINDS = (".yaml", ".yml", ".md")
INSTRUCTIONS = "instructions"
"""The id of a prompt that is one text."""


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
    for draft in drafts.values():
        with going_on(mistakes):
            agent_of(draft, config, names)
        warnings.extend(_warnings(draft, config.project))
    if not is_readable:  # nobody knows which engines it names
        mistakes = [mistake for mistake in mistakes if "there is no engine" not in str(mistake)]
    errors = (_as_problem("error", str(mistake), mistake.path, mistake.line) for mistake in mistakes)
    files = [config.path] if config.path else []
    return Report((*errors, *warnings), (*files, *(str(path) for path in paths if path.suffix in KINDS)))


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


# --- what an author can hardly have meant -----------------------------------------------------------------------------


def _warnings(draft: Draft, project: str) -> Iterator[Problem]:
    if not _says_anything(draft):
        yield _warning(
            draft.where, f"the prompt of {draft.name!r} is empty: its model is told nothing but the messages"
        )
    entries = [entry for entry in draft.plugins() if entry.enabled]
    for settings in entries:
        if _edits_prompts(settings, project):
            yield from _target_warnings(draft, settings, entries)


def _warning(where: Where, message: str) -> Problem:
    return Problem("warning", message, where.path, where.line)


def _says_anything(draft: Draft) -> bool:
    prompt = draft.settings.prompt
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return any(node.text.strip() for _, node in draft.nodes())


def _edits_prompts(settings: PluginSettings, project: str) -> bool:
    try:
        found = plugin_class(settings.name, project=project)
    except ConfigError:  # an error that has been found before
        return False
    return found.on_prompt is not Plugin.on_prompt


def _target_warnings(draft: Draft, settings: PluginSettings, entries: Sequence[PluginSettings]) -> Iterator[Problem]:
    """A `target` is the id of a node: one that the author wrote, or one that a plugin inserts."""
    target: Any = settings.parameters.get("target")
    if not isinstance(target, str):
        return
    nodes = dict((node.id, path) for path, node in draft.nodes()) or {INSTRUCTIONS: ()}
    where = settings.lines.where(("target",))
    if target not in (*nodes, HISTORY) and not any(_may_insert(entry, target) for entry in entries):
        hint = nearest(target, (*nodes, HISTORY))
        yield _warning(where, f"the plugin {settings.name!r} targets {target!r}, which no node of the prompt is{hint}")
    elif target in nodes and (off := _disabled_around(draft, nodes[target], settings.parameters.get("position"))):
        yield _warning(
            where, f"the plugin {settings.name!r} targets {target!r}, but {off!r} is not enabled: nothing of it is sent"
        )


def _may_insert(entry: PluginSettings, id: str) -> bool:
    """Plugins name what they insert after their entry, unless they are given an id."""
    own = entry.entry or entry.name
    return id in (own, entry.parameters.get("id")) or id.startswith(f"{own}-")


def _disabled_around(draft: Draft, path: KeyPath, position: object) -> str:
    """The id of a disabled node that hides what is inserted at this one, if there is any."""
    at: Mapping[KeyPath, NodeSettings] = dict(draft.nodes())
    ends_inside = position in ("child", "relative")
    for length in range(2, len(path) + 1, 2):
        if not at[path[:length]].enabled and (length < len(path) or ends_inside):
            return at[path[:length]].id
    return ""
