"""`rondel route`: which engine would answer a request, and why. Nobody is asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from ..dialects import DIALECTS
from ..errors import ConfigError, EngineError, nearest
from ..gateway.counting import estimate
from ..gateway.request import Request
from ..gateway.routing import Decision, Router
from ..pick import make_engine, pick, transforms_of
from ..plugin import Plugin
from ..settings import Config
from ..surfaces.terminal.clean import one_line
from ..surfaces.terminal.listing import Listing
from ._output import show, show_json, tell
from ._project import load_project

CHARS_MAX = 300


class Choice(msgspec.Struct, frozen=True):
    file: str
    dialect: str = ""
    headers: tuple[str, ...] = ()
    explain: bool = False
    as_json: bool = False


class Way(msgspec.Struct, frozen=True):
    """An engine that would be asked: what is done to the prompt on the way, and how it goes there."""

    engine: str
    transforms: tuple[str, ...]
    how: str


class Routed(msgspec.Struct, frozen=True):
    request: Request
    guessed: bool
    decision: Decision
    tokens: int | None
    plugins: tuple[tuple[str, bool, str], ...]
    ways: tuple[Way, ...]


def route(choice: Choice) -> None:
    project = load_project()
    config = project.config
    body = _body(choice.file)
    dialect = choice.dialect or _guess(body)
    if dialect not in DIALECTS:
        raise ConfigError(f"there is no dialect {dialect!r}{nearest(dialect, tuple(DIALECTS))}")
    try:
        request = Request("route", DIALECTS[dialect](), body, _headers(choice.headers))
    except EngineError as error:
        raise ConfigError(f"{_named(choice.file)} is no request: {error}") from None
    names = tuple(agent.name for agent in project.agents)
    routed = asyncio.run(_routed(config, request, names, guessed=not choice.dialect))
    if choice.as_json:
        show_json(_as_json(routed))
        return
    _show(routed, explain=choice.explain)
    for warning in (*routed.decision.warnings, *config.warnings):
        tell(f"rondel: {one_line(warning, CHARS_MAX)}")


# --- what is asked ----------------------------------------------------------------------------------------------------


def _named(file: str) -> str:
    return "stdin" if file == "-" else file


def _body(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file!r} cannot be read: {error.strerror or error}; name the file of a request") from None


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in given:
        name, found, value = item.partition("=")
        if not found or not name.strip():
            raise ConfigError(f"{item!r} is no header; write it as name=value")
        headers[name.strip().lower()] = value.strip()
    return headers


def _guess(body: bytes) -> str:
    """The dialect that a body looks like: each has fields that the others do not have."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "anthropic"  # reading it says what is wrong
    if "input" in fields:
        return "openai-responses"
    tools = bytes(fields.get("tools", b""))
    if b'"function"' in tools or {"max_completion_tokens", "reasoning_effort", "stream_options", "n"} & fields.keys():
        return "openai-chat"
    messages = bytes(fields.get("messages", b""))
    if any(word in messages for word in (b'"tool_calls"', b'"tool_call_id"', b'"image_url"')):
        return "openai-chat"
    return "anthropic" if "max_tokens" in fields else "openai-chat"


# --- what would happen ------------------------------------------------------------------------------------------------


async def _routed(config: Config, request: Request, agents: tuple[str, ...], *, guessed: bool) -> Routed:
    default = ""
    if not config.engine and config.gateway.routes.default in (None, "", "default"):
        default = (await pick(config)).name
    decision = await Router(config, default=default, agents=agents).decide(request)
    decision.apply(request)
    plugins = [plugin.make(config.project) for plugin in config.gateway.plugins if plugin.enabled]
    looks = tuple(_looks(plugin, request) for plugin in plugins)
    read = any(would for _, would, _ in looks)
    ways = [await _way(name, config, request.dialect.name, read=read) for name in decision.engines]
    tokens = decision.tokens
    if tokens is None:
        try:
            tokens = estimate(request)
        except EngineError as error:
            tell(f"rondel: the request cannot be read: {one_line(str(error), CHARS_MAX)}")
    return Routed(request, guessed, decision, tokens, looks, tuple(ways))


def _looks(plugin: Plugin, request: Request) -> tuple[str, bool, str]:
    words = ", ".join(repr(word.decode("utf-8", "replace")) for word in plugin.looks_for)
    if not words:
        return plugin.entry or plugin.name, True, "it looks at every request"
    if request.holds(*plugin.looks_for):
        return plugin.entry or plugin.name, True, f"the request has {words}"
    return plugin.entry or plugin.name, False, f"the request has no {words}"


async def _way(name: str, config: Config, dialect: str, *, read: bool) -> Way:
    try:
        engine = make_engine(name, config)
    except ConfigError as error:
        return Way(name, (), f"cannot be asked: {error}")
    spoken = getattr(engine, "dialect", "")
    if close := getattr(engine, "aclose", None):
        await close()
    transforms = transforms_of(name, config)
    if spoken == dialect and not read:
        return Way(name, transforms, f"passed on as it came ({dialect})")
    return Way(name, transforms, f"read as {dialect}, and written anew")


# --- how it is shown --------------------------------------------------------------------------------------------------


def _show(routed: Routed, *, explain: bool) -> None:
    request, decision = routed.request, routed.decision
    chosen = f"the agent {decision.agent}" if decision.agent else ", then ".join(decision.engines)
    show(Text(f"{one_line(request.model, 80)} → {one_line(chosen, CHARS_MAX)}  ({decision.rule})"))
    show(Text(one_line(decision.why, CHARS_MAX)))
    if not explain:
        return
    show(Text(f"\n{_sentence(routed)}"))
    rules = Listing("rule", "", "because")
    for step in decision.steps:
        rules.add_row(step.rule, "yes" if step.applies else "no", Text(one_line(step.reason, CHARS_MAX)))
    show(Text(""))
    show(rules)
    if routed.ways:
        engines = Listing("engine", "transforms", "the request is", growing=2)
        for way in routed.ways:
            engines.add_row(Text(way.engine), ", ".join(way.transforms) or "none", Text(one_line(way.how, CHARS_MAX)))
        show(Text(""))
        show(engines)
    if routed.plugins:
        plugins = Listing("plugin", "", "because")
        for name, would, reason in routed.plugins:
            plugins.add_row(Text(name), "yes" if would else "no", Text(reason))
        show(Text(""))
        show(plugins)


def _sentence(routed: Routed) -> str:
    request = routed.request
    how = ", by its look; --dialect says another" if routed.guessed else ""
    tokens = "unknown" if routed.tokens is None else f"{routed.tokens:,}"
    facts = [f"dialect: {request.dialect.name}{how}", f"tokens: about {tokens}"]
    facts += [f"{name}: {one_line(value, 80)}" for name, value in _who(request).items() if value]
    return "; ".join(facts)


def _who(request: Request) -> Mapping[str, str]:
    return {"session": request.session, "project": request.project}


def _as_json(routed: Routed) -> dict[str, Any]:
    request, decision = routed.request, routed.decision
    return {
        "model": request.model,
        "dialect": request.dialect.name,
        **_who(request),
        "rule": decision.rule,
        "why": decision.why,
        "agent": decision.agent,
        "engines": [msgspec.structs.asdict(way) for way in routed.ways],
        "tokens": routed.tokens,
        "warnings": decision.warnings,
        "steps": [msgspec.structs.asdict(step) for step in decision.steps],
        "plugins": [{"name": name, "looks": would, "reason": reason} for name, would, reason in routed.plugins],
    }
