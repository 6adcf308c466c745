"""A project's folder as an app: its agents, the built-in agent, the engine, the store and the ledger.

The command line and `rondel.Project` make their apps here, so that both run a folder in the same way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ..agent import Agent
from ..app.app import App
from ..contracts.endpoint import facts_of
from ..contracts.store import Store
from ..engine import Engine, UnavailableEngine
from ..errors import ConfigError, NotTrusted, nearest
from ..libraries import find_agent, has_agent, names_for
from ..plugin import Plugin
from ..text.template import scan
from .agents import load_agents
from .config import MEMORY, load, make_ledger, plugins_of, process_environment
from .engines import Picked, make_engine, pick, refuse_download
from .images import make_image_engines
from .knowledge import bases_of, make_knowledge, make_tool_embedder, make_web_search
from .settings import Config
from .trust import trust_list

if TYPE_CHECKING:
    from ..tool import Tool

FILE = "rondel.toml"
BUILTIN = "rondel"

PROMPT = """\
You are Rondel, a friendly assistant in the user's terminal. Answer in the user's language, briefly and to the point; \
Markdown is shown well. Say so when you do not know something."""
PUBLIC_PROMPT = """\
You are Rondel, a friendly assistant in a chat with several people. Their messages begin with their names. Answer in \
the language of the message, briefly and to the point. Say so when you do not know something."""
TOOLS_PROMPT = """\

Use your tools for the time and for sums instead of guessing. Ask the user with ask_user only when you cannot continue \
without the answer. run_shell runs a command on the user's computer, after the user agreed: use it when the user wants \
something done or looked up there, and say what the command is for."""

KNOWLEDGE_PROMPT = """ \
search_knowledge searches the documents of this project: use it before you answer a question that they may answer, and \
cite what you use."""


class Project(msgspec.Struct, frozen=True):
    """A project's folder: its configuration and the agents in its files."""

    config: Config
    agents: tuple[Agent, ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str] = ".", *, trust: bool = False) -> Project:
        """Load the project in a folder. Raises NotTrusted unless the user trusts the folder, as with `rondel trust`, or
        `trust` is True: a project runs its Python, and chooses where keys are sent."""
        if not Path(path, FILE).is_file():
            raise ConfigError(f"{os.fspath(path)!r} is not a project: it has no {FILE}; `rondel init` makes one")
        config = load(path, trusts=None if trust else trust_list().trusts)
        if not config.is_trusted:
            raise NotTrusted(
                f"the project in {str(config.project)!r} is not trusted; review its files, then load it with "
                "trust=True, or run `rondel trust` there"
            )
        return cls(config, tuple(load_agents(config)))

    @contextlib.asynccontextmanager
    async def open(
        self,
        agent: str = "",
        *,
        engine: str | Engine | None = None,
        recover: bool = True,
        store: Store | None = None,
    ) -> AsyncGenerator[App]:
        """Run the project's app while the block runs: `async with project.open() as app: ...`.

        `agent` answers where none is named; else the configured one, or the first. `engine` replaces its engine,
        and answers for agents that have none of their own. `store` replaces the configured one, for example in a test.
        """
        found = await assemble(self, agent, engine, recover=recover, store=store)
        if found.asks and found.picked is not None:
            refuse_download(found.picked)
        async with found.app as app:
            yield app

    @property
    def names(self) -> tuple[str, ...]:
        """The agents of this project and the built-in one."""
        return tuple(dict.fromkeys((*(agent.name for agent in self.agents), BUILTIN)))

    def knows(self, name: str) -> bool:
        """Return whether an agent of this project, of a library or the built-in one has this name."""
        return name in self.names or has_agent(name)

    def agent_name(self, wanted: str) -> str:
        """Return the named agent, else the configured one, else the first one, else the built-in one."""
        if wanted and not self.knows(wanted):
            hint = nearest(wanted, (*self.names, *names_for(wanted)))
            if not self.config.project and Path("agents").is_dir():
                hint += f"; agents/ is not read without a {FILE} beside it; `rondel init` writes one"
            raise ConfigError(f"there is no agent {wanted!r}{hint}")
        return wanted or self.config.agent or self.names[0]

    def find(self, name: str) -> Agent | None:
        """Return the agent of this name, from the project or a library; None for the built-in one."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        return find_agent(name) if has_agent(name) else None

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


def open_store(config: Config) -> Store:
    config.check_trusted()
    if config.store.path == MEMORY:
        from ..stores.memory import MemoryStore

        return MemoryStore()
    from ..stores.sqlite import SqliteStore

    return SqliteStore(config.store.path, durability=config.store.durability)


class Assembled(msgspec.Struct, frozen=True):
    """An app that is not open yet, its first agent, why it got its engine, and whether it may ask a model."""

    app: App
    agent: Agent
    picked: Picked | None
    asks: bool


GetWeights: TypeAlias = Callable[[Engine, Picked | None], Awaitable[bool]]
"""Asks the user before it downloads what an engine needs. Returns whether something was downloaded."""


async def assemble(
    project: Project,
    agent: str,
    engine: str | Engine | None,
    *,
    inputs_known: bool = False,
    recover: bool = False,
    is_public: bool = False,
    get_weights: GetWeights | None = None,
    store: Store | None = None,
) -> Assembled:
    """Make the app of a project. With `recover`, it continues interrupted jobs when it opens.

    `inputs_known`: no model is needed to extract the agent's inputs from a text. `is_public`: strangers talk to it, so
    the built-in agent has no tools that act on this machine. `get_weights` is asked if an embedded model may answer.
    `store` is used instead of the configured one; documents are still those of the project.
    """
    name = project.agent_name(agent)
    default, picked, failed = await _default_engine(project.config, engine)
    built_in = with_builtin(project, default, is_public=is_public)
    agents = with_plugins(_with_library(built_in, name, project), project.config)
    if engine is not None:
        agents = [msgspec.structs.replace(a, engine=default) if a.name == name else a for a in agents]
    agents.sort(key=lambda a: a.name != name)
    asks = asks_a_model(name, agents, inputs_known=inputs_known)
    if failed is not None and agents[0].engine is None and asks:
        raise failed
    used = agents[0].engine or default
    if isinstance(used, str):
        used = make_engine(used, project.config)  # report a mistake in this agent's engine now
    needs = asks_a_model(name, agents, inputs_known=inputs_known, facts=False)
    if needs and get_weights is not None and used.name.startswith("local:") and await get_weights(used, picked):
        return await assemble(
            project, agent, engine, inputs_known=inputs_known, recover=recover, is_public=is_public, store=store
        )
    make = partial(_engine_or_reason, config=project.config)
    app = make_app(agents, project.config, os.environ, engine=default, make_engine=make, recover=recover, store=store)
    return Assembled(app, agents[0], picked, asks)


def make_app(
    agents: Sequence[Agent],
    config: Config,
    env: Mapping[str, str],
    *,
    engine: str | Engine,
    make_engine: Callable[[str], Engine],
    recover: bool,
    store: Store | None = None,
) -> App:
    """Make an app with everything that the configuration gives to agents. `env` has the keys of engines."""
    store = store or open_store(config)
    return App(
        *agents,
        engine=engine,
        store=store,
        ledger=make_ledger(store.ledger_store, config),
        make_engine=make_engine,
        recover=recover,
        environment=process_environment(config, os.environ),
        knowledge=make_knowledge(config, env=env),
        web_search=make_web_search(config),
        embedder=partial(make_tool_embedder, config),
        images=make_image_engines(config, env=env),
        image_options=config.images.defaults,
    )


def asks_a_model(name: str, agents: Sequence[Agent], *, inputs_known: bool = False, facts: bool = True) -> bool:
    """Return whether an agent, or one that it recruits, may need a model. Without `facts`, a model that only extracts
    facts does not count: an answer in JSON needs none."""
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
        elif (facts and agent.facts) or (len(agent.inputs) > 1 and not (inputs_known and agent.name == name)):
            return True  # a model extracts them from a text
        pending += [*agent.recruits, *(d.agent for d in scan(agent.template).all if d.works)]
    return False


async def _default_engine(
    config: Config, asked: str | Engine | None
) -> tuple[Engine, Picked | None, ConfigError | None]:
    if asked is not None:
        return make_engine(asked, config) if isinstance(asked, str) else asked, None, None
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
    about = "a friendly assistant with a few tools"
    tools, prompt, plugins = _builtin_tools(), PROMPT + TOOLS_PROMPT, list[Plugin]()
    if engine.facts.small:  # it asks the user what it was asked, and a tool for the time
        from ..plugins.clock import Clock

        tools = tuple(tool for tool in tools if tool.name in ("calculate", "run_shell"))
        prompt, plugins = PROMPT, [Clock()]
    if knows:
        from ..knowledge.tool import search_knowledge

        tools, prompt = (*tools, search_knowledge), prompt + KNOWLEDGE_PROMPT
    return Agent(BUILTIN, prompt, tools=tools, plugins=tuple(plugins), description=about)


def _builtin_tools() -> tuple[Tool, ...]:
    from ..tools.ask_user import ask_user
    from ..tools.calculate import calculate
    from ..tools.clock import current_time
    from ..tools.shell import run_shell

    return (current_time, calculate, ask_user, run_shell)


def with_builtin(project: Project, engine: Engine, *, is_public: bool) -> list[Agent]:
    """Return the project's agents and the built-in one, unless the project has an agent of its name."""
    if any(agent.name == BUILTIN for agent in project.agents):
        return list(project.agents)
    config = project.config
    if is_public:
        made = Agent(BUILTIN, PUBLIC_PROMPT, description="small talk")
    else:
        made = builtin_agent(engine, knows=bool(bases_of(config)))
    made = msgspec.structs.replace(made, limits=config.limits, options=config.options)
    return [*project.agents, made]


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
