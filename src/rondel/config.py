"""`rondel.toml`: what it may say, where it is looked for, and where each value in force came from.

    engine = "anthropic:claude-sonnet-5-5"      # the default engine: provider:model, or the name of an [engines] table
    agent = "helper"                            # who answers when nobody is named
    plugins = ["log", {name = "trim", share = 0.5}]     # on for all agents, beside the defaults

    [engines.fast]                              # a name of your own, or a provider's name to change its settings
    provider = "openai"                         # the table's own name when that is a provider; not needed with base_url
    base_url = "http://127.0.0.1:8000/v1"
    dialect = "openai-chat"                     # openai-chat, openai-responses, anthropic
    model = "gpt-6.1-terra"
    key = "${WORK_KEY}"                         # the provider's own variable when it is not given
    headers = {X-Team = "blue"}
    body = {service_tier = "flex"}              # more fields for each request
    connect_s = 10
    first_token_s = 120
    idle_s = 60
    context_tokens = 4096                       # of an embedded model (provider = "local"), and its `threads`
    fallback = ["anthropic:claude-sonnet-5-5"]  # tried in order when it fails before its first token
    retry = {attempts = 3, base_s = 1, cap_s = 30}
    facts = {window_tokens = 32768, tools = false}      # what is known of the model, where Rondel knows it wrong

    [store]
    path = "~/talks.db"                         # below the file's folder unless absolute; ":memory:" keeps nothing
    durability = "normal"                       # or "full": every commit reaches the disk
    [limits]                                    # the fields of rondel.Limits
    rounds = 40
    [options]                                   # the fields of rondel.Options but `output`
    temperature = 0.3

Any text may hold `${VAR}` and `${VAR:-default}`; `$${` is `${` itself. RONDEL_CONFIG names the file; RONDEL_ENGINE,
RONDEL_AGENT and RONDEL_STORE win over it. Agents are in `agents/` beside the file (agent_files.py). Nothing is read
before `load` is called, and nothing is ever written.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from .document import (
    Checker,
    Document,
    KeyPath,
    Mistakes,
    Where,
    dotted,
    expand,
    going_on,
    hides,
    is_secret,
    looks_secret,
)
from .endpoint import PROVIDERS
from .errors import ConfigError, nearest
from .limits import Limits
from .lookup import find_plugin, plugin_names
from .plugin import Plugin
from .settings import Config, EngineSettings, PluginSettings, Source, StoreSettings, shown_url
from .tool import NAME
from .values import Options

__all__ = [
    "Config",
    "EngineSettings",
    "PluginSettings",
    "Source",
    "StoreSettings",
    "explain",
    "find_plugin",
    "load",
    "plugins_of",
]

FILE = "rondel.toml"
MEMORY = ":memory:"
BUILTIN_ENGINES = ("local", "echo")
OVERRIDES: dict[str, KeyPath] = {
    "RONDEL_ENGINE": ("engine",),
    "RONDEL_AGENT": ("agent",),
    "RONDEL_STORE": ("store", "path"),
}


class _File(msgspec.Struct, frozen=True):
    """The keys of rondel.toml. Limits and options are checked key by key, so that the given ones are known."""

    engine: str = ""
    agent: str = ""
    engines: dict[str, EngineSettings] = {}
    store: StoreSettings = StoreSettings()
    limits: dict[str, Any] = {}
    options: dict[str, Any] = {}
    plugins: tuple[str | dict[str, Any], ...] = ()


def load(
    folder: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    *,
    mistakes: Mistakes | None = None,
) -> Config:
    """The configuration for work in this folder: its rondel.toml or its parents', else the user's, else defaults.

    With a list for `mistakes`, all of the file's are put there, and what is wrong is left out of what is loaded.
    """
    env = os.environ if env is None else env
    try:
        start = Path(folder or ".").absolute()
    except FileNotFoundError:
        raise ConfigError("the current folder no longer exists; change to one that does") from None
    path, warnings = _find(start, env)
    document = Document("", {})
    if path is not None:
        from .documents.toml import read_toml

        with going_on(mistakes):
            document = expand(read_toml(path), env, mistakes=mistakes)
            warnings += _literal_secrets(document, path)
    return _build(Checker(document, mistakes), path, tuple(warnings), env)


def plugins_of(config: Config) -> list[Plugin]:
    """The plugins that the configuration turns on for all agents, made. Agents that come from files have them."""
    return [plugin.make(config.project) for plugin in config.plugins if plugin.enabled]


# --- which file -------------------------------------------------------------------------------------------------------


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or os.path.expanduser("~"))


def _find(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    if named := env.get("RONDEL_CONFIG"):
        path = Path(named).absolute()
        if not os.path.isfile(path):
            raise ConfigError(f"RONDEL_CONFIG names {named!r}, which is not a file; correct it, or unset it")
        return path, []
    warnings: list[str] = []
    home = _home(env)
    for place in (folder, *folder.parents):
        path = place / FILE
        if os.path.isfile(path):  # unlike Path.is_file, a folder that may not be searched has none
            if place == folder or _is_trusted(path):
                return path, warnings
            warnings.append(f"{path} belongs to another user and was passed over; copy it, or set RONDEL_CONFIG to it")
        if place == home:
            break
    xdg = env.get("XDG_CONFIG_HOME", "")
    path = (Path(xdg) if os.path.isabs(xdg) else home / ".config") / "rondel" / FILE
    return path if os.path.isfile(path) else None, warnings


def _is_trusted(path: Path) -> bool:
    """A file in a parent folder can run code, so it must not be one that somebody else put into a shared folder."""
    return not hasattr(os, "geteuid") or path.stat().st_uid in (0, os.geteuid())


def _literal_secrets(document: Document, path: Path) -> list[str]:
    """Secrets that are written out in a file that others may read."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name != "posix" or not mode & 0o077:
        return []
    return [
        f"{document.where(at)}: {dotted(at)!r} is written out, and others may read the file (its mode is {mode:04o}); "
        f"run `chmod 600 {path.name}`, or take it from a variable: ${{NAME}}"
        for at, value in _scalars(document.data)
        if not _variables(document, at)
        for text in (cast("list[Any]", value) if isinstance(value, list) else [value])
        if isinstance(text, str) and text
        if any(isinstance(step, str) and is_secret(step) for step in at) or looks_secret(text)
    ]


def _variables(document: Document, path: KeyPath) -> tuple[str, ...]:
    """The variables that gave something to the value at this path, or to one of its items."""
    depth = len(path)
    return tuple(name for at, names in document.variables.items() if at[:depth] == path for name in names)


# --- from the file to what is in force --------------------------------------------------------------------------------


def _build(checker: Checker, path: Path | None, warnings: tuple[str, ...], env: Mapping[str, str]) -> Config:
    document = checker.document
    file = checker.struct(_File, document.data)
    overrides = {variable: env[variable] for variable in OVERRIDES if env.get(variable)}
    folder = path.parent if path else Path()
    config = Config(
        engine=overrides.get("RONDEL_ENGINE", file.engine),
        agent=overrides.get("RONDEL_AGENT", file.agent),
        engines=file.engines,
        store=_store(file.store, folder, env),
        limits=limits_of(checker, file.limits, ("limits",)),
        options=options_of(checker, file.options, ("options",)),
        plugins=plugin_entries(checker, file.plugins, ("plugins",)),
        path=str(path or ""),
        project=str(folder) if path else "",
        warnings=warnings,
    )
    for mistake in _engine_mistakes(document, config, overrides):
        with going_on(checker.mistakes):
            raise mistake
    engines = dict(_engines_named(document, config))
    return msgspec.structs.replace(config, engines=engines, sources=_sources(document, config, overrides))


def _store(given: StoreSettings, folder: Path, env: Mapping[str, str]) -> StoreSettings:
    named, base = env.get("RONDEL_STORE") or "", Path.cwd
    if not named:
        named, base = given.path, folder.absolute
    if named == MEMORY:
        return StoreSettings(MEMORY, given.durability)
    home = _home(env)
    if not named:
        xdg = env.get("XDG_DATA_HOME", "")
        path = (Path(xdg) if os.path.isabs(xdg) else home / ".local" / "share") / "rondel" / "rondel.db"
    elif named == "~" or named.startswith("~/"):
        path = home / named[2:]
    else:
        path = base() / named
    return StoreSettings(str(path), given.durability)


def limits_of(checker: Checker, table: Any, path: KeyPath, base: Limits | None = None) -> Limits:
    """The limits that a table sets, on top of others."""
    given = checker.fields(Limits, table, path)
    for key, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            at = (*path, key)
            with going_on(checker.mistakes):
                raise checker.document.error(at, f"{dotted(at)!r} is {value!r}; a limit is 0 or more")
    return msgspec.structs.replace(base or Limits(), **given)


def options_of(checker: Checker, table: Any, path: KeyPath, base: Options | None = None) -> Options:
    """The options that a table sets, on top of others."""
    given = checker.fields(Options, table, path, leave_out=("output",))
    return msgspec.structs.replace(base or Options(), **given)


def plugin_entries(
    checker: Checker, items: Iterable[str | dict[str, Any] | None], path: KeyPath
) -> tuple[PluginSettings, ...]:
    """The entries of a list of plugins. Of several of one plugin, each after the first has an id of its own."""
    entries: list[PluginSettings] = []
    places: dict[str, Where] = {}
    counts: dict[str, int] = {}
    for index, item in enumerate(items):
        if item is None:
            continue
        with going_on(checker.mistakes):
            settings = _plugin_entry(checker, item, (*path, index))
            count = counts[settings.name] = counts.get(settings.name, 0) + 1
            if not settings.entry and count > 1:
                settings = msgspec.structs.replace(settings, entry=f"{settings.name}-{count}")
            id, where = settings.entry or settings.name, settings.lines.where()
            entries.append(settings)
            if places.setdefault(id, where) is not where:
                raise where.error(f"two plugins have the id {id!r}: on line {places[id].line} and here; rename one")
    return tuple(entries)


def _plugin_entry(checker: Checker, item: str | dict[str, Any], path: KeyPath) -> PluginSettings:
    """`"trim"`, `{name = "trim", share = 0.5}` or `{trim: {share: 0.5}}`. An `id` and `enabled` beside the name are for
    the entry itself."""
    document = checker.document
    name, parameters, own = str(item), dict[str, Any](), dict[str, Any]()
    if not isinstance(item, str):
        table = dict(item)
        own = _entry_fields(checker, table, path)
        if "name" in table:
            name, parameters = checker.build(str, table.pop("name"), (*path, "name")), table
        elif len(table) == 1:
            name, inner = next(iter(table.items()))
            path = (*path, name)
            parameters = checker.table({} if inner is None else inner, path)
        else:
            raise document.error(path, f"{dotted(path)!r} names no plugin; write its name, or {{name: {{parameters}}}}")
    if ":" not in name and name not in (known := plugin_names()):
        raise document.error(path, f"there is no plugin {name!r}{nearest(name, tuple(known))}")
    return PluginSettings(name, parameters, document.lines_of(path), **own)


def _entry_fields(checker: Checker, table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """What a table says of the entry itself, taken out of it."""
    fields: dict[str, Any] = {}
    if "id" in table:
        fields["entry"] = id = checker.build(str, table.pop("id"), (*path, "id"))
        if not NAME.fullmatch(id):
            message = f"{id!r} is no id for a plugin: use 1 to 64 letters, digits, '_' or '-'"
            raise checker.document.error((*path, "id"), message)
    if "enabled" in table:
        fields["enabled"] = checker.build(bool, table.pop("enabled"), (*path, "enabled"))
    return fields


# --- engines ----------------------------------------------------------------------------------------------------------


def engine_problem(name: str, engines: Mapping[str, EngineSettings]) -> str:
    """What is wrong with an engine's name, as a sentence; empty when nothing is."""
    head, _, model = name.partition(":")
    if head == "local" and head not in engines and model and not model.endswith(".gguf"):
        from .weights import CATALOG

        known = tuple(weights.name for weights in CATALOG)
        return "" if model in known else f"there is no embedded model {model!r}{nearest(model, known)}"
    if head in engines or head in PROVIDERS or head in BUILTIN_ENGINES:
        return ""
    return f"there is no engine {name!r}{nearest(head, (*engines, *PROVIDERS, *BUILTIN_ENGINES))}"


def _engine_mistakes(document: Document, config: Config, overrides: Mapping[str, str]) -> Iterator[ConfigError]:
    for name, engine in config.engines.items():
        yield from _mistakes_of_engine(document, name, engine, config)
    if config.engine and (problem := engine_problem(config.engine, _engines_named(document, config))):
        if "RONDEL_ENGINE" in overrides:
            yield ConfigError(f"the variable RONDEL_ENGINE: {problem}")
        else:
            yield document.error(("engine",), problem)


def _engines_named(document: Document, config: Config) -> Mapping[str, EngineSettings]:
    """The engines of the file, those included that are left out for a mistake in them."""
    tables = document.data.get("engines")
    named = cast("dict[str, Any]", tables) if isinstance(tables, dict) else {}
    return dict.fromkeys(named, EngineSettings()) | config.engines


def _mistakes_of_engine(document: Document, name: str, engine: EngineSettings, config: Config) -> Iterator[ConfigError]:
    path: KeyPath = ("engines", name)
    if not NAME.fullmatch(name):
        yield document.error(path, f"{name!r} is no name for an engine: use 1 to 64 letters, digits, '_' or '-'")
    known = (*PROVIDERS, "local")
    if engine.provider and engine.provider not in known and not engine.base_url:
        hint = nearest(engine.provider, known)
        yield document.error((*path, "provider"), f"there is no provider {engine.provider!r}{hint}")
    if not engine.provider and name not in known and not engine.base_url:
        yield document.error(path, f"the engine {name!r} has neither a provider nor a base_url; give it one of them")
    if engine.base_url:
        parts = urlsplit(engine.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = shown_url(engine.base_url)
            yield document.error((*path, "base_url"), f"{shown!r} is no web address; write http://host:port/path")
    if engine.dialect:
        from .dialects import DIALECTS

        if engine.dialect not in DIALECTS:
            hint = nearest(engine.dialect, tuple(DIALECTS))
            yield document.error((*path, "dialect"), f"there is no dialect {engine.dialect!r}{hint}")
    for key in ("connect_s", "first_token_s", "idle_s", "context_tokens", "threads"):
        value = getattr(engine, key)
        if value is not None and not value > 0:
            yield document.error((*path, key), f"{dotted((*path, key))!r} is {value!r}; it must be more than 0")
    if engine.retry.attempts < 1:
        yield document.error((*path, "retry", "attempts"), "an engine is asked at least once: attempts is 1 or more")
    yield from _mistakes_of_fallback(document, name, engine, config)


def _mistakes_of_fallback(
    document: Document, name: str, engine: EngineSettings, config: Config
) -> Iterator[ConfigError]:
    for index, other in enumerate(cast("tuple[str | None, ...]", engine.fallback)):
        if other is None:
            continue
        problem = engine_problem(other, _engines_named(document, config))
        if other == name:
            problem = f"the engine {name!r} cannot be its own fallback"
        if problem:
            yield document.error(("engines", name, "fallback", index), problem)


# --- where it came from, and how it is shown --------------------------------------------------------------------------


def explain(config: Config) -> list[tuple[str, str, str]]:
    """Every value in force: its key, the value as it may be shown, and where it came from. No secret is in it."""
    return [
        (dotted(path), _shown(path, value, config.source(dotted(path)).variables), str(config.source(dotted(path))))
        for path, value in _leaves(config)
    ]


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


def _sources(document: Document, config: Config, overrides: Mapping[str, str]) -> dict[str, Source]:
    by_key = {path: variable for variable, path in OVERRIDES.items() if variable in overrides}
    sources: dict[str, Source] = {}
    for path, _ in _leaves(config):
        at, seen = path, document
        if path[0] == "plugins":
            at, seen = path[2:], config.plugins[cast(int, path[1])].lines
        if path in by_key:
            sources[dotted(path)] = Source(variables=(by_key[path],))
        elif at in seen.lines:
            sources[dotted(path)] = Source(seen.where(at), _variables(seen, at) if at else ())
        else:
            sources[dotted(path)] = Source()
    return sources


def _leaves(config: Config) -> Iterator[tuple[KeyPath, Any]]:
    """Every value in force and its key; of engines, only what was given: the rest is the provider's."""
    yield ("engine",), config.engine
    yield ("agent",), config.agent
    for name, engine in config.engines.items():
        for path, value in _scalars(msgspec.to_builtins(engine)):
            yield ("engines", name, *path), value
    for index, plugin in enumerate(config.plugins):
        yield ("plugins", index), plugin.name
        if not plugin.enabled:
            yield ("plugins", index, "enabled"), False
        for path, value in _scalars(plugin.parameters):
            yield ("plugins", index, *path), value
    for group in ("store", "limits", "options"):
        for path, value in _scalars(msgspec.structs.asdict(getattr(config, group))):
            if path[0] != "output":
                yield (group, *path), value


def _scalars(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The values inside tables; a list of plain values counts as one."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _scalars(item, (*path, key))
    elif isinstance(value, (list, tuple)) and any(isinstance(i, (dict, list)) for i in cast("list[Any]", value)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _scalars(item, (*path, index))
    else:
        yield path, value
