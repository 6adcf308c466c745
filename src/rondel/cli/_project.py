"""Opens the project for a command: with a question about trust, and with what to say about its engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ..agent import Agent
from ..app.app import App
from ..contracts.command import Models
from ..contracts.endpoint import known_provider
from ..contracts.store import Store
from ..engine import Engine, EngineInfo
from ..project.agents import load_agents
from ..project.config import BUILTIN_ENGINES
from ..project.engines import Picked, check_engine
from ..project.folder import Project, assemble, open_store
from ..project.settings import Config
from ._trust import load_config, look_at_config, not_looked_at, survey

T = TypeVar("T")


class Opened(msgspec.Struct, frozen=True):
    """A running app, its agent, and why this engine was chosen; `why` is empty if the agent needs no model."""

    app: App
    agent: str
    engine: EngineInfo
    why: str
    hints: tuple[str, ...] = ()
    picked: Picked | None = None

    @property
    def model_line(self) -> str:
        if not self.why:
            return f"{self.agent} needs no model."
        here = f"{Path.cwd()}{os.sep}"  # show a file in this folder by its name
        embedded = " (embedded)" if self.engine.name.startswith("local:") else ""
        return f"Using {self.engine.name}{embedded}: {self.why.replace(here, '')}."


def load_project() -> Project:
    config = load_config()
    return Project(config, tuple(load_agents(config)))


def look_at_project() -> tuple[Project, str]:
    """Return the project for inspection, and a sentence about what was left out if it is not trusted."""
    config = look_at_config()
    if config.is_trusted:
        return Project(config, tuple(load_agents(config))), ""
    found = survey(config)
    if found.mistakes:
        raise found.mistakes[0]
    plugins = tuple(f"the plugin {plugin.name}" for plugin in config.plugins if ":" not in plugin.name)
    return Project(config, found.agents), not_looked_at(config, (*found.wanted, *plugins))


@contextlib.asynccontextmanager
async def open_app(
    project: Project,
    agent: str,
    engine: str = "",
    *,
    inputs_known: bool = False,
    recover: bool = False,
    is_public: bool = False,
    store: Store | None = None,
) -> AsyncGenerator[Opened]:
    """Open the app for a command. With `recover`, it continues interrupted jobs; people resume theirs by hand.

    `inputs_known`: no model is needed to extract the agent's inputs from a text. `store` replaces the configured one.
    """
    found = await assemble(
        project,
        agent,
        engine or None,
        inputs_known=inputs_known,
        recover=recover,
        is_public=is_public,
        get_weights=_get_weights,
        store=store,
    )
    async with found.app as app:
        yield _opened(app, found.agent, found.picked, engine, asks=found.asks)


async def _get_weights(engine: Engine, picked: Picked | None) -> bool:
    from ._weights import get_weights  # only for embedded models: it brings the progress bar

    return await get_weights(engine, picked)


def _opened(app: App, agent: Agent, picked: Picked | None, asked: str, *, asks: bool) -> Opened:
    engine = app.registry.resolve(agent.name).engine
    if not asks:
        return Opened(app, agent.name, engine, "")
    if asked:
        return Opened(app, agent.name, engine, "set with --engine")
    if isinstance(agent.engine, str):
        return Opened(app, agent.name, engine, "set in the agent's file")
    assert picked is not None
    return Opened(app, agent.name, engine, picked.why, picked.hints, picked)


def with_store(work: Callable[[Store], Awaitable[T]]) -> T:
    """Run what needs only the store of the project, and no app."""

    async def main() -> T:
        async with contextlib.aclosing(open_store(load_config(only_reads=True))) as store:
            return await work(store)

    return asyncio.run(main())


def models_of(config: Config) -> Models:
    """Return the models that people can choose in a chat."""
    return Models(offered_models(config), lambda name: check_engine(name, config))


def offered_models(config: Config) -> dict[str, str]:
    offered: dict[str, str] = {}
    for name, settings in config.engines.items():
        provider = settings.provider or name
        model = settings.model or known_provider(provider).model
        if model or provider in BUILTIN_ENGINES:
            offered[name] = f"{provider}:{model}" if model else ""
        offered |= dict.fromkeys((f"{name}:{model}" for model in settings.models), "")
    if config.engine:
        offered.setdefault(config.engine, "")
    return offered
