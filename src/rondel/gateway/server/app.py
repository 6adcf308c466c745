"""The gateway as an ASGI application: paths, access, and what all requests share.

The configuration can be replaced while requests are under way: each keeps the setup with which it began. Knows no HTTP
server; `serving.py` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec

from ...app.app import App
from ...contracts.clock import Clock
from ...contracts.deadline import Deadlines
from ...contracts.dialect import Dialect
from ...dialects import DIALECTS
from ...engine import Relays, dialect_of
from ...errors import EngineDenied, EngineError, EngineOverloaded, PromptRejected, RondelError
from ..bridge.services import scope_of
from ..relay.disconnect import DISCONNECT, DisconnectGuard, Receive
from ..relay.record import Record, Records
from ..relay.request import GatewayRequest
from ..relay.response import Headers, Outgoing, Send
from .access import Permit, Refused
from .exchange import Exchange
from .images import images_body
from .mcp import PATH as MCP
from .mcp import McpRoute
from .models import listing
from .setup import Setup

log = logging.getLogger("rondel.gateway")

Scope: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Callable[[Setup, Exchange], Coroutine[Any, Any, None]]
Service: TypeAlias = Callable[[GatewayRequest, Record, Permit], Awaitable[dict[str, Any]]]
"""Returns the body of an answer that is not streamed: embeddings or pictures."""
TICK_S = 1.0  # how often streams are checked for silence
PATHS = {"/messages": "anthropic", "/chat/completions": "openai-chat", "/responses": "openai-responses"}
COUNT = "/messages/count_tokens"
EMBEDDINGS = "/embeddings"
IMAGES = ("/images/generations", "/images/edits")
LEAVE_S = 1.0  # how long callers have to read the error that ends their streams when the gateway stops
RETRY_AFTER_S = 5.0
PATH_CHARS_SHOWN = 100
CLIENT_CHARS_MAX = 60
_JSON = (b"content-type", b"application/json")


class _Disconnected(Exception):
    """The caller disconnected before its request was complete."""


class Gateway:
    """`async with Gateway(app, setup) as gateway:`; then an HTTP server calls it."""

    def __init__(self, app: App, setup: Setup, *, records: Records | None = None) -> None:
        self.records = records or Records()
        self._app, self._setup = app, setup
        self._dialects: dict[str, Dialect] = {}
        self._pings: dict[str, bytes] = {}
        self._streams: set[Outgoing] = set()
        self._open: set[DisconnectGuard] = set()
        """One for each request that is being answered."""
        self._deadlines = Deadlines()  # only of young requests, so that many old ones cost nothing
        self._is_idle = asyncio.Event()
        self._is_stopping = False
        self._time: Callable[[], float] = time.monotonic  # the loop's own, once there is one
        self._life = contextlib.AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None
        self._mcp = McpRoute(app, lambda key, name: self._setup.serves(key, name))

    @property
    def clock(self) -> Clock:
        return self._app.clock

    @property
    def setup(self) -> Setup:
        return self._setup

    async def __aenter__(self) -> Gateway:
        async with contextlib.AsyncExitStack() as life:
            await self._setup.open()
            life.push_async_callback(lambda: self._setup.close())
            self._group = await life.enter_async_context(asyncio.TaskGroup())
            self._time = asyncio.get_running_loop().time
            ticker = self._group.create_task(self._keep_alive())
            life.callback(ticker.cancel)
            life.callback(self._deadlines.close)
            life.callback(self._mcp.close)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def adopt(self, setup: Setup) -> None:
        """Use another setup for new requests; those under way keep theirs until they end."""
        await setup.open()
        old, self._setup = self._setup, setup
        await old.retire()

    async def drain(self, seconds: float) -> int:
        """Refuse new requests, wait for those under way, and after `seconds` end the rest with an error in the caller's
        dialect. Returns how many were ended that way."""
        self._is_stopping = True
        await self._wait_idle(seconds)
        left = list(self._open)
        self.interrupt()
        await self._wait_idle(LEAVE_S)  # a caller that does not read may not take the error either
        return len(left)

    def interrupt(self) -> None:
        self._is_stopping = True
        for guard in self._open:
            guard.stop()

    async def _wait_idle(self, seconds: float) -> None:
        if self._open:
            self._is_idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # not wait_for, which may swallow a cancellation before 3.12
                    await self._is_idle.wait()

    # --- paths and access ---------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _headers(scope["headers"])
        path: str = scope["path"]
        path = path.removeprefix("/v1") if path.startswith("/v1/") else path
        query = scope["query_string"].decode("latin-1")
        out = Outgoing(send, self._time)
        try:
            self._setup.access.check_host(headers)
            if origin := headers.get("origin"):
                out.head = lambda: _cors(origin)
            if path in PATHS and scope["method"] == "POST":
                await self._serve(self._dialect(PATHS[path]), headers, query, receive, out, self._chat)
            elif path == EMBEDDINGS and scope["method"] == "POST":
                answer = partial(self._answer_whole, "embedding", lambda setup: setup.embeddings.answer)
                await self._serve(self._dialect("openai-chat"), headers, query, receive, out, answer)
            elif path in IMAGES and scope["method"] == "POST":
                answer = partial(self._answer_whole, "image_generation", lambda setup: setup.images.answer)
                read = partial(images_body, edits=path == IMAGES[1])
                await self._serve(self._dialect("openai-chat"), headers, query, receive, out, answer, read)
            elif path == MCP and scope["method"] in ("DELETE", "GET", "POST"):
                await self._serve_mcp(scope, headers, receive, send, out)
            elif path == COUNT and scope["method"] == "POST":
                await self._serve(self._dialect("anthropic"), headers, query, receive, out, self._count)
            else:
                await self._other(path, scope["path"], scope["method"], headers, out)
        except Refused as error:
            dialect = self._dialect_of(path, headers)
            self._note_refused(dialect, headers, error.status, str(error))
            await self._refuse(out, dialect, error)

    def _note_refused(self, dialect: Dialect, headers: Mapping[str, str], status: int, message: str) -> None:
        record = self._record(dialect, self.clock.now(), headers)
        record.outcome, record.status, record.error = "refused", status, message
        self.records.add(record)

    async def _serve_mcp(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, out: Outgoing
    ) -> None:
        assert self._group is not None
        key = self._setup.access.check_key(headers, self.clock.now())
        if self._is_stopping:
            await self._say(out, headers, MCP, 503, "the gateway is stopping")
            return
        asked = dict(scope)
        person, size = self._setup.access.person(key), self._setup.body_bytes_max
        problem = await self._mcp.serve(self._group, asked, receive, send, key=key, person=person, body_bytes_max=size)
        if problem:
            await self._say(out, headers, MCP, 501, problem)

    def _record(self, dialect: Dialect, now: float, headers: Mapping[str, str], key: str = "") -> Record:
        client = headers.get("user-agent", "").partition(" ")[0][:CLIENT_CHARS_MAX]
        return Record(self._app.new_id("req").removeprefix("req_"), now, dialect.name, key=key, client=client)

    async def _other(self, path: str, asked: str, method: str, headers: Mapping[str, str], out: Outgoing) -> None:
        """Answer requests that ask no model. `asked` is the path that was asked for, with `/v1`."""
        shown = asked[:PATH_CHARS_SHOWN]
        if method == "OPTIONS":
            await out.whole(204, b"")
        elif path in ("/", "/health") and method in ("GET", "HEAD"):
            await _reply(out, 200, self._health())
        elif path in PATHS and "sec-websocket-key" in headers:
            # Clients that get this status repeat the request over HTTP at once.
            await self._say(out, headers, path, 426, "WebSockets are not supported; use POST")
        elif path in PATHS or path in (COUNT, EMBEDDINGS, *IMAGES):
            await self._say(out, headers, path, 405, f"{method} is not supported for {shown!r}; use POST")
        elif path == "/status" and method == "GET":
            await self._status(headers, out)
        elif path.startswith("/models") and method == "GET":
            await self._models(path, headers, out)
        elif path.startswith("/responses/") and method in ("DELETE", "GET"):
            await self._say(out, headers, path, 404, "responses are stored to continue from, and cannot be read")
        elif path.startswith("/v1/"):
            problem = f"nothing is at {shown!r}: the base URL already ends in /v1; write it once"
            await self._say(out, headers, path.removeprefix("/v1"), 404, problem)
        else:
            known = ", ".join((*PATHS, COUNT, EMBEDDINGS, *IMAGES, "/models", "/status", "/health"))
            await self._say(out, headers, path, 404, f"nothing is at {shown!r}; the gateway has {known}, below /v1")

    def _health(self) -> dict[str, Any]:
        """Whether charges can be written. The reason is only in the log, because it names a path."""
        told: dict[str, Any] = {"status": "ok", "version": self._setup.version}
        unwritten = self._app.ledger.unwritten
        if unwritten.reason:
            told["status"] = "degraded"
            told["ledger"] = {
                "unwritten": unwritten.charges,
                "unwritten_tokens": unwritten.tokens,
                "lost": unwritten.lost_charges,
                "lost_tokens": unwritten.lost_tokens,
            }
        return told

    async def _status(self, headers: Mapping[str, str], out: Outgoing) -> None:
        """Requests under way, and the engines that are down, of those that the caller's key may use."""
        key, now = self._setup.access.check_key(headers, self.clock.now()), self.clock.now()
        engines = [
            {
                "engine": outage.engine,
                "failures": outage.failures,
                "why": outage.why,
                "retry_in_s": round(max(0.0, outage.until - now), 1),
            }
            for outage in self._setup.outages(key)
        ]
        body = {"version": self._setup.version, "requests": len(self._open), "engines": engines}
        await _reply(out, 200, body)

    async def _models(self, path: str, headers: Mapping[str, str], out: Outgoing) -> None:
        key = self._setup.access.check_key(headers, self.clock.now())
        dialect = self._dialect_of(path, headers).name
        name = path.removeprefix("/models").strip("/")
        await self._app.ledger.ready()  # the price lists, once
        answer = listing(self._setup.models(key), dialect, name)
        if answer is None:
            await self._say(out, headers, path, 404, f"there is no model {name!r}; GET /v1/models lists them")
        else:
            await _reply(out, 200, answer)

    def _dialect(self, name: str) -> Dialect:
        if name not in self._dialects:
            dialect = self._dialects[name] = DIALECTS[name]()
            self._pings[name] = dialect.reply_writer().ping()
        return self._dialects[name]

    def _dialect_of(self, path: str, headers: Mapping[str, str]) -> Dialect:
        if path in PATHS:
            return self._dialect(PATHS[path])
        return self._dialect("anthropic" if path == COUNT or "anthropic-version" in headers else "openai-chat")

    async def _refuse(self, out: Outgoing, dialect: Dialect, error: Refused) -> None:
        code = "authentication_error" if error.status == 401 else "permission_error"
        _, body = dialect.reply_writer().write_error(EngineDenied(str(error), code=code))
        await _reply(out, error.status, body)

    async def _say(self, out: Outgoing, headers: Mapping[str, str], path: str, status: int, message: str) -> None:
        dialect = self._dialect_of(path, headers)
        if status in (404, 405):
            self._note_refused(dialect, headers, status, message)
        error = PromptRejected(message, code="not_found_error" if status == 404 else "invalid_request_error")
        _, body = dialect.reply_writer().write_error(error)
        await _reply(out, status, body)

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _serve(
        self,
        dialect: Dialect,
        headers: Mapping[str, str],
        query: str,
        receive: Receive,
        out: Outgoing,
        answer: Answer,
        read: Callable[[bytes, Mapping[str, str]], bytes] | None = None,
    ) -> None:
        """Read a request and answer it. `read` turns a body that is not JSON into one that is."""
        assert self._group is not None
        setup, now = self._setup, self.clock.now()
        key = setup.access.check_key(headers, now)
        record = self._record(dialect, now, headers, key)
        began = self._time()
        try:
            body = await _read(receive, headers, setup.body_bytes_max)
            body = body if read is None else read(body, headers)
            request = GatewayRequest(record.id, dialect, body, headers, key=key, at=now, query=query)
        except _Disconnected:
            return
        except PromptRejected as error:
            status, said = dialect.reply_writer().write_error(error)
            record.status = 413 if error.code == "too_large" else status
            record.outcome, record.error = "refused", str(error)
            self.records.add(record)
            await _reply(out, record.status, said)
            return
        record.asked, record.session, record.streams = request.model, request.session, request.streams
        if request.streams:
            out.ping = self._pings[dialect.name]
            self._streams.add(out)
        self.records.begin(record)
        try:
            setup.enter()
            with DisconnectGuard(self._group, self._deadlines, receive, out.is_over) as guard:
                await self._answer(setup, Exchange(setup.parts, request, out, record), answer, guard)
            if guard.has_left:
                record.outcome = "left"
        finally:
            self._streams.discard(out)
            record.seconds = self._time() - began
            self.records.end(record)
            await setup.leave(request)

    async def _answer(self, setup: Setup, exchange: Exchange, answer: Answer, guard: DisconnectGuard) -> None:
        """Await an answer and report errors to the caller, also when the gateway stops before it is complete."""
        request, record = exchange.request, exchange.record
        try:
            if self._is_stopping:
                raise _stopping()
            self._open.add(guard)
            try:
                await answer(setup, exchange)
            finally:
                self._open.discard(guard)
                if self._is_stopping and not self._open:
                    self._is_idle.set()
        except asyncio.CancelledError:
            if not guard.ended_by_stop():
                raise
            await exchange.report(_stopping())
        except Refused as error:
            record.outcome, record.error, record.status = "failed", str(error), error.status
            await self._refuse(exchange.outgoing, request.dialect, error)
        except EngineError as error:
            await exchange.report(error)
        except RondelError as error:
            await exchange.report(EngineError(str(error)))
        except Exception:
            log.exception("request %s failed", request.id)
            await exchange.report(EngineError(f"the gateway failed; its log has the reason under {request.id}"))

    async def _chat(self, setup: Setup, exchange: Exchange) -> None:
        request, record = exchange.request, exchange.record
        decision = await setup.decide(request)
        record.rule, record.why, record.warnings = decision.rule, decision.why, decision.warnings
        await exchange.answer(setup.candidates(request, decision), setup.opening(request, decision))
        setup.learn(record, decision.estimated)

    async def _answer_whole(
        self, rule: str, service: Callable[[Setup], Service], setup: Setup, exchange: Exchange
    ) -> None:
        request, record = exchange.request, exchange.record
        record.rule = rule
        body = await service(setup)(request, record, setup.permit(request.key))
        record.outcome, record.status = "done", 200
        await _reply(exchange.outgoing, 200, body)

    async def _count(self, setup: Setup, exchange: Exchange) -> None:
        """Answer with the tokens of a prompt: counted by the upstream if it can, else estimated."""
        request, record, out = exchange.request, exchange.record, exchange.outgoing
        decision = await setup.decide(request)
        record.rule, record.why = decision.rule, decision.why
        engine, record.engine = setup.parts.outages.order(setup.candidates(request, decision))[0][0]
        if dialect_of(engine) == "anthropic":
            with contextlib.suppress(EngineError):
                path = "/v1/messages/count_tokens" + (f"?{request.query}" if request.query else "")
                charged = self._app.ledger.charge(engine, msgspec.structs.replace(scope_of(request), kind="count"))
                relayed = await cast(Relays, charged).relay(request.fields, request.headers, path=path)
                try:
                    await out.whole(200, await relayed.read(), [_JSON])
                finally:
                    relayed.close()
                record.outcome, record.status = "done", 200
                return
        tokens, tokenizer = setup.count(request, record.engine)
        await _reply(out, 200, {"input_tokens": tokens, "tokenizer": tokenizer})
        record.outcome, record.status = "done", 200

    async def _keep_alive(self) -> None:
        """Send a keep-alive ping to silent streams, each in its own task: a caller that does not read must not delay
        the others."""
        assert self._group is not None
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            if not (ping_s := self._setup.ping_s):
                continue
            due = loop.time() - ping_s
            for stream in [stream for stream in self._streams if stream.last_write < due]:
                self._group.create_task(stream.keep_alive())


def _headers(given: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case name; repeated headers are joined with commas."""
    headers: dict[str, str] = {}
    for raw, value in given:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _stopping() -> EngineOverloaded:
    return EngineOverloaded("the gateway is stopping; ask again later", code="503", retry_after_s=RETRY_AFTER_S)


async def _read(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    """Read the body. Raises PromptRejected if it is too long or compressed, and _Disconnected."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    if (coding := headers.get("content-encoding", "identity")) not in ("identity", ""):
        raise PromptRejected(f"the body is encoded as {coding!r}; send it uncompressed", code="bad_body")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == DISCONNECT:
            raise _Disconnected
        if piece := message.get("body", b""):
            pieces.append(piece)
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(bytes_max: int) -> PromptRejected:
    return PromptRejected(
        f"the body is longer than {bytes_max / 1e6:.0f} MB; shorten it, or raise body_mb_max in [gateway]",
        code="too_large",
    )


async def _reply(out: Outgoing, status: int, body: Any) -> None:
    await out.whole(status, msgspec.json.encode(body), [_JSON])


def _cors(origin: str) -> Headers:
    """Headers that let an allowed web page read the answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-headers", b"*, authorization"),
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"vary", b"origin"),
    ]
