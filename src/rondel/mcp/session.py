"""One open connection to a server, through the SDK: what it offers, and calls of its tools.

Importing this module imports the SDK, which takes a second: link.py does that in a thread, for the first server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
import msgspec
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from .. import __version__
from ..errors import RondelError, ToolError
from ..question import Hold
from ..tool import NoResult
from ..values import Media, Text, ToolResult
from .asking import Asker, Declined, Json, ServerRequest
from .http import HttpTransport
from .login import TokenFile, login_problem
from .process import Watchdog
from .remote import (
    PROMPTS_MAX,
    RESOURCES_MAX,
    TOOLS_MAX,
    ConnectionLost,
    Offer,
    RemotePrompt,
    RemoteResource,
    RemoteTool,
    checked_tool,
    cut,
)
from .results import parts_of, resource_part, result_of
from .spec import ServerSpec
from .stdio import StdioTransport

# The SDK logs what we report ourselves. Without a handler, Python would print it to the terminal.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

PAGES_MAX = 100
CLOSED = -32_000
STATE_ONLY_S = 0.25  # the pause before a call is repeated for which the server asked nothing
REFRESH_S = 0.5  # the shortest time between two listings of a server that reports changes
_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

Progress = Callable[[str, float | None], None]


class _Call:
    """A call in progress: who answers the server's questions about it, and how to abandon it."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.scope = anyio.CancelScope()
        self.hold: Hold | None = None


class Session:
    def __init__(self, spec: ServerSpec, transport: StdioTransport | HttpTransport) -> None:
        self._spec, self._transport = spec, transport
        self._calls: list[_Call] = []
        self._alone = asyncio.Lock()
        self._asks_blindly = False  # it asked while calls of several conversations were open
        self._changed = asyncio.Event()
        self.broken = asyncio.Event()
        self.client = Client(
            cast(Any, transport.open()),
            client_info=types.Implementation(name="rondel", version=__version__),
            elicitation_callback=cast(Any, self._elicit),
            sampling_callback=cast(Any, self._sample) if spec.sampling else None,
            message_handler=self._on_message,
            cache=None,
        )

    # --- what it is and what it offers --------------------------------------------------------------------------------

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def about(self) -> str:
        info = self.client.server_info
        return cut(f"{info.name} {info.version}".strip(), 100) if info is not None else ""

    @property
    def is_open(self) -> bool:
        return not (self._transport.ended.is_set() or self.broken.is_set())

    @property
    def lost_reason(self) -> str:
        return self._transport.reason or "the connection ended"

    async def offer(self) -> Offer:
        """List everything that the server offers. Only the listing of tools must work; the rest is left out if it
        fails."""
        has, problems = self.client.server_capabilities, list[str]()
        tools = await self._tools(problems) if has.tools is not None else ()
        prompts: tuple[RemotePrompt, ...] = ()
        resources: tuple[RemoteResource, ...] = ()
        try:
            prompts = await self._prompts() if has.prompts is not None else ()
            resources = await self._resources() if has.resources is not None else ()
        except (MCPError, ValidationError, RuntimeError) as error:
            problems.append(f"its prompts or resources cannot be listed: {explain(error)}")
        return Offer(tools, prompts, resources, cut(self.client.instructions or "", 4_000), tuple(problems[:20]))

    async def _tools(self, problems: list[str]) -> tuple[RemoteTool, ...]:
        found: dict[str, RemoteTool] = {}
        for tool in await _pages(lambda cursor: self.client.list_tools(cursor=cursor), lambda page: page.tools):
            if len(found) >= TOOLS_MAX:
                problems.append(f"it has more than {TOOLS_MAX:,} tools; the rest is left out")
                break
            hints = tool.annotations
            made = checked_tool(
                tool.name, tool.description or tool.title or "", tool.input_schema,
                read_only=bool(hints is not None and hints.read_only_hint),
            )  # fmt: skip
            if isinstance(made, str):
                problems.append(made)
            elif made.name in found:
                problems.append(f"it has two tools named {made.name[:60]!r}; the second one is left out")
            else:
                found[made.name] = made
        wanted = self._spec.allowed_tools
        return tuple(tool for tool in found.values() if wanted is None or tool.name in wanted)

    async def _prompts(self) -> tuple[RemotePrompt, ...]:
        listed = await _pages(lambda cursor: self.client.list_prompts(cursor=cursor), lambda page: page.prompts)
        return tuple(
            RemotePrompt(
                prompt.name[:100],
                cut(prompt.description or "", 300),
                tuple((argument.name[:60], bool(argument.required)) for argument in prompt.arguments or ()),
            )
            for prompt in listed[:PROMPTS_MAX]
        )

    async def _resources(self) -> tuple[RemoteResource, ...]:
        listed = await _pages(lambda cursor: self.client.list_resources(cursor=cursor), lambda page: page.resources)
        return tuple(
            RemoteResource(str(one.uri)[:2_000], one.name[:200], cut(one.description or "", 300), one.mime_type or "")
            for one in listed[:RESOURCES_MAX]
        )

    async def watch(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Call `changed` when the server says that its lists have changed, until the connection ends."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen()) if self.is_modern else None
            refreshing = group.create_task(self._refresh(changed))
            ended = group.create_task(self._transport.ended.wait())
            broken = group.create_task(self.broken.wait())
            await asyncio.wait((ended, broken), return_when=asyncio.FIRST_COMPLETED)
            for task in (listening, refreshing, ended, broken):
                if task is not None:
                    task.cancel()

    async def _refresh(self, changed: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await changed()
            except (MCPError, ValidationError, RuntimeError):
                self.broken.set()
            await asyncio.sleep(REFRESH_S)

    async def _listen(self) -> None:
        has = self.client.server_capabilities
        tools = bool(has.tools and has.tools.list_changed)
        prompts = bool(has.prompts and has.prompts.list_changed)
        resources = bool(has.resources and has.resources.list_changed)
        if not (tools or prompts or resources):
            return
        # A server may promise to report changes and never do: then its lists stay the same.
        with contextlib.suppress(MCPError, RuntimeError, TimeoutError, ConnectionError):
            async with self.client.listen(
                tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
            ) as subscription:
                async for _ in subscription:
                    self._changed.set()

    async def _on_message(self, message: object) -> None:
        if isinstance(
            message,
            types.ToolListChangedNotification
            | types.PromptListChangedNotification
            | types.ResourceListChangedNotification,
        ):
            self._changed.set()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self, tool: str, arguments: dict[str, Any], asker: Asker, progress: Progress
    ) -> ToolResult | NoResult | Hold:
        """Call a tool. Raises ToolError with what the server said, and ConnectionLost."""
        async with self._alone if self._asks_blindly else contextlib.nullcontext():
            return await self._called(tool, arguments, asker, progress)

    async def call_plainly(self, tool: str, arguments: dict[str, Any], progress: Progress) -> ToolResult | NoResult:
        """Call a tool without a turn, as the command line does: a server that asks something gets no answer."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            tell(cut(message or "", 200), None)

        tell = progress
        try:
            params = types.CallToolRequestParams(name=tool, arguments=arguments)
            result = await self.client.session.send_request(
                types.CallToolRequest(params=params), cast(Any, _RESULT), progress_callback=on_progress
            )
        except MCPError as error:
            raise self._failure(error) from None
        except ValidationError:
            raise ToolError(
                f"the MCP server {self._spec.name!r} answered with something that is not a result"
            ) from None
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(f"{tool!r} asks a question first; call it in a chat")
        return result_of(cast(types.CallToolResult, result))

    async def _called(
        self, tool: str, arguments: dict[str, Any], asker: Asker, progress: Progress
    ) -> ToolResult | NoResult | Hold:
        waiting, answered = asker.waiting, dict[str, Json]()
        if waiting.requests:  # a person has answered
            found = await self._responses(asker)
            if isinstance(found, Hold):
                return found
            if self.is_modern:
                answered = found
            else:
                asker.begin_again()
        state = waiting.state if self.is_modern else None
        while True:
            try:
                result = await self._send(tool, arguments, answered, state, asker, progress)
            except MCPError as error:
                if state is None or not asker.waiting.given:
                    raise self._failure(error) from None
                # A restarted server may not know its own state: start again with the same answers.
                answered, state = {}, None
                result = await self._sent_again(tool, arguments, asker, progress)
            if not isinstance(result, types.InputRequiredResult):
                return result if isinstance(result, Hold) else result_of(result)
            requests = {key: _server_request(given) for key, given in (result.input_requests or {}).items()}
            asker.next_round(requests, result.request_state)
            if not requests:
                await asyncio.sleep(STATE_ONLY_S)
                answered, state = {}, result.request_state
                continue
            found = await self._responses(asker)
            if isinstance(found, Hold):
                return found
            answered, state = found, result.request_state

    async def _responses(self, asker: Asker) -> dict[str, Json] | Hold:
        """Return the responses to the open requests, and remember them; or return the question that must be answered
        first."""
        answered: dict[str, Json] = {}
        for key, request in asker.waiting.requests.items():
            response = asker.replay(request)
            if response is None:
                try:
                    found = await asker.respond(request)
                except Declined as error:
                    raise ToolError(
                        f"the MCP server {self._spec.name!r} asked for something that Rondel refused: {error}"
                    ) from None
                if isinstance(found, Hold):
                    return found
                asker.remember(request, response := found)
            answered[key] = response
        asker.waiting.requests = {}
        return answered

    async def _sent_again(
        self, tool: str, arguments: dict[str, Any], asker: Asker, progress: Progress
    ) -> types.CallToolResult | types.InputRequiredResult | Hold:
        asker.begin_again()
        try:
            return await self._send(tool, arguments, {}, None, asker, progress)
        except MCPError as error:
            raise self._failure(error) from None

    async def _send(
        self,
        tool: str,
        arguments: dict[str, Any],
        answered: dict[str, Json],
        state: str | None,
        asker: Asker,
        tell: Progress,
    ) -> types.CallToolResult | types.InputRequiredResult | Hold:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            tell(cut(message or "", 200), min(1.0, max(0.0, progress / total)) if total else None)

        given = {"name": tool, "arguments": arguments, "inputResponses": answered or None, "requestState": state}
        params = types.CallToolRequestParams.model_validate({k: v for k, v in given.items() if v is not None})
        call = _Call(asker)
        self._calls.append(call)
        try:
            with call.scope:
                # Not `call_tool`, which checks the result against the tool's own schema: that would run a stranger's
                # regular expressions on the event loop.
                return await self.client.session.send_request(
                    types.CallToolRequest(params=params), cast(Any, _RESULT), progress_callback=on_progress
                )
            if call.hold is None:
                raise ConnectionLost("the call was cancelled", was_sent=True)
            return call.hold
        except ValidationError:
            raise ToolError(
                f"the MCP server {self._spec.name!r} answered with something that is not a result"
            ) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError) as error:
            self.broken.set()
            raise ConnectionLost(self._transport.reason or explain(error), was_sent=True) from None
        finally:
            self._calls.remove(call)

    def _failure(self, error: MCPError) -> RondelError:
        """Return the error that a protocol error means: a lost connection, or the server's own answer."""
        transport, said = self._transport, cut(error.error.message, 1_000)
        if error.error.code == CLOSED:
            self.broken.set()
            return ConnectionLost(transport.reason or said, was_sent=True)
        if isinstance(transport, HttpTransport) and (transport.status or said == "Session terminated"):
            status, transport.status = transport.status, 0
            if transport.needs_login:
                self.broken.set()
                return login_problem(self._spec, transport.login_failure)
            if status >= 500 or status in (404, 408, 409, 424, 429):
                if status in (404, 503):
                    self.broken.set()
                return ConnectionLost(f"it answered with HTTP {status}", was_sent=status not in (404, 429, 503))
        return ToolError(f"the MCP server {self._spec.name!r} refused the call: {said}")

    # --- what the server asks -----------------------------------------------------------------------------------------

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> object:
        found = await self._answer_in_call(ServerRequest("elicitation/create", _dumped(params)))
        return types.ElicitResult.model_validate(found if isinstance(found, dict) else {"action": "cancel"})

    async def _sample(self, context: ClientRequestContext, params: types.CreateMessageRequestParams) -> object:
        found = await self._answer_in_call(ServerRequest("sampling/createMessage", _dumped(params)))
        if isinstance(found, dict):
            return types.CreateMessageResult.model_validate(found)
        return types.ErrorData(code=-1, message=found or "the user is being asked")

    async def _answer_in_call(self, request: ServerRequest) -> Json | str:
        """Answer a request that an older server makes during a call, or abandon the call until a person has answered.
        The protocol does not say which call it belongs to."""
        calls = [call for call in self._calls if call.hold is None]
        if len({call.asker.conversation for call in calls}) != 1:
            # From now on one call at a time, so that no person gets another person's question.
            self._asks_blindly = bool(calls)
            return "it is not known which call this belongs to; try again"
        call = calls[0]
        if (known := call.asker.replay(request)) is not None:
            return known
        try:
            call.asker.next_round({"": request}, None)
            found = await call.asker.respond(request)
        except (Declined, RondelError) as error:
            return str(error)
        if not isinstance(found, Hold):
            call.asker.remember(request, found)
            return found
        call.hold = found
        call.scope.cancel()
        return ""

    # --- prompts and resources ----------------------------------------------------------------------------------------

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> list[tuple[str, tuple[Text | Media, ...]]]:
        found = await self.client.get_prompt(name, dict(arguments))
        return [(message.role, parts_of([message.content])) for message in found.messages[:100]]

    async def read(self, uri: str) -> tuple[Text | Media, ...]:
        found = await self.client.read_resource(uri)
        return tuple(resource_part(content) for content in found.contents[:100])


@contextlib.asynccontextmanager
async def open_session(
    spec: ServerSpec, *, env: Mapping[str, str], cwd: str | None, watchdog: Watchdog, logins: Path | None
) -> AsyncGenerator[Session]:
    """Connect to a server. Raises RondelError with the reason if it cannot."""
    transport = (
        StdioTransport(spec, env, watchdog, cwd)
        if spec.command
        else HttpTransport(spec, TokenFile(logins, spec) if logins is not None and not _has_key(spec) else None)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        session = Session(spec, transport)
    try:
        async with asyncio.timeout(spec.connect_s):
            client = await session.client.__aenter__()
    except BaseException as error:
        if isinstance(transport, HttpTransport) and transport.needs_login:
            raise login_problem(spec, transport.login_failure) from None
        if isinstance(error, TimeoutError):
            raise RondelError(f"it did not answer within {spec.connect_s:g} s") from None
        if isinstance(error, (RondelError, asyncio.CancelledError)):
            raise
        raise RondelError(transport.reason or explain(error)) from None
    try:
        yield session
    finally:
        await client.__aexit__(None, None, None)


def explain(error: BaseException) -> str:
    """Return the innermost reason of an error, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        return "it answered with something that is not part of the protocol"
    if isinstance(error, httpx2.ConnectError):
        return "it cannot be reached"
    said = " ".join(str(error).split())
    return cut(said or type(error).__name__, 300)


def _has_key(spec: ServerSpec) -> bool:
    return any(name.lower() == "authorization" for name in spec.headers)


async def _pages(fetch: Callable[[str | None], Awaitable[Any]], items: Callable[[Any], list[Any]]) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await fetch(cursor)
        found += items(page)
        cursor = page.next_cursor
        if cursor is None or len(found) > 2 * TOOLS_MAX:
            break
    return found


def _dumped(params: Any) -> Json:
    return msgspec.json.decode(params.model_dump_json(by_alias=True, exclude_none=True))


def _server_request(given: Any) -> ServerRequest:
    data = _dumped(given)
    return ServerRequest(data["method"], data.get("params") or {})
