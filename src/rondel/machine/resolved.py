"""An agent with everything that its names refer to, and the caller of a gateway request: values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..agent import Agent
from ..engine import Engine, EngineInfo
from ..plugin import Chain
from ..prompt import HISTORY, Node, flatten, with_sources
from ..tool import Tool
from ..values import Opaque, Options, Person, ToolSpec, Value

if TYPE_CHECKING:
    from .turn import Turn


class ResolvedAgent(msgspec.Struct, frozen=True):
    """An agent with everything that its names refer to: the engine, the plugins in order, the tools by name."""

    agent: Agent
    engine: EngineInfo  # turns call it through `Services.charge`
    chain: Chain
    tools: dict[str, Tool]
    specs: tuple[ToolSpec, ...]
    nodes: tuple[Node, ...]
    options: Options
    instructions: str
    opaque: Opaque = {}  # fields of a gateway prompt that only its own dialect understands
    unoffered: frozenset[str] = frozenset()
    """Tools that only directives in the agent's own text may call; they are not offered to a model."""
    bind: Callable[[Turn], BoundEngine] | None = None
    """Makes the engine of a turn, if the agent's text has directives or is the whole answer."""

    @classmethod
    def of(
        cls,
        agent: Agent,
        engine: EngineInfo,
        chain: Chain,
        tools: dict[str, Tool],
        *,
        unoffered: frozenset[str] = frozenset(),
        bind: Callable[[Turn], BoundEngine] | None = None,
    ) -> ResolvedAgent:
        options = agent.options
        if agent.output is not None:
            options = msgspec.structs.replace(options, output=agent.output)
        specs = tuple(tool.spec for tool in tools.values() if tool.name not in unoffered)
        nodes, instructions = with_sources(agent.nodes), _instructions_of(agent)
        return cls(agent, engine, chain, tools, specs, nodes, options, instructions, unoffered=unoffered, bind=bind)


class Caller(Value, frozen=True):
    """The program that sent a gateway request. For plugins and tools only: it is not an input of an agent, so no
    template, model or other agent can read it."""

    person: Person = Person("", origin="key")  # its id is the name of the caller's key, never the key
    session: str = ""
    project: str = ""
    model: str = ""  # the engine that its request was routed to
    dialect: str = ""
    image: str | None = None
    """The engine that describes images to models that cannot see them, if the gateway has a route for it."""


class BoundEngine(Engine, Protocol):
    """The engine of an agent's own text in one turn. It calls a model only where the text leaves something open."""

    @property
    def without_model(self) -> bool:
        """Whether the next reply needs no model."""
        ...

    def fill(self, nodes: tuple[Node, ...]) -> tuple[Node, ...] | None:
        """Return the author's nodes with all known values filled in; None if nothing is left to say."""
        ...


def _instructions_of(agent: Agent) -> str:
    nodes: tuple[Node, ...] = tuple(node for node in agent.nodes if node.id != HISTORY)
    if agent.template:
        return agent.template
    return "\n\n".join(message.text for message in flatten(nodes) if message.text)
