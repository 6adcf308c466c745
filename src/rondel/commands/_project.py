"""What a command works with: the configuration, its agents and the built-in one, the engine, and an app on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..agent import Agent
from ..agent_files import load_agents
from ..app import App
from ..config import BUILTIN_ENGINES, load, plugins_of, rules_of
from ..endpoint import PROVIDERS, Provider, facts_of
from ..engine import Engine, EngineFace
from ..errors import ConfigError, EngineDenied, nearest
from ..ledger import Ledger
from ..libraries import agent_names, find_agent, is_library_name
from ..pick import Picked, make_engine, pick
from ..plugin import Plugin
from ..prompt import Prompt
from ..settings import Config
from ..store import Store
from ..template import scan
from ..values import Delta, ModelFacts

if TYPE_CHECKING:
    from ..tool import Tool

BUILTIN = "rondel"
MEMORY = ":memory:"

PROMPT = """\
You are Rondel, a friendly assistant in the user's terminal. Answer in the user's language, briefly and to the point; \
Markdown is shown well. Say so when you do not know something."""
TOOLS_PROMPT = """\

Use your tools for the time and for sums instead of guessing. Ask the user with ask_user only when you cannot go on \
without the answer. run_shell runs a command on the user's computer, after the user agreed: use it when the user wants \
something done or looked up there, and say what the command is for."""


class Project(msgspec.Struct, frozen=True):
    """A configuration and its agents, not yet running."""

    config: Config
    agents: tuple[Agent, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The agents of this project, and the built-in one."""
        return tuple(dict.fromkeys((*(agent.name for agent in self.agents), BUILTIN)))

    def agent_name(self, wanted: str) -> str:
        """The agent that was named, else the configured one, else the first; else the built-in one."""
        if wanted and wanted not in self.names and not _is_in_library(wanted):
            known = (*self.names, *agent_names()) if "." in wanted else self.names
            raise ConfigError(f"there is no agent {wanted!r}{nearest(wanted, known)}")
        return wanted or self.config.agent or self.names[0]

    def find(self, name: str) -> Agent | None:
        """The agent of this name, here or in a library; None for the built-in one."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        return find_agent(name, project=self.config.project) if _is_in_library(name) else None

    def body(self, name: str) -> Agent | None:
        """The same, with the inputs and the words of the one that it is an alias of."""
        agent, seen = self.find(name), {name}
        body = agent
        while body is not None and body.alias and body.alias not in seen:
            seen.add(body.alias)
            body = self.find(body.alias)
        if agent is None or body is None or body is agent:
            return agent
        return msgspec.structs.replace(body, name=name, inputs=agent.inputs or body.inputs)


class Opened(msgspec.Struct, frozen=True):
    """A running app, the agent that was asked for, and why its engine is the one it is; nothing, when none is asked."""

    app: App
    agent: str
    engine: EngineFace
    why: str
    hints: tuple[str, ...] = ()
    picked: Picked | None = None

    @property
    def model_line(self) -> str:
        if not self.why:
            return f"{self.agent} speaks its own words: no model is asked"
        here = f"{Path.cwd()}{os.sep}"  # a file in this folder is known by its name
        return f"{self.agent} talks to {self.engine.name} – {self.why.replace(here, '')}"


def load_project() -> Project:
    config = load()
    return Project(config, tuple(load_agents(config)))


def open_store(config: Config) -> Store:
    if config.store.path == MEMORY:
        from ..stores.memory import MemoryStore

        return MemoryStore()
    from ..stores.sqlite import SqliteStore

    return SqliteStore(config.store.path, durability=config.store.durability)


@contextlib.asynccontextmanager
async def open_app(
    project: Project, agent: str, engine: str = "", *, inputs_known: bool = False, recover: bool = False
) -> AsyncGenerator[Opened]:
    """The app that a person talks to. It takes up nothing by itself that another run left, unless it should `recover`:
    people resume by hand. `inputs_known`: no model has to read the agent's inputs out of a text."""
    name = project.agent_name(agent)
    default, picked, failed = await _default_engine(project.config, engine)
    agents = with_plugins(_with_library(_with_builtin(project.agents, default), name, project), project.config)
    if engine:
        agents = [msgspec.structs.replace(a, engine=default) if a.name == name else a for a in agents]
    agents.sort(key=lambda a: a.name != name)
    asks = asks_a_model(name, agents, inputs_known=inputs_known)
    if failed is not None and agents[0].engine is None and asks:
        raise failed
    if isinstance(agents[0].engine, str):
        make_engine(agents[0].engine, project.config)  # a mistake in the engine of this agent is said at once
    store = open_store(project.config)
    app = App(
        *agents,
        engine=default,
        store=store,
        ledger=Ledger(store.books, rules=rules_of(project.config)),
        make_engine=lambda name: _engine_or_excuse(name, project.config),
        recover=recover,
    )
    async with app:
        yield _opened(app, agents[0], picked, engine, asks=asks)


def _opened(app: App, agent: Agent, picked: Picked | None, asked: str, *, asks: bool) -> Opened:
    engine = app.crew(agent.name).engine
    if asked:
        return Opened(app, agent.name, engine, "--engine names it")
    if isinstance(agent.engine, str):
        return Opened(app, agent.name, engine, "the agent's file names it")
    if not asks:
        return Opened(app, agent.name, engine, "")
    assert picked is not None
    return Opened(app, agent.name, engine, picked.why, picked.hints, picked)


def offered_models(config: Config) -> dict[str, str]:
    """The engines that the configuration names, each with what it is."""
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
    """Whether an agent, or one that it recruits, may need a model: then there must be one before it begins."""
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
            return True  # a model reads them out of a text
        pending += [*agent.recruits, *(d.agent for d in scan(agent.template).directives if d.works)]
    return False


async def _default_engine(config: Config, asked: str) -> tuple[Engine, Picked | None, ConfigError | None]:
    if asked:
        return make_engine(asked, config), None, None
    try:
        picked = await pick(config)
    except ConfigError as error:
        return Excuse("none", error), None, error
    return picked.engine, picked, None


def _engine_or_excuse(name: str, config: Config) -> Engine:
    """An agent whose engine is not to be had must not keep the others from talking."""
    try:
        return make_engine(name, config)
    except ConfigError as error:
        return Excuse(name, error)


class Excuse:
    """Stands in for an engine that could not be made, and says why when it is asked."""

    facts = ModelFacts()

    def __init__(self, name: str, reason: ConfigError) -> None:
        self.name, self._reason = name, reason

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        raise EngineDenied(str(self._reason))
        yield  # an async generator, as every engine's stream is


# --- agents -----------------------------------------------------------------------------------------------------------


def builtin_agent(engine: Engine) -> Agent:
    """Who answers when nobody wrote an agent. A model that is known to be no good with tools is offered none."""
    provider, _, model = engine.name.partition(":")
    if not (engine.facts.tools and facts_of(provider, model).tools):
        return Agent(BUILTIN, PROMPT, description="small talk")
    tools = _builtin_tools()
    return Agent(BUILTIN, PROMPT + TOOLS_PROMPT, tools=tools, description="a friendly assistant with a few tools")


def _builtin_tools() -> tuple[Tool, ...]:
    from ..tools.ask_user import ask_user
    from ..tools.calculate import calculate
    from ..tools.clock import current_time
    from ..tools.shell import run_shell

    return (current_time, calculate, ask_user, run_shell)


def _with_builtin(agents: Sequence[Agent], engine: Engine) -> list[Agent]:
    if any(agent.name == BUILTIN for agent in agents):
        return list(agents)
    return [*agents, builtin_agent(engine)]


def _is_in_library(name: str) -> bool:
    return is_library_name(name) and name in agent_names()


def _with_library(agents: list[Agent], name: str, project: Project) -> list[Agent]:
    """An agent of a library is there when it is named."""
    known = any(agent.name == name for agent in agents)
    return agents if known or (found := project.find(name)) is None else [*agents, found]


def with_plugins(agents: Sequence[Agent], config: Config) -> list[Agent]:
    """The configuration's plugins are on for all agents; an agent's own one of the same name wins."""
    shared = plugins_of(config)
    if not shared:
        return list(agents)

    def plugins(agent: Agent) -> tuple[Plugin | str, ...]:
        own = {plugin if isinstance(plugin, str) else plugin.name for plugin in agent.plugins}
        return (*(plugin for plugin in shared if plugin.name not in own), *agent.plugins)

    return [msgspec.structs.replace(agent, plugins=plugins(agent)) for agent in agents]


def state_folder() -> Path:
    """Where the input history is kept: `rondel` in the user's state folder (XDG)."""
    xdg = os.environ.get("XDG_STATE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".local" / "state") / "rondel"
