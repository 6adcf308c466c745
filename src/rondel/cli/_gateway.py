"""Opens a project's gateway: its app, its log, and a configuration that may change while it runs.

The commands that open one, `rondel serve` and `rondel code`, decide where it listens and what they print.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ..agent import Agent
from ..app.app import App
from ..contracts.clock import SystemClock
from ..contracts.download import Downloadable, Step
from ..contracts.endpoint import PROVIDERS
from ..engine import Engine, UnavailableEngine, close
from ..errors import ConfigError, RondelError
from ..files.private import state_folder
from ..gateway.server.access import check_binding, is_loopback
from ..gateway.server.app import Gateway
from ..gateway.server.log import RequestLog
from ..gateway.server.reload import Reloader
from ..gateway.server.serving import Application, address_of
from ..gateway.server.setup import Setup
from ..project.config import (
    SAME,
    canonical_engine,
    configure_ledger,
    edited,
    engine_problem,
    money_warnings,
    refuse_exposed,
    secrets_in,
)
from ..project.config.shown import leaves
from ..project.embedders import make_embedder
from ..project.engines import best_present, make_engine, pick
from ..project.folder import BUILTIN, Project, make_app, with_builtin, with_plugins
from ..project.images import make_image_engine
from ..project.settings import SCENARIOS, Config, Source
from ..project.trust import trust_list
from ..surfaces.web.combined import combined
from ..text.redaction import Redactor

if TYPE_CHECKING:
    from ..engines.local.weights import Weights
    from ..surfaces.web.server import WebApp

NO_ENGINE = "none"
AT_ONCE = ("engine", "engines", "gateway", "ledger")
"""Settings that apply as soon as the file changes. All others apply after a restart."""
RESTART_AGENTS = ("limits", "images")
"""Settings that hold for programs' requests at once, and for agents from the next start on."""
RESTART_GATEWAY = ("host", "port", "proxies")


class Default(msgspec.Struct, frozen=True):
    """The engine for requests that no rule matches, and the reason for it."""

    name: str
    why: str
    hints: tuple[str, ...] = ()
    named: bool = True  # whether the configuration names it; otherwise it was found


class OpenGateway(msgspec.Struct):
    """A gateway of this process, with what it was made from."""

    app: App
    gateway: Gateway
    log: RequestLog
    address: str
    config: Config
    updates: ConfigUpdates
    project: Project
    engines: tuple[str, ...] = ()
    """Engines in use that the configuration does not list: the default that was found, and the agents'."""

    @property
    def default(self) -> Default:
        return self.updates.default

    @property
    def open_requests(self) -> int:
        return sum(record.outcome == "open" for record in self.gateway.records.newest)


def check_address(config: Config) -> None:
    """Raise ConfigError if serving is unsafe: others could read a key, or connect without one."""
    refuse_exposed(config)
    check_binding(config.gateway.host, config.gateway.keys)


def with_options(config: Config, host: str, port: int, engine: str = "") -> Config:
    """Return the configuration with the options of the command line. An engine there is the default for all
    requests."""
    gateway = msgspec.structs.replace(config.gateway, host=host, port=port)
    config = msgspec.structs.replace(config, gateway=gateway)
    if not engine:
        return config
    engine = canonical_engine(engine, config.engines)
    if problem := engine_problem(engine, config.engines):
        raise ConfigError(problem)
    gateway = msgspec.structs.replace(gateway, routes=msgspec.structs.replace(gateway.routes, default=None))
    sources = {**config.sources, "engine": Source(option="--engine")}
    return msgspec.structs.replace(config, engine=engine, gateway=gateway, sources=sources)


@contextlib.asynccontextmanager
async def open_gateway(
    project: Project,
    host: str,
    listening: socket.socket,
    say: Callable[[str], None],
    *,
    engine: str = "",
    has_page: bool = False,
) -> AsyncGenerator[OpenGateway]:
    """Open a gateway to serve on this socket. `say` prints changes of its configuration. With a page, it also starts
    if there is no model yet: the page offers one. `engine` is used instead of the configured default."""
    reloader = Reloader(project.config)  # first, so that a change of the file during the start is noticed
    options = partial(with_options, host=host, port=listening.getsockname()[1], engine=engine)
    config = options(project.config)
    env = without_itself(config, os.environ)
    try:
        default = await _default(config, env, fetch=not has_page)
    except ConfigError as error:
        if not has_page or config.engine or config.engines:
            raise
        default = Default(NO_ENGINE, str(error), named=False)
    in_use = [config]
    app = make_app(
        with_plugins(await _agents(project, config, default, env), config),
        config,
        env,
        engine=default.name,
        make_engine=lambda name: _engine(name, in_use[-1], env, default),
        recover=False,
    )
    async with contextlib.AsyncExitStack() as life:
        await life.enter_async_context(app)
        log = await life.enter_async_context(RequestLog(state_folder() / "logs", SystemClock()))
        log.redactor = Redactor(secrets_in(config, os.environ))
        hidden = set(project.names) - {agent.name for agent in project.agents}
        gateway = await life.enter_async_context(Gateway(app, _setup(app, config, default, env, hidden=hidden)))
        life.callback(gateway.records.watch(log.ended))
        engines = (default.name, *(agent.engine for agent in project.agents if isinstance(agent.engine, str)))
        updates = ConfigUpdates(
            app,
            gateway,
            log,
            project,
            default=default,
            reloader=reloader,
            say=say,
            engines=engines,
            hidden=hidden,
            in_use=in_use,
            options=options,
        )
        running = OpenGateway(app, gateway, log, address_of(listening), config, updates, project, engines)
        group = await life.enter_async_context(asyncio.TaskGroup())
        following = group.create_task(reloader.follow(app.clock, updates.changed, updates.refused))
        life.callback(following.cancel)
        log.say("started", f"{running.address}, {default.name}")
        life.callback(log.say, "stopped", running.address)
        yield running


@contextlib.asynccontextmanager
async def open_page(running: OpenGateway) -> AsyncGenerator[Application]:
    """Yield the application to serve: the gateway, the page and its API."""
    async with combined(lambda: _web(running), running.gateway) as application:
        yield application


def _web(running: OpenGateway) -> WebApp:
    from ..project.agents import agent_files
    from ..project.config import explain, kind_of
    from ..project.lint import lint
    from ..surfaces.web.server import About, WebApp

    gateway, project = running.gateway, running.project
    about = About(
        version=gateway.setup.version,
        engine=running.default.name,
        why=running.default.why,
        hints=running.default.hints,
        offer=_ModelOffer(running),
        hide=lambda text: running.log.redactor.text(text),
        files=agent_files(project.config),
        settings=lambda: [(*row, kind_of(row[0])) for row in explain(gateway.setup.config)],
        change=running.updates.change,
        lint=lambda: lint((), trusts=trust_list().trusts).problems,
    )
    web = running.updates.web = WebApp(running.app, lambda: gateway.setup.access, gateway.records, about)
    return web


class _ModelOffer:
    """The embedded models that the page offers while the default engine is one of them and none is good."""

    def __init__(self, running: OpenGateway) -> None:
        self._running = running
        self._file = state_folder() / "declined-model"

    def is_present(self, model: Downloadable) -> bool:
        from ..engines.local.weights import find, is_present

        return is_present(find(model.name))

    def download(self, model: Downloadable) -> AsyncGenerator[Step]:
        from ..engines.local.weights import find, pull

        return pull(find(model.name))

    def models(self) -> tuple[Weights, ...]:
        from ..engines.local.weights import DEFAULT, RECOMMENDED, is_present

        default = self._running.default
        if default.named or not default.name.startswith("local:") or is_present(RECOMMENDED):
            return ()
        best = best_present()
        return (RECOMMENDED, DEFAULT) if best is None or best.size_bytes < RECOMMENDED.size_bytes else ()

    def declined(self) -> bool:
        from ._weights import is_declined

        return is_declined(self._file)

    def decline(self) -> None:
        from ._weights import decline

        decline(self._file)

    async def downloaded(self) -> None:
        await self._running.updates.choose_again()


def _engine(name: str, config: Config, env: Mapping[str, str], default: Default, *, alone: bool = False) -> Engine:
    if name == NO_ENGINE:
        return UnavailableEngine(name, default.why)
    return make_engine(name, config, env=env, alone=alone)


async def _agents(project: Project, config: Config, default: Default, env: Mapping[str, str]) -> list[Agent]:
    """Return the project's agents and the built-in one, the one that people talk to by default first."""
    try:
        engine = _engine(default.name, config, env, default)
    except ConfigError as error:
        engine = UnavailableEngine(default.name, str(error))
    # With keys, people elsewhere can reach the page: they get no shell on this machine.
    agents = with_builtin(project, engine, is_public=bool(config.gateway.keys))
    await close(engine)
    name = project.agent_name("")
    return sorted(agents, key=lambda agent: agent.name != name)


def _setup(
    app: App,
    config: Config,
    default: Default,
    env: Mapping[str, str],
    before: Setup | None = None,
    *,
    hidden: Collection[str] = (),
) -> Setup:
    found = "" if default.named else default.name

    def make(name: str) -> Engine:
        return _engine(name, config, env, default, alone=True)  # the gateway asks each engine of a chain itself

    redactor = Redactor(secrets_in(config, os.environ))
    return Setup(
        app,
        config,
        make_engine=make,
        make_embedder=lambda name: make_embedder(name, config, env=env),
        make_image_engine=lambda name: make_image_engine(name, config, env=env),
        default=found,
        before=before,
        redactor=redactor,
        traced=config.gateway.trace,
        hidden=hidden,
    )


async def _default(config: Config, env: Mapping[str, str], *, fetch: bool = False) -> Default:
    route = config.gateway.routes.default
    if route is not None and route not in SAME:
        name = canonical_engine(route, config.engines)
        return Default(name, f"set in {config.source('gateway.routes.default')}")
    picked = await pick(config, env=env)
    if fetch and picked.name.startswith("local:"):
        from ._weights import get_weights

        if await get_weights(picked.engine, picked):
            picked = await pick(config, env=env)
    return Default(picked.name, picked.why, picked.hints, named=bool(config.engine))


def without_itself(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what `rondel activate` set: the gateway must not call itself."""
    for name, engine in config.engines.items():
        if _is_here(engine.base_url, config):
            message = f"the engine {name!r} is this gateway itself; give its `base_url` another address"
            raise config.source(f"engines.{name}.base_url").where.error(message)
    theirs = dict(env)
    for provider in PROVIDERS.values():
        if _is_here(env.get(provider.base_url_variable, ""), config):
            for variable in (provider.base_url_variable, *provider.key_variables):
                theirs.pop(variable, None)
    return theirs


def _is_here(url: str, config: Config) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port == config.gateway.port and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def unusable(config: Config) -> Iterator[str]:
    """Yield what is wrong with engines in routes and fallbacks. They are skipped if another can answer."""
    gateway = config.gateway
    names: dict[str, None] = {}
    for scenario in SCENARIOS:
        for name in (getattr(gateway.routes, scenario), *getattr(gateway.fallback, scenario)):
            if name is not None and name not in SAME:
                names[canonical_engine(name, config.engines)] = None
    for name in names:
        try:
            make_engine(name, config, env=without_itself(config, os.environ))
        except RondelError as error:
            yield str(error)


# --- a configuration that changes -------------------------------------------------------------------------------------


class ConfigUpdates:
    """Applies changes of the configuration file, and reports those that cannot be applied."""

    def __init__(
        self,
        app: App,
        gateway: Gateway,
        log: RequestLog,
        project: Project,
        *,
        default: Default,
        reloader: Reloader,
        say: Callable[[str], None],
        engines: tuple[str, ...],
        hidden: Collection[str],
        in_use: list[Config],
        options: Callable[[Config], Config],
    ) -> None:
        self._app, self._gateway, self._log, self._project, self._say = app, gateway, log, project, say
        self._engines, self._hidden = engines, hidden
        self._reloader, self._applied, self._in_use, self._options = reloader, reloader.config, in_use, options
        self.default = default
        self.web: WebApp | None = None  # once someone has requested the page

    async def changed(self, config: Config) -> None:
        new = self._options(config)
        check_address(new)
        try:
            await self._use(new)
        except ConfigError:
            raise
        except Exception as error:  # a plugin that does not start is a mistake in the file
            reason = str(error) if isinstance(error, RondelError) else f"{type(error).__name__}: {error}"
            raise ConfigError(reason, path=config.path) from None
        configure_ledger(self._app.ledger, new)
        # The old ones are still in use by open requests.
        self._log.redactor = Redactor(self._log.redactor.secrets | secrets_in(new, os.environ))
        late, self._applied = _late(self._applied, config), config
        self._tell("changed", f"{config.path} was reloaded{late}")
        for warning in money_warnings(new, self._engines):
            self._say(f"Warning: {warning}")

    async def change(self, key: str, value: str | float | None, was: str) -> None:
        """Change a setting in the file. Raises ConfigError if it cannot be changed, or not to this value."""

        def edit(text: str, config: Config) -> str:
            return edited(text, self._options(config), key, value, was)

        await self._reloader.change(edit, self.changed)

    async def choose_again(self) -> None:
        """Use a default engine that was not available before."""
        await self._use(self._in_use[-1])

    async def _use(self, config: Config) -> None:
        """Use a configuration and its default engine: in the app, for callers, and in what the page says."""
        env, before = without_itself(config, os.environ), self.default
        default = await _default(config, env)
        await self._gateway.adopt(_setup(self._app, config, default, env, self._gateway.setup, hidden=self._hidden))
        self._in_use[:] = [config]
        if default.name != before.name:
            made = await _agents(self._project, config, default, env)
            registry = self._app.registry
            known = {agent.name: agent for agent in registry.agents}
            # Plugins have started already: only what the built-in agent is given for its model changes.
            changed = [
                msgspec.structs.replace(agent, plugins=(*known[agent.name].plugins, *agent.plugins))
                for agent in made
                if agent.name == BUILTIN and agent not in self._project.agents and agent.name in known
            ]
            registry.use_engine(default.name, *changed)
            self._log.say("changed", f"the default engine is {default.name}")
        self.default = default
        if self.web is not None:
            about = msgspec.structs.replace(self.web.about, engine=default.name, why=default.why, hints=default.hints)
            self.web.about = about

    def refused(self, text: str) -> None:
        self._tell("refused", text)

    async def again(self) -> None:
        if not await self._reloader.check(self.changed, self.refused, again=True):
            path = self._reloader.config.path
            self._tell("unchanged", f"{path} is unchanged" if path else "there is no rondel.toml to read again")

    def _tell(self, event: str, text: str) -> None:
        self._log.say(event, text)
        self._say(text)


def _late(old: Config, new: Config) -> str:
    """Return which changed settings need a restart."""
    tables = {str(path[0]) for config in (old, new) for path, _ in leaves(config)} - {*AT_ONCE, *RESTART_AGENTS}
    keys = [f"`{key}`" for key in sorted(tables) if getattr(old, key) != getattr(new, key)]
    keys += [f"`gateway.{key}`" for key in RESTART_GATEWAY if getattr(old.gateway, key) != getattr(new.gateway, key)]
    agents = [f"`{key}`" for key in RESTART_AGENTS if getattr(old, key) != getattr(new, key)]
    late = f"; {' and '.join(keys)} will apply after a restart" if keys else ""
    return f"{late}; agents get {' and '.join(agents)} after a restart" if agents else late
