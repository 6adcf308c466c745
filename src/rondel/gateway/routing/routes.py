"""The routes of a configuration: which engines answer each kind of request, and which line says so.

They are built once for each combination of tables, so that a request only looks them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import TypeAlias

from ...project.config import SAME, canonical_engine
from ...project.settings import Config, RouteSettings
from ...text.document import dotted
from ...values import Value

AGENT = "agent:"
MAIN = ("gateway", "routes")

Table: TypeAlias = tuple[tuple[str, ...], RouteSettings]  # A table of routes, with its key


class Route(Value, frozen=True):
    """Who answers: an engine and its fallbacks in order, or an agent of the project."""

    name: str  # the engine, or `agent:` and the agent
    why: str = ""  # the setting that names it, with its line
    engines: tuple[str, ...] = ()
    agent: str = ""


def chain_of(name: str, config: Config) -> tuple[str, ...]:
    settings = config.engines.get(name.partition(":")[0])
    own = settings.fallback if settings else ()
    return (name, *(canonical_engine(other, config.engines) for other in own))


class Routes:
    """The routes of some `tables`, the most specific first; each fills in what those before it leave out. `found` is
    the engine to use if none is named, and `found_by` says where it comes from."""

    def __init__(self, config: Config, tables: Sequence[Table], found: str, found_by: str) -> None:
        self._config, self._tables = config, tables
        settings = tables[-1][1]
        for _, table in reversed(tables[:-1]):
            settings = table.over(settings)
        self._fallback = config.gateway.fallback
        self.default = self._default(settings.default, found, found_by)
        self.background = self._scenario("background", settings.background)
        self.think = self._scenario("think", settings.think)
        self.long_context = self._scenario("long_context", settings.long_context)
        self.web_search = self._scenario("web_search", settings.web_search)
        self.long_context_tokens = settings.long_context_tokens or 0
        patterns = settings.background_models or ()
        self.background_models = ", ".join(patterns) or "no patterns"
        self._patterns = [(pattern, re.compile(translate(pattern.lower())).match) for pattern in patterns]

    def to(self, name: str) -> Route:
        """Return the route to an engine or agent that the caller, a tag or the project's router named."""
        return self._route(name, self._names(self._fallback.default))

    def background_pattern(self, model: str) -> str:
        model = model.lower()
        for pattern, fits in self._patterns:
            if fits(model):
                return pattern
        return ""

    def _default(self, value: str | None, found: str, found_by: str) -> Route:
        fallbacks = self._names(self._fallback.default)
        if value is None or value in SAME:
            return self._route(found, fallbacks, f"{found_by} is {found!r}")
        return self._named("default", value, fallbacks)

    def _scenario(self, scenario: str, value: str | None) -> Route | None:
        if value is None:
            return None
        fallbacks: tuple[str, ...] = getattr(self._fallback, scenario)
        if value not in SAME:
            return self._named(scenario, value, self._names(fallbacks))
        why = f"{self._where(scenario)} is the same as the default: {self.default.why}"
        return self._route(self.default.name, self._names(fallbacks or self._fallback.default), why)

    def _named(self, scenario: str, value: str, fallbacks: Iterable[str]) -> Route:
        name = canonical_engine(value, self._config.engines)
        return self._route(name, fallbacks, f"{self._where(scenario)} names {name!r}")

    def _route(self, name: str, fallbacks: Iterable[str], why: str = "") -> Route:
        if name.startswith(AGENT):
            return Route(name, why, agent=name.removeprefix(AGENT))
        engines = (engine for one in (name, *fallbacks) for engine in chain_of(one, self._config))
        return Route(name, why, tuple(dict.fromkeys(engines)))

    def _names(self, values: Iterable[str]) -> list[str]:
        return [canonical_engine(value, self._config.engines) for value in values]

    def _where(self, scenario: str) -> str:
        path = next((path for path, table in self._tables if getattr(table, scenario) is not None), MAIN)
        name = dotted((*path, scenario))
        source = self._config.source(name)
        return f"{name} ({source})" if source.where.path else name
