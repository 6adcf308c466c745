"""An agent's text, parsed once for all of its turns: its directives, and the tools that run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...agent import Agent
from ...events import AgentChanged
from ...machine.services import Agents
from ...prompt import Child, Node
from ...text.template import Directive, Template, parse, scan, unique
from ...tool import CallContext, Tool, tool


class Script:
    def __init__(self, agent: Agent, agents: Agents, ask: Tool) -> None:
        self.agent, self.agents = agent, agents
        texts = [agent.template] if agent.template else [node.text for node in walk(agent.nodes)]
        self.templates = {text: found for text in texts if text and not (found := parse(text)).is_plain}
        self.directives = [d for text in texts if text in self.templates for d in self.templates[text].all]
        self.working = unique(d for d in self.directives if d.works)
        self.function = _function_tool(agent) if agent.function is not None else None
        self.deferred = tuple(dict.fromkeys(d.agent for d in self.directives if d.name == "Defer"))
        """The agents that the author offers to the model."""
        self.tools = self._tools(ask)  # the tools that run directives; they are not offered to a model

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
        """Return whether a directive in the agent's output is run: it may name only this agent and its recruits."""
        named = {one.agent for one in directive.walk()} - {""}
        return named <= {self.agent.name, *self.agent.recruits}

    def parse_output(self, text: str) -> Template:
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
    """Make a tool that recruits an agent. The agent is looked up when the tool runs, so it may be added later."""

    async def run(arguments: dict[str, Any], context: CallContext) -> Any:
        return await context.turn.recruit(agents.agent(name), arguments, context)

    return Tool(name=tool_name(name), run=run, timeout_s=0, idempotent=True, tags=("agent",))


def _starting(agents: Agents) -> Tool:
    async def run(arguments: dict[str, Any], context: CallContext) -> str:
        agent, turn = arguments["agent"], context.turn
        if not agents.knows_agent(agent):
            return f"Invalid Starting Agent: {agent}"
        changed = AgentChanged(agent, by=turn.agent.name)
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
