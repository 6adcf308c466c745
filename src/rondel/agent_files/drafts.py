"""Agents as they stand in their files: read, with their keys checked and the place of every value.

What their names stand for is bind.py's. Without a list for mistakes the first one ends the reading. Knows no app.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ..config import plugin_entries
from ..document import Checker, KeyPath, Mistakes, Where, expand, going_on, read_text
from ..errors import ConfigError, nearest
from ..lookup import TOOLS
from ..settings import Config, PluginSettings
from ..tool import NAME
from .settings import KINDS, AgentSettings, Kind, NodeSettings

FOLDER = "agents"
_OPENING = re.compile(r"\{\{\s*\.[A-Za-z]")


class Draft(msgspec.Struct, frozen=True):
    """An agent as it stands in its file: its keys are checked, what its names stand for is not."""

    name: str
    checker: Checker
    path: KeyPath
    settings: AgentSettings
    kinds: tuple[Kind, ...] = ("prompt",)
    """What it says that it is: exactly one of them, if it is right."""

    @property
    def where(self) -> Where:
        return self.checker.document.where(self.path)

    @property
    def mistakes(self) -> Mistakes | None:
        return self.checker.mistakes

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.checker.document.error((*self.path, *path), message)

    def texts(self) -> Iterator[tuple[KeyPath, str]]:
        """Every text of its author that may have directives, with its place in the file."""
        if isinstance(self.settings.prompt, str):
            yield ("prompt",), self.settings.prompt
        yield from (((*path, "text"), node.text) for path, node in self.nodes())
        yield ("template",), self.settings.template

    def place(self, path: KeyPath, text: str, at: int) -> tuple[Where, int]:
        """Where a directive that begins at this place of a text really stands: the line of the file, and the column.

        The forms of a text in YAML move its lines; that there are so many directives before this one stays.
        """
        where = self.checker.document.where((*self.path, *path))
        begin = (where.line or 1) - 1
        skipped = sum(1 for _ in _OPENING.finditer(text, 0, at))
        for number, line in enumerate(read_text(Path(where.path)).split("\n")[begin:], begin + 1):
            for found in _OPENING.finditer(line):
                if skipped == 0:
                    return Where(where.path, number), found.start() + 1
                skipped -= 1
        return where, 1

    def check_kind(self) -> None:
        """One sentence about an agent that is nothing, or several things at once, at the last of them."""
        if len(self.kinds) == 1:
            return
        document = self.checker.document
        lines = {kind: document.where((*self.path, kind)).line or 0 for kind in self.kinds}
        last = (max(lines, key=lambda kind: lines[kind]),) if lines else ()
        known, has = ", ".join(KINDS), " and ".join(self.kinds) or "none"
        raise self.error(last, f"agent {self.name!r} must have exactly one of {known}; it has {has}")

    def nodes(self) -> Iterator[tuple[KeyPath, NodeSettings]]:
        """Every piece of a prompt that is a tree, with its place in the file, depth first."""
        if isinstance(self.settings.prompt, str):
            return
        pending = places(self.settings.prompt, ("prompt",))[::-1]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend(places(node.children, (*path, "children"))[::-1])

    def plugins(self) -> tuple[PluginSettings, ...]:
        """The agent's own entries, those included that are not enabled."""
        return plugin_entries(self.checker, self.settings.plugins, (*self.path, "plugins"))


def places(nodes: tuple[NodeSettings, ...], path: KeyPath) -> list[tuple[KeyPath, NodeSettings]]:
    """Nodes with their places; one that is left out for a mistake in it has none."""
    found = enumerate(cast("tuple[NodeSettings | None, ...]", nodes))
    return [((*path, index), node) for index, node in found if node is not None]


def agent_paths(config: Config) -> list[Path]:
    """The files in `agents/`, in the order of their names."""
    return [path for path in sorted(Path(config.project, FOLDER).glob("*")) if not path.name.startswith(".")]


def read_drafts(paths: Iterable[Path], env: Mapping[str, str], mistakes: Mistakes | None = None) -> dict[str, Draft]:
    """The agents of these files by name. With a list for `mistakes`, the reading goes on behind each of them."""
    drafts: dict[str, Draft] = {}
    for path in paths:
        with going_on(mistakes):
            for draft in _drafts(path, env, mistakes):
                with going_on(mistakes):
                    if (other := drafts.setdefault(draft.name, draft)) is not draft:
                        raise draft.error((), f"there is another agent {draft.name!r} at {other.where}; rename one")
    return drafts


def no_such_default(config: Config, known: tuple[str, ...]) -> ConfigError:
    """The sentence about a default agent that no file has."""
    source = config.source("agent")
    message = f"there is no agent {config.agent!r}{nearest(config.agent, known)}"
    if not known:
        message += f"; write one: {Path(config.project, FOLDER, f'{config.agent}.md')}"
    return source.where.error(message if source.where.path else f"the variable {source}: {message}")


# --- files ------------------------------------------------------------------------------------------------------------


def _drafts(path: Path, env: Mapping[str, str], mistakes: Mistakes | None) -> Iterator[Draft]:
    if path.suffix in (".yaml", ".yml"):
        return _drafts_of_yaml(path, env, mistakes)
    if path.suffix == ".md":
        return _draft_of_markdown(path, env, mistakes)
    return iter(())


def _drafts_of_yaml(path: Path, env: Mapping[str, str], mistakes: Mistakes | None) -> Iterator[Draft]:
    from ..documents.yaml import read_yaml

    document = expand(read_yaml(path), env, strict=False, mistakes=mistakes)
    checker = Checker(document, mistakes)
    for key in document.data:
        with going_on(mistakes):
            if key != "agents":
                raise document.error((key,), f"{key!r} is not known here; agents stand below the key 'agents'")
    if not document.data.get("agents"):
        raise document.error((), "has no agents; write them as `agents: {name: {prompt: ...}}`")
    for name, item in checker.table(document.data["agents"], ("agents",)).items():
        with going_on(mistakes):
            yield _draft(name, {} if item is None else item, checker, ("agents", name))


def _draft_of_markdown(path: Path, env: Mapping[str, str], mistakes: Mistakes | None) -> Iterator[Draft]:
    from ..documents.yaml import read_markdown

    document = read_markdown(path, "prompt")
    if document is None:
        if path.stem.lower() == "readme":
            return
        raise ConfigError("has no front matter; begin it with a line '---', keys, and a line '---'", path=str(path))
    document = expand(document, env, strict=False, mistakes=mistakes)
    fields = dict(document.data)
    checker = Checker(document, mistakes)
    name = checker.build(str, fields.pop("name", path.stem), ("name",))
    if not any(kind in fields for kind in KINDS):
        fields["prompt"] = ""  # there is room for one below the front matter, and nothing stands there
    yield _draft(name, fields, checker, ())


def _draft(name: str, value: Any, checker: Checker, path: KeyPath) -> Draft:
    at = path or ("name",)
    if not NAME.fullmatch(name):
        message = f"{name!r} is no name for an agent: use 1 to 64 letters, digits, '_' or '-'"
        raise checker.document.error(at, message)
    if name in TOOLS:
        raise checker.document.error(at, f"{name!r} is the name of a built-in tool; name the agent otherwise")
    keys = set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set[str]()
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in keys)
    if not kinds and keys - {field.name for field in msgspec.structs.fields(AgentSettings)}:
        kinds = ("prompt",)  # a key that is not known has been told, and may well have been meant to be it
    return Draft(name, checker, path, checker.struct(AgentSettings, value, path), kinds)
