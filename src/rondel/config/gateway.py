"""`[gateway]`: read and checked. Knows no request: what a route is for is the router's business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ..document import Checker, Document, KeyPath, dotted, going_on
from ..errors import ConfigError
from ..settings import SCENARIOS, EngineSettings, GatewaySettings, KeySettings, PluginSettings, RouteSettings
from .engines import canonical_engine, engine_problem
from .entries import plugin_entries

PATH: KeyPath = ("gateway",)
IMAGE = "image"
"""The plugin that is on when there is a route for images."""
SAME = ("", "default")
"""What a route says when it is the default's."""


def gateway_of(checker: Checker, table: Any, engines: Mapping[str, EngineSettings]) -> GatewaySettings:
    """The settings that the table says. `engines` are those that a route may name."""
    given = dict(checker.table(table, PATH))
    entries: Any = given.pop("plugins", [])
    fields = checker.fields(GatewaySettings, given, PATH, leave_out=("plugins",))
    listed: tuple[Any, ...] = checker.build(tuple[str | dict[str, Any], ...], entries, (*PATH, "plugins"))
    settings = GatewaySettings(**fields, plugins=plugin_entries(checker, listed, (*PATH, "plugins")))
    for mistake in _mistakes(checker.document, settings, engines):
        with going_on(checker.mistakes):
            raise mistake
    return _with_image(settings, checker.document, engines)


def with_days_as_texts(document: Document) -> Document:
    """TOML has days and moments; ours are texts, as they are when they come from a variable."""
    gateway: Any = document.data.get("gateway")
    keys: Any = cast("dict[str, Any]", gateway).get("keys") if isinstance(gateway, dict) else None
    for key in cast("dict[str, Any]", keys).values() if isinstance(keys, dict) else ():
        if isinstance(key, dict) and isinstance(day := cast("dict[str, Any]", key).get("expires"), date):
            key["expires"] = day.isoformat()
    return document


def _with_image(
    settings: GatewaySettings, document: Document, engines: Mapping[str, EngineSettings]
) -> GatewaySettings:
    """The route for images is the engine of the agent that looks at them; an entry of its own decides what it says."""
    route = settings.routes.image
    if route is None or route in SAME:
        return settings
    engine = canonical_engine(route, engines)
    if not any(plugin.name == IMAGE for plugin in settings.plugins):
        entry = PluginSettings(IMAGE, {"engine": engine}, document.lines_of((*PATH, "routes", "image")))
        return msgspec.structs.replace(settings, plugins=(*settings.plugins, entry))
    plugins = tuple(_seeing(plugin, engine) if plugin.name == IMAGE else plugin for plugin in settings.plugins)
    return msgspec.structs.replace(settings, plugins=plugins)


def _seeing(plugin: PluginSettings, engine: str) -> PluginSettings:
    return msgspec.structs.replace(plugin, parameters={"engine": engine, **plugin.parameters})


# --- what can be wrong ------------------------------------------------------------------------------------------------


def _mistakes(
    document: Document, settings: GatewaySettings, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    yield from _mistakes_of_numbers(document, settings)
    tables: dict[KeyPath, RouteSettings] = {("routes",): settings.routes}
    tables |= {("projects", name): project for name, project in settings.projects.items()}
    tables |= {("sessions", name): session for name, session in settings.sessions.items()}
    for path, routes in tables.items():
        yield from _mistakes_of_routes(document, (*PATH, *path), routes, engines)
    for scenario in SCENARIOS:
        for index, name in enumerate(cast("tuple[str | None, ...]", getattr(settings.fallback, scenario))):
            if name is not None and (problem := engine_problem(canonical_engine(name, engines), engines)):
                yield document.error((*PATH, "fallback", scenario, index), problem)
    for index, origin in enumerate(cast("tuple[str | None, ...]", settings.origins)):
        if origin is not None and not _is_origin(origin):
            path = (*PATH, "origins", index)
            yield document.error(path, f"{origin!r} is no web page's origin; write https://host or https://host:port")
    custom = settings.routes.custom
    if custom and not (custom.count(":") == 1 and all(custom.split(":"))):
        yield document.error((*PATH, "routes", "custom"), f"{custom!r} names no function; write it as module:function")
    yield from _mistakes_of_keys(document, settings.keys)


def _mistakes_of_numbers(document: Document, settings: GatewaySettings) -> Iterator[ConfigError]:
    if not 0 <= settings.port <= 65535:
        yield document.error((*PATH, "port"), f"'gateway.port' is {settings.port!r}; a port is 0 to 65535")
    if not settings.ping_s >= 0:
        yield document.error((*PATH, "ping_s"), f"'gateway.ping_s' is {settings.ping_s!r}; it must be 0 or more")
    positive = {("body_mb_max",): settings.body_mb_max, ("routes", "custom_s"): settings.routes.custom_s}
    for key, value in positive.items():
        if not value > 0:
            path = (*PATH, *key)
            yield document.error(path, f"{dotted(path)!r} is {value!r}; it must be more than 0")


def _mistakes_of_routes(
    document: Document, path: KeyPath, routes: RouteSettings, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    if routes.image is not None and path[1] != "routes":
        message = "images have one route for all; set `image` under [gateway.routes]"
        yield document.error((*path, "image"), message)
    for scenario in SCENARIOS:
        name: str | None = getattr(routes, scenario)
        if name is None or name in SAME:
            continue
        if problem := engine_problem(canonical_engine(name, engines), engines):
            yield document.error((*path, scenario), problem)
    if (tokens := routes.long_context_tokens) is not None and tokens < 1:
        at = (*path, "long_context_tokens")
        yield document.error(at, f"{dotted(at)!r} is {tokens!r}; it must be 1 or more")


def _mistakes_of_keys(document: Document, keys: Mapping[str, KeySettings]) -> Iterator[ConfigError]:
    seen: dict[str, str] = {}
    for name, key in keys.items():
        path: KeyPath = (*PATH, "keys", name)
        if not key.key.strip():
            yield document.error(path, f"the key {name!r} is empty; give it a `key` that nobody can guess")
        elif seen.setdefault(key.key, name) != name:
            yield document.error((*path, "key"), f"the keys {seen[key.key]!r} and {name!r} are the same; change one")
        if key.expires and not _is_moment(key.expires):
            message = f"{key.expires!r} is no day; write it as 2030-01-31"
            yield document.error((*path, "expires"), message)
        if (budget := key.budget) is not None:
            if budget.tokens is None and budget.money is None:
                yield document.error(
                    (*path, "budget"), f"the budget of {name!r} has no limit; give `tokens` or `money`"
                )
            for field in ("tokens", "money"):
                if (limit := getattr(budget, field)) is not None and not limit >= 0:
                    yield document.error((*path, "budget", field), f"{field!r} is {limit!r}; a limit is 0 or more")


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.path.strip("/")


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
