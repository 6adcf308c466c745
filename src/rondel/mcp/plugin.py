"""The plugin that gives an agent the tools, prompts and resources of MCP servers.

    plugins: [{mcp: {servers: {files: {command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", "."]}}}}]

Servers connect in the background, so they do not slow down an agent's start. The first prompt waits for them a moment;
later ones use what is connected. If a server is down, only its own tools are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..contracts.command import Command
from ..engine import dialect_of
from ..errors import RondelError, ToolError
from ..files.private import state_folder
from ..machine.turn import Turn
from ..plugin import Key, Plugin
from ..prompt import Prompt
from ..question import NO, QUOTE_BAR, YES, Hold, Question, is_yes
from ..text.printable import visible_line, visible_lines
from ..tool import Approval, CallContext, Tool, error_of
from ..values import ToolCall, ToolResult, ToolSpec
from .asking import Asker
from .commands import prompt_command, servers_command
from .hub import hub_of
from .link import Link
from .meaning import Meanings
from .names import PREFIX, tool_name
from .native import native_tool
from .pins import as_approved, pin
from .remote import RemoteTool
from .search import Catalog, found_tools, search_tool
from .spec import ServerSpec, read_block

if TYPE_CHECKING:
    from ..app.app import App

SHARE = 0.1
WINDOW_TOKENS = 32_000  # assumed for a model whose window is unknown
WAIT_S = 30.0  # how long the first prompt waits for servers that are still being connected
QUIET_S = 5.0  # how long it waits before it says so
CONFIRM = Approval()

UNAVAILABLE: Key[list[str]] = Key("mcp.unavailable", list)
"""The names of the servers that were not available in this turn, for other plugins."""


class McpServers(Plugin):
    """Gives an agent the tools, prompts and resources of MCP servers. They connect in the background.

    Args:
        servers: a `mcpServers` block as other programs use it
        share: the share of the model's window that the schemas of all tools may take; above it, the model gets a tool
            that searches them
        logins: the folder of stored logins; by default, one in the user's state folder
    """

    name = "mcp"

    def __init__(
        self,
        servers: dict[str, Any] | list[dict[str, Any]] | None = None,
        *,
        share: float = SHARE,
        logins: str = "",
        project: str = "",
    ) -> None:
        if not 0 < share <= 1:
            raise RondelError(f"share is {share!r}; it must be more than 0, and at most 1")
        specs, self.warnings = read_block(servers or {})
        self.specs: tuple[ServerSpec, ...] = tuple(specs)
        self._share, self._project = share, project
        self._logins = Path(logins) if logins else state_folder() / "mcp"
        self._links: list[Link] = []
        self._catalogs: tuple[tuple[object, ...], Catalog, Tool] | None = None
        self._meanings = Meanings()
        self._life = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._app: App | None = None
        self._has_waited = False
        self._told: dict[str, str] = {}

    @classmethod
    def of(
        cls, specs: Sequence[ServerSpec], *, share: float = SHARE, project: str = "", logins: str = ""
    ) -> McpServers:
        """Return the plugin for checked servers. If a required one is not available, a turn fails."""
        made = RequiredMcpServers if any(spec.required for spec in specs) else McpServers
        plugin = made(share=share, project=project, logins=logins)
        plugin.specs = tuple(specs)
        return plugin

    @property
    def links(self) -> list[Link]:
        """The servers that this plugin has connected, or is connecting."""
        return self._links

    @property
    def commands(self) -> Sequence[Command]:  # type: ignore[override]
        prompts = [prompt_command(link, prompt) for link in self._links for prompt in link.offer.prompts]
        return (servers_command(self), *prompts)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as life:
            self._app, self._life, self._links = app, life, []
            life.push_async_callback(self._meanings.aclose)
            await self._connect([spec for spec in self.specs if not spec.is_remote])
            try:
                yield
            finally:
                self._app = None

    async def _connect(self, specs: Sequence[ServerSpec]) -> None:
        app = self._app
        if app is None or not specs:
            return
        connecting = hub_of(app).connect(
            specs, store=app.store, env=app.environment, folder=self._project, logins=self._logins
        )
        self._links = [*self._links, *await self._life.enter_async_context(connecting)]

    # --- a turn -------------------------------------------------------------------------------------------------------

    async def on_turn_start(self, turn: Turn) -> None:
        if any(call.name.startswith(PREFIX) for call in turn.unanswered_calls()):
            await self._ready(turn)  # a call that was interrupted or held runs before any prompt
            turn.offer(self.name, self._catalog(turn)[0].tools)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        if not turn.previewing:
            await self._ready(turn)
        catalog, search = self._catalog(turn)
        turn.offer(
            self.name, catalog.tools if not self._is_large(turn, catalog) else {**catalog.tools, search.name: search}
        )
        own = {spec.name for spec in prompt.tools}
        offered = self._specs(turn, catalog, search)
        added = [spec for spec in offered if spec.name not in own]
        for spec in offered:
            if spec.name in own:
                await turn.warn(self.name, f"the agent has a tool named {spec.name!r}, so the server's is not offered")
        added += self._passed_on(turn).values()
        prompt = prompt.replace(tools=(*prompt.tools, *added)) if added else prompt
        return await self._with_note(turn, prompt)

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        if call.name not in turn.tools and call.name.startswith(PREFIX):
            for link in self._links:
                if call.name.startswith(f"{PREFIX}{link.spec.name}-") and not link.is_ready:
                    reason = link.status.reason or "it is still being connected"
                    return error_of(call, f"the MCP server {link.spec.name!r} is not available: {reason}")
        return call

    async def _ready(self, turn: Turn) -> None:
        """Connect the servers that this turn's engine does not connect to itself, and wait for them, once."""
        async with self._opening:
            known = {link.spec.name for link in self._links} | self._passed_on(turn).keys()
            await self._connect([spec for spec in self.specs if spec.name not in known])
        if not self._has_waited:
            self._has_waited = True
            if pending := await self._unsettled(min(QUIET_S, WAIT_S)):
                await turn.warn(self.name, f"waiting for the MCP servers: {', '.join(pending)}")
                await self._unsettled(WAIT_S - QUIET_S)
        for link in self._served(turn):
            await link.reconnected()
            if link.spec.required and not link.is_ready:
                await link.session()  # waits for it, or raises with the reason

    async def _unsettled(self, seconds: float) -> list[str]:
        """Wait until all servers have connected or failed. Return the names of those that take longer."""
        until = asyncio.get_running_loop().time() + seconds
        return [
            link.spec.name
            for link in self._links
            if not await link.settled(max(0.0, until - asyncio.get_running_loop().time()))
        ]

    def _catalog(self, turn: Turn) -> tuple[Catalog, Tool]:
        """Return the tools of all servers that we connect to, rebuilt only if a server has changed."""
        links = self._served(turn)
        key = tuple((link.spec.name, link.version, link.is_ready) for link in links)
        if self._catalogs is None or self._catalogs[0] != key:
            servers = [spec.name for spec in self.specs]
            tools: dict[str, Tool] = {}
            for link in links:
                for remote in link.offer.tools if link.is_ready else ():
                    made = self._tool(link, remote, servers)
                    tools.setdefault(made.name, made)
            catalog = Catalog(tools)
            self._catalogs = key, catalog, search_tool(catalog, self._meanings)
        return self._catalogs[1], self._catalogs[2]

    def _is_large(self, turn: Turn, catalog: Catalog) -> bool:
        return catalog.tokens > self._share * (turn.engine.facts.window_tokens or WINDOW_TOKENS)

    def _specs(self, turn: Turn, catalog: Catalog, search: Tool) -> list[ToolSpec]:
        if not self._is_large(turn, catalog):
            return list(catalog.specs.values())
        return [search.spec, *(catalog.specs[name] for name in found_tools(turn, catalog))]

    def _passed_on(self, turn: Turn) -> dict[str, ToolSpec]:
        """Return the servers that the engine connects to itself, in its own form, by name."""
        if not turn.engine.facts.remote_mcp:
            return {}
        tools = ((spec.name, native_tool(spec)) for spec in self.specs)
        dialect = dialect_of(turn.engine)
        return {name: tool for name, tool in tools if tool is not None and dialect in tool.opaque}

    def _served(self, turn: Turn) -> list[Link]:
        """Return the servers that our own client connects to in this turn."""
        passed_on = self._passed_on(turn)
        return [link for link in self._links if link.spec.name not in passed_on] if passed_on else self._links

    async def _with_note(self, turn: Turn, prompt: Prompt) -> Prompt:
        missing = [link for link in self._served(turn) if not link.is_ready]
        turn.state[UNAVAILABLE] = [link.spec.name for link in missing]
        if not missing:
            self._told.clear()
            return prompt
        for link in missing:
            reason = link.status.reason or "it is still being connected"
            if self._told.get(link.spec.name) != reason:  # people are told about each change once
                self._told[link.spec.name] = reason
                await turn.warn(self.name, f"the MCP server {link.spec.name!r} is not available: {reason}")
        return prompt.instruct(unavailable_note([link.spec.name for link in missing]), id="mcp-status")

    # --- a tool -------------------------------------------------------------------------------------------------------

    def _tool(self, link: Link, remote: RemoteTool, servers: Sequence[str]) -> Tool:
        spec, shown = link.spec, as_approved(link, remote)
        return Tool(
            name=tool_name(spec.name, remote.name, servers),
            run=partial(self._run, link, remote.name),
            description=shown.description,
            schema=shown.schema,
            timeout_s=spec.timeout_s,
            approval=CONFIRM if _asks(spec, remote.name) else None,
            tags=("mcp",),
            origin=f"mcp:{link.identity}:{remote.name}",
        )

    async def _run(self, link: Link, name: str, arguments: dict[str, Any], context: CallContext) -> Any:
        remote = link.tool(name)
        if remote is None:
            await link.session()  # raises with the reason if the server has gone
            raise ToolError(f"the MCP server {link.spec.name!r} no longer has the tool {name!r}")
        if (refusal := await self._check_pin(link, remote, context)) is not None:
            return refusal
        asker = await Asker.open(link.spec, context)
        result = await link.call(name, arguments, asker, context.progress)
        if isinstance(result, Hold):
            await asker.save()
        else:
            await asker.close()
        return result

    async def _check_pin(self, link: Link, remote: RemoteTool, context: CallContext) -> Hold | ToolResult | None:
        """Pin a tool that is used for the first time; ask about one that has changed since it was approved."""
        known, store = link.pins.get(remote.name), context.turn.services.store
        if known is not None and known.digest != remote.digest:
            id = f"mcp-changed:{context.call.id}:{remote.digest[:16]}"
            answer = context.turn.answer_to(context.call.id, id)
            if answer is None:
                return Hold(
                    Question(id, "approve", _changed(link, remote), (YES, NO), False, context.call.id, None, NO)
                )
            if not is_yes(answer.text):
                return error_of(context.call, "not run: the tool's description has changed, and the user refused it")
        if known is None or known.digest != remote.digest:
            await pin(store, link, remote)
        return None


class RequiredMcpServers(McpServers):
    """Like McpServers, with a server that must be available: otherwise a turn fails."""

    name = "mcp"
    required = True


def unavailable_note(servers: Sequence[str]) -> str:
    names = ", ".join(servers)
    return (
        f"MCP status: these servers were not available, so their tools were not used: {names}. If their tools were "
        "needed for what the user asked, tell the user so."
    )


def _asks(spec: ServerSpec, tool: str) -> bool:
    """Return whether a person is asked before each call. The server's own words about its tools do not count."""
    if any(fnmatchcase(tool, pattern) for pattern in spec.ask):
        return True
    return spec.approval == "confirm" and not any(fnmatchcase(tool, pattern) for pattern in spec.allow)


def _changed(link: Link, remote: RemoteTool) -> str:
    schema = msgspec.json.encode(remote.schema).decode()
    lines = [f"{QUOTE_BAR}{line}" for text in (remote.description, schema) for line in visible_lines(text)]
    said = "\n".join(lines)
    return (
        f"The MCP server {link.spec.name} has changed its tool {visible_line(remote.name)} since you approved it. It "
        f"says now:\n{said}\nMay it be used like this from now on?"
    )
