"""The configuration of the current folder, loaded only when the user trusts its project.

In a terminal, the user is asked once; elsewhere an untrusted project is an error. Commands that only inspect (`doctor`,
`lint`, `prompt`, `config`, `route`) read such a project without running any of its code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..agent import Agent
from ..contracts.endpoint import PROVIDERS
from ..errors import NotTrusted
from ..project.agents.bind import agents_of
from ..project.agents.drafts import Draft, agent_paths, read_drafts
from ..project.config import load
from ..project.settings import Config, TelemetrySettings
from ..project.trust import VARIABLE, UntrustedFolder, trust_list
from ..text.document import Mistakes, SecretNotSet, collecting
from ..text.redaction import shown_url
from ._output import agrees, can_ask, tell

ACTING_TOOLS = ("run_shell",)
ASKING_PLUGIN = "approval"
NAMES_MAX = 12


def load_config(*, only_reads: bool = False) -> Config:
    """Load the configuration of the current folder. Raises NotTrusted unless its project is trusted. With `only_reads`,
    a secret whose variable is not set is left out: the command needs none."""
    if only_reads:
        mistakes: Mistakes = []
        config = load(trusts=trust_list().trusts, mistakes=mistakes)
        if config.is_trusted:
            for mistake in mistakes:
                if not isinstance(mistake, SecretNotSet):
                    raise mistake
            return config
    trusted = trust_list()
    config = load(trusts=trusted.trusts)
    if config.is_trusted:
        return config
    if not _is_agreed(config):
        raise NotTrusted(
            f"the project in {str(config.project)!r} is not trusted; review its files, then run `rondel trust` there, "
            f"or set {VARIABLE} to that folder"
        )
    trusted.add(Path(config.project))
    return load()


def look_at_config() -> Config:
    """Load the configuration. If the project is not trusted (`is_trusted`), it has only what the file says."""
    return load(trusts=trust_list().trusts)


class Survey(msgspec.Struct, frozen=True):
    """The agents of an untrusted project as they are written, and the mistakes in their files."""

    drafts: dict[str, Draft]
    agents: tuple[Agent, ...]
    wanted: tuple[str, ...]  # the modules that would be imported
    mistakes: Mistakes


def survey(config: Config) -> Survey:
    """Inspect an untrusted project. Its agents have no plugins and nothing that would have to be imported."""
    assert isinstance(config.project, UntrustedFolder)
    mistakes: Mistakes = []
    for plugin in (*config.plugins, *config.gateway.plugins):
        with collecting(mistakes):
            plugin.make(config.project)
    custom, extensions = config.gateway.routes.custom, config.discord.extensions if config.discord else ()
    config.project.wanted.update(dict.fromkeys((*((custom,) if custom else ()), *extensions)))
    drafts = read_drafts(agent_paths(config), None, mistakes)
    bare = msgspec.structs.replace(config, plugins=(), mcp=(), telemetry=TelemetrySettings())
    agents = agents_of(drafts, bare, tuple(drafts), mistakes)
    found = [mistake for mistake in mistakes if not isinstance(mistake, NotTrusted) and "${" not in str(mistake)]
    without_plugins = tuple(msgspec.structs.replace(agent, plugins=()) for agent in agents.values())
    return Survey(drafts, without_plugins, tuple(config.project.wanted), found)


def not_looked_at(config: Config, left_out: tuple[str, ...] = ()) -> str:
    """Return a sentence that says what was not checked because the project is not trusted."""
    what = f"these were not checked: {_listed(left_out)}" if left_out else "none of its code is run"
    return f"the project in {str(config.project)!r} is not trusted, so {what}; run `rondel trust` to trust it"


# --- asking -----------------------------------------------------------------------------------------------------------


def _is_agreed(config: Config) -> bool:
    """Ask the user, after showing what the project would do. Without a terminal the answer is no."""
    if not can_ask():
        return False
    tell(f"The project in {config.project} is not trusted yet.")
    for line in describe(config):
        tell(f"  {line}")
    return agrees("Trust this folder from now on?")


def describe(config: Config) -> Iterator[str]:
    """Yield what an untrusted project would run, where it would send data, and which variables it reads."""
    found = survey(config)
    yield f"runs Python: {_listed(found.wanted)}"
    if servers := tuple(_servers(config, found.drafts)):
        yield f"starts or calls the MCP servers: {_listed(servers)}"
    tools = (tool for draft in found.drafts.values() for tool in draft.settings.tools if tool in ACTING_TOOLS)
    if acting := tuple(dict.fromkeys(tools)):
        yield f"acts on this computer with: {_listed(acting)}"
    if deciding := tuple(_deciding(config, found.drafts)):
        yield f"changes which calls need your approval: {_listed(deciding)}"
    yield f"sends requests to: {_listed(tuple(_addresses(config)), 'nowhere')}"
    variables = tuple(dict.fromkeys(_variables(config, found.drafts)))
    yield f"reads environment variables: {_listed(variables, 'none')}"
    if found.mistakes:
        yield "has mistakes in its files; `rondel lint` lists them"


def _deciding(config: Config, drafts: dict[str, Draft]) -> Iterator[str]:
    """Yield the files and agents that configure the approval plugin, because they can make it ask less."""
    if any(plugin.name == ASKING_PLUGIN for plugin in config.plugins):
        yield "rondel.toml"
    for name, draft in drafts.items():
        for entry in draft.settings.plugins:
            if entry == ASKING_PLUGIN or (isinstance(entry, dict) and ASKING_PLUGIN in (entry.get("name"), *entry)):
                yield f"agent {name}"
                break


def _servers(config: Config, drafts: dict[str, Draft]) -> Iterator[str]:
    for spec in config.mcp:
        yield f"{spec.name} ({' '.join((spec.command, *spec.args)) if spec.command else spec.address})"
    for name, draft in drafts.items():
        if isinstance(draft.settings.mcp, dict) or draft.settings.mcpServers:
            yield f"those of agent {name}"


def _addresses(config: Config) -> Iterator[str]:
    for name, engine in config.engines.items():
        if engine.base_url:
            yield f"{shown_url(engine.base_url)} (engine {name})"
    if config.telemetry.endpoint:
        yield f"{shown_url(config.telemetry.endpoint)} (telemetry)"


def _variables(config: Config, drafts: dict[str, Draft]) -> Iterator[str]:
    for source in config.sources.values():
        yield from source.variables if source.where.path else ()  # other sources are the user's own
    for name, engine in config.engines.items():
        known = PROVIDERS.get(engine.provider or name)
        if known is not None and not engine.key:  # the user's key would go to the project's address
            yield from (variable for variable in known.key_variables if os.environ.get(variable, "").strip())
    for draft in drafts.values():
        for names in draft.checker.document.variables.values():
            yield from names


def _listed(names: tuple[str, ...], none: str = "nothing") -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{', '.join(names[:NAMES_MAX])}{more}" or none
