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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from .agent import Agent
from .config import engine_problem, limits_of, options_of, plugin_of, plugins_of
from .document import Checker, KeyPath, Where, dotted, expand
from .errors import ConfigError, nearest
from .lookup import TOOLS, find_tool
from .plugin import Plugin
from .prompt import HISTORY, Node
from .settings import Config
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


class _Draft(msgspec.Struct, frozen=True):
    """An agent as it stands in its file."""

    name: str
    checker: Checker
    path: KeyPath
    settings: AgentSettings

    @property
    def where(self) -> Where:
        return self.checker.document.where(self.path)

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.checker.document.error((*self.path, *path), message)


def load_agents(config: Config, env: Mapping[str, str] | None = None) -> list[Agent]:
    """The agents in `agents/` beside rondel.toml, in the order of their files' names and of the files' lines."""
    if not config.project:
        return []
    env = os.environ if env is None else env
    drafts: dict[str, _Draft] = {}
    for path in sorted(Path(config.project, FOLDER).glob("*")):
        for draft in [] if path.name.startswith(".") else _drafts(path, env):
            if (other := drafts.setdefault(draft.name, draft)) is not draft:
                raise draft.error((), f"there is another agent {draft.name!r} at {other.where}; rename one")
    if config.agent and config.agent not in drafts:
        raise _no_such_default(config, tuple(drafts))
    return [_agent(draft, config, tuple(drafts)) for draft in drafts.values()]


def _no_such_default(config: Config, known: tuple[str, ...]) -> ConfigError:
    source = config.source("agent")
    message = f"there is no agent {config.agent!r}{nearest(config.agent, known)}"
    if not known:
        message += f"; write one: {Path(config.project, FOLDER, f'{config.agent}.md')}"
    return source.where.error(message if source.where.path else f"the variable {source}: {message}")


# --- files ------------------------------------------------------------------------------------------------------------


def _drafts(path: Path, env: Mapping[str, str]) -> list[_Draft]:
    if path.suffix in (".yaml", ".yml"):
        return _drafts_of_yaml(path, env)
    if path.suffix == ".md":
        return _draft_of_markdown(path, env)
    return []


def _drafts_of_yaml(path: Path, env: Mapping[str, str]) -> list[_Draft]:
    from .documents.yaml import read_yaml

    document = expand(read_yaml(path), env, strict=False)
    checker = Checker(document)
    for key in document.data:
        if key != "agents":
            raise document.error((key,), f"{key!r} is not known here; agents stand below the key 'agents'")
    if not document.data.get("agents"):
        raise document.error((), "has no agents; write them as `agents: {name: {prompt: ...}}`")
    table = checker.table(document.data["agents"], ("agents",))
    return [_draft(name, {} if item is None else item, checker, ("agents", name)) for name, item in table.items()]


def _draft_of_markdown(path: Path, env: Mapping[str, str]) -> list[_Draft]:
    from .documents.yaml import read_markdown

    document = read_markdown(path, "prompt")
    if document is None:
        if path.stem.lower() == "readme":
            return []
        raise ConfigError("has no front matter; begin it with a line '---', keys, and a line '---'", path=str(path))
    document = expand(document, env, strict=False)
    fields = dict(document.data)
    checker = Checker(document)
    name = checker.build(str, fields.pop("name", path.stem), ("name",))
    return [_draft(name, fields, checker, ())]


def _draft(name: str, value: Any, checker: Checker, path: KeyPath) -> _Draft:
    at = path or ("name",)
    if not NAME.fullmatch(name):
        message = f"{name!r} is no name for an agent: use 1 to 64 letters, digits, '_' or '-'"
        raise checker.document.error(at, message)
    if name in TOOLS:
        raise checker.document.error(at, f"{name!r} is the name of a built-in tool; name the agent otherwise")
    return _Draft(name, checker, path, checker.struct(AgentSettings, value, path))


# --- from a draft to an agent -----------------------------------------------------------------------------------------


def _agent(draft: _Draft, config: Config, names: tuple[str, ...]) -> Agent:
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


def _engine(draft: _Draft, config: Config) -> str | None:
    name = draft.settings.engine
    if name and (problem := engine_problem(name, config.engines)):
        raise draft.error(("engine",), problem)
    return name or None


def _tools(draft: _Draft, config: Config, agents: tuple[str, ...]) -> tuple[Tool | str, ...]:
    tools: list[Tool | str] = []
    seen: set[str] = set()
    for index, name in enumerate(draft.settings.tools):
        where = draft.checker.document.where((*draft.path, "tools", index))
        found = name if name in agents else find_tool(name, where, project=config.project, known=agents)
        called = found if isinstance(found, str) else found.name
        if called in seen:
            raise where.error(f"agent {draft.name!r} has two tools named {called!r}; name one, or rename one")
        seen.add(called)
        tools.append(found)
    return tuple(tools)


def _plugins(draft: _Draft, config: Config) -> tuple[Plugin, ...]:
    """Those that rondel.toml turns on for all agents, then the agent's own, which replace those of the same name."""
    path = (*draft.path, "plugins")
    named = [plugin_of(draft.checker, item, (*path, i)) for i, item in enumerate(draft.settings.plugins)]
    own = {plugin.name: plugin for plugin in (settings.make(config.project) for settings in named)}
    # Made anew for each agent: a plugin is opened and closed with each agent that has it.
    return (*(plugin for plugin in plugins_of(config) if plugin.name not in own), *own.values())


def _input(field: dict[str, Any]) -> dict[str, Any]:
    """A property of a JSON schema; a text unless it says otherwise."""
    typed = any(key in field for key in ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"))
    return field if typed else {"type": "string", **field}


def _prompt(draft: _Draft) -> str | tuple[Node, ...]:
    prompt = draft.settings.prompt
    if isinstance(prompt, str):
        return prompt
    seen: dict[str, KeyPath] = {}
    return tuple(_node(draft, node, ("prompt", i), ("prompts",), seen) for i, node in enumerate(prompt))


def _node(
    draft: _Draft, settings: NodeSettings, path: KeyPath, source: tuple[str, ...], seen: dict[str, KeyPath]
) -> Node:
    if settings.id in seen:
        line = draft.checker.document.where((*draft.path, *seen[settings.id])).line
        raise draft.error(path, f"two pieces of the prompt have the id {settings.id!r}: on line {line} and here")
    if settings.id == HISTORY and len(path) > 2:
        raise draft.error(path, f"{dotted(path)!r}: the place of the conversation is at the top of the prompt's list")
    seen[settings.id] = path
    source = (*source, settings.id)
    inner = (*source, "children")
    return Node(
        settings.id,
        text=settings.text,
        role=settings.role,
        children=tuple(
            _node(draft, child, (*path, "children", i), inner, seen) for i, child in enumerate(settings.children)
        ),
        caption=settings.caption,
        enabled=settings.enabled,
        tags=settings.tags,
        source=source,
    )
