"""What turns, background jobs and schedules need from the app that runs them.

An `App` is one; the gateway gives each request its own, whose engines are those that the caller may use.
tests/machine/test_services.py has the tests that every implementation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..agent import Agent
from ..charge import Scope, Tell
from ..contracts.clock import Clock
from ..contracts.deadline import Deadlines
from ..contracts.embedder import Embedder
from ..contracts.knowledge import KnowledgeBases
from ..contracts.runtime import Runtime
from ..contracts.store import Store
from ..contracts.web import WebSearch
from ..engine import Engine, EngineInfo
from ..limits import ReplyBound
from ..tool import Tool
from .images import Images
from .resolved import ResolvedAgent

if TYPE_CHECKING:
    from ..jobs.background import Background
    from ..jobs.timetable import Timetable
    from .journals import Journals
    from .runner import TurnRunner


class Agents(Protocol):
    """The agents that can be named, and what their names refer to."""

    @property
    def agents(self) -> tuple[Agent, ...]: ...

    def add_agent(self, agent: Agent) -> None:
        """Make an agent known. Raises RondelError if another one has its name."""

    async def choose_engine(self, *agents: Agent) -> None:
        """Choose a default engine, if one of these agents has none and may need one."""

    def knows_agent(self, name: str) -> bool: ...

    def agent(self, name: str = "") -> Agent:
        """Return the agent of this name, or the first one. Raises RondelError if there is none."""
        ...

    def tool_of(self, agent: str) -> Tool:
        """Return an agent as a tool."""
        ...

    def resolve(self, agent: str, engine: str = "", settings: Mapping[str, Any] | None = None) -> ResolvedAgent:
        """Return an agent with its engine or the named one, its plugins and its tools. `settings` are those that a
        conversation overrides."""
        ...

    def engine(self, name: str) -> EngineInfo:
        """Return the facts of the engine of this name. Raises RondelError if there is none."""
        ...


class Services(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def environment(self) -> dict[str, str]:
        """The variables for processes that tools start, without secrets."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def knowledge(self) -> KnowledgeBases: ...

    @property
    def embedder(self) -> Embedder | None:
        """The embedder that finds tools, facts and other things besides passages by meaning, if there is one."""
        ...

    @property
    def web_search(self) -> WebSearch | None:
        """The service that searches the web, if one is configured."""
        ...

    @property
    def images(self) -> Images:
        """The engines that make pictures; false if none is configured."""
        ...

    @property
    def registry(self) -> Agents: ...

    @property
    def journals(self) -> Journals: ...

    @property
    def turns(self) -> TurnRunner: ...

    @property
    def background(self) -> Background: ...

    @property
    def timetable(self) -> Timetable: ...

    def new_id(self, prefix: str) -> str:
        """Return an id that is unique; later ids sort after earlier ones."""
        ...

    def charge(
        self,
        engine: EngineInfo | str,
        scope: Scope | Callable[[], Scope],
        tell: Tell | None = None,
        bound: Callable[[], ReplyBound] | None = None,
    ) -> Engine:
        """Return an engine that can be called: each call is charged to the scope, and no reply exceeds its bound.
        Raises RondelError for a name that is unknown or not allowed."""
        ...

    def charge_embedder(
        self, embedder: Embedder, scope: Scope | Callable[[], Scope], tell: Tell | None = None
    ) -> Embedder:
        """Return an embedder whose calls are charged to the scope."""
        ...
