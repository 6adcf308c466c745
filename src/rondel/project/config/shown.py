"""Explains effective values: where each came from, how it may be shown, and which secrets are exposed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ...contracts.endpoint import PROVIDERS
from ...text.document import Document, KeyPath, dotted, hides, telling
from ...text.redaction import is_secret, looks_secret, secrets_in_headers, secrets_in_url, shown_url
from ..settings import Config, GatewaySettings, PluginSettings, Source

OVERRIDES: dict[str, KeyPath] = {
    "RONDEL_ENGINE": ("engine",),
    "RONDEL_AGENT": ("agent",),
    "RONDEL_STORE": ("store", "path"),
}


def literal_secrets(document: Document, path: Path) -> list[tuple[KeyPath, str]]:
    """Return the path of each secret that is written out in a file that others can read, with a warning."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name != "posix" or not mode & 0o077:
        return []
    return [
        (
            at,
            f"{document.where(at)}: {dotted(at)!r} is written out, and others can read the file (its mode is "
            f"{mode:04o}); run `chmod 600 {path.name}`, or use a variable: ${{NAME}}",
        )
        for at, value in _scalars(document.data)
        if not _variables(document, at)
        for text in (cast("list[Any]", value) if isinstance(value, list) else [value])
        if isinstance(text, str) and text and "${" not in text  # an unset variable is another mistake
        if any(isinstance(step, str) and is_secret(step) for step in telling(at)) or looks_secret(text)
    ]


def _variables(document: Document, path: KeyPath) -> tuple[str, ...]:
    depth = len(path)
    return tuple(name for at, names in document.variables.items() if at[:depth] == path for name in names)


def explain(config: Config) -> list[tuple[str, str, str]]:
    """Return every effective value: its key, the value without secrets, and where it came from."""
    return [
        (dotted(path), _shown(path, value, config.source(dotted(path)).variables), str(config.source(dotted(path))))
        for path, value in leaves(config)
    ]


def secrets_in(config: Config, env: Mapping[str, str]) -> frozenset[str]:
    """Return every secret: keys, headers, passwords in addresses, values of variables with a secret's name, the
    providers' keys in the environment, and the passwords of its proxies."""
    found: set[str] = set()
    for path, value in leaves(config):
        for text in cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(text, str):
                continue
            found.update(secrets_in_url(text))
            if path[-2:-1] == ("headers",):
                found.update(secrets_in_headers({str(path[-1]): text}))
            elif hides(path, text, config.source(dotted(path)).variables):
                found.add(text)
    for variable in (name for provider in PROVIDERS.values() for name in provider.key_variables):
        found.add(env.get(variable, "").strip())
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        found.update(secrets_in_url(env.get(variable, "")), secrets_in_url(env.get(variable.upper(), "")))
    return frozenset(found)


def _shown(path: KeyPath, value: Any, variables: tuple[str, ...]) -> str:
    if value is None or value in ("", ()):
        return "(none)"
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return ", ".join(_shown(path, item, variables) for item in items)
    if hides(path, value, variables):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    return shown_url(str(value))


def sources_of(document: Document, config: Config, overrides: Mapping[str, str]) -> dict[str, Source]:
    by_key = {path: variable for variable, path in OVERRIDES.items() if variable in overrides}
    sources: dict[str, Source] = {}
    for path, _ in leaves(config):
        at, seen = path, document
        if path[0] == "plugins":
            at, seen = path[2:], config.plugins[cast(int, path[1])].lines
        elif path[:2] == ("gateway", "plugins"):
            at, seen = path[3:], config.gateway.plugins[cast(int, path[2])].lines
        if path in by_key:
            sources[dotted(path)] = Source(variables=(by_key[path],))
        elif at in seen.lines:
            sources[dotted(path)] = Source(seen.where(at), _variables(seen, at) if at else ())
        else:
            sources[dotted(path)] = Source()
    return sources


def leaves(config: Config) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every effective value and its key; of engines only what is set: the rest comes from the provider."""
    yield ("engine",), config.engine
    yield ("agent",), config.agent
    for name, engine in config.engines.items():
        for path, value in _scalars(msgspec.to_builtins(engine)):
            yield ("engines", name, *path), value
    for spec in config.mcp:
        for path, value in _scalars(msgspec.to_builtins(msgspec.structs.replace(spec, native=None))):
            yield ("mcp", spec.name, *path), value
    yield from _plugin_leaves(config.plugins)
    yield from ((("gateway", *path), value) for path, value in _gateway_leaves(config.gateway))
    for group in ("knowledge", "discord"):
        for path, value in _scalars(msgspec.to_builtins(getattr(config, group) or {})):
            yield (group, *path), value
    for path, value in _scalars(_with_defaults(config.ledger)):
        yield ("ledger", *path), value
    for group in ("telemetry", "web_search", "images", "store", "tools", "limits", "options"):
        for path, value in _scalars(msgspec.structs.asdict(getattr(config, group))):
            if path[0] != "output":
                yield (group, *path), value


def _gateway_leaves(gateway: GatewaySettings) -> Iterator[tuple[KeyPath, Any]]:
    for name in GatewaySettings.__struct_fields__:
        if name == "plugins":
            yield from _plugin_leaves(gateway.plugins)
        elif name == "routes":
            yield from _scalars(_with_defaults(gateway.routes), (name,))
        else:
            yield from _scalars(msgspec.to_builtins(getattr(gateway, name)), (name,))


def _with_defaults(value: Any) -> Any:
    """Return structs as tables that also have what is not set: people can change it."""
    if isinstance(value, msgspec.Struct):
        return {name: _with_defaults(item) for name, item in msgspec.structs.asdict(value).items()}
    return [_with_defaults(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def _plugin_leaves(plugins: tuple[PluginSettings, ...]) -> Iterator[tuple[KeyPath, Any]]:
    for index, plugin in enumerate(plugins):
        yield ("plugins", index), plugin.name
        if not plugin.enabled:
            yield ("plugins", index, "enabled"), False
        for path, value in _scalars(plugin.parameters):
            yield ("plugins", index, *path), value


def _scalars(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values inside tables; a list of plain values counts as one."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _scalars(item, (*path, key))
    elif isinstance(value, (list, tuple)) and any(isinstance(i, (dict, list)) for i in cast("list[Any]", value)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _scalars(item, (*path, index))
    else:
        yield path, value
