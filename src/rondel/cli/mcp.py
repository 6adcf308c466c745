"""`rondel mcp`: the MCP servers of the project, and the project as an MCP server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import click
import msgspec
from rich.text import Text

from ..contracts.command import Table
from ..errors import ConfigError, RondelError, nearest
from ..files.private import state_folder
from ..mcp.hub import Hub
from ..mcp.link import Link, missing_sdk
from ..mcp.spec import ServerSpec
from ..project.config import process_environment
from ..project.settings import Config
from ..surfaces.terminal.views import render
from ..text.printable import visible_line
from ..values import Media
from ._options import CommandGroup, as_json, flag
from ._output import show, show_json, tell, write_json
from ._project import load_project, open_app
from ._trust import load_config, look_at_config, not_looked_at

server_name = click.argument("name", help="the server's name in rondel.toml or .mcp.json")
FAILED = 1
LINE_CHARS = 300


@click.group(cls=CommandGroup)
def mcp() -> None:
    """Manage MCP servers, or serve the agents as one."""


# --- servers ----------------------------------------------------------------------------------------------------------


@mcp.command(name="list")
@as_json
def list_servers(as_json: bool) -> None:
    """List the servers of the project, without starting one."""
    config = look_at_config()
    if not config.is_trusted:
        tell(f"Note: {not_looked_at(config)}")
    for warning in config.warnings:
        tell(f"Warning: {warning}")
    if as_json:
        show_json([_described(spec) for spec in config.mcp])
    elif not config.mcp:
        tell("There are no MCP servers; add one to rondel.toml: [mcp.NAME] with a command or a url.")
    else:
        rows = tuple((spec.name, _kind(spec), _line(_where(spec))) for spec in config.mcp)
        show(render(Table(rows, ("server", "", "where"))))


@mcp.command()
@click.argument("name", default="", help="one server; by default, all of them")
@as_json
def test(name: str, as_json: bool) -> int:
    """Connect to the servers and show what each offers, or why it fails."""
    config = load_config()
    found = asyncio.run(_tested(config, [_find(config, name)] if name else list(config.mcp)))
    if as_json:
        show_json(found)
    else:
        rows = tuple((row["name"], row["state"], _line(row["about"])) for row in found)
        show(render(Table(rows, ("server", "state", "")))) if rows else tell("There are no MCP servers.")
    return 0 if all(row["state"] == "ready" for row in found) else FAILED


@mcp.command()
@server_name
@as_json
def tools(name: str, as_json: bool) -> None:
    """List the tools of a server, with their descriptions."""
    config = load_config()

    async def listed() -> list[dict[str, Any]]:
        async with _connected(config, [_find(config, name)]) as (link,):
            await link.session()
            return [
                {"name": tool.name, "description": tool.description, "schema": tool.schema} for tool in link.offer.tools
            ]

    found = asyncio.run(listed())
    if as_json:
        show_json(found)
        return
    rows = tuple((_line(tool["name"]), _line(tool["description"])) for tool in found)
    show(render(Table(rows, ("tool", "")))) if rows else tell(f"{name} has no tools.")


@mcp.command()
@server_name
@click.argument("tool", help="the tool's name, as the server calls it")
@click.argument("arguments", default="{}", help="its arguments, as a JSON object")
def call(name: str, tool: str, arguments: str) -> int:
    """Call a tool of a server and print its result."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"the arguments are not a JSON object: {error}") from None
    config = load_config()
    return asyncio.run(_called(config, _find(config, name), tool, given))


@mcp.command()
@server_name
def login(name: str) -> None:
    """Log in to a server: print a link and wait for the login."""
    config = load_config()
    spec = _with_url(_find(config, name))
    module = _login_module()
    tokens = module.TokenFile(state_folder() / "mcp", spec)
    asyncio.run(module.login(spec, tokens, _show_link(name)))
    tell(f"Logged in to {name}.")


@mcp.command()
@server_name
def logout(name: str) -> None:
    """Delete the stored login of a server."""
    spec = _with_url(_find(load_config(), name))
    deleted = _login_module().TokenFile(state_folder() / "mcp", spec).delete()
    tell(f"Logged out of {name}." if deleted else f"There is no login to {name}.")


# --- the project as a server ------------------------------------------------------------------------------------------


@mcp.command()
@click.argument("agent", default="", help="serve only this agent; by default, all of the project")
@flag("--list", "list_them", help="print what would be served, and exit")
def serve(agent: str, list_them: bool) -> int:
    """Serve the agents as MCP tools, on stdin and stdout."""
    project = load_project()
    if agent:
        project.agent_name(agent)  # raises for a wrong name
    names = [agent] if agent else [one.name for one in project.agents] or [project.agent_name("")]
    if list_them:
        show(Text("\n".join(names)))
        return 0
    return asyncio.run(_serve(project, names))


async def _serve(project: Any, names: list[str]) -> int:
    try:
        from ..mcp.server import make_server
    except ImportError:
        raise ConfigError(missing_sdk()) from None
    # stdout belongs to the protocol: nothing else may write there.
    async with open_app(project, names[0], recover=False) as opened:

        def allows(key: str, name: str) -> bool:
            return name.startswith("knowledge:") or name.removeprefix("agent:") in names

        await make_server(opened.app, allows=allows).serve_stdio()
    return 0


# --- helpers ----------------------------------------------------------------------------------------------------------


def _find(config: Config, name: str) -> ServerSpec:
    known = {spec.name: spec for spec in config.mcp}
    if name not in known:
        hint = nearest(name, tuple(known)) if known else "; add it to rondel.toml: [mcp.NAME] with a command or a url"
        raise ConfigError(f"there is no MCP server {name!r}{hint}")
    return known[name]


def _with_url(spec: ServerSpec) -> ServerSpec:
    if not spec.url:
        raise ConfigError(f"the MCP server {spec.name!r} runs on this machine, so it has no login")
    return spec


def _login_module() -> Any:
    try:
        from ..mcp import login
    except ImportError:
        raise ConfigError(missing_sdk()) from None
    return login


def _line(text: object) -> str:
    return visible_line(" ".join(str(text).split()))[:LINE_CHARS]


def _show_link(name: str) -> Callable[[str], None]:
    return lambda url: tell(f"Open this link to log in to {name}:\n\n  {visible_line(url)}\n")


def _kind(spec: ServerSpec) -> str:
    return "stdio" if spec.command else "provider or http" if spec.native else "http"


def _where(spec: ServerSpec) -> str:
    return " ".join((spec.command, *spec.args)) if spec.command else spec.address


def _described(spec: ServerSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "type": _kind(spec),
        "where": _where(spec),
        "required": spec.required,
        "approval": spec.approval,
    }


@contextlib.asynccontextmanager
async def _connected(config: Config, specs: list[ServerSpec]) -> AsyncGenerator[list[Link]]:
    from ..stores.memory import MemoryStore

    env = process_environment(config, os.environ)
    logins = state_folder() / "mcp"
    async with Hub().connect(specs, store=MemoryStore(), env=env, folder=config.project, logins=logins) as links:
        yield links


async def _tested(config: Config, specs: list[ServerSpec]) -> list[dict[str, Any]]:
    async with _connected(config, specs) as links:
        for link in links:
            await link.settled(2 * link.spec.connect_s + 5)
        return [_result(link) for link in links]


def _result(link: Link) -> dict[str, Any]:
    status, offer = link.status, link.offer
    if status.state != "ready":
        return {"name": link.spec.name, "state": status.state, "about": status.reason or "it did not answer"}
    counts = ((len(offer.tools), "tool"), (len(offer.prompts), "prompt"), (len(offer.resources), "resource"))
    offers = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count) or "nothing"
    problems = "".join(f"; {problem}" for problem in offer.problems)
    about = f"{offers} ({status.server or 'no name'}, protocol {status.protocol}){problems}"
    return {"name": link.spec.name, "state": "ready", "about": about, "tools": len(offer.tools)}


async def _called(config: Config, spec: ServerSpec, tool: str, arguments: dict[str, Any]) -> int:
    async with _connected(config, [spec]) as (link,):
        session = await link.session()
        if link.tool(tool) is None:
            names = tuple(one.name for one in link.offer.tools)
            raise RondelError(f"the MCP server {spec.name!r} has no tool {tool!r}{nearest(tool, names)}")
        limit = spec.timeout_s or config.limits.call_s
        try:
            async with asyncio.timeout(limit):
                result = await session.call_plainly(tool, arguments, lambda text, share: tell(_line(text)))
        except TimeoutError:
            raise RondelError(f"{tool!r} did not finish within {limit:g} s") from None
    parts = cast("tuple[Any, ...]", getattr(result, "parts", ()))
    for part in parts:
        if isinstance(part, Media):
            tell(f"({part.kind}, {part.mime}, {len(part.data):,} bytes)")
        else:
            write_json(part.text) if part.text.startswith("{") else show(Text(part.text))
    if not parts:
        tell(str(result))
    return FAILED if getattr(result, "is_error", False) else 0
