"""What is in force: the configuration, and what it makes: who may come in, which engine answers, which plugins lend.

A setup is made whole or not at all, and does not change; a new configuration makes a new one. It closes its engines
when the last request that came in under it has ended. Knows no paths and no server.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from .. import __version__
from ..app import App
from ..config import SAME, canonical_engine
from ..endpoint import facts_of
from ..engine import Engine, unsealed
from ..errors import EngineDenied, RondelError
from ..plugin import Plugin
from ..settings import SCENARIOS, Config, EngineSettings, KeySettings
from .access import Access, may_use
from .inside import Lending, Opening
from .models import Listed
from .record import Record
from .registry import Registry
from .request import Request
from .retelling import Parts
from .routing import Decision, Router

ENGINES_MAX = 256


class Pool:
    """Engines by their names, each made once. Callers may name any model, so there are at most so many: those that were
    not taken for the longest time are closed, and made again when they are wanted."""

    def __init__(self, make: Callable[[str], Engine], engines_max: int = ENGINES_MAX) -> None:
        self._make, self._engines_max = make, engines_max
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._takers: Counter[str] = Counter()
        self._kept: set[str] = set()

    def take(self, name: str) -> Engine:
        """The engine of this name, open until it is given back."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = self._make(name)
        self._engines.move_to_end(name)
        self._takers[name] += 1
        return engine

    def keep(self, name: str) -> Engine:
        """The engine of this name, open for good: for plugins, which know a few."""
        engine = self.take(name)
        if name in self._kept:
            self._takers[name] -= 1
        self._kept.add(name)
        return engine

    async def give_back(self, names: Iterable[str]) -> None:
        for name in names:
            self._takers[name] -= 1
        while len(self._engines) > self._engines_max and (name := self._spare()):
            del self._takers[name]
            await _close(self._engines.pop(name))

    async def close(self) -> None:
        engines, self._engines = self._engines, OrderedDict()
        for engine in engines.values():
            await _close(engine)

    def _spare(self) -> str:
        return next((name for name in self._engines if not self._takers[name]), "")


async def _close(engine: Engine) -> None:
    if close := getattr(engine, "aclose", None):
        await close()


class Setup:
    def __init__(
        self,
        app: App,
        config: Config,
        *,
        make_engine: Callable[[str], Engine],
        default: str = "",
        plugins: Registry | None = None,
        traced: bool = False,
        before: Setup | None = None,
    ) -> None:
        """`default` is the engine to take where the configuration names none. What was learned under the setup `before`
        this one stays known."""
        gateway = config.gateway
        self.version = __version__
        self.config = config
        self.body_bytes_max = int(gateway.body_mb_max * 1e6)
        self.ping_s = gateway.ping_s
        self.access = Access(
            gateway.keys, host=gateway.host, port=gateway.port, hosts=gateway.hosts, origins=gateway.origins
        )
        self._app = app
        self._pool = Pool(make_engine)
        self.plugins = plugins if plugins is not None else lenders(config)
        self._router = Router(
            config,
            default=default,
            agents=tuple(agent.name for agent in app.agents),
            sessions=before._router.sessions if before else None,
            calibration=before._router.calibration if before else None,
        )
        lending = Lending(app, self.plugins, limits=config.limits, engine=self._pool.keep)
        self.parts = Parts(app, lending, traced=traced)
        image = gateway.routes.image or ""
        self._opening = Opening(image=canonical_engine(image, config.engines) if image not in SAME else "")
        self._open = 0
        self._retired = False
        self._life = contextlib.AsyncExitStack()

    async def open(self) -> None:
        async with contextlib.AsyncExitStack() as life:
            for plugin in self.parts.lending.plugins:
                if type(plugin).lifespan is not Plugin.lifespan:
                    await life.enter_async_context(plugin.lifespan(self._app))
            self._life = life.pop_all()

    async def retire(self) -> None:
        """Close when the requests that are under way have ended."""
        self._retired = True
        if not self._open:
            await self.close()

    def enter(self) -> None:
        """A request comes in: until it leaves, what it takes stays open."""
        self._open += 1

    async def leave(self, request: Request) -> None:
        self._open -= 1
        await self._pool.give_back(request.taken)
        if self._retired and not self._open:
            await self.close()

    async def close(self) -> None:
        await self._life.aclose()
        await self._pool.close()

    # --- who and what -------------------------------------------------------------------------------------------------

    def key(self, name: str) -> KeySettings | None:
        return self.config.gateway.keys.get(name)

    async def decide(self, request: Request) -> Decision:
        decision = await self._router.decide(request)
        if decision.fields:
            decision.apply(request)
        return decision

    def count(self, request: Request, engine: str) -> tuple[int, str]:
        """The tokens of a request by estimate, and how they were found out."""
        return self._router.calibration.count(request, engine)

    def learn(self, record: Record, estimated: int | None) -> None:
        """Remember what a request turned out to be, and what it was `estimated` at, where it was."""
        if record.usage.tokens_in:
            self._router.sessions.remember(record.session, record.usage.tokens_in)
            if estimated is not None:
                self._router.calibration.observe(record.engine, estimated, record.usage.tokens_in)

    def engines(self, request: Request, decision: Decision) -> list[Engine]:
        """The engines of a decision, in order. One that cannot be made is left out as long as another is there."""
        if decision.agent:
            return [unsealed(self._app.crew(decision.agent).engine)]
        made: list[Engine] = []
        failure: RondelError | None = None
        for name in decision.engines:
            try:
                made.append(self._pool.take(name))
                request.taken.append(name)
            except RondelError as error:
                failure = failure or error
        if not made:
            raise EngineDenied(str(failure), code="no_engine")
        return made

    def opening(self, request: Request, decision: Decision) -> Opening:
        key = self.key(request.key)
        if not decision.agent and (key is None or not key.models):
            return self._opening
        return Opening(decision.agent, self._opening.image, may_use=lambda name: may_use(key, name, request.model))

    def models(self, key: str) -> list[Listed]:
        """The models that a caller may ask for by name: those that engines list, those of routes, and our agents."""
        settings = self.key(key)
        names = dict.fromkeys(self._model_names())
        listed = [self._listed(name) for name in names if may_use(settings, name)]
        agents = (Listed(f"agent:{agent.name}", "rondel", title=agent.description) for agent in self._app.agents)
        return [*listed, *(agent for agent in agents if may_use(settings, agent.id))]

    def _listed(self, name: str) -> Listed:
        head, _, model = name.partition(":")
        settings = self.config.engines.get(head, EngineSettings())
        provider, model = settings.provider or head, model or settings.model
        price_in, price_out = self._app.ledger.price_of(provider, model)
        return Listed(name, head, facts_of(provider, model), model or name, price_in, price_out)

    def _model_names(self) -> Iterable[str]:
        for name, engine in self.config.engines.items():
            yield from (f"{name}:{model}" for model in engine.models)
            if engine.model and engine.model not in engine.models:
                yield f"{name}:{engine.model}"
        routes = self.config.gateway.routes
        for named in (self._router.default, *(getattr(routes, scenario) for scenario in SCENARIOS)):
            if named and named not in SAME:
                name = canonical_engine(named, self.config.engines)
                if name not in self.config.engines or not self.config.engines[name].model:  # else it is listed above
                    yield name


def lenders(config: Config) -> Registry:
    """The plugins that the configuration puts behind the gateway, made."""
    registry = Registry()
    for entry in config.gateway.plugins:
        if entry.enabled:
            registry.register(entry.make(config.project))
    return registry
