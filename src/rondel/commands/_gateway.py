"""The gateway of a project, running: its app, its log, and a configuration that may change under it.

Where it listens and who is told what is the business of the commands that open one: `rondel serve`, `rondel code`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec

from ..app import App
from ..clock import SystemClock
from ..config import SAME, canonical_engine, refuse_exposed, rules_of
from ..endpoint import PROVIDERS
from ..errors import ConfigError, RondelError
from ..gateway.access import check_binding, is_loopback
from ..gateway.log import RequestLog, secrets_of
from ..gateway.reload import Reloader
from ..gateway.server import Gateway
from ..gateway.serving import address_of
from ..gateway.setup import Setup
from ..ledger import Ledger
from ..pick import make_engine, pick
from ..settings import SCENARIOS, Config
from ._project import Project, open_store, state_folder, with_plugins

RESTART = ("agent", "store", "options", "plugins", "telemetry")
"""What is read once, at the start."""


class Default(msgspec.Struct, frozen=True):
    """The engine that answers what no rule takes, and the reason for it."""

    name: str
    why: str
    hints: tuple[str, ...] = ()
    named: bool = True
    """The configuration names it; else it was found."""


class Running(msgspec.Struct, frozen=True):
    gateway: Gateway
    log: RequestLog
    address: str
    default: Default
    config: Config

    @property
    def open_requests(self) -> int:
        return sum(record.outcome == "open" for record in self.gateway.records.newest)


def check_place(config: Config) -> None:
    """Raises when nobody should be served by this configuration: others could read a key, or come in without one."""
    refuse_exposed(config)
    try:
        check_binding(config.gateway.host, config.gateway.keys)
    except ConfigError:
        raise
    except RondelError as error:
        raise ConfigError(str(error)) from None


def at_place(config: Config, host: str, port: int) -> Config:
    """The same configuration, for a gateway that listens here."""
    gateway = msgspec.structs.replace(config.gateway, host=host, port=port)
    return msgspec.structs.replace(config, gateway=gateway)


@contextlib.asynccontextmanager
async def open_gateway(
    project: Project, host: str, listening: socket.socket, say: Callable[[str], None]
) -> AsyncGenerator[Running]:
    """A gateway for whoever serves it on that socket of this host. `say` is told when its configuration changes."""
    reloader = Reloader(project.config)  # before anything takes time: what changes from now on is a change
    config = at_place(project.config, host, listening.getsockname()[1])
    env = without_itself(config, os.environ)
    default = await _default(config, env, fetch=True)
    store = open_store(config)
    app = App(
        *with_plugins(project.agents, config),
        engine=default.name,
        store=store,
        ledger=Ledger(store.books, rules=rules_of(config)),
        make_engine=lambda name: make_engine(name, config, env=env),
        recover=False,
    )
    async with contextlib.AsyncExitStack() as life:
        await life.enter_async_context(app)
        log = await life.enter_async_context(RequestLog(state_folder() / "logs", SystemClock()))
        log.secrets = _secrets(config)
        gateway = await life.enter_async_context(Gateway(app, _setup(app, config, default, env)))
        life.callback(gateway.records.watch(log.ended))
        running = Running(gateway, log, address_of(listening), default, config)
        group = await life.enter_async_context(asyncio.TaskGroup())
        following = group.create_task(_follow(app, running, reloader, say))
        life.callback(following.cancel)
        log.say("started", f"{running.address}, {default.name}")
        life.callback(log.say, "stopped", running.address)
        yield running


def _setup(app: App, config: Config, default: Default, env: Mapping[str, str], before: Setup | None = None) -> Setup:
    found = "" if default.named else default.name
    return Setup(app, config, make_engine=lambda name: make_engine(name, config, env=env), default=found, before=before)


async def _default(config: Config, env: Mapping[str, str], *, fetch: bool = False) -> Default:
    route = config.gateway.routes.default
    if route is not None and route not in SAME:
        name = canonical_engine(route, config.engines)
        return Default(name, f"{config.source('gateway.routes.default')} names it")
    picked = await pick(config, env=env)
    if fetch and picked.needs_pull is not None:
        from ._weights import pull_with_bar

        await pull_with_bar(picked.needs_pull)
    return Default(picked.name, picked.why, picked.hints, named=bool(config.engine))


def without_itself(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what `rondel activate` set in it: a gateway that asks itself would ask for ever."""
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
    """What is wrong with engines that routes and fallbacks name: they are passed over where another can answer."""
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


def _secrets(config: Config) -> tuple[str, ...]:
    keys = [key.key for key in config.gateway.keys.values()]
    engines = [engine.key for engine in config.engines.values() if engine.key]
    variables = (variable for provider in PROVIDERS.values() for variable in provider.key_variables)
    return secrets_of([*keys, *engines, *(os.environ.get(variable, "") for variable in variables)])


# --- a configuration that changes -------------------------------------------------------------------------------------


async def _follow(app: App, running: Running, reloader: Reloader, say: Callable[[str], None]) -> None:
    """Take up each change of the file that can be taken up; tell of those that cannot."""
    gateway, log, place = running.gateway, running.log, running.config.gateway
    in_force = reloader.config

    def tell(event: str, text: str) -> None:
        log.say(event, text)
        say(text)

    async def changed(config: Config) -> None:
        nonlocal in_force
        new = at_place(config, place.host, place.port)
        check_place(new)
        try:
            env = without_itself(new, os.environ)
            setup = _setup(app, new, await _default(new, env), env, gateway.setup)
            await gateway.adopt(setup)
        except ConfigError:
            raise
        except Exception as error:  # a plugin that does not start is a mistake in the file that names it
            reason = str(error) if isinstance(error, RondelError) else f"{type(error).__name__}: {error}"
            raise ConfigError(reason, path=config.path) from None
        app.ledger.configure(rules_of(new))
        log.secrets = secrets_of([*log.secrets, *_secrets(new)])  # the old ones are still in use by open requests
        late, in_force = _late(in_force, config), config
        tell("changed", f"{config.path} has changed and is in force{late}")

    await reloader.follow(app.clock, changed, lambda text: tell("refused", text))


def _late(old: Config, new: Config) -> str:
    """What of a change waits for the next start."""
    keys = [f"`{key}`" for key in RESTART if getattr(old, key) != getattr(new, key)]
    keys += [f"`gateway.{key}`" for key in ("host", "port") if getattr(old.gateway, key) != getattr(new.gateway, key)]
    return f"; {' and '.join(keys)} will be after a restart" if keys else ""
