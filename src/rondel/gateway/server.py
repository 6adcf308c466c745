"""The gateway as an ASGI application: paths, the way in, and what all requests share.

What is configured can be exchanged while requests are under way: each is answered by the setup that it came in under.
Knows no HTTP server; `serving.py` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..app import App
from ..clock import Clock
from ..dialect import Dialect
from ..dialects import DIALECTS
from ..engine import RelayEngine
from ..errors import EngineDenied, EngineError, PromptRejected, RondelError
from .access import Refused, may_use
from .exchange import Exchange
from .inside import scope_of
from .leaving import LEFT, Leaving, Receive
from .models import listing
from .outgoing import Headers, Outgoing, Send
from .reading import Readings
from .record import Record, Records
from .request import Request
from .routing import Decision
from .setup import Setup

log = logging.getLogger("rondel.gateway")

Scope: TypeAlias = Mapping[str, Any]
TICK_S = 1.0
"""How often it is looked whether a stream has been silent for too long."""
PATHS = {"/messages": "anthropic", "/chat/completions": "openai-chat", "/responses": "openai-responses"}
COUNT = "/messages/count_tokens"
_JSON = (b"content-type", b"application/json")


class _Gone(Exception):
    """The caller did not wait for the end."""


class Gateway:
    """`async with Gateway(app, setup) as gateway:` and give it to an HTTP server."""

    def __init__(self, app: App, setup: Setup, *, records: Records | None = None) -> None:
        self.records = records or Records()
        self._app, self._setup = app, setup
        self._dialects: dict[str, Dialect] = {}
        self._pings: dict[str, bytes] = {}
        self._streams: set[Outgoing] = set()
        self._readings = Readings()
        self._time: Callable[[], float] = time.monotonic  # the loop's own, once there is one
        self._life = contextlib.AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None

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
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def adopt(self, setup: Setup) -> None:
        """Answer what comes from now on by another setup; requests under way keep theirs until they end."""
        await setup.open()
        old, self._setup = self._setup, setup
        await old.retire()

    # --- the way in ---------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _headers(scope["headers"])
        path: str = scope["path"]
        path = path.removeprefix("/v1") if path.startswith("/v1/") else path
        query = scope["query_string"].decode("latin-1")
        out = Outgoing(send, self._time)
        try:
            self._setup.access.check_place(headers)
            if origin := headers.get("origin"):
                out.head = lambda: _cors(origin)
            if path in PATHS and scope["method"] == "POST":
                await self._serve(self._dialect(PATHS[path]), headers, query, receive, out, self._answer)
            elif path == COUNT and scope["method"] == "POST":
                await self._serve(self._dialect("anthropic"), headers, query, receive, out, self._count)
            else:
                await self._other(path, scope["method"], headers, out)
        except Refused as error:
            dialect = self._dialect_of(path, headers)
            record = self._record(dialect, self.clock.now())
            record.outcome, record.status, record.error = "refused", error.status, str(error)
            self.records.add(record)
            await self._refuse(out, dialect, error)

    def _record(self, dialect: Dialect, now: float, key: str = "") -> Record:
        return Record(self._app.new_id("req").removeprefix("req_"), now, dialect.name, key=key)

    async def _other(self, path: str, method: str, headers: Mapping[str, str], out: Outgoing) -> None:
        if method == "OPTIONS":
            await out.whole(204, b"")
        elif path in ("/", "/health") and method in ("GET", "HEAD"):
            await _reply(out, 200, {"status": "ok", "version": self._setup.version})
        elif path in PATHS and "sec-websocket-key" in headers:
            # Of all refusals this is the one after which clients ask without at once.
            await self._say(out, headers, path, 426, "there are no WebSockets here; use POST")
        elif path in PATHS or path == COUNT:
            await self._say(out, headers, path, 405, f"{method} is not for {path!r}; use POST")
        elif path.startswith("/models") and method == "GET":
            await self._models(path, headers, out)
        elif path.startswith("/responses/") and method in ("DELETE", "GET"):
            await self._say(out, headers, path, 404, "responses are kept to go on from, and cannot be read back")
        else:
            known = ", ".join((*PATHS, COUNT, "/models", "/health"))
            await self._say(out, headers, path, 404, f"nothing is at {path!r}; the gateway has {known}, below /v1")

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
            self._pings[name] = dialect.reply_writer(model="", id="").ping()
        return self._dialects[name]

    def _dialect_of(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """The dialect that a caller speaks, by what it asks for, or by its headers."""
        if path in PATHS:
            return self._dialect(PATHS[path])
        return self._dialect("anthropic" if path == COUNT or "anthropic-version" in headers else "openai-chat")

    async def _refuse(self, out: Outgoing, dialect: Dialect, error: Refused) -> None:
        code = "authentication_error" if error.status == 401 else "permission_error"
        _, body = dialect.write_error(EngineDenied(str(error), code=code))
        await _reply(out, error.status, body)

    async def _say(self, out: Outgoing, headers: Mapping[str, str], path: str, status: int, message: str) -> None:
        error = PromptRejected(message, code="not_found_error" if status == 404 else "invalid_request_error")
        _, body = self._dialect_of(path, headers).write_error(error)
        await _reply(out, status, body)

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _serve(
        self,
        dialect: Dialect,
        headers: Mapping[str, str],
        query: str,
        receive: Receive,
        out: Outgoing,
        answer: Callable[[Setup, Request, Record, Outgoing], Awaitable[None]],
    ) -> None:
        setup, now = self._setup, self.clock.now()
        key = setup.access.check_key(headers, now)
        record = self._record(dialect, now, key)
        began = self._time()
        try:
            body = await _read(receive, headers, setup.body_bytes_max)
            request = Request(record.id, dialect, body, headers, key=key, at=now, query=query, readings=self._readings)
        except _Gone:
            return
        except PromptRejected as error:
            status, said = dialect.write_error(error)
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
            with Leaving(receive, out.is_over) as leaving:
                await answer(setup, request, record, out)
            if leaving.has_left:
                record.outcome = "left"
        finally:
            self._streams.discard(out)
            record.seconds = self._time() - began
            self.records.end(record)
            await setup.leave(request)

    async def _answer(self, setup: Setup, request: Request, record: Record, out: Outgoing) -> None:
        exchange = Exchange(setup.parts, request, out, record)
        try:
            decision = await setup.decide(request)
            record.rule, record.why, record.warnings = decision.rule, decision.why, decision.warnings
            decision = _permitted(setup, request, decision)
            await exchange.answer(setup.engines(request, decision), setup.opening(request, decision))
            setup.learn(record, decision.estimated)
        except Refused as error:
            record.outcome, record.error, record.status = "failed", str(error), error.status
            await self._refuse(out, request.dialect, error)
        except EngineError as error:
            await exchange.report(error)
        except RondelError as error:
            await exchange.report(EngineError(str(error)))
        except Exception:
            log.exception("request %s failed", request.id)
            await exchange.report(EngineError(f"the gateway failed; its log has the reason under {request.id}"))

    async def _count(self, setup: Setup, request: Request, record: Record, out: Outgoing) -> None:
        """How many tokens a prompt has: as the upstream counts, where it does, else by estimate."""
        try:
            decision = _permitted(setup, request, await setup.decide(request))
            engine = setup.engines(request, decision)[0]
            record.rule, record.why, record.engine = decision.rule, decision.why, engine.name
            if getattr(engine, "dialect", "") == "anthropic":
                with contextlib.suppress(EngineError):
                    path = "/v1/messages/count_tokens" + (f"?{request.query}" if request.query else "")
                    metered = self._app.meter(engine, msgspec.structs.replace(scope_of(request), kind="count"))
                    relayed = await cast(RelayEngine, metered).relay(request.fields, request.headers, path=path)
                    try:
                        await out.whole(200, await relayed.read(), [_JSON])
                    finally:
                        relayed.close()
                    record.outcome, record.status = "done", 200
                    return
            tokens, tokenizer = setup.count(request, engine.name)
            await _reply(out, 200, {"input_tokens": tokens, "tokenizer": tokenizer})
            record.outcome, record.status = "done", 200
        except EngineError as error:
            await Exchange(setup.parts, request, out, record).report(error)

    async def _keep_alive(self) -> None:
        """Let streams that have been silent for too long say that they live, each in a task of its own: one that a
        caller does not read must not hold up the others."""
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
    """By name, in lower case; what comes in several lines is one list."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given}
    if len(headers) < len(given):
        for name in headers:
            lines = [value.decode("latin-1") for other, value in given if other.decode("latin-1") == name]
            headers[name] = ", ".join(lines)
    return headers


def _permitted(setup: Setup, request: Request, decision: Decision) -> Decision:
    """What was decided, without the fallbacks that the caller's key may not use. Raises Refused when nothing is left of
    it."""
    key = setup.key(request.key)
    if key is None or not key.models:
        return decision
    names = (f"agent:{decision.agent}",) if decision.agent else decision.engines
    allowed = tuple(name for name in names if may_use(key, name, request.model))
    if names[0] not in allowed:
        raise Refused(403, f"the key {request.key!r} may not use {names[0]!r}; ask whoever gave it to you")
    if decision.agent or len(allowed) == len(names):
        return decision
    return msgspec.structs.replace(decision, engines=allowed)


async def _read(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    """The body, which is no longer than it may be."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    if (coding := headers.get("content-encoding", "identity")) not in ("identity", ""):
        raise PromptRejected(f"the body is coded as {coding!r}; send it as it is", code="bad_body")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == LEFT:
            raise _Gone
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
    """What a browser wants to read before it lets an allowed page see the answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-headers", b"*, authorization"),
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"vary", b"origin"),
    ]
