"""Loads the project for a command: configuration, agents, the built-in agent, the engine and the app."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..agent import Agent
from ..app.app import App
from ..contracts.endpoint import PROVIDERS, Provider, facts_of
from ..contracts.store import Store
from ..engine import Engine, EngineInfo, UnavailableEngine
from ..errors import ConfigError, nearest
from ..libraries import agent_names, find_agent, is_library_name
from ..plugin import Plugin
from ..project.agents import load_agents
from ..project.config import BUILTIN_ENGINES, make_ledger, plugins_of, process_environment
from ..project.engines import Picked, make_engine, pick
from ..project.knowledge import bases_of, make_knowledge, make_web_search
from ..project.settings import Config
from ..text.template import scan
from ._trust import load_config, look_at_config, not_looked_at, survey

if TYPE_CHECKING:
    from ..tool import Tool

BUILTIN = "rondel"
MEMORY = ":memory:"

PROMPT = """\
You are Rondel, a friendly assistant in the user's terminal. Answer in the user's language, briefly and to the point; \
Markdown is shown well. Say so when you do not know something."""
TOOLS_PROMPT = """\

Use your tools for the time and for sums instead of guessing. Ask the user with ask_user only when you cannot continue \
without the answer. run_shell runs a command on the user's computer, after the user agreed: use it when the user wants \
something done or looked up there, and say what the command is for."""

KNOWLEDGE_PROMPT = """ \
search_knowledge searches the documents of this project: use it before you answer a question that they may answer, and \
cite what you use."""


class Project(msgspec.Struct, frozen=True):
    config: Config
    agents: tuple[Agent, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The agents of this project and the built-in one."""
        return tuple(dict.fromkeys((*(agent.name for agent in self.agents), BUILTIN)))

    def agent_name(self, wanted: str) -> str:
        """Return the named agent, else the configured one, else the first one, else the built-in one."""
        if wanted and wanted not in self.names and not _is_in_library(wanted):
            known = (*self.names, *agent_names()) if "." in wanted else self.names
            raise ConfigError(f"there is no agent {wanted!r}{nearest(wanted, known)}")
        return wanted or self.config.agent or self.names[0]

    def find(self, name: str) -> Agent | None:
        """Return the agent of this name, from the project or a library; None for the built-in one."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        return find_agent(name) if _is_in_library(name) else None

    def body(self, name: str) -> Agent | None:
        """Return the agent; if it is an alias, with the inputs and template of the original."""
        agent, seen = self.find(name), {name}
        body = agent
        while body is not None and body.alias and body.alias not in seen:
            seen.add(body.alias)
            body = self.find(body.alias)
        if agent is None or body is None or body is agent:
            return agent
        return msgspec.structs.replace(body, name=name, inputs=agent.inputs or body.inputs)


class Opened(msgspec.Struct, frozen=True):
    """A running app, its agent, and why this engine was chosen; `why` is empty if the agent needs no model."""

    app: App
    agent: str
    engine: EngineInfo
    why: str
    hints: tuple[str, ...] = ()
    picked: Picked | None = None

    @property
    def model_line(self) -> str:
        if not self.why:
            return f"{self.agent} needs no model."
        here = f"{Path.cwd()}{os.sep}"  # show a file in this folder by its name
        embedded = " (embedded)" if self.engine.name.startswith("local:") else ""
        return f"Using {self.engine.name}{embedded}: {self.why.replace(here, '')}."


def load_project() -> Project:
    config = load_config()
    return Project(config, tuple(load_agents(config)))


def look_at_project() -> tuple[Project, str]:
    """Return the project for inspection, and a sentence about what was left out if it is not trusted."""
    config = look_at_config()
    if config.is_trusted:
        return Project(config, tuple(load_agents(config))), ""
    found = survey(config)
    if found.mistakes:
        raise found.mistakes[0]
    plugins = tuple(f"the plugin {plugin.name}" for plugin in config.plugins if ":" not in plugin.name)
    return Project(config, found.agents), not_looked_at(config, (*found.wanted, *plugins))


def open_store(config: Config) -> Store:
    config.check_trusted()
    if config.store.path == MEMORY:
        from ..stores.memory import MemoryStore

        return MemoryStore()
    from ..stores.sqlite import SqliteStore

    return SqliteStore(config.store.path, durability=config.store.durability)


@contextlib.asynccontextmanager
async def open_app(
    project: Project, agent: str, engine: str = "", *, inputs_known: bool = False, recover: bool = False
) -> AsyncGenerator[Opened]:
    """Open the app for a command. With `recover`, it continues interrupted jobs; people resume theirs by hand.

    `inputs_known`: no model is needed to extract the agent's inputs from a text.
    """
    name = project.agent_name(agent)
    default, picked, failed = await _default_engine(project.config, engine)
    agents = with_plugins(_with_library(_with_builtin(project, default), name, project), project.config)
    if engine:
        agents = [msgspec.structs.replace(a, engine=default) if a.name == name else a for a in agents]
    agents.sort(key=lambda a: a.name != name)
    asks = asks_a_model(name, agents, inputs_known=inputs_known)
    if failed is not None and agents[0].engine is None and asks:
        raise failed
    if isinstance(agents[0].engine, str):
        make_engine(agents[0].engine, project.config)  # report a mistake in this agent's engine now
    store = open_store(project.config)
    app = App(
        *agents,
        engine=default,
        store=store,
        ledger=make_ledger(store.ledger_store, project.config),
        make_engine=lambda name: _engine_or_reason(name, project.config),
        recover=recover,
        environment=process_environment(project.config, os.environ),
        knowledge=make_knowledge(project.config),
        web_search=make_web_search(project.config),
    )
    async with app:
        yield _opened(app, agents[0], picked, engine, asks=asks)


def _opened(app: App, agent: Agent, picked: Picked | None, asked: str, *, asks: bool) -> Opened:
    engine = app.registry.resolve(agent.name).engine
    if asked:
        return Opened(app, agent.name, engine, "set with --engine")
    if isinstance(agent.engine, str):
        return Opened(app, agent.name, engine, "set in the agent's file")
    if not asks:
        return Opened(app, agent.name, engine, "")
    assert picked is not None
    return Opened(app, agent.name, engine, picked.why, picked.hints, picked)


def offered_models(config: Config) -> dict[str, str]:
    offered: dict[str, str] = {}
    for name, settings in config.engines.items():
        provider = settings.provider or name
        model = settings.model or PROVIDERS.get(provider, Provider("")).model
        if model or provider in BUILTIN_ENGINES:
            offered[name] = f"{provider}:{model}" if model else ""
        offered |= dict.fromkeys((f"{name}:{model}" for model in settings.models), "")
    if config.engine:
        offered.setdefault(config.engine, "")
    return offered


def asks_a_model(name: str, agents: Sequence[Agent], *, inputs_known: bool = False) -> bool:
    """Return whether an agent, or one that it recruits, may need a model."""
    known, pending, seen = {agent.name: agent for agent in agents}, [name], set[str]()
    while pending:
        agent = known.get(pending.pop())
        if agent is None or agent.name in seen:
            continue  # agents of libraries are functions
        seen.add(agent.name)
        if agent.alias:
            name = agent.alias if agent.name == name else name
            pending.append(agent.alias)
        elif not agent.template and agent.function is None:
            return True
        elif agent.facts or (len(agent.inputs) > 1 and not (inputs_known and agent.name == name)):
            return True  # a model extracts them from a text
        pending += [*agent.recruits, *(d.agent for d in scan(agent.template).directives if d.works)]
    return False


async def _default_engine(config: Config, asked: str) -> tuple[Engine, Picked | None, ConfigError | None]:
    if asked:
        return make_engine(asked, config), None, None
    try:
        picked = await pick(config)
    except ConfigError as error:
        return UnavailableEngine("none", str(error)), None, error
    return picked.engine, picked, None


def _engine_or_reason(name: str, config: Config) -> Engine:
    """Make an engine, or one that raises the reason: an agent without an engine must not stop the others."""
    try:
        return make_engine(name, config)
    except ConfigError as error:
        return UnavailableEngine(name, str(error))


# --- agents -----------------------------------------------------------------------------------------------------------


def builtin_agent(engine: Engine, *, knows: bool = False) -> Agent:
    """Return the built-in agent. It has no tools if the model is known to be bad at using them. With `knows`, it can
    search the project's documents."""
    provider, _, model = engine.name.partition(":")
    if not (engine.facts.tools and facts_of(provider, model).tools):
        return Agent(BUILTIN, PROMPT, description="small talk")
    tools, prompt = _builtin_tools(), PROMPT + TOOLS_PROMPT
    if knows:
        from ..tools.search_knowledge import search_knowledge

        tools, prompt = (*tools, search_knowledge), prompt + KNOWLEDGE_PROMPT
    return Agent(BUILTIN, prompt, tools=tools, description="a friendly assistant with a few tools")


def _builtin_tools() -> tuple[Tool, ...]:
    from ..tools.ask_user import ask_user
    from ..tools.calculate import calculate
    from ..tools.clock import current_time
    from ..tools.shell import run_shell

    return (current_time, calculate, ask_user, run_shell)


def _with_builtin(project: Project, engine: Engine) -> list[Agent]:
    if any(agent.name == BUILTIN for agent in project.agents):
        return list(project.agents)
    config = project.config
    made = builtin_agent(engine, knows=bool(bases_of(config)))
    made = msgspec.structs.replace(made, limits=config.limits, options=config.options)
    return [*project.agents, made]


def _is_in_library(name: str) -> bool:
    return is_library_name(name) and name in agent_names()


def _with_library(agents: list[Agent], name: str, project: Project) -> list[Agent]:
    known = any(agent.name == name for agent in agents)
    return agents if known or (found := project.find(name)) is None else [*agents, found]


def with_plugins(agents: Sequence[Agent], config: Config) -> list[Agent]:
    """Add the configured plugins to all agents. An agent's own plugin of the same name wins."""
    shared = plugins_of(config)
    if not shared:
        return list(agents)

    def plugins(agent: Agent) -> tuple[Plugin | str, ...]:
        own = {plugin if isinstance(plugin, str) else plugin.name for plugin in agent.plugins}
        return (*(plugin for plugin in shared if plugin.name not in own), *agent.plugins)

    return [msgspec.structs.replace(agent, plugins=plugins(agent)) for agent in agents]
