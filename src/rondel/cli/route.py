"""`rondel route`: which engine would answer a request, and why. No engine is called."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from ..dialects import DIALECTS
from ..engine import close, dialect_of
from ..errors import ConfigError, EngineError, nearest
from ..files.regular import read_regular
from ..gateway.relay.request import GatewayRequest
from ..gateway.routing.counting import estimate
from ..gateway.routing.router import Decision, Router
from ..plugin import Plugin
from ..project.engines import make_engine, pick, transforms_of
from ..project.settings import Config
from ..surfaces.terminal.listing import Listing
from ..text.printable import one_line
from ._message import FILE_BYTES_MAX, read_stdin
from ._options import as_json, flag, string
from ._output import show, show_json, tell
from ._project import look_at_project

CHARS_MAX = 300


class Way(msgspec.Struct, frozen=True):
    """An engine that would be called: how its prompt is transformed, and how the request is sent."""

    engine: str
    transforms: tuple[str, ...]
    how: str


class Routed(msgspec.Struct, frozen=True):
    request: GatewayRequest
    guessed: bool
    decision: Decision
    tokens: int | None
    plugins: tuple[tuple[str, bool, str], ...]
    ways: tuple[Way, ...]


@click.command()
@click.argument("file", help="the body of a request as JSON; - reads it from stdin")
@flag("--explain", help="show what each rule decided, and what would happen next")
@string("--dialect", help="openai-chat, openai-responses or anthropic; by default, guessed")
@click.option("--header", multiple=True, help="a header of the request: name=value")
@as_json
def route(file: str, explain: bool, dialect: str, header: tuple[str, ...], as_json: bool) -> None:
    """Show which engine would answer a request, without calling it."""
    project, left_out = look_at_project()
    if left_out:
        tell(f"rondel: {one_line(left_out, CHARS_MAX)}")
    config = project.config if project.config.is_trusted else _without_python(project.config)
    body, guessed = _body(file), not dialect
    dialect = dialect or _guess(body)
    if dialect not in DIALECTS:
        raise ConfigError(f"there is no dialect {dialect!r}{nearest(dialect, tuple(DIALECTS))}")
    try:
        request = GatewayRequest("route", DIALECTS[dialect](), body, _headers(header))
    except EngineError as error:
        raise ConfigError(f"{'stdin' if file == '-' else file} is not a request: {error}") from None
    names = tuple(agent.name for agent in project.agents)
    routed = asyncio.run(_routed(config, request, names, guessed=guessed))
    if as_json:
        show_json(_as_json(routed))
        return
    _show(routed, explain=explain)
    for warning in (*routed.decision.warnings, *config.warnings):
        tell(f"rondel: {one_line(warning, CHARS_MAX)}")


# --- the request ------------------------------------------------------------------------------------------------------


def _body(file: str) -> bytes:
    if file == "-":
        return read_stdin()
    try:
        return read_regular(Path(file), FILE_BYTES_MAX)
    except ConfigError as error:
        said = str(error).removeprefix(f"{Path(file)}: ")
        raise ConfigError(f"{file!r} {said}") from None


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in given:
        name, found, value = item.partition("=")
        if not found or not name.strip():
            raise ConfigError(f"{item!r} is not a header; write it as name=value")
        headers[name.strip().lower()] = value.strip()
    return headers


def _guess(body: bytes) -> str:
    """Guess the dialect of a body from fields that only one of them has."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "anthropic"  # reading it reports what is wrong
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


def _without_python(config: Config) -> Config:
    """Return the configuration without its own router and the gateway's plugins, which would have to be imported."""
    routes = msgspec.structs.replace(config.gateway.routes, custom="")
    return msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, routes=routes, plugins=()))


async def _routed(config: Config, request: GatewayRequest, agents: tuple[str, ...], *, guessed: bool) -> Routed:
    default = ""
    if not config.engine and config.gateway.routes.default in (None, "", "default"):
        # An untrusted project must not learn which engines the user has: only look at what it names itself.
        looked = config if config.is_trusted else Config()
        default = next(iter(config.engines), "") if not config.is_trusted else ""
        default = default or (await pick(looked)).name
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


def _looks(plugin: Plugin, request: GatewayRequest) -> tuple[str, bool, str]:
    words = ", ".join(repr(word.decode("utf-8", "replace")) for word in plugin.looks_for)
    if not words:
        return plugin.entry or plugin.name, True, "it reads every request"
    if request.holds(*plugin.looks_for):
        return plugin.entry or plugin.name, True, f"the request contains {words}"
    return plugin.entry or plugin.name, False, f"the request does not contain {words}"


async def _way(name: str, config: Config, dialect: str, *, read: bool) -> Way:
    try:
        engine = make_engine(name, config, alone=True)
    except ConfigError as error:
        return Way(name, (), f"cannot be used: {error}")
    spoken = dialect_of(engine)
    await close(engine)
    transforms = transforms_of(name, config)
    if spoken == dialect and not read:
        return Way(name, transforms, f"passed on unchanged ({dialect})")
    return Way(name, transforms, f"translated from {dialect}")


# --- output -----------------------------------------------------------------------------------------------------------


def _show(routed: Routed, *, explain: bool) -> None:
    request, decision = routed.request, routed.decision
    chosen = f"the agent {decision.agent}" if decision.agent else ", then ".join(decision.engines)
    show(Text(f"{one_line(request.model, 80)} → {one_line(chosen, CHARS_MAX)}  ({decision.rule})"))
    show(Text(one_line(decision.why, CHARS_MAX)))
    if not explain:
        return
    show(Text(f"\n{_sentence(routed)}"))
    because = ("", "because")
    _show_rows([(s.rule, "yes" if s.applies else "no", s.reason) for s in decision.steps], Listing("rule", *because))
    ways = [(way.engine, ", ".join(way.transforms) or "none", way.how) for way in routed.ways]
    _show_rows(ways, Listing("engine", "transforms", "the request is", growing=2))
    plugins = [(name, "yes" if would else "no", reason) for name, would, reason in routed.plugins]
    _show_rows(plugins, Listing("plugin", *because))


def _show_rows(rows: list[tuple[str, str, str]], listing: Listing) -> None:
    if rows:
        for first, second, last in rows:
            listing.add_row(Text(first), second, Text(one_line(last, CHARS_MAX)))
        show(Text(""))
        show(listing)


def _sentence(routed: Routed) -> str:
    request = routed.request
    how = " (guessed; --dialect overrides it)" if routed.guessed else ""
    tokens = "unknown" if routed.tokens is None else f"{routed.tokens:,}"
    facts = [f"dialect: {request.dialect.name}{how}", f"tokens: about {tokens}"]
    facts += [f"{name}: {one_line(value, 80)}" for name, value in _who(request).items() if value]
    return "; ".join(facts)


def _who(request: GatewayRequest) -> Mapping[str, str]:
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
