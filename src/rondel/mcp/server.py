"""Agents as an MCP server: each agent is a tool and a prompt, knowledge bases are resources and a search tool.

A call is a turn of a conversation of its own. The agent's text is sent as progress, its questions as elicitations: a
client of the newest protocol gets the question as the answer to its call, and repeats the call with the answer.
Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .. import __version__
from ..agent import Agent
from ..charge import Scope
from ..errors import RondelError, ToolError
from ..knowledge.bases import Knowledge
from ..machine.answer_text import AnswerText
from ..machine.conversation import Conversation, TurnView
from ..machine.transcript import Transcript
from ..prompt import flatten
from ..question import NO, YES, Question
from ..values import Media, Message, Person

if TYPE_CHECKING:
    from ..app.app import App

SEARCH = "search_knowledge"
SCHEME = "knowledge://"
LIMIT_MAX = 20
DOCUMENTS_MAX = 1_000
DOCUMENT_CHARS_MAX = 200_000
MESSAGE_CHARS = 200  # of a progress message: the newest words
KEY, PERSON = "rondel.key", "rondel.person"  # in the scope of an HTTP request: the name of the key, and its owner
SESSIONS_MAX, SESSIONS_OF_KEY_MAX = 1_000, 100
PREFIX = "mcp-"

Context = ServerRequestContext[Any, Any]


class AgentServer:
    """Serves the agents of an app. `allows` says whether the holder of a key may use an agent
    (`agent:name`) or a knowledge base (`knowledge:name`)."""

    def __init__(self, app: App, *, allows: Callable[[str, str], bool] | None = None) -> None:
        self._app, self._knowledge = app, app.knowledge if isinstance(app.knowledge, Knowledge) else None
        self._allows = allows or _all
        has_knowledge = self._knowledge is not None
        self.server: Server[Any] = Server(
            "rondel",
            version=__version__,
            instructions="Agents of this project, each as a tool. An agent may ask back before it answers.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources if has_knowledge else None,
            on_read_resource=self._read_resource if has_knowledge else None,
        )

    async def serve_stdio(self) -> None:
        """Serve one client on stdin and stdout until it disconnects."""
        async with stdio_server() as (read_stream, write_stream):
            await self.server.run(read_stream, write_stream, self.server.create_initialization_options())

    @contextlib.asynccontextmanager
    async def http(self, body_bytes_max: int) -> AsyncGenerator[Callable[..., Any]]:
        """Yield the ASGI function that serves `/mcp`. Host, origin and key are checked before it is called."""
        manager = _SessionManager(
            self.server, max_request_body_size=body_bytes_max, session_idle_timeout=600, max_sessions=SESSIONS_MAX
        )

        async def handle(scope: Any, receive: Any, send: Any) -> None:
            # The SDK gives a session only to the user that opened it.
            user = AuthenticatedUser(AccessToken(token="", client_id=scope[KEY], scopes=[]))
            await manager.handle_request({**scope, "user": user}, receive, send)

        async with manager.run():
            yield handle

    # --- tools --------------------------------------------------------------------------------------------------------

    def _agents(self, context: Context) -> dict[str, Agent]:
        key, registry = _key_of(context), self._app.registry
        allowed = (agent for agent in registry.agents if self._allows(key, f"agent:{agent.name}"))
        return {registry.tool_of(agent.name).name: agent for agent in allowed}

    def _bases(self, context: Context) -> tuple[str, ...]:
        names = self._knowledge.names if self._knowledge is not None else ()
        return tuple(name for name in names if self._allows(_key_of(context), f"knowledge:{name}"))

    async def _list_tools(self, context: Context, params: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(name=name, description=tool.description, input_schema=tool.schema)
            for name, agent in self._agents(context).items()
            for tool in (self._app.registry.tool_of(agent.name),)
        ]
        if bases := self._bases(context):
            tools.append(_search_tool(bases))
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = dict(params.arguments or {})
        try:
            if params.name == SEARCH and (bases := self._bases(context)):
                return await self._search(context, arguments, bases)
            agent = self._agents(context).get(params.name)
            if agent is None:
                raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
            return await self._ask(context, params, agent, arguments)
        except RondelError as error:
            return _failed(str(error))

    async def _ask(
        self, context: Context, params: types.CallToolRequestParams, agent: Agent, arguments: dict[str, Any]
    ) -> types.CallToolResult | types.InputRequiredResult:
        key = _key_of(context)
        if params.request_state is not None:
            chat = self._known(params.request_state, key, agent)
            view = await self._answered(context, chat, params.input_responses or {})
        else:
            checked = self._app.registry.tool_of(agent.name).validate(arguments)
            chat = self._app.conversation(f"{PREFIX}{quote(key, safe='')}-{secrets.token_hex(16)}", agent=agent.name)
            text = str(checked["input"]) if not agent.inputs else msgspec.json.encode(checked).decode()
            view = await chat.send(text, person=_person_of(context), scope=Scope(key=key))
        while True:
            result = await self._followed(context, chat, view)
            questions = await chat.questions()
            if not questions:
                return _answer_of(result, await chat.transcript())
            if not _can_ask(context):
                await chat.stop()
                return _failed(f"the agent asks, and this client cannot answer: {questions[0].text}")
            if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                requests = {one.id: types.ElicitRequest(params=_form(one)) for one in questions}
                return types.InputRequiredResult(input_requests=cast(Any, requests), request_state=chat.id)
            form = _form(questions[0])
            answer = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            view = await self._answered(context, chat, {questions[0].id: answer})

    def _known(self, state: str, key: str, agent: Agent) -> Conversation:
        """Return the conversation of a repeated call. Its id cannot be guessed, and belongs to the key."""
        start = f"{PREFIX}{quote(key, safe='')}-"
        rest = state.removeprefix(start)
        if not state.startswith(start) or len(rest) != 32 or not set(rest) <= set("0123456789abcdef"):
            raise MCPError(types.INVALID_PARAMS, "this request state is not known")
        return self._app.conversation(state, agent=agent.name)

    async def _answered(self, context: Context, chat: Conversation, responses: Mapping[str, Any]) -> TurnView:
        view: TurnView | None = None
        by = _person_of(context).id
        for question in await chat.questions():
            if (response := responses.get(question.id)) is not None:
                text = _text_of(question, response)
                view = await chat.answer(question.id, text, by=by, instead_of=question.person)
        if view is None:
            view = await chat.resume()
        if view is None:
            raise ToolError("nothing is left to answer in this call; make it again")
        return view

    async def _followed(self, context: Context, chat: Conversation, view: TurnView) -> Any:
        """Wait for a turn and report its text as progress. If the caller cancels, the turn is stopped."""
        said, steps, text = AnswerText(), 0, ""
        try:
            async for event in view:
                if piece := said.feed(event):
                    text = (text + piece)[-MESSAGE_CHARS:]
                    steps += 1
                    await context.session.report_progress(steps, None, " ".join(text.split()))
            return await view.result(check=False)
        except asyncio.CancelledError:
            await chat.stop()
            raise

    # --- knowledge ----------------------------------------------------------------------------------------------------

    async def _search(
        self, context: Context, arguments: dict[str, Any], bases: tuple[str, ...]
    ) -> types.CallToolResult:
        assert self._knowledge is not None
        scope = Scope("embedding", key=_key_of(context), person=_person_of(context).id)
        query, base = str(arguments.get("query") or "").strip(), str(arguments.get("base") or "")
        if not query:
            raise ToolError("the argument 'query' is missing")
        if base and base not in bases:
            raise ToolError(f"there is no knowledge base {base[:80]!r}; there are: {', '.join(bases)}")
        wanted = arguments.get("limit")
        limit = max(1, min(wanted, LIMIT_MAX)) if isinstance(wanted, int) else 5
        passages = await self._knowledge.search(
            query,
            limit,
            bases=(base,) if base else bases,
            charged=lambda embedder: self._app.charge_embedder(embedder, scope),
        )
        found = [
            f"[{number}] {passage.title or passage.where} ({passage.where}"
            + (f", line {passage.line}" if passage.line else f", page {passage.page}" if passage.page else "")
            + f")\n{passage.text}"
            for number, passage in enumerate(passages, 1)
        ]
        return _said("\n\n".join(found) or "Nothing fits.")

    async def _list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        assert self._knowledge is not None
        resources: list[types.Resource] = []
        for base in self._bases(context):
            for document in await self._knowledge.store.documents(self._knowledge.base(base).key):
                if len(resources) >= DOCUMENTS_MAX:
                    break
                uri = f"{SCHEME}{quote(base, safe='')}/{quote(document.path)}"
                resources.append(types.Resource(uri=uri, name=document.path, mime_type="text/plain"))
        return types.ListResourcesResult(resources=resources, ttl_ms=0, cache_scope="private")

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        assert self._knowledge is not None
        uri = str(params.uri)
        base, _, path = uri.removeprefix(SCHEME).partition("/")
        base, path = unquote(base), unquote(path)
        # Only stored documents are read, never files: no path leads out of a base.
        known = uri.startswith(SCHEME) and base in self._bases(context)
        chunks = await self._knowledge.store.chunks_of(self._knowledge.base(base).key, path) if known else []
        if not chunks:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri[:200]!r}")
        text = "\n\n".join(stored.chunk.text for stored in chunks)[:DOCUMENT_CHARS_MAX]
        content = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[content], ttl_ms=0, cache_scope="private")

    # --- prompts ------------------------------------------------------------------------------------------------------

    async def _list_prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(name=name, description=agent.description or f"The prompt of the agent {agent.name}.")
            for name, agent in self._agents(context).items()
            if _prompt_of(agent)
        ]
        return types.ListPromptsResult(prompts=prompts, ttl_ms=0, cache_scope="private")

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        agent = self._agents(context).get(params.name)
        if agent is None or not (text := _prompt_of(agent)):
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name!r}")
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(
            description=agent.description, messages=[types.PromptMessage(role="user", content=content)]
        )


class _SessionManager(StreamableHTTPSessionManager):
    """Bounds the sessions of one key, so that its holder cannot keep the others out."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        own = sum(owner == requestor for owner in self._session_owners.values())
        return None if own >= SESSIONS_OF_KEY_MAX else super()._admit_session(requestor)


def _all(key: str, agent: str) -> bool:
    return True


def _scope_of(context: Context) -> dict[str, Any]:
    return getattr(context.request, "scope", None) or {}


def _key_of(context: Context) -> str:
    return _scope_of(context).get(KEY, "")


def _person_of(context: Context) -> Person:
    return _scope_of(context)[PERSON] if _key_of(context) else Person("", origin="mcp")


def _prompt_of(agent: Agent) -> str:
    messages: list[Message] = list(flatten(agent.nodes))
    return agent.template or "\n\n".join(message.text for message in messages if message.text)


def _search_tool(bases: tuple[str, ...]) -> types.Tool:
    schema = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "base": {"type": "string", "enum": list(bases), "description": "where to look; without it, everywhere"},
            "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX},
        },
        "required": ["query"],
    }
    return types.Tool(name=SEARCH, description=f"Search the documents of: {', '.join(bases)}.", input_schema=schema)


def _can_ask(context: Context) -> bool:
    known = context.session.client_capabilities
    return known is not None and known.elicitation is not None


def _form(question: Question) -> types.ElicitRequestFormParams:
    options = question.options or ((YES, NO) if question.kind == "approve" else ())
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if options and (question.kind == "approve" or not question.free_text):
        field["enum"] = list(options)
    elif options:
        field["description"] = f"for example: {', '.join(options)}"
    schema: dict[str, Any] = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    return types.ElicitRequestFormParams(message=question.text, requested_schema=schema)


def _text_of(question: Question, response: Any) -> str:
    action, content = getattr(response, "action", ""), getattr(response, "content", None)
    if action == "accept" and isinstance(content, dict):
        return str(cast("dict[str, Any]", content).get("answer", ""))
    return NO if question.kind == "approve" else question.default or "(the user did not answer)"


def _answer_of(result: Any, transcript: Transcript) -> types.CallToolResult:
    if result.error:
        return _failed(result.error)
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=result.output)]
    said = next((message for message in reversed(transcript.messages) if message.role == "assistant"), None)
    for part in said.parts if said is not None else ():
        if isinstance(part, Media) and part.kind == "image" and part.data:
            data = base64.b64encode(part.data).decode()
            content.append(types.ImageContent(type="image", data=data, mime_type=part.mime or "image/png"))
    return types.CallToolResult(content=content, structured_content=result.data if result.data is not None else None)


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def make_server(app: App, *, allows: Callable[[str, str], bool] | None = None) -> AgentServer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        return AgentServer(app, allows=allows)
