"""Routes of the MCP servers: status, tools, reconnect, log-in. No route adds a server or changes what one runs."""

from __future__ import annotations

from typing import Any

from ...mcp.hub import hub_of
from ...mcp.link import Link, missing_sdk
from ...mcp.plugin import McpServers
from ...mcp.remote import Offer, Status
from ...mcp.spec import ServerSpec, login_path
from ...values import Value
from .route import Call, Done, Nothing, Problem, Route
from .work import Work, WorkInfo

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


class ServerStatus(Value, frozen=True):
    """A server: where it is, how it is, and what it offers. The state `provider` is a server that the model's provider
    connects to."""

    name: str
    type: str
    address: str
    state: str
    reason: str
    server: str
    protocol: str
    tools: int
    prompts: int
    resources: int
    problems: tuple[str, ...]
    required: bool
    approval: str
    has_login: bool
    login: WorkInfo | None = None


class ServerTool(Value, frozen=True):
    """A tool as its server describes it. `approval` is `new`, `approved` or `changed` since it was approved."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool
    approval: str


def _links(call: Call[Any, Any]) -> dict[str, Link]:
    return {link.spec.name: link for link in hub_of(call.app).links}


def _specs(call: Call[Any, Any]) -> dict[str, ServerSpec]:
    plugins = [plugin for plugin in call.app.registry.plugins if isinstance(plugin, McpServers)]
    return {spec.name: spec for plugin in plugins for spec in plugin.specs}


def _spec(call: Call[Any, Any]) -> ServerSpec:
    name = call.path("server")
    spec = _specs(call).get(name)
    if spec is None:
        raise Problem(404, f"there is no MCP server {name[:80]!r}")
    return spec


def _link(call: Call[Any, Any]) -> Link:
    spec = _spec(call)
    link = _links(call).get(spec.name)
    if link is None:
        raise Problem(409, f"the MCP server {spec.name!r} is not connected here")
    return link


async def list_servers(call: Call[Nothing, Nothing]) -> tuple[ServerStatus, ...]:
    links = _links(call)
    return tuple(_status(call, spec, links.get(spec.name)) for spec in _specs(call).values())


def _status(call: Call[Any, Any], spec: ServerSpec, link: Link | None) -> ServerStatus:
    kind = "stdio" if spec.command else "provider" if spec.is_remote else "http"
    login = call.web.works.info(_key(spec))
    stored = link is not None and link.logins is not None and login_path(link.logins, spec).exists()
    if link is not None:
        status, offer = link.status, link.offer
        state, reason = status.state, status.reason
    else:  # all others are connected when the app starts
        status, offer = Status(), Offer()
        state, reason = "provider", "the model's provider connects to it"
    return ServerStatus(
        spec.name,
        kind,
        spec.address,
        state,
        reason,
        status.server,
        status.protocol,
        len(offer.tools),
        len(offer.prompts),
        len(offer.resources),
        offer.problems,
        spec.required,
        spec.approval,
        stored,
        login,
    )


async def tools(call: Call[Nothing, Nothing]) -> tuple[ServerTool, ...]:
    link = _link(call)

    def approval(name: str, digest: str) -> str:
        pin = link.pins.get(name)
        return "new" if pin is None else "approved" if pin.digest == digest else "changed"

    return tuple(
        ServerTool(tool.name, tool.description, tool.schema, tool.read_only, approval(tool.name, tool.digest))
        for tool in link.offer.tools
    )


async def reconnect(call: Call[Nothing, Nothing]) -> Done:
    _link(call).retry()
    return Done()


# --- log-in -----------------------------------------------------------------------------------------------------------


def _key(spec: ServerSpec) -> str:
    return f"log-in {spec.name}"


def _tokens(link: Link) -> Any:
    try:
        from ...mcp.login import TokenFile
    except ImportError:
        raise Problem(409, missing_sdk()) from None
    if link.logins is None or not link.spec.url:
        raise Problem(400, f"the MCP server {link.spec.name!r} has no log-in")
    return TokenFile(link.logins, link.spec)


async def log_in(call: Call[Nothing, Nothing]) -> WorkInfo:
    link = _link(call)
    spec, tokens = link.spec, _tokens(link)
    if (call.request.url.hostname or "") not in LOOPBACK:
        # The log-in ends with a redirect to the machine that runs Rondel.
        raise Problem(409, f"log in on the machine that runs Rondel: `rondel mcp login {spec.name}`")
    from ...mcp.login import login

    async def run(work: Work) -> str:
        await login(spec, tokens, work.at_link)
        link.retry()
        return f"Logged in to {spec.name}."

    return call.web.works.start(_key(spec), run)


async def cancel_log_in(call: Call[Nothing, Nothing]) -> Done:
    call.web.works.cancel(_key(_spec(call)))
    return Done()


async def log_out(call: Call[Nothing, Nothing]) -> Done:
    link = _link(call)
    if not _tokens(link).delete():
        raise Problem(409, f"there is no log-in to {link.spec.name!r}")
    link.retry()
    return Done()


_SERVER = "/api/mcp/{server}"
ROUTES = (
    Route("GET", "/api/mcp", list_servers, "List the MCP servers and how each is.", "admin",
          returns=tuple[ServerStatus, ...]),
    Route("GET", f"{_SERVER}/tools", tools, "List the tools of an MCP server.", "admin",
          returns=tuple[ServerTool, ...]),
    Route("POST", f"{_SERVER}/reconnect", reconnect, "Connect to an MCP server again now.", "admin"),
    Route("POST", f"{_SERVER}/login", log_in, "Log in to an MCP server; its status has the link.", "admin",
          returns=WorkInfo),
    Route("DELETE", f"{_SERVER}/login", log_out, "Delete the log-in of an MCP server.", "admin"),
    Route("POST", f"{_SERVER}/cancel", cancel_log_in, "Cancel a log-in.", "admin"),
)  # fmt: skip
