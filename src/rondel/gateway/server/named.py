"""Engines that do not chat, such as embedders: which ones a request means, and the next one if one is down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...engine import close
from ...errors import ConfigError, EngineDenied, EngineError, PromptRejected
from ...events import Event, UsageRecorded
from ...project.config import SAME, canonical_engine
from ...project.settings import Config
from ..bridge.turn_bridge import note_charge
from ..relay.record import Record
from ..relay.request import GatewayRequest
from ..routing.outages import Outages
from .access import Permit, Refused

ENGINES_MAX = 64  # engines that are kept open; callers may name any model

E = TypeVar("E")
R = TypeVar("R")


class NamedEngines(Generic[E]):
    """The engines of one kind that callers may use, each made once."""

    def __init__(
        self,
        what: str,
        config: Config,
        outages: Outages,
        make: Callable[[str], E],
        problem: Callable[[str], str],
        *,
        route: tuple[str, str],
        fallbacks: tuple[str, ...],
    ) -> None:
        """`what` is the word for these engines; `problem` says why a name is not one. `route` is the engine for
        requests that name none, and where it is set."""
        self._what, self._engines, self._outages, self._make, self._problem = (
            what,
            config.engines,
            outages,
            make,
            problem,
        )
        self._route, self._fallbacks = route, fallbacks
        self._made: dict[str, E] = {}

    def names(self, request: GatewayRequest) -> tuple[str, ...]:
        """Return the engines for a request, in order: the one that it names, or that of the route, and fallbacks."""
        asked = canonical_engine(request.model, self._engines)
        fallbacks = tuple(canonical_engine(name, self._engines) for name in self._fallbacks)
        if not self._problem(asked) and ":" in asked:
            return tuple(dict.fromkeys((asked, *fallbacks)))
        route, where = self._route
        if not route or route in SAME:
            raise PromptRejected(
                f"no {self._what} is named {request.model!r}: write it as engine:model, or set {where}",
                code="model_not_found",
            )
        return tuple(dict.fromkeys((canonical_engine(route, self._engines), *fallbacks)))

    async def ask(
        self, request: GatewayRequest, record: Record, permit: Permit, call: Callable[[str, E], Awaitable[R]]
    ) -> tuple[str, R]:
        """Call engines until one answers; return its name and its answer. Raises Refused or an EngineError."""
        wanted, *_ = named = self.names(request)
        if not permit.allows(wanted):
            raise Refused(403, f"the key {request.key!r} may not use {wanted!r}; ask the person who gave it to you")
        names = [name for name in named if permit.allows(name)]
        down = self._outages.down_among(names)
        record.warnings += tuple(down.values())
        failure: EngineError | None = None
        for name in sorted(names, key=down.__contains__):
            record.engine = name
            record.attempts += 1
            try:
                answered = await call(name, self._engine(name))
            except EngineError as error:
                failure = failure or error
                self._outages.failed(name, error)
                continue
            self._outages.answered(name)
            record.rounds = 1
            return name, answered
        assert failure is not None, "there is at least one engine"
        raise failure

    def _engine(self, name: str) -> E:
        if name not in self._made:
            if len(self._made) >= ENGINES_MAX:
                message = f"callers already use {ENGINES_MAX} of these engines, which is the limit"
                raise EngineDenied(message, code="no_engine")
            try:
                self._made[name] = self._make(name)
            except ConfigError as error:
                raise EngineDenied(str(error), code="no_engine") from None
        return self._made[name]

    async def close(self) -> None:
        made, self._made = self._made, {}
        for engine in made.values():
            await close(engine)


def noting(record: Record) -> Callable[[Event], None]:
    """Return a function that writes the charges of a request into its record."""

    def tell(event: Event) -> None:
        note_charge(record, event)
        if isinstance(event, UsageRecorded):
            record.usage = event.charge.usage

    return tell
