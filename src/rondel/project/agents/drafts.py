"""Reads agent files: checks the keys and keeps the line of every value. bind.py resolves the names.

Without a list for mistakes, the first one is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ...errors import ConfigError, nearest
from ...libraries import LIBRARIES
from ...text.document import Checker, Document, KeyPath, Mistakes, Where, collecting, expand, read_text
from ...text.template import escape
from ...tool import NAME
from ..config.entries import plugin_entries
from ..lookup import TOOLS
from ..settings import Config, PluginSettings
from .settings import KINDS, AgentKind, AgentSettings, NodeSettings

FOLDER = "agents"
SUFFIXES = (".yaml", ".yml", ".json", ".md")
_NOTES = ("readme", "license")
_OPENING = re.compile(r"\{\{")


class Draft(msgspec.Struct, frozen=True):
    """An agent as its file describes it: the keys are checked, the names are not resolved."""

    name: str
    checker: Checker
    path: KeyPath
    settings: AgentSettings
    kinds: tuple[AgentKind, ...] = ("prompt",)  # the kinds that the file gives; a valid agent has exactly one

    @property
    def where(self) -> Where:
        return self.checker.document.where(self.path)

    @property
    def mistakes(self) -> Mistakes | None:
        return self.checker.mistakes

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.checker.document.error((*self.path, *path), message)

    def report(self, path: KeyPath, message: str) -> None:
        """Collect a mistake at this path; without a list for mistakes, raise it."""
        self.checker.report(self.error(path, message))

    def texts(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield every text that may have directives, with its path in the file."""
        if isinstance(self.settings.prompt, str):
            yield ("prompt",), self.settings.prompt
        yield from (((*path, "text"), node.text) for path, node in self.nodes())
        yield ("template",), self.settings.template

    def locate(self, path: KeyPath, text: str, at: int) -> tuple[Where, int]:
        """Return the line of the file and the column of the directive that starts at this index of a text.

        YAML changes the line breaks of a text, but not the number of directives before this one.
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

    def check_filled(self) -> None:
        for kind in ("template", "alias", "function"):
            if kind in self.kinds and not getattr(self.settings, kind).strip():
                raise self.error(
                    (kind,), f"the {kind} of agent {self.name!r} is empty; write one, or leave the key out"
                )

    def check_kind(self) -> None:
        if len(self.kinds) == 1:
            return
        document = self.checker.document
        lines = {kind: document.where((*self.path, kind)).line or 0 for kind in self.kinds}
        last = (max(lines, key=lambda kind: lines[kind]),) if lines else ()
        known, has = ", ".join(KINDS), " and ".join(self.kinds) or "none"
        raise self.error(last, f"agent {self.name!r} must have exactly one of {known}; it has {has}")

    def nodes(self) -> Iterator[tuple[KeyPath, NodeSettings]]:
        """Yield every node of a prompt that is a tree, with its path in the file, depth first."""
        if isinstance(self.settings.prompt, str):
            return
        pending = with_paths(self.settings.prompt, ("prompt",))[::-1]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend(with_paths(node.children, (*path, "children"))[::-1])

    def plugins(self) -> tuple[PluginSettings, ...]:
        """The agent's own entries, also those that are not enabled."""
        return plugin_entries(self.checker, self.settings.plugins, (*self.path, "plugins"))


def with_paths(nodes: tuple[NodeSettings, ...], path: KeyPath) -> list[tuple[KeyPath, NodeSettings]]:
    """Return nodes with their paths, without those that were left out because of a mistake."""
    found = enumerate(cast("tuple[NodeSettings | None, ...]", nodes))
    return [((*path, index), node) for index, node in found if node is not None]


def agent_paths(config: Config) -> list[Path]:
    """Return the files in `agents/`, sorted, without those that are clearly something else."""
    return [path for path in sorted(Path(config.project, FOLDER).glob("*")) if not _is_something_else(path)]


def is_agent_file(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _is_something_else(path: Path) -> bool:
    # Hidden files, notes for people, Python, editors' backups, and folders without agents.
    name = path.name.lower()
    if path.is_dir():
        return name.startswith((".", "_")) or not any(map(is_agent_file, path.iterdir()))
    is_note = name.startswith(_NOTES) and not is_agent_file(path)
    return is_note or name.startswith(".") or name.endswith(("~", ".py", ".pyc"))


def read_drafts(
    paths: Iterable[Path],
    env: Mapping[str, str] | None,
    mistakes: Mistakes | None = None,
    duplicates: list[Draft] | None = None,
) -> dict[str, Draft]:
    """Return the agents of these files by name. With a list for `mistakes`, reading continues after each; `duplicates`
    collects the agents whose name another one has."""
    drafts: dict[str, Draft] = {}
    for path in paths:
        with collecting(mistakes):
            for draft in _drafts(path, env, mistakes):
                with collecting(mistakes):
                    if (other := drafts.setdefault(draft.name, draft)) is not draft:
                        if duplicates is not None:
                            duplicates.append(draft)
                        raise draft.error((), f"there is another agent {draft.name!r} at {other.where}; rename one")
    return drafts


def no_such_default(config: Config, known: tuple[str, ...]) -> ConfigError:
    source = config.source("agent")
    message = f"there is no agent {config.agent!r}{nearest(config.agent, known)}"
    if not known:
        message += f"; write one: {Path(config.project, FOLDER, f'{config.agent}.md')}"
    return source.where.error(message if source.where.path else f"the variable {source}: {message}")


# --- files ------------------------------------------------------------------------------------------------------------


def _drafts(path: Path, env: Mapping[str, str] | None, mistakes: Mistakes | None) -> Iterator[Draft]:
    suffix = path.suffix.lower()
    if path.is_dir():
        raise ConfigError("is a folder with agents, but only files directly in agents/ are read", path=str(path))
    if suffix == ".md":
        return _draft_of_markdown(path, env, mistakes)
    if suffix in SUFFIXES:
        return _drafts_of_yaml(path, env, mistakes)
    known = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    raise ConfigError(
        f"is not an agent's file: agents are in {known}; rename it, or move it out of {FOLDER}/", path=str(path)
    )


def _drafts_of_yaml(path: Path, env: Mapping[str, str] | None, mistakes: Mistakes | None) -> Iterator[Draft]:
    from ...text.yaml import read_json, read_yaml_documents

    is_json = path.suffix.lower() == ".json"
    found = [read_json(path, mistakes)] if is_json else read_yaml_documents(path, mistakes)
    documents = [expand(document, env, strict=False, mistakes=mistakes) for document in found]
    for document in documents:
        yield from _drafts_of_document(document, mistakes)
    if not any(document.data.get("agents") or document.data.get("libraries") for document in documents):
        first = documents[0] if documents else Document(str(path), {})
        raise first.error((), "has no agents; write them as `agents: {name: {prompt: ...}}`")


def _drafts_of_document(document: Document, mistakes: Mistakes | None) -> Iterator[Draft]:
    checker = Checker(document, mistakes)
    for key in document.data:
        with collecting(mistakes):
            if key not in ("agents", "libraries"):
                raise document.error((key,), f"{key!r} is not known here; put agents below the key 'agents'")
    for name, item, path in _entries(document.data.get("agents"), ("agents",), checker):
        with collecting(mistakes):
            yield _draft(name, item, checker, path)
    for library, content in checker.table(document.data.get("libraries") or {}, ("libraries",)).items():
        with collecting(mistakes):
            yield from _drafts_of_library(library, content, checker)


def _drafts_of_library(library: str, content: Any, checker: Checker) -> Iterator[Draft]:
    """Yield the agents of a library in a file. Others name them with a dot, `library.agent`."""
    at = ("libraries", library)
    if not NAME.fullmatch(library):
        raise checker.document.error(at, f"{library!r} is not a valid library name: use letters, digits, '_' or '-'")
    if library in LIBRARIES:
        raise checker.document.error(at, f"{library!r} is a library that comes with Rondel; choose another name")
    table = checker.table(content or {}, at)
    for key in table:
        if key != "agents":
            raise checker.document.error((*at, key), f"{key!r} is not known here; a library has only 'agents'")
    for name, item, path in _entries(table.get("agents"), (*at, "agents"), checker):
        with collecting(checker.mistakes):
            yield _draft(name, item, checker, path, library)


def _entries(agents: Any, path: KeyPath, checker: Checker) -> Iterator[tuple[str, Any, KeyPath]]:
    """Yield agents as they are written, by name. They are in a table, or in tables that are in a list; there a text
    alone is a prompt."""
    if not isinstance(agents, list):
        for name, item in checker.table(agents or {}, path).items():
            yield name, {} if item is None else item, (*path, name)
        return
    for index, each in enumerate(cast("list[Any]", agents)):
        at = (*path, index)
        for name, item in checker.table(each, at).items():
            yield name, {"prompt": item} if isinstance(item, str) else item or {}, (*at, name)


def _draft_of_markdown(path: Path, env: Mapping[str, str] | None, mistakes: Mistakes | None) -> Iterator[Draft]:
    from ...text.yaml import read_markdown

    document = read_markdown(path, "prompt", mistakes)
    if document is None:
        if path.stem.lower() == "readme":
            return
        raise ConfigError(
            "has no front matter; start it with two lines '---'; keys, such as description, go between them",
            path=str(path),
        )
    document = expand(document, env, strict=False, mistakes=mistakes)
    fields = dict(document.data)
    checker = Checker(document, mistakes)
    name = checker.build(str, fields.pop("name", path.stem), ("name",))
    if not any(kind in fields for kind in KINDS):
        fields["prompt"] = ""  # the text below the front matter is empty
    yield _draft(name, fields, checker, ())


def _draft(name: str, value: Any, checker: Checker, path: KeyPath, library: str = "") -> Draft:
    at = path or ("name",)
    if not NAME.fullmatch(name):
        message = f"{name!r} is not a valid agent name: use 1 to 64 letters, digits, '_' or '-'"
        raise checker.document.error(at, message)
    if name in TOOLS:
        raise checker.document.error(at, f"{name!r} is the name of a built-in tool; choose another name")
    keys = set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set[str]()
    kinds: tuple[AgentKind, ...] = tuple(kind for kind in KINDS if kind in keys)
    if not kinds and keys - {field.name for field in msgspec.structs.fields(AgentSettings)}:
        kinds = ("prompt",)  # an unknown key was reported and may have been meant as the kind
    settings = checker.struct(AgentSettings, value, path)
    full = f"{library}.{name}" if library else name
    if not kinds and settings.job:  # it only starts its job, and says so
        said = escape(f"Running job: {full}. {settings.description}".strip())
        settings = msgspec.structs.replace(settings, template=said)
        kinds = ("template",)
    return Draft(full, checker, path, settings, kinds)
