"""Finds what a start would refuse, and what would have no effect: in `[discord]`, `[engines]` and the gateway's keys.

Looks at files, but imports and calls nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from ...contracts.endpoint import PROVIDERS
from ...errors import ConfigError, nearest
from ...ledger.prices import LISTS, Prices
from ...libraries import has_agent
from ...text.document import Mistakes, Where, dotted, expand
from ...values import Usage
from ..config import BUILTIN_ENGINES, SAME, canonical_engine
from ..config.engines import model_problem
from ..knowledge import bases_of
from ..settings import Config, EngineSettings
from .problem import Problem, error, warning

BUILTIN_AGENT = "rondel"
AGENT, BASE = "agent:", "knowledge:"
GLOB = "*?["


def start_problems(config: Config, names: Collection[str], engines: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems. `names` are the project's agents, `engines` those that its agents name."""
    yield from _discord_problems(config, names)
    yield from _models_missing(config, engines)
    yield from _key_problems(config, names)


def unset_variables(config: Config, env: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning for each variable that an untrusted rondel.toml needs and that is not set. What it expands to is
    not used."""
    from ...text.toml import read_toml

    mistakes: Mistakes = []
    try:
        expand(read_toml(Path(config.path)), env, mistakes=mistakes)
    except ConfigError:  # not TOML, which is reported already
        return
    for mistake in mistakes:
        _, _, said = str(mistake).partition(f"{mistake.line}: ")
        if said.startswith("the variable "):
            yield warning(Where(mistake.path, mistake.line), said)


def _where(config: Config, *path: str | int) -> Where:
    return config.source(dotted(path)).where


# --- Discord ----------------------------------------------------------------------------------------------------------


def _discord_problems(config: Config, names: Collection[str]) -> Iterator[Problem]:
    if (settings := config.discord) is None:
        return
    named = {("discord", "agent"): settings.agent}
    named |= {("discord", "rules", index, "agent"): rule.agent for index, rule in enumerate(settings.rules)}
    named |= {("discord", "modes", name, "agent"): mode.agent for name, mode in settings.modes.items()}
    for path, agent in named.items():
        if agent and agent not in (*names, BUILTIN_AGENT) and not has_agent(agent):
            yield error(_where(config, *path), f"there is no agent {agent!r}{nearest(agent, tuple(names))}")
    for name in settings.extensions:
        if name and not _has_module(config.project, name):
            modules = [path.stem for path in Path(config.project).glob("*.py")] if config.project else []
            message = (
                f"there is no extension {name!r}, neither beside rondel.toml nor installed{nearest(name, modules)}"
            )
            yield error(_where(config, "discord", "extensions"), message)


def _has_module(project: str, name: str) -> bool:
    """Whether a module is beside rondel.toml or installed. Below a package only the first name is looked up: the rest
    would import it."""
    path = Path(project, *name.split("."))
    if project and (path.with_name(f"{path.name}.py").is_file() or path.is_dir()):
        return True
    try:
        return find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


# --- engines ----------------------------------------------------------------------------------------------------------


def _models_missing(config: Config, engines: Sequence[str]) -> Iterator[Problem]:
    """Yield engines that are used without a model: the default engine, and those of agents."""
    route = config.gateway.routes.default
    first = next(iter(config.engines), "") if route is None or route in SAME else ""
    for name in dict.fromkeys(canonical_engine(name, config.engines) for name in (config.engine or first, *engines)):
        head = name.partition(":")[0]
        settings = config.engines.get(head, EngineSettings())
        if not settings.base_url or (settings.provider or head) in PROVIDERS:  # a known server is asked for its models
            continue
        if problem := model_problem(name, config.engines):
            yield error(_where(config, "engines", head, "base_url"), problem)


# --- the gateway's keys -----------------------------------------------------------------------------------------------


def _key_problems(config: Config, names: Collection[str]) -> Iterator[Problem]:
    agents, bases = (*names, BUILTIN_AGENT), tuple(bases_of(config))
    for key, settings in config.gateway.keys.items():
        for pattern in settings.models:
            if pattern and not _names_something(pattern, config, agents, bases):
                known = (*config.engines, *(AGENT + name for name in agents), *(BASE + name for name in bases))
                also = next((one for one in known if one in (AGENT + pattern, BASE + pattern)), "")
                hint = f"; did you mean {also!r}?" if also else nearest(pattern, known)
                message = (
                    f"the key {key!r} may use {pattern!r}, but no engine, model, agent or knowledge base has that name"
                )
                yield warning(_where(config, "gateway", "keys", key, "models"), message + hint)


def _names_something(pattern: str, config: Config, agents: Sequence[str], bases: Sequence[str]) -> bool:
    for prefix, known in ((AGENT, agents), (BASE, bases)):
        if pattern.startswith(prefix):
            return any(fnmatchcase(prefix + name, pattern) for name in known) or has_agent(pattern.removeprefix(prefix))
    heads = (*BUILTIN_ENGINES, *PROVIDERS, *config.engines)
    if ":" in pattern:
        return any(fnmatchcase(head, pattern.partition(":")[0]) for head in heads)
    models = [model for engine in config.engines.values() for model in (engine.model, *engine.models) if model]
    models += [provider.model for provider in PROVIDERS.values() if provider.model]
    if any(fnmatchcase(name, pattern) for name in (*heads, *models)):
        return True
    # Any other model may run at a hosted provider. Which ones there are is only known of names, not of patterns.
    return any(mark in pattern for mark in GLOB) or _is_hosted(pattern)


def _is_hosted(model: str) -> bool:
    prices = Prices()
    try:
        prices.load()
    except ImportError:
        return True
    return any(prices.charged(provider, model, Usage(1, 1), time.time())[0] is not None for provider in LISTS)
