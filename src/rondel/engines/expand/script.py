"""An agent's words, read once for all of its turns: their directives, and the tools that carry them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from ...agent import Agent
from ...events import HomeChanged
from ...prompt import Child, Node
from ...template import Directive, Template, parse, scan, unique
from ...tool import CallContext, Tool, tool


class Agents(Protocol):
    """Who there is to recruit."""

    def agent(self, name: str = "") -> Agent: ...

    def knows_agent(self, name: str) -> bool: ...


class Script:
    """An agent's words, read once: their directives, and the tools that carry them out."""

    def __init__(self, agent: Agent, agents: Agents, ask: Tool) -> None:
        self.agent, self.agents = agent, agents
        texts = [agent.template] if agent.template else [node.text for node in walk(agent.nodes)]
        self.templates = {text: found for text in texts if text and not (found := parse(text)).is_plain}
        self.directives = [d for text in texts if text in self.templates for d in self.templates[text].directives]
        self.working = unique(d for d in self.directives if d.works)
        self.function = _function_tool(agent) if agent.function is not None else None
        self.deferred = tuple(dict.fromkeys(d.agent for d in self.directives if d.name == "Defer"))
        """Agents that the author offers to the model."""
        self.tools = self._tools(ask)
        """What carries out directives; no model is told of these."""

    @property
    def is_needed(self) -> bool:
        return bool(self.agent.template or self.function or self.templates or self.agent.expands_output)

    @property
    def needs_model(self) -> bool:
        return not self.agent.template and self.function is None

    def _tools(self, ask: Tool) -> dict[str, Tool]:
        expands = self.agent.expands_output
        names = {d.name for d in self.directives}
        tools = [_recruiting(self.agents, d.agent) for d in self.working if d.name == "Get"]
        tools += [_recruiting(self.agents, name) for name in self.agent.recruits if expands]
        tools += [ask] if expands or names & {"AskUser", "Options"} else []
        tools += [_starting(self.agents)] if expands or "Start" in names else []
        tools += [self.function] if self.function else []
        return {tool.name: tool for tool in tools}

    def allows(self, directive: Directive) -> bool:
        """Whether a directive in what the agent says is carried out: it names nobody but this one and its recruits."""
        return not directive.agent or directive.agent in (self.agent.name, *self.agent.recruits)

    def heard(self, text: str) -> Template:
        """What the agent said, with the directives that it may use."""
        if not self.agent.expands_output:
            return Template(text)
        found = scan(text)
        allowed = tuple(d for d in found.directives if self.allows(d))
        return msgspec.structs.replace(found, directives=allowed)


def walk(nodes: Iterable[Child]) -> Iterable[Node]:
    pending = [node for node in nodes if isinstance(node, Node)][::-1]
    while pending:
        node = pending.pop()
        if node.enabled:
            yield node
            pending.extend(child for child in reversed(node.children) if isinstance(child, Node))


def tool_name(agent: str) -> str:
    return agent.replace(".", "_")


def _recruiting(agents: Agents, name: str) -> Tool:
    """Lets an agent work that is looked for when it is needed: nobody need declare it before."""

    async def run(arguments: dict[str, Any], context: CallContext) -> Any:
        return await context.turn.recruit(agents.agent(name), arguments, context)

    return Tool(name=tool_name(name), run=run, timeout_s=0, idempotent=True, tags=("agent",))


def _starting(agents: Agents) -> Tool:
    async def run(arguments: dict[str, Any], context: CallContext) -> str:
        agent, turn = arguments["agent"], context.turn
        if not agents.knows_agent(agent):
            return f"Invalid Starting Agent: {agent}"
        changed = HomeChanged(agent, by=turn.agent.name)
        if (root := await turn.root()).transcript is turn.transcript:
            await turn.append(changed, wait=False)
        else:
            await root.append(changed, wait=False)
        return f"New Starting Agent: {agent}"

    return Tool(name="start_agent", run=run, idempotent=True)


def _function_tool(agent: Agent) -> Tool:
    function = agent.function
    if isinstance(function, Tool):
        return msgspec.structs.replace(function, name=tool_name(agent.name))
    assert function is not None
    return tool(name=tool_name(agent.name))(function)
