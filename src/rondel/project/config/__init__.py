"""Reads `rondel.toml` (docs/configuration.md), and finds where each effective value came from.

Any text may contain `${VAR}` and `${VAR:-default}`; `$${` is `${` itself. RONDEL_CONFIG names the file; RONDEL_ENGINE,
RONDEL_AGENT and RONDEL_STORE override it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ConfigError, NotTrusted
from ...knowledge.settings import KnowledgeSettings, WebSearchSettings
from ...mcp.spec import ServerSettings, ServerSpec
from ...plugin import Plugin
from ...text.document import Checker, Document, KeyPath, Mistakes, collecting, expand
from ...text.redaction import Redactor, is_web_address, shown_url, without_secrets
from ..lookup import find_plugin
from ..settings import (
    Config,
    DiscordSettings,
    EngineSettings,
    GatewaySettings,
    ImageSettings,
    Source,
    StoreSettings,
    TelemetrySettings,
    ToolSettings,
)
from ..trust import UntrustedFolder
from .change import edited, kind_of
from .discord import discord_mistakes
from .engines import BUILTIN_ENGINES, canonical_engine, engine_mistakes, engine_problem, engines_named
from .entries import limits_of, options_of, plugin_entries
from .gateway import SAME, gateway_of, with_days_as_texts
from .knowledge import knowledge_mistakes, web_search_mistakes
from .ledger import configure_ledger, ledger_of, make_ledger, money_warnings, prices_of, rules_of
from .locate import find_file, home_of, own_file
from .mcp import project_servers
from .shown import OVERRIDES, explain, literal_secrets, secrets_in, sources_of

__all__ = [
    "BUILTIN_ENGINES",
    "MEMORY",
    "OVERRIDES",
    "SAME",
    "canonical_engine",
    "configure_ledger",
    "edited",
    "engine_problem",
    "explain",
    "kind_of",
    "load",
    "make_ledger",
    "mcp_plugin",
    "money_warnings",
    "plugins_of",
    "prices_of",
    "process_environment",
    "refuse_exposed",
    "rules_of",
    "secrets_in",
]

MEMORY = ":memory:"
TELEMETRY, TELEMETRY_VARIABLE = "telemetry.endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"


class _File(msgspec.Struct, frozen=True):
    """The keys of rondel.toml. Limits and options are checked key by key, to know which ones are set."""

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
    tools: ToolSettings = ToolSettings()
    knowledge: dict[str, KnowledgeSettings] = {}
    web_search: WebSearchSettings = WebSearchSettings()
    images: ImageSettings = ImageSettings()
    discord: DiscordSettings | None = None
    mcp: dict[str, ServerSettings] = {}
    mcpServers: Any = None


def load(
    folder: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    *,
    mistakes: Mistakes | None = None,
    trusts: Callable[[Path], bool] | None = None,
) -> Config:
    """Load the configuration for a folder: its own or its parents' rondel.toml, or the user's, or defaults.

    With a list for `mistakes`, mistakes are collected and wrong values are left out. A project that `trusts` refuses is
    only inspected: nothing is imported, and no variable is read. Without `trusts` every folder is trusted, because the
    calling code is, too. The user's own file is always trusted.
    """
    env = os.environ if env is None else env
    try:
        start = Path(folder or ".").absolute()
    except FileNotFoundError:
        raise ConfigError("the current folder no longer exists; change to one that does") from None
    path, warnings = find_file(start, env)
    if path is not None and trusts is not None and path != own_file(env) and not trusts(path.parent):
        return _inspected(path, warnings, env, mistakes)
    return _loaded(path, str(path.parent) if path else "", warnings, env, mistakes)


def _inspected(path: Path, warnings: list[str], env: Mapping[str, str], mistakes: Mistakes | None) -> Config:
    """Load an untrusted project's file. What would need its Python or a variable does not count as a mistake."""
    found: Mistakes = []
    config = _loaded(path, UntrustedFolder(str(path.parent)), warnings, env, found)
    for mistake in found:
        with collecting(mistakes):
            if not isinstance(mistake, NotTrusted) and "${" not in str(mistake):
                raise mistake
    return config


def _loaded(
    path: Path | None, project: str, warnings: list[str], env: Mapping[str, str], mistakes: Mistakes | None
) -> Config:
    values = None if isinstance(project, UntrustedFolder) else env
    document = Document("", {})
    open_secrets: list[tuple[KeyPath, str]] = []
    if path is not None:
        from ...text.toml import read_toml

        with collecting(mistakes):
            document = with_days_as_texts(expand(read_toml(path), values, mistakes=mistakes))
            open_secrets = literal_secrets(document, path)
    config = _build(Checker(document, mistakes), path, project, env)
    return msgspec.structs.replace(
        config,
        warnings=(*warnings, *config.warnings, *(sentence for _, sentence in open_secrets)),
        exposed=tuple(sentence for at, sentence in open_secrets if at[:2] == ("gateway", "keys")),
    )


def plugins_of(config: Config) -> list[Plugin]:
    """Make the plugins that the configuration turns on for all agents in files."""
    plugins = [plugin.make(config.project) for plugin in config.plugins if plugin.enabled]
    telemetry = config.telemetry
    if telemetry.endpoint and all(plugin.name != "telemetry" for plugin in plugins):
        given = msgspec.structs.asdict(telemetry)
        if config.source(TELEMETRY).variables == (TELEMETRY_VARIABLE,):
            given["endpoint"] = ""  # OpenTelemetry reads its own variables
        plugins.append(find_plugin("telemetry", given))
    if config.mcp and all(plugin.name != "mcp" for plugin in plugins):
        plugins.append(mcp_plugin(config, config.mcp))
    return plugins


def mcp_plugin(config: Config, specs: Sequence[ServerSpec]) -> Plugin:
    """Make the plugin that connects these servers."""
    config.check_trusted()
    from ...mcp.plugin import McpServers

    return McpServers.of(specs, share=config.tools.search_share, project=config.project)


def process_environment(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of processes that tools start: no secrets, except those in `pass_env`."""
    return without_secrets(env, redactor=Redactor(secrets_in(config, env)), keep=config.tools.pass_env)


def refuse_exposed(config: Config) -> None:
    """Raise if a caller's key is written out in a file that others can read: the gateway must not start."""
    if config.exposed:
        raise ConfigError(config.exposed[0])


# --- from the file to the effective settings --------------------------------------------------------------------------


def _build(checker: Checker, path: Path | None, project: str, env: Mapping[str, str]) -> Config:
    document = checker.document
    file = checker.struct(_File, document.data)
    overrides = {variable: env[variable] for variable in OVERRIDES if env.get(variable)}
    folder = path.parent if path else Path()
    seen = None if isinstance(project, UntrustedFolder) else env
    servers, warnings = project_servers(checker, file.mcp, file.mcpServers, path.parent if path else None, seen)
    tables: dict[str, Any] = msgspec.structs.asdict(file) | {
        "engine": overrides.get("RONDEL_ENGINE", file.engine),
        "agent": overrides.get("RONDEL_AGENT", file.agent),
        "store": _store(file.store, folder, env),
        "limits": limits_of(checker, file.limits, ("limits",)),
        "options": options_of(checker, file.options, ("options",)),
        "plugins": plugin_entries(checker, file.plugins, ("plugins",)),
        "gateway": GatewaySettings(),  # read below, when all engines are known
        "telemetry": _telemetry(checker, file.telemetry, env),
        "ledger": ledger_of(checker, file.ledger),
        "mcp": servers,
    }
    del tables["mcpServers"]
    config = Config(**tables, path=str(path or ""), project=project, warnings=tuple(warnings))
    checker.report(*engine_mistakes(document, config, overrides))
    engines = dict(engines_named(document, config))
    checker.report(
        *knowledge_mistakes(document, file.knowledge, engines),
        *web_search_mistakes(document, file.web_search),
        *_image_mistakes(document, file.images, engines),
        *(discord_mistakes(document, file.discord) if file.discord is not None else ()),
    )
    gateway = gateway_of(checker, file.gateway, engines)
    config = msgspec.structs.replace(config, engines=engines, gateway=gateway)
    sources = sources_of(document, config, overrides)
    if config.telemetry.endpoint and not file.telemetry.endpoint:
        sources[TELEMETRY] = Source(variables=(TELEMETRY_VARIABLE,))
    return msgspec.structs.replace(config, sources=sources)


def _image_mistakes(
    document: Document, given: ImageSettings, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    if given != ImageSettings():
        from ..images import image_mistakes  # it imports this module

        yield from image_mistakes(document, given, engines)


def _telemetry(checker: Checker, given: TelemetrySettings, env: Mapping[str, str]) -> TelemetrySettings:
    """Return the effective settings. The file overrides the variable, which is for all programs on a machine."""
    if not given.endpoint:
        # OpenTelemetry has two variables to switch it off.
        switches = (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"))
        is_off = any(env.get(variable, "").lower() == off for variable, off in switches)
        return msgspec.structs.replace(given, endpoint="" if is_off else env.get(TELEMETRY_VARIABLE, ""))
    if not is_web_address(given.endpoint):
        message = f"{shown_url(given.endpoint)!r} is not a web address; write the collector's, such as http://host:port"
        checker.report(checker.document.error(("telemetry", "endpoint"), message))
    return given


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
