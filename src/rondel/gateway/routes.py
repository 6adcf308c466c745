"""The routes of a configuration: which engines answer each kind of request, and which line says so.

They are put together once for each table that counts, so that a request only looks them up. Knows no request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import TypeAlias

from ..config import SAME, canonical_engine
from ..document import dotted
from ..settings import Config, RouteSettings
from ..values import Value

AGENT = "agent:"
MAIN = ("gateway", "routes")

Table: TypeAlias = tuple[tuple[str, ...], RouteSettings]
"""A table of routes, with its key."""


class Route(Value, frozen=True):
    """Who answers: an engine and those that stand in for it, in their order, or an agent of the project."""

    name: str
    """What is named: the engine, or `agent:` and the agent."""
    why: str = ""
    """What names it, with its line."""
    engines: tuple[str, ...] = ()
    agent: str = ""


def route_to(name: str, fallbacks: Iterable[str] = (), why: str = "") -> Route:
    if name.startswith(AGENT):
        return Route(name, why, agent=name.removeprefix(AGENT))
    return Route(name, why, tuple(dict.fromkeys((name, *fallbacks))))


class Routes:
    """The routes of some `tables`, the nearest first: what one does not say, the next one does. `found` is the engine
    where none is named, and `found_by` what found it."""

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
        """The route to an engine or an agent that was named otherwise than by a scenario."""
        return route_to(name, self._names(self._fallback.default))

    def background_pattern(self, model: str) -> str:
        """The pattern of background work that a model fits; empty when there is none."""
        model = model.lower()
        for pattern, fits in self._patterns:
            if fits(model):
                return pattern
        return ""

    def _default(self, value: str | None, found: str, found_by: str) -> Route:
        fallbacks = self._names(self._fallback.default)
        if value is None or value in SAME:
            return route_to(found, fallbacks, f"{found_by} is {found!r}")
        return self._named("default", value, fallbacks)

    def _scenario(self, scenario: str, value: str | None) -> Route | None:
        if value is None:
            return None
        fallbacks: tuple[str, ...] = getattr(self._fallback, scenario)
        if value not in SAME:
            return self._named(scenario, value, self._names(fallbacks))
        why = f"{self._where(scenario)} is the same as the default: {self.default.why}"
        return route_to(self.default.name, self._names(fallbacks or self._fallback.default), why)

    def _named(self, scenario: str, value: str, fallbacks: Iterable[str]) -> Route:
        name = canonical_engine(value, self._config.engines)
        return route_to(name, fallbacks, f"{self._where(scenario)} names {name!r}")

    def _names(self, values: Iterable[str]) -> list[str]:
        return [canonical_engine(value, self._config.engines) for value in values]

    def _where(self, scenario: str) -> str:
        """The key that sets a route, with its line."""
        path = next((path for path, table in self._tables if getattr(table, scenario) is not None), MAIN)
        name = dotted((*path, scenario))
        source = self._config.source(name)
        return f"{name} ({source})" if source.where.path else name
