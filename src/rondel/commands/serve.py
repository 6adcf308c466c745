"""`rondel serve`: the gateway, until it is told to stop."""

from __future__ import annotations

import socket

import msgspec

from ..app import App
from ..config import refuse_exposed
from ..gateway.access import check_binding
from ..gateway.server import Gateway
from ..gateway.serving import Server, address_of, bind, run_fast
from ..gateway.setup import Setup
from ..pick import make_engine, pick
from ..settings import Config
from ._output import tell
from ._project import Project, load_project, open_store, with_plugins


class Choice(msgspec.Struct, frozen=True):
    host: str = ""
    port: int | None = None


def serve(choice: Choice) -> int:
    project = load_project()
    config = _with_choice(project.config, choice)
    refuse_exposed(config)
    check_binding(config.gateway.host, config.gateway.keys)
    listening = bind(config.gateway.host, config.gateway.port)
    return run_fast(_serve(msgspec.structs.replace(project, config=config), listening))


def _with_choice(config: Config, choice: Choice) -> Config:
    given = {"host": choice.host or None, "port": choice.port}
    changed = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, **changed))


async def _serve(project: Project, listening: socket.socket) -> int:
    config = project.config
    default = ""
    if not config.engine and config.gateway.routes.default is None:
        picked = await pick(config)
        default, why = picked.name, picked.why
    else:
        why = ""
    app = App(
        *with_plugins(project.agents, config),
        engine=config.engine or default or None,
        store=open_store(config),
        make_engine=lambda name: make_engine(name, config),
        recover=False,
    )
    async with app:
        setup = Setup(app, config, make_engine=lambda name: make_engine(name, config), default=default)
        async with Gateway(app, setup) as gateway:
            tell(f"listening on {address_of(listening)}{f' ({default}: {why})' if why else ''}")
            await Server(gateway, listening).run()
    return 0
