"""Agents in files: `agents/*.yaml` with several, `agents/*.md` with one, beside rondel.toml.

    agents:                                     ---
      weather:                                  description: Writes release notes
        description: The weather in a city      tools: [notes:changes_since]
        prompt: You know the weather.           ---
        tools: [ask_user, app.weather:lookup]   You write release notes. Be brief.

A Markdown file's text is the prompt, and its name is the agent's unless the front matter gives a `name`. What the keys
mean is in `AgentSettings`; a new key is one field there and one line in `_agent`. Limits and options stand on top of
those in rondel.toml. Knows no app: other agents stay names, which whoever runs them looks up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from .agent import Agent
from .config import engine_problem, limits_of, options_of, plugin_entries, plugins_of
from .document import Checker, KeyPath, Mistakes, Where, dotted, expand, going_on
from .errors import ConfigError, nearest
from .lookup import TOOLS, find_tool
from .plugin import Plugin
from .prompt import DEPTH_MAX, HISTORY, Node
from .settings import Config, PluginSettings
from .tool import NAME, Tool
from .values import OutputSchema

FOLDER = "agents"


class NodeSettings(msgspec.Struct, frozen=True):
    """A piece of a prompt. The one with the id `history` is where the conversation goes."""

    id: str
    text: str = ""
    role: Literal["system", "user", "assistant"] | None = None
    caption: str = ""
    enabled: bool = True
    tags: tuple[str, ...] = ()
    children: tuple[NodeSettings, ...] = ()


class AgentSettings(msgspec.Struct, frozen=True):
    """What a file may say of an agent."""

    description: str = ""
    """What it is good for: other agents read it when it is one of their tools."""
    prompt: str | tuple[NodeSettings, ...] = ""
    engine: str = ""
    tools: tuple[str, ...] = ()
    """Built-in tools, `module:attribute` of the project, or other agents."""
    plugins: tuple[str | dict[str, Any], ...] = ()
    limits: dict[str, Any] = {}
    options: dict[str, Any] = {}
    inputs: dict[str, dict[str, Any]] = {}
    """What it takes when it is called as a tool: the properties of a JSON schema; `required` is true unless said."""
    output: dict[str, Any] = {}
    """The JSON schema of its answer."""


class Draft(msgspec.Struct, frozen=True):
    """An agent as it stands in its file: its keys are checked, what its names stand for is not."""

    name: str
    checker: Checker
    path: KeyPath
    settings: AgentSettings

    @property
    def where(self) -> Where:
        return self.checker.document.where(self.path)

    @property
    def mistakes(self) -> Mistakes | None:
        return self.checker.mistakes

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.checker.document.error((*self.path, *path), message)

    def nodes(self) -> Iterator[tuple[KeyPath, NodeSettings]]:
        """Every piece of a prompt that is a tree, with its place in the file, depth first."""
        if isinstance(self.settings.prompt, str):
            return
        pending = _places(self.settings.prompt, ("prompt",))[::-1]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend(_places(node.children, (*path, "children"))[::-1])

    def plugins(self) -> tuple[PluginSettings, ...]:
        """The agent's own entries, those included that are not enabled."""
        return plugin_entries(self.checker, self.settings.plugins, (*self.path, "plugins"))


def _places(nodes: tuple[NodeSettings, ...], path: KeyPath) -> list[tuple[KeyPath, NodeSettings]]:
    """Nodes with their places; one that is left out for a mistake in it has none."""
    found = enumerate(cast("tuple[NodeSettings | None, ...]", nodes))
    return [((*path, index), node) for index, node in found if node is not None]


def load_agents(config: Config, env: Mapping[str, str] | None = None) -> list[Agent]:
    """The agents in `agents/` beside rondel.toml, in the order of their files' names and of the files' lines."""
    if not config.project:
        return []
    drafts = read_drafts(agent_paths(config), os.environ if env is None else env)
    if config.agent and config.agent not in drafts:
        raise no_such_default(config, tuple(drafts))
    return [agent_of(draft, config, tuple(drafts)) for draft in drafts.values()]


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
    from .documents.yaml import read_yaml

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
    from .documents.yaml import read_markdown

    document = read_markdown(path, "prompt")
    if document is None:
        if path.stem.lower() == "readme":
            return
        raise ConfigError("has no front matter; begin it with a line '---', keys, and a line '---'", path=str(path))
    document = expand(document, env, strict=False, mistakes=mistakes)
    fields = dict(document.data)
    checker = Checker(document, mistakes)
    name = checker.build(str, fields.pop("name", path.stem), ("name",))
    yield _draft(name, fields, checker, ())


def _draft(name: str, value: Any, checker: Checker, path: KeyPath) -> Draft:
    at = path or ("name",)
    if not NAME.fullmatch(name):
        message = f"{name!r} is no name for an agent: use 1 to 64 letters, digits, '_' or '-'"
        raise checker.document.error(at, message)
    if name in TOOLS:
        raise checker.document.error(at, f"{name!r} is the name of a built-in tool; name the agent otherwise")
    return Draft(name, checker, path, checker.struct(AgentSettings, value, path))


# --- from a draft to an agent -----------------------------------------------------------------------------------------


def agent_of(draft: Draft, config: Config, names: tuple[str, ...]) -> Agent:
    """The agent, bound to the tools and plugins that it names. `names` are those of all agents."""
    settings, checker, path = draft.settings, draft.checker, draft.path
    return Agent(
        draft.name,
        prompt=_prompt(draft),
        engine=_engine(draft, config),
        tools=_tools(draft, config, names),
        plugins=_plugins(draft, config),
        limits=limits_of(checker, settings.limits, (*path, "limits"), config.limits),
        options=options_of(checker, settings.options, (*path, "options"), config.options),
        description=settings.description,
        inputs={name: _input(field) for name, field in settings.inputs.items()},
        output=OutputSchema(settings.output, name=draft.name) if settings.output else None,
    )


def _engine(draft: Draft, config: Config) -> str | None:
    name = draft.settings.engine
    with going_on(draft.mistakes):
        if name and (problem := engine_problem(name, config.engines)):
            raise draft.error(("engine",), problem)
    return name or None


def _tools(draft: Draft, config: Config, agents: tuple[str, ...]) -> tuple[Tool | str, ...]:
    tools: dict[str, Tool | str] = {}
    for index, name in enumerate(cast("tuple[str | None, ...]", draft.settings.tools)):
        if name is None:
            continue
        with going_on(draft.mistakes):
            where = draft.checker.document.where((*draft.path, "tools", index))
            found = name if name in agents else find_tool(name, where, project=config.project, known=agents)
            called = found if isinstance(found, str) else found.name
            if called in tools:
                raise where.error(f"agent {draft.name!r} has two tools named {called!r}; name one, or rename one")
            tools[called] = found
    return tuple(tools.values())


def _plugins(draft: Draft, config: Config) -> tuple[Plugin, ...]:
    """Those that rondel.toml turns on for all agents, then the agent's own, which replace those of the same name."""
    own: list[Plugin] = []
    for settings in draft.plugins():
        with going_on(draft.mistakes):
            if settings.enabled:
                own.append(settings.make(config.project, mistakes=draft.mistakes))
    named = {plugin.name for plugin in own}
    # Made anew for each agent: a plugin is opened and closed with each agent that has it.
    return (*(plugin for plugin in plugins_of(config) if plugin.name not in named), *own)


def _input(field: dict[str, Any]) -> dict[str, Any]:
    """A property of a JSON schema; a text unless it says otherwise."""
    typed = any(key in field for key in ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"))
    return field if typed else {"type": "string", **field}


def _prompt(draft: Draft) -> str | tuple[Node, ...]:
    prompt = draft.settings.prompt
    if isinstance(prompt, str):
        return prompt
    seen: dict[str, KeyPath] = {}
    for path, node in draft.nodes():
        with going_on(draft.mistakes):
            _check_node(draft, node, path, seen)
    return tuple(_node(node, ("prompts",)) for _, node in _places(prompt, ()))


def _check_node(draft: Draft, node: NodeSettings, path: KeyPath, seen: dict[str, KeyPath]) -> None:
    if len(path) // 2 == DEPTH_MAX + 1:
        raise draft.error(path, f"the prompt is nested more than {DEPTH_MAX} levels deep; make it flatter")
    if not node.id:
        raise draft.error(path, f"{dotted(path)!r} has an empty id; name it")
    if node.id in seen:
        line = draft.checker.document.where((*draft.path, *seen[node.id])).line
        raise draft.error(path, f"two pieces of the prompt have the id {node.id!r}: on line {line} and here")
    seen[node.id] = path
    if node.id == HISTORY and len(path) > 2:
        raise draft.error(path, f"{dotted(path)!r}: the place of the conversation is at the top of the prompt's list")


def _node(settings: NodeSettings, source: tuple[str, ...]) -> Node:
    source = (*source, settings.id)
    inner = (*source, "children")
    return Node(
        settings.id,
        text=settings.text,
        role=settings.role,
        children=tuple(_node(child, inner) for _, child in _places(settings.children, ())),
        caption=settings.caption,
        enabled=settings.enabled,
        tags=settings.tags,
        source=source,
    )
