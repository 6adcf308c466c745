"""Resolves names, once each: agents, and the engine, plugins and tools of each agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..agent import Agent, alias_path, handoff_tool
from ..engine import Engine, EngineInfo, UnavailableEngine, close, uncharged
from ..errors import RondelError, nearest
from ..libraries import find_agent, has_agent
from ..machine.citing import CitingEngine
from ..machine.resolved import ResolvedAgent
from ..plugin import Chain, Plugin
from ..tool import Tool

if TYPE_CHECKING:
    from ..machine.services import Services

SETTINGS_MAX = 256  # how many agents with a conversation's settings are cached


class Registry:
    def __init__(
        self,
        services: Services,
        *,
        engine: str | Engine | None,
        plugins: Sequence[Plugin] | None,
        tools: Iterable[Tool],
        make_engine: Callable[[str], Engine] | None,
    ) -> None:
        self._services = services
        self._engine = engine
        self._plugins = plugins
        self._tools = {tool.name: tool for tool in tools}
        self._make_engine = make_engine or _engine_by_name
        self._agents: dict[str, Agent] = {}
        self._engines: dict[str, EngineInfo] = {}
        self._chains: dict[str, Chain] = {}
        self._resolved: dict[str, ResolvedAgent] = {}
        self._with_settings: dict[str, ResolvedAgent] = {}
        self._added: list[Plugin] = []

    def add_plugin(self, plugin: Plugin) -> None:
        """Give a plugin to every agent, after their own plugins. Surfaces do this before the app starts."""
        self._added.append(plugin)
        self._chains.clear()

    @property
    def plugins(self) -> list[Plugin]:
        plugins = (plugin for agent in self.agents for plugin in self._chain_of(self._body_of(agent)).plugins)
        return list({id(plugin): plugin for plugin in plugins}.values())

    def resolve_all(self) -> None:
        """Resolve every agent after the plugins have started, because they may have got their tools then."""
        self._resolved.clear()
        self._with_settings.clear()
        for agent in self.agents:
            self.resolve(agent.name)

    async def choose_engine(self, *agents: Agent) -> None:
        """Choose the engine that the command line would choose, if one of these agents has none and may need one."""
        if self._engine is not None:
            return
        lacking = [body for agent in agents if (body := self._body_of(agent)).engine is None]
        if any(not body.template and body.function is None for body in lacking):
            self._engine = await _default_engine()
        elif any(body.facts or len(body.inputs) > 1 for body in lacking):  # a model extracts them from a text
            try:
                self._engine = await _default_engine()
            except RondelError as error:
                self._engine = UnavailableEngine("none", str(error))

    def use_engine(self, engine: str, *agents: Agent) -> None:
        """Change the default engine, and replace agents, for all turns that begin from now on."""
        self._engine = engine
        for agent in agents:
            self._agents[agent.name] = agent
            self._chains.pop(agent.name, None)
        self.resolve_all()

    async def aclose(self) -> None:
        used = (*(resolved.engine for resolved in self._resolved.values()), *self._engines.values())
        for engine in {id(engine): engine for engine in map(uncharged, used)}.values():
            await close(engine)

    def add_agent(self, agent: Agent) -> None:
        if self._agents.get(agent.name, agent) is not agent:
            raise RondelError(f"there are two agents named {agent.name!r}; rename one")
        self._agents[agent.name] = agent
        for target in agent.handoffs:
            if isinstance(target, Agent):
                self.add_agent(target)

    @property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(self._agents.values())

    def knows_agent(self, name: str) -> bool:
        return name in self._agents or has_agent(name)

    def agent(self, name: str = "") -> Agent:
        """Return the agent of this name, or the first one."""
        if not self._agents:
            raise RondelError("this app has no agent; pass one: App(Agent('helper'))")
        if not name:
            return next(iter(self._agents.values()))
        if name not in self._agents and has_agent(name):
            self.add_agent(find_agent(name))
        if name not in self._agents:
            raise RondelError(f"no agent is named {name!r}{nearest(name, list(self._agents))}")
        return self._agents[name]

    def resolve(self, agent: str, engine: str = "", settings: Mapping[str, Any] | None = None) -> ResolvedAgent:
        if agent not in self._resolved:
            self._resolved[agent] = self._assemble(self._body_of(self.agent(agent)))
        resolved = self._resolved[agent]
        if settings:
            resolved = self._adjusted(resolved, settings)
        return msgspec.structs.replace(resolved, engine=self.engine(engine)) if engine else resolved

    def _adjusted(self, resolved: ResolvedAgent, settings: Mapping[str, Any]) -> ResolvedAgent:
        """Return an agent with a conversation's settings. It is cached, because its plugins may have state."""
        key = f"{resolved.agent.name} {msgspec.json.encode(settings, order='sorted').decode()}"
        from .adjust import adjust

        made = self._with_settings.pop(key, None) or adjust(resolved, settings)
        self._with_settings[key] = made
        if len(self._with_settings) > SETTINGS_MAX:
            del self._with_settings[next(iter(self._with_settings))]
        return made

    def check_setting(self, agent: str, key: str, value: Any) -> None:
        """Raise RondelError if a conversation cannot override this setting of an agent."""
        from .adjust import adjust

        adjust(self.resolve(agent), {key: value}, strict=True)

    def _assemble(self, agent: Agent) -> ResolvedAgent:
        chain = self._chain_of(agent)
        tools: dict[str, Tool] = {}
        targets = [self.agent(item if isinstance(item, str) else item.name) for item in agent.handoffs]
        handing = [handoff_tool([self._body_of(target) for target in targets])] if targets else []
        named = (*agent.tools, *(name for name in agent.listeners if name not in agent.tools))
        for tool in (*(self._find_tool(item, agent) for item in named), *chain.tools, *handing):
            if tools.setdefault(tool.name, tool) is not tool:
                raise RondelError(f"agent {agent.name!r} has two tools named {tool.name!r}; rename one")
        tools = self._services.background.prepare(agent, tools, lambda name: self._find_tool(name, agent))
        return self._with_words(agent, chain, tools)

    def _chain_of(self, agent: Agent) -> Chain:
        if agent.name not in self._chains:
            from ..project.lookup import find_plugin

            own = [*(find_plugin(p) if isinstance(p, str) else p for p in agent.plugins), *self._added]
            plugins = default_plugins(*own) if self._plugins is None else (*self._plugins, *own)
            self._chains[agent.name] = Chain(plugins)
        return self._chains[agent.name]

    def _with_words(self, agent: Agent, chain: Chain, tools: dict[str, Tool]) -> ResolvedAgent:
        """Add the tools that run the directives in an agent's text to those that its model gets."""
        from ..templates.engine import Script, TemplateEngine
        from ..tools.ask_user import ask_user

        script = Script(agent, self, ask_user)
        if not script.is_needed:
            return ResolvedAgent.of(agent, self._find_engine(agent), chain, tools)
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
        return ResolvedAgent.of(
            agent,
            engine,
            chain,
            {**tools, **{name: script.tools[name] for name in script.tools if name in unoffered}},
            unoffered=unoffered,
            bind=lambda turn: TemplateEngine(script, turn, CitingEngine(turn.engine_named(""), turn)),
        )

    def _find_tool(self, item: Any, agent: Agent) -> Tool:
        if isinstance(item, Tool):
            return item
        if item in self._tools:
            return self._tools[item]
        if self.knows_agent(item):
            return self.tool_of(item)
        from ..project.lookup import TOOLS, find_tool

        if item in TOOLS or ":" in item:
            return find_tool(item)
        known = [*self._tools, *self._agents, *TOOLS]
        raise RondelError(f"agent {agent.name!r}: no tool is named {item!r}{nearest(str(item), known)}")

    def tool_of(self, agent: str) -> Tool:
        """Return an agent as a tool. An alias has its own name, and the description of the agent behind it."""
        called = self.agent(agent)
        return msgspec.structs.replace(self._body_of(called).as_tool(), run=called.as_tool().run)

    def _body_of(self, agent: Agent) -> Agent:
        """Return the agent behind an alias, with the alias's own name, description, inputs and facts."""
        if not agent.alias:
            return agent
        path = (agent.name, *alias_path(agent.alias, self._alias_of))
        if path[-1] in path[:-1]:
            raise RondelError(f"agents are aliases of each other: {' -> '.join(path)}")
        if not self.knows_agent(path[-1]):
            known = nearest(path[-1], [name for name in self._agents if name not in path])
            raise RondelError(f"agent {path[-2]!r} is an alias of {path[-1]!r}, and there is none{known}")
        body = self.agent(path[-1])
        own = {"description": agent.description, "inputs": agent.inputs, "facts": agent.facts}
        return msgspec.structs.replace(body, name=agent.name, **{key: value for key, value in own.items() if value})

    def _alias_of(self, name: str) -> str:
        return self.agent(name).alias if self.knows_agent(name) else ""

    def _find_engine(self, agent: Agent, *, needed: bool = True) -> EngineInfo:
        engine = agent.engine if agent.engine is not None else self._engine
        if isinstance(engine, str):
            return self.engine(engine)
        if engine is None:
            problem = f"agent {agent.name!r} has no engine: give it one, or give the app a default engine"
            if needed:
                raise RondelError(problem)
            engine = UnavailableEngine("none", problem)
        return EngineInfo.of(engine)

    def engine(self, name: str) -> EngineInfo:
        """Return the facts of the engine of this name, which is created once. `charge` makes it callable."""
        if name not in self._engines:
            self._engines[name] = EngineInfo.of(self._make_engine(name))
        return self._engines[name]


# --- the defaults -----------------------------------------------------------------------------------------------------


def default_plugins(*own: Plugin) -> list[Plugin]:
    """Return the plugins in order: an agent's own in the middle, or in the place of the default of the same name."""
    from ..plugins.approval import ApprovalGate
    from ..plugins.facts import Facts
    from ..plugins.inputs import Inputs
    from ..plugins.limits import LimitsGuard
    from ..plugins.log import Log
    from ..plugins.repair import RepairArguments
    from ..plugins.soft_failures import SoftFailures
    from ..plugins.text_tools import TextTools
    from ..plugins.trim import Trim

    before: list[Plugin] = [LimitsGuard(), ApprovalGate(), Inputs(), Facts(), SoftFailures(), RepairArguments()]
    after: list[Plugin] = [Trim(), TextTools(), Log()]
    defaults = {plugin.name for plugin in (*before, *after)}

    def placed(plugins: list[Plugin]) -> list[Plugin]:
        return [chosen for default in plugins for chosen in ([p for p in own if p.name == default.name] or [default])]

    return [*placed(before), *(plugin for plugin in own if plugin.name not in defaults), *placed(after)]


async def _default_engine() -> Engine:
    from ..project.engines import default_engine

    return await default_engine()


def _engine_by_name(name: str) -> Engine:
    from ..project.engines import make_engine

    return make_engine(name)
