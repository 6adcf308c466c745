"""Reads and checks `[gateway]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from ipaddress import ip_network
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ...errors import ConfigError
from ...question import NOT_A_PERSON
from ...text.document import Checker, Document, KeyPath
from ..settings import SCENARIOS, EngineSettings, GatewaySettings, KeySettings, PluginSettings, RouteSettings
from .engines import canonical_engine, engine_problem
from .entries import plugin_entries

PATH: KeyPath = ("gateway",)
LOCAL_PERSON = "user"  # the id of the person in the terminal
IMAGE = "image"  # the plugin that is on if there is a route for images
SAME = ("", "default")  # values of a route that mean the default route


def gateway_of(checker: Checker, table: Any, engines: Mapping[str, EngineSettings]) -> GatewaySettings:
    """Return the settings of the table. `engines` are those that a route may name."""
    given = dict(checker.table(table, PATH))
    entries: Any = given.pop("plugins", [])
    fields = checker.fields(GatewaySettings, given, PATH, leave_out=("plugins",))
    listed: tuple[Any, ...] = checker.build(tuple[str | dict[str, Any], ...], entries, (*PATH, "plugins"))
    settings = GatewaySettings(**fields, plugins=plugin_entries(checker, listed, (*PATH, "plugins")))
    checker.report(*_mistakes(checker.document, settings, engines))
    return _with_image(settings, checker.document, engines)


def with_days_as_texts(document: Document) -> Document:
    """Turn TOML's dates into texts, which a variable gives, too."""
    gateway: Any = document.data.get("gateway")
    keys: Any = cast("dict[str, Any]", gateway).get("keys") if isinstance(gateway, dict) else None
    for key in cast("dict[str, Any]", keys).values() if isinstance(keys, dict) else ():
        if isinstance(key, dict) and isinstance(day := cast("dict[str, Any]", key).get("expires"), date):
            key["expires"] = day.isoformat()
    return document


def _with_image(
    settings: GatewaySettings, document: Document, engines: Mapping[str, EngineSettings]
) -> GatewaySettings:
    """Use the route for images as the engine of the image plugin, unless the plugin's own entry sets one."""
    route = settings.routes.image
    if route is None or route in SAME:
        return settings
    engine = canonical_engine(route, engines)
    if not any(plugin.name == IMAGE for plugin in settings.plugins):
        entry = PluginSettings(IMAGE, {"engine": engine}, document.lines_of((*PATH, "routes", "image")))
        return msgspec.structs.replace(settings, plugins=(*settings.plugins, entry))
    plugins = tuple(
        msgspec.structs.replace(plugin, parameters={"engine": engine, **plugin.parameters})
        if plugin.name == IMAGE
        else plugin
        for plugin in settings.plugins
    )
    return msgspec.structs.replace(settings, plugins=plugins)


# --- what can be wrong ------------------------------------------------------------------------------------------------


def _mistakes(
    document: Document, settings: GatewaySettings, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    tables: dict[KeyPath, RouteSettings] = {("routes",): settings.routes}
    tables |= {("projects", name): project for name, project in settings.projects.items()}
    tables |= {("sessions", name): session for name, session in settings.sessions.items()}
    for path, routes in tables.items():
        yield from _mistakes_of_routes(document, (*PATH, *path), routes, engines)
    for scenario in SCENARIOS:
        for index, name in enumerate(cast("tuple[str | None, ...]", getattr(settings.fallback, scenario))):
            if name is not None and (problem := engine_problem(canonical_engine(name, engines), engines)):
                yield document.error((*PATH, "fallback", scenario, index), problem)
    for kind in ("embedding", "image_generation"):
        yield from _mistakes_of_services(document, settings, kind, engines)
    yield from _mistakes_of_addresses(document, settings)
    custom = settings.routes.custom
    if custom and not (custom.count(":") == 1 and all(custom.split(":"))):
        yield document.error((*PATH, "routes", "custom"), f"{custom!r} names no function; write it as module:function")
    yield from _mistakes_of_keys(document, settings.keys)


def _mistakes_of_services(
    document: Document, settings: GatewaySettings, kind: str, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    """Check the embedders or the image engines that answer requests which name none."""
    named: dict[KeyPath, str | None] = {("routes", kind): getattr(settings.routes, kind)}
    named |= {("fallback", kind, index): name for index, name in enumerate(getattr(settings.fallback, kind))}
    for path, name in named.items():
        if name and name not in SAME:
            from ..embedders import embedder_problem
            from ..images import image_problem

            find_problem = embedder_problem if kind == "embedding" else image_problem
            if problem := find_problem(canonical_engine(name, engines), engines):
                yield document.error((*PATH, *path), problem)


def _mistakes_of_addresses(document: Document, settings: GatewaySettings) -> Iterator[ConfigError]:
    for index, origin in enumerate(cast("tuple[str | None, ...]", settings.origins)):
        if origin is not None and not _is_origin(origin):
            path = (*PATH, "origins", index)
            yield document.error(path, f"{origin!r} is not an origin; write https://host or https://host:port")
    for index, proxy in enumerate(cast("tuple[str | None, ...]", settings.proxies)):
        if proxy is not None and not _is_network(proxy):
            path = (*PATH, "proxies", index)
            yield document.error(path, f"{proxy!r} is not an address or a network; write 127.0.0.1 or 10.0.0.0/8")


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


def _mistakes_of_keys(document: Document, keys: Mapping[str, KeySettings]) -> Iterator[ConfigError]:
    seen: dict[str, str] = {}
    for name, key in keys.items():
        path: KeyPath = (*PATH, "keys", name)
        if (*path, "key") in document.broken:
            continue
        if not key.key.strip():
            yield document.error(path, f"the key {name!r} is empty; give it a `key` that cannot be guessed")
        elif seen.setdefault(key.key, name) != name:
            yield document.error((*path, "key"), f"the keys {seen[key.key]!r} and {name!r} are the same; change one")
        if name == LOCAL_PERSON and not key.person:
            message = (
                f"the key {name!r} has the name of the person at this machine, and would show their conversations; "
                f"rename it, or set person = {name!r} if it is theirs"
            )
            yield document.error(path, message)
        if (person := key.person or name) in NOT_A_PERSON:  # their answers would count as given by no person
            message = f"{person!r} cannot be the name of a person; give the key {name!r} another `person`"
            yield document.error(path, message)
        if key.expires and not _is_moment(key.expires):
            message = f"{key.expires!r} is not a date; write it as 2030-01-31"
            yield document.error((*path, "expires"), message)
        if (budget := key.budget) is not None and budget.tokens is None and budget.money is None:
            message = f"the budget of {name!r} has no limit; give `tokens` or `money`"
            yield document.error((*path, "budget"), message)


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


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
