"""Who there is, and what their names stand for: agents, the engines, plugins and tools of each, resolved once.

Names become things here; what runs the agents is app.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .agent import Agent
from .crew import Crew
from .engine import Engine, EngineFace, Sealed, unsealed
from .errors import RondelError, nearest
from .plugin import Chain, Plugin
from .prompt import Prompt
from .tool import Tool
from .values import Delta, ModelFacts

if TYPE_CHECKING:
    from .app import App


class Roster:
    def __init__(
        self,
        app: App,
        *,
        engine: str | Engine | None,
        plugins: Sequence[Plugin] | None,
        tools: Iterable[Tool],
        make_engine: Callable[[str], Engine] | None,
    ) -> None:
        self._app = app
        self._engine = engine
        self._plugins = plugins
        self._tools = {tool.name: tool for tool in tools}
        self._make_engine = make_engine or _engine_by_name
        self._agents: dict[str, Agent] = {}
        self._engines: dict[str, Sealed] = {}
        self._crews: dict[str, Crew] = {}

    async def aclose(self) -> None:
        """Close every engine that was made or used."""
        used = (*(crew.engine for crew in self._crews.values()), *self._engines.values())
        for engine in {id(engine): engine for engine in map(unsealed, used)}.values():
            if close := getattr(engine, "aclose", None):
                await close()

    def add_agent(self, agent: Agent) -> None:
        if self._agents.get(agent.name, agent) is not agent:
            raise RondelError(f"there are two agents named {agent.name!r}; rename one")
        self._agents[agent.name] = agent

    @property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(self._agents.values())

    def knows_agent(self, name: str) -> bool:
        return name in self._agents or _is_in_library(name)

    def agent(self, name: str = "") -> Agent:
        """The agent of this name; the first one when no name is given."""
        if not self._agents:
            raise RondelError("this app has no agent; give it one: App(Agent('helper'))")
        if not name:
            return next(iter(self._agents.values()))
        if name not in self._agents and _is_in_library(name):
            self.add_agent(_library_agent(name))
        if name not in self._agents:
            raise RondelError(f"no agent is named {name!r}{nearest(name, list(self._agents))}")
        return self._agents[name]

    def crew(self, agent: str, engine: str = "") -> Crew:
        """An agent with its engine, plugins and tools, resolved once; with another engine than its own, if it is
        named."""
        if agent not in self._crews:
            self._crews[agent] = self._assemble(self._body_of(self.agent(agent)))
        crew = self._crews[agent]
        return msgspec.structs.replace(crew, engine=self.engine(engine)) if engine else crew

    def _assemble(self, agent: Agent) -> Crew:
        own = [_plugin_by_name(p) if isinstance(p, str) else p for p in agent.plugins]
        chain = Chain(default_plugins(*own) if self._plugins is None else (*self._plugins, *own))
        tools: dict[str, Tool] = {}
        named = (*agent.tools, *(name for name in agent.listeners if name not in agent.tools))
        for tool in (*(self._find_tool(item, agent) for item in named), *chain.tools):
            if tools.setdefault(tool.name, tool) is not tool:
                raise RondelError(f"agent {agent.name!r} has two tools named {tool.name!r}; rename one")
        tools = self._app.background.prepare(agent, tools, lambda name: self._find_tool(name, agent))
        return self._with_words(agent, chain, tools)

    def _with_words(self, agent: Agent, chain: Chain, tools: dict[str, Tool]) -> Crew:
        """What carries out the directives in an agent's words, beside the tools that its model is offered."""
        from .engines.expand import Expanding, Script
        from .tools.ask_user import ask_user

        script = Script(agent, self._app, ask_user)
        if not script.is_needed:
            return Crew.of(agent, self._find_engine(agent), chain, tools)
        for name in script.deferred:
            if self.knows_agent(name):
                offered = self._find_tool(name, agent)
                tools = {**tools, offered.name: offered}
        for hidden in script.tools.values():
            known = tools.get(hidden.name, hidden)
            if known.tags != hidden.tags:
                raise RondelError(f"agent {agent.name!r} has two tools named {hidden.name!r}; rename one")
        engine = self._find_engine(agent, needed=script.needs_model)
        unoffered = frozenset(name for name in script.tools if name not in tools)
        return Crew.of(
            agent,
            engine,
            chain,
            {**tools, **{name: script.tools[name] for name in script.tools if name in unoffered}},
            unoffered=unoffered,
            bind=lambda turn: Expanding(script, turn, turn.engine_named("")),
        )

    def _find_tool(self, item: Any, agent: Agent) -> Tool:
        if isinstance(item, Tool):
            return item
        if item in self._tools:
            return self._tools[item]
        if self.knows_agent(item):
            return self.tool_of(item)
        known = [*self._tools, *self._agents]
        raise RondelError(f"agent {agent.name!r}: no tool is named {item!r}{nearest(str(item), known)}")

    def tool_of(self, agent: str) -> Tool:
        """An agent as a tool. An alias has its own name, and says of itself what the agent says whose body it is."""
        called = self.agent(agent)
        return msgspec.structs.replace(self._body_of(called).as_tool(), run=called.as_tool().run)

    def _body_of(self, agent: Agent) -> Agent:
        """What an alias stands for, under its own name, with its own description, inputs and facts."""
        path, body = [agent.name], agent
        while body.alias:
            if body.alias in path:
                raise RondelError(f"agents are aliases of each other: {' -> '.join((*path, body.alias))}")
            if not self.knows_agent(body.alias):
                known = nearest(body.alias, [name for name in self._agents if name not in path])
                raise RondelError(f"agent {body.name!r} is an alias of {body.alias!r}, and there is none{known}")
            body = self.agent(body.alias)
            path.append(body.name)
        if body is agent:
            return agent
        own = {"description": agent.description, "inputs": agent.inputs, "facts": agent.facts}
        return msgspec.structs.replace(body, name=agent.name, **{key: value for key, value in own.items() if value})

    def _find_engine(self, agent: Agent, *, needed: bool = True) -> EngineFace:
        engine = agent.engine if agent.engine is not None else self._engine
        if engine is None and not needed:
            return _NoEngine(agent.name)
        if engine is None:
            raise RondelError(f"agent {agent.name!r} has no engine: give it one, or give the app a default engine")
        return self.engine(engine) if isinstance(engine, str) else engine

    def engine(self, name: str) -> Sealed:
        """The engine of this name, made once. It can be looked at; to be asked it goes through `meter`."""
        if name not in self._engines:
            self._engines[name] = Sealed(self._make_engine(name))
        return self._engines[name]


class _NoEngine:
    """Stands where an agent needs no model, and says so when one is needed all the same."""

    facts = ModelFacts()
    name = "none"

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        raise RondelError(f"agent {self._agent!r} has no engine: give it one, or give the app a default engine")
        yield  # an async generator, as every engine's stream is


# --- the defaults -----------------------------------------------------------------------------------------------------


def default_plugins(*own: Plugin) -> list[Plugin]:
    """The order of things. An agent's own plugins stand in the middle; one that bears a default's name replaces it."""
    from .plugins.approval import ApprovalGate
    from .plugins.facts import Facts
    from .plugins.inputs import Inputs
    from .plugins.limits import LimitsGuard
    from .plugins.log import Log
    from .plugins.repair import RepairArguments
    from .plugins.soft_failures import SoftFailures
    from .plugins.text_tools import TextTools
    from .plugins.trim import Trim

    before: list[Plugin] = [LimitsGuard(), ApprovalGate(), Inputs(), Facts(), SoftFailures(), RepairArguments()]
    after: list[Plugin] = [Trim(), TextTools(), Log()]
    defaults = {plugin.name for plugin in (*before, *after)}

    def placed(plugins: list[Plugin]) -> list[Plugin]:
        return [chosen for default in plugins for chosen in ([p for p in own if p.name == default.name] or [default])]

    return [*placed(before), *(plugin for plugin in own if plugin.name not in defaults), *placed(after)]


def _is_in_library(name: str) -> bool:
    if "." not in name:
        return False
    from .libraries import agent_names

    return name in agent_names()


def _library_agent(name: str) -> Agent:
    from .libraries import find_agent

    return find_agent(name)


def _engine_by_name(name: str) -> Engine:
    from .pick import make_engine

    return make_engine(name)


def _plugin_by_name(name: str) -> Plugin:
    from .config import find_plugin

    return find_plugin(name)
