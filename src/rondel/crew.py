"""What a turn works with: an agent with everything that its names stand for, and the app that runs it, as the turn
sees it. Contracts and values; knows no turn's course.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from .agent import Agent
from .charge import Scope, Tell
from .clock import Clock
from .deadline import Deadlines
from .engine import Engine, EngineFace, Sealed
from .events import Spent
from .journal import Journal
from .limits import Limits
from .plugin import Chain
from .prompt import HISTORY, Node, flatten, with_sources
from .question import Hold
from .tool import CallContext, Tool
from .values import AgentResult, Opaque, Options, ToolSpec

if TYPE_CHECKING:
    from .background import Background
    from .timetable import Timetable
    from .turn import Turn


class Crew(msgspec.Struct, frozen=True):
    """An agent with everything that its names stand for: the engine, the plugins in order, the tools by name."""

    agent: Agent
    engine: EngineFace
    """To look at. Who asks it is a turn, past the ledger."""
    chain: Chain
    tools: dict[str, Tool]
    specs: tuple[ToolSpec, ...]
    nodes: tuple[Node, ...]
    options: Options
    instructions: str
    opaque: Opaque = {}
    """What a foreign prompt says that only its own dialect understands."""
    unoffered: frozenset[str] = frozenset()
    """Tools that only the agent's own words may call: no model is told of them, and none may call them."""
    bind: Callable[[Turn], Words] | None = None
    """Makes the engine of a turn, where the agent's words have directives or are all that it answers with."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "engine", Sealed(self.engine))

    @classmethod
    def of(
        cls,
        agent: Agent,
        engine: EngineFace,
        chain: Chain,
        tools: dict[str, Tool],
        *,
        unoffered: frozenset[str] = frozenset(),
        bind: Callable[[Turn], Words] | None = None,
    ) -> Crew:
        options = agent.options
        if agent.output is not None:
            options = msgspec.structs.replace(options, output=agent.output)
        specs = tuple(tool.spec for tool in tools.values() if tool.name not in unoffered)
        nodes, instructions = with_sources(agent.nodes), _instructions_of(agent)
        return cls(agent, engine, chain, tools, specs, nodes, options, instructions, unoffered=unoffered, bind=bind)


class Words(Engine, Protocol):
    """An engine that speaks an agent's own words in one turn, and asks a model only for what they leave open."""

    @property
    def asks_nobody(self) -> bool:
        """The reply that is owed needs no model."""
        ...

    def fill(self, nodes: tuple[Node, ...]) -> tuple[Node, ...] | None:
        """The author's nodes with everything in its place that is known; None when nothing is left to say."""
        ...


class Budget:
    """What a whole tree of agents has used: one for the turn that a person sees and all turns that work for it."""

    __slots__ = ("began_at", "limits", "spent")

    def __init__(self, limits: Limits, began_at: float) -> None:
        self.limits, self.began_at, self.spent = limits, began_at, Spent()


class Host(Protocol):
    """What a turn needs of the app that runs it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def deadlines(self) -> Deadlines: ...

    def new_id(self, prefix: str) -> str: ...

    def knows_agent(self, name: str) -> bool: ...

    def tool_of(self, agent: str) -> Tool: ...

    def crew(self, agent: str) -> Crew: ...

    def engine(self, name: str) -> EngineFace: ...

    def meter(self, engine: EngineFace, scope: Callable[[], Scope], tell: Tell) -> Engine:
        """The engine, to be asked: what it spends is charged to the scope."""
        ...

    async def journal(self, conversation: str) -> Journal: ...

    async def recruit(
        self, parent: Turn, agent: Agent, arguments: dict[str, Any], context: CallContext
    ) -> AgentResult | Hold: ...

    @property
    def background(self) -> Background: ...

    @property
    def timetable(self) -> Timetable: ...


def _instructions_of(agent: Agent) -> str:
    """The agent's own words, flattened: what a trace shows as its prompt."""
    nodes: tuple[Node, ...] = tuple(node for node in agent.nodes if node.id != HISTORY)
    if agent.template:
        return agent.template
    return "\n\n".join(message.text for message in flatten(nodes) if message.text)
