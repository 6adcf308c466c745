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
    models = ["gpt-6.1-terra"]                  # what the gateway lists for it
    transform = ["cleancache", ["maxtoken", {max_tokens = 8192}]]       # what is done to prompts and replies
    model_transform = {"qwen*" = ["enhancetool"]}       # and what more, by the pattern of the model's name

    [store]
    path = "~/talks.db"                         # below the file's folder unless absolute; ":memory:" keeps nothing
    durability = "normal"                       # or "full": every commit reaches the disk
    [limits]                                    # the fields of rondel.Limits
    rounds = 40
    [options]                                   # the fields of rondel.Options but `output`
    temperature = 0.3

    [[ledger.limits]]                           # how much may be spent: docs/ledger.md
    scope = {model = "gpt-6.1-terra"}           # by any of these, and `*` for each value on its own
    window = "day"                              # day, week, month, lifetime
    tokens = 50000                              # or `money` in dollars, or both
    mode = "block"                              # or "warn"
    [telemetry]                                 # traces for other programs: docs/trace.md
    endpoint = "http://127.0.0.1:4318"
    content = false                             # true: with what people, models and tools said
    [gateway]                                   # other programs are served here: docs/routing.md
    port = 8484
    [gateway.routes]
    default = "fast"

Any text may hold `${VAR}` and `${VAR:-default}`; `$${` is `${` itself. RONDEL_CONFIG names the file; RONDEL_ENGINE,
RONDEL_AGENT and RONDEL_STORE win over it. Agents are in `agents/` beside the file (agent_files.py). Nothing is read
before `load` is called, and nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..document import Checker, Document, KeyPath, Mistakes, expand, going_on
from ..errors import ConfigError
from ..lookup import find_plugin
from ..plugin import Plugin
from ..settings import Config, EngineSettings, PluginSettings, Source, StoreSettings, TelemetrySettings
from .engines import BUILTIN_ENGINES, canonical_engine, engine_mistakes, engine_problem, engines_named
from .entries import limits_of, options_of, plugin_entries
from .gateway import SAME, gateway_of, with_days_as_texts
from .ledger import ledger_of, rules_of
from .place import find_file, home_of
from .shown import OVERRIDES, explain, literal_secrets, sources_of
from .telemetry import KEY as TELEMETRY_KEY
from .telemetry import VARIABLE as TELEMETRY_VARIABLE
from .telemetry import telemetry_of, telemetry_source

__all__ = [
    "BUILTIN_ENGINES",
    "OVERRIDES",
    "SAME",
    "Config",
    "EngineSettings",
    "PluginSettings",
    "Source",
    "StoreSettings",
    "canonical_engine",
    "engine_problem",
    "explain",
    "find_plugin",
    "limits_of",
    "load",
    "options_of",
    "plugin_entries",
    "plugins_of",
    "refuse_exposed",
    "rules_of",
]

MEMORY = ":memory:"


class _File(msgspec.Struct, frozen=True):
    """The keys of rondel.toml. Limits and options are checked key by key, so that the given ones are known."""

    engine: str = ""
    agent: str = ""
    engines: dict[str, EngineSettings] = {}
    store: StoreSettings = StoreSettings()
    limits: dict[str, Any] = {}
    options: dict[str, Any] = {}
    plugins: tuple[str | dict[str, Any], ...] = ()
    gateway: dict[str, Any] = {}
    telemetry: TelemetrySettings = TelemetrySettings()
    ledger: dict[str, Any] = {}


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
    path, warnings = find_file(start, env)
    document = Document("", {})
    open_secrets: list[tuple[KeyPath, str]] = []
    if path is not None:
        from ..documents.toml import read_toml

        with going_on(mistakes):
            document = with_days_as_texts(expand(read_toml(path), env, mistakes=mistakes))
            open_secrets = literal_secrets(document, path)
    config = _build(Checker(document, mistakes), path, env)
    return msgspec.structs.replace(
        config,
        warnings=(*warnings, *(sentence for _, sentence in open_secrets)),
        exposed=tuple(sentence for at, sentence in open_secrets if at[:2] == ("gateway", "keys")),
    )


def plugins_of(config: Config) -> list[Plugin]:
    """The plugins that the configuration turns on for all agents, made. Agents that come from files have them."""
    plugins = [plugin.make(config.project) for plugin in config.plugins if plugin.enabled]
    telemetry = config.telemetry
    if telemetry.endpoint and all(plugin.name != "telemetry" for plugin in plugins):
        given = msgspec.structs.asdict(telemetry)
        if config.source(TELEMETRY_KEY).variables == (TELEMETRY_VARIABLE,):
            given["endpoint"] = ""  # OpenTelemetry reads its variables itself, with all that they can say
        plugins.append(find_plugin("telemetry", given))
    return plugins


def refuse_exposed(config: Config) -> None:
    """Raises when a caller's key is written out in a file that others may read: who serves with it must not start."""
    if config.exposed:
        raise ConfigError(config.exposed[0])


# --- from the file to what is in force --------------------------------------------------------------------------------


def _build(checker: Checker, path: Path | None, env: Mapping[str, str]) -> Config:
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
        telemetry=telemetry_of(checker, file.telemetry, env),
        ledger=ledger_of(checker, file.ledger),
        path=str(path or ""),
        project=str(folder) if path else "",
    )
    for mistake in engine_mistakes(document, config, overrides):
        with going_on(checker.mistakes):
            raise mistake
    engines = dict(engines_named(document, config))
    gateway = gateway_of(checker, file.gateway, engines)
    config = msgspec.structs.replace(config, engines=engines, gateway=gateway)
    sources = sources_of(document, config, overrides) | telemetry_source(file.telemetry, config.telemetry)
    return msgspec.structs.replace(config, sources=sources)


def _store(given: StoreSettings, folder: Path, env: Mapping[str, str]) -> StoreSettings:
    named, base = env.get("RONDEL_STORE") or "", Path.cwd
    if not named:
        named, base = given.path, folder.absolute
    if named == MEMORY:
        return StoreSettings(MEMORY, given.durability)
    home = home_of(env)
    if not named:
        xdg = env.get("XDG_DATA_HOME", "")
        path = (Path(xdg) if os.path.isabs(xdg) else home / ".local" / "share") / "rondel" / "rondel.db"
    elif named == "~" or named.startswith("~/"):
        path = home / named[2:]
    else:
        path = base() / named
    return StoreSettings(str(path), given.durability)
