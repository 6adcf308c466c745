"""A configuration and what is made from it: access, routing, engines, injecting plugins.

A setup is made completely or not at all, and does not change; a new configuration makes a new one. It closes its
engines when its last request has ended. Knows no paths and no server.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qsl

from ... import __version__
from ...app.app import App
from ...contracts.embedder import Embedder
from ...contracts.endpoint import facts_of
from ...contracts.images import ImageEngine
from ...engine import Engine, EngineInfo, close, uncharged
from ...engines.fallback import Fallback
from ...errors import EngineDenied, RondelError
from ...plugin import Plugin
from ...project.config import SAME, canonical_engine
from ...project.embedders import make_embedder as embedder_by_name
from ...project.images import make_image_engine as image_engine_by_name
from ...project.settings import SCENARIOS, Config, EngineSettings
from ...text.redaction import Redactor
from ..bridge.registry import Registry
from ..bridge.services import Opening, RequestTurns
from ..bridge.turn_bridge import SharedState
from ..relay.record import Record
from ..relay.request import GatewayRequest
from ..routing.outages import Candidate, Outage, Outages, named
from ..routing.router import Decision, Router
from ..routing.routes import AGENT, chain_of
from .access import Access, Permit, Refused
from .embeddings import Embeddings
from .images import ImageGenerations
from .models import Listed

ENGINES_MAX = 256
OTHER_MODELS = frozenset(("models", "fallbacks", "preset"))
"""Fields with which some servers choose another model than the one in `model`."""
MODEL = "model"


class Pool:
    """Engines by name, each made once. Callers may name any model, so their number is limited: the least recently used
    are closed, and made again if needed."""

    def __init__(self, make: Callable[[str], Engine], engines_max: int = ENGINES_MAX) -> None:
        self._make, self._engines_max = make, engines_max
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._takers: Counter[str] = Counter()
        self._kept: set[str] = set()

    def take(self, name: str) -> Engine:
        """Return the engine of this name, open until it is given back."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = self._make(name)
        self._engines.move_to_end(name)
        self._takers[name] += 1
        return engine

    def keep(self, name: str) -> Engine:
        """Return the engine of this name, open until the pool closes: for plugins, which use a few."""
        engine = self.take(name)
        if name in self._kept:
            self._takers[name] -= 1
        self._kept.add(name)
        return engine

    async def give_back(self, names: Iterable[str]) -> None:
        for name in names:
            self._takers[name] -= 1
        spare = (name for name in tuple(self._engines) if not self._takers[name])
        while len(self._engines) > self._engines_max and (name := next(spare, "")):
            del self._takers[name]
            await close(self._engines.pop(name))

    async def close(self) -> None:
        engines, self._engines = self._engines, OrderedDict()
        for engine in engines.values():
            await close(engine)


class Setup:
    def __init__(
        self,
        app: App,
        config: Config,
        *,
        make_engine: Callable[[str], Engine],
        make_embedder: Callable[[str], Embedder] | None = None,
        make_image_engine: Callable[[str], ImageEngine] | None = None,
        default: str = "",
        plugins: Registry | None = None,
        traced: bool = False,
        before: Setup | None = None,
        redactor: Redactor | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        """Agents in `hidden` are for people, not for callers. `default` is the engine if the configuration names none.
        Sessions, calibration and outages are taken over from the setup `before` this one."""
        gateway = config.gateway
        self.version = __version__
        self.config = config
        self.body_bytes_max = int(gateway.body_mb_max * 1e6)
        self.ping_s = gateway.ping_s
        self.access = Access(
            gateway.keys,
            host=gateway.host,
            port=gateway.port,
            hosts=gateway.hosts,
            origins=gateway.origins,
            engines=config.engines,
        )
        self._app = app
        self._agents = tuple(agent for agent in app.registry.agents if agent.name not in hidden)
        self._pool = Pool(make_engine)
        entries = (entry for entry in gateway.plugins if entry.enabled)
        self.plugins = Registry(entry.make(config.project) for entry in entries) if plugins is None else plugins
        self._router = Router(
            config,
            default=default,
            agents=tuple(agent.name for agent in self._agents),
            sessions=before._router.sessions if before else None,
            calibration=before._router.calibration if before else None,
        )
        turns = RequestTurns(app, self.plugins, limits=config.limits)
        outages = before.parts.outages if before else Outages(app.clock.now)
        outages.base_s = gateway.cool_down_s
        self.parts = SharedState(app, turns, outages, traced=traced, redactor=redactor)
        make_embedder = make_embedder or partial(embedder_by_name, config=config)
        self.embeddings = Embeddings(config, app.ledger, outages, make_embedder)
        make_image_engine = make_image_engine or partial(image_engine_by_name, config=config)
        self.images = ImageGenerations(config, app.ledger, outages, make_image_engine)
        image = gateway.routes.image or ""
        image = canonical_engine(image, config.engines) if image not in SAME else ""
        self._opening = Opening(image=image, engine=partial(self._for_plugin, self.access.permit("")))
        self._open = 0
        self._retired = False
        self._life = contextlib.AsyncExitStack()

    async def open(self) -> None:
        async with contextlib.AsyncExitStack() as life:
            for plugin in self.parts.turns.plugins:
                if type(plugin).lifespan is not Plugin.lifespan:
                    await life.enter_async_context(plugin.lifespan(self._app))
            self._life = life.pop_all()

    async def retire(self) -> None:
        self._retired = True
        if not self._open:
            await self.close()

    def enter(self) -> None:
        """Keep engines open for a request until `leave`."""
        self._open += 1

    async def leave(self, request: GatewayRequest) -> None:
        self._open -= 1
        await self._pool.give_back(request.taken)
        if self._retired and not self._open:
            await self.close()

    async def close(self) -> None:
        await self._life.aclose()
        await self._pool.close()
        await self.embeddings.close()
        await self.images.close()

    # --- for a request ------------------------------------------------------------------------------------------------

    def permit(self, key: str) -> Permit:
        return self.access.permit(key)

    async def decide(self, request: GatewayRequest) -> Decision:
        decision = await self._router.decide(request)
        decision.apply(request)
        return decision

    def count(self, request: GatewayRequest, engine: str) -> tuple[int, str]:
        """Estimate the tokens of a request; also returns how."""
        return self._router.calibration.count(request, engine)

    def learn(self, record: Record, estimated: int | None) -> None:
        """Remember the tokens of a session, and correct later estimates by this one."""
        if record.usage.tokens_in and not record.usage.estimated:
            self._router.sessions.remember(record.session, record.usage.tokens_in)
            if estimated is not None:
                self._router.calibration.observe(record.engine, estimated, record.usage.tokens_in)

    def candidates(self, request: GatewayRequest, decision: Decision) -> list[Candidate]:
        """The engines of a decision, in order. This is the only way from a request to an engine, so the permissions of
        its key are checked here. Fallbacks that it may not use are left out, and engines that cannot be made if there
        is another one. Raises Refused if the key may not use the first engine."""
        permit = self.permit(request.key)
        names = (f"{AGENT}{decision.agent}",) if decision.agent else decision.engines
        if not permit.allows(names[0]):
            raise Refused(403, f"the key {request.key!r} may not use {names[0]!r}; ask the person who gave it to you")
        if permit.is_limited:
            _check_other_models(request, names[0].partition(":")[0], permit)
        if decision.agent:
            engine = uncharged(self._app.registry.resolve(decision.agent).engine)
            return [Candidate(engine, engine.name)]

        def take(name: str) -> Engine:
            engine = self._pool.take(name)
            request.taken.append(name)
            return engine

        return _made((name for name in names if permit.allows(name)), take)

    def opening(self, request: GatewayRequest, decision: Decision) -> Opening:
        permit = self.permit(request.key)
        if not decision.agent and not permit.is_limited:
            return self._opening
        return Opening(decision.agent, self._opening.image, partial(self._for_plugin, permit), permit.allows)

    def _for_plugin(self, permit: Permit, name: str) -> EngineInfo:
        if not permit.allows(name):
            raise EngineDenied(f"the caller's key may not use {name!r}", code="permission_error")
        names = chain_of(name, self.config)
        engines = [engine for engine, _ in _made((n for n in names if permit.allows(n)), self._pool.keep)]
        return EngineInfo.of(engines[0] if len(engines) == 1 else Fallback(*engines, wanted=0))

    def outages(self, key: str) -> list[Outage]:
        permit = self.permit(key)
        return [outage for outage in self.parts.outages.all() if permit.allows(outage.engine)]

    def serves(self, key: str, name: str) -> bool:
        """Whether the holder of a key may use an agent (`agent:name`) or a knowledge base (`knowledge:name`)."""
        is_known = not name.startswith(AGENT) or any(f"{AGENT}{one.name}" == name for one in self._agents)
        return is_known and self.permit(key).allows(name)

    def models(self, key: str) -> list[Listed]:
        """The models that a caller may name: those of engines, of routes, and the project's agents."""
        permit = self.permit(key)
        names = dict.fromkeys(self._model_names())
        listed = [self._listed(name) for name in names if permit.allows(name)]
        agents = (Listed(f"agent:{agent.name}", "rondel", title=agent.description) for agent in self._agents)
        return [*listed, *(agent for agent in agents if permit.allows(agent.id))]

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
        for route in (self._router.default, *(getattr(routes, scenario) for scenario in SCENARIOS)):
            if route and route not in SAME:
                name = canonical_engine(route, self.config.engines)
                if name not in self.config.engines or not self.config.engines[name].model:  # else it is listed above
                    yield name


def _check_other_models(request: GatewayRequest, engine: str, permit: Permit) -> None:
    """Raise Refused if a request names other models than the one in `model`. Fields, query and tools are relayed, and
    some servers take models from each of them."""
    # Servers in Go read names in any letter case.
    fields = (name for name in request.fields if name.casefold() in OTHER_MODELS)
    query = (name for name, _ in parse_qsl(request.query, keep_blank_values=True))
    others = (name for name in query if name.casefold() in (MODEL, *OTHER_MODELS))
    for name in (*fields, *others):
        raise Refused(403, f"the key {request.key!r} may not use the field {name[:40]!r}; name one model in `model`")
    tools: Any = request.field("tools") if "tools" in request.fields else None
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else ():
        for name, model in cast("dict[str, Any]", tool).items() if isinstance(tool, dict) else ():
            if name.casefold() == MODEL and model and not permit.allows(f"{engine}:{model}"):
                raise Refused(403, f"the key {request.key!r} may not use the model of a tool, {str(model)[:100]!r}")


def _made(names: Iterable[str], make: Callable[[str], Engine]) -> list[Candidate]:
    """Make the engines of these names. One that cannot be made is left out if another can."""
    made: list[Candidate] = []
    failure: RondelError | None = None
    for name in names:
        try:
            made.append(named(name, make(name)))
        except RondelError as error:
            failure = failure or error
    if not made:
        raise EngineDenied(str(failure), code="no_engine")
    return made
