"""The web surface as an ASGI application: routes, access, errors, and the files of the page.

The gateway's server passes it the requests for the page and for `/api`. Every route is in ROUTES with the rights that
it needs. Host and Origin are checked on every request, and a change must come from our own page or from a program.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Message, Receive, Scope, Send

from ...app.app import App
from ...errors import EngineError, LimitReached, RondelError
from ...values import Person
from . import a2a, agui, chat, conversations, knowledge, mcp, models, observe, session
from .combined import PROTOCOLS
from .feed import Feeds
from .metrics import metrics
from .models import Offer
from .openapi import description
from .page import PageFiles
from .people import ADMIN, Caller, Gate, People
from .route import (
    BODY_BYTES_MAX,
    STRANGERS_BYTES_MAX,
    Call,
    Nothing,
    Problem,
    Route,
    encode,
    read_body,
    read_query,
    respond,
)
from .work import Works

log = logging.getLogger("rondel.web")

SAID_CHARS_MAX = 500
NEW_MAX = 1_000  # conversations of a person that were created and have no message yet
ROUTES: tuple[Route, ...] = (
    *session.ROUTES,
    *conversations.ROUTES,
    *chat.ROUTES,
    *observe.ROUTES,
    *knowledge.ROUTES,
    *mcp.ROUTES,
    *models.ROUTES,
    metrics,
    *agui.ROUTES,
    *a2a.ROUTES,
)


class Records(Protocol):
    """The newest requests of the gateway."""

    newest: deque[Any]

    def watch(self, watcher: Callable[[Any], None]) -> Callable[[], None]: ...


class About(msgspec.Struct, frozen=True):
    """What the page says about this installation."""

    version: str
    engine: str
    why: str
    hints: tuple[str, ...] = ()
    files: dict[str, str] = {}
    settings: Callable[[], Iterable[Sequence[Any]]] = tuple
    change: Callable[[str, str | float | None, str], Awaitable[None]] | None = None
    """Changes a setting: its key, the value or None for the default, and the value that the person saw."""
    lint: Callable[[], Iterable[Any]] = tuple
    offer: Offer | None = None
    hide: Callable[[str], str] = str
    """Removes known secrets from a text."""


@cache
def _openapi(version: str) -> bytes:
    return encode(description(ROUTES, version))


class WebApp:
    """`combined` makes it, owns its tasks, and calls it."""

    def __init__(self, app: App, gate: Callable[[], Gate], records: Records, about: About) -> None:
        self.app, self.records, self.about = app, records, about
        self._gate = gate
        self.people = People(app.store, app.clock)
        self.feeds = Feeds(app.clock)
        self.works = Works(app.clock)
        self._new: dict[str, OrderedDict[str, str]] = {}
        """The agents of conversations without a message, by person: nobody can use up the room of others."""
        self.busy_threads: set[str] = set()
        """The conversations in which a run of a protocol is about to start or is under way."""
        self._page = PageFiles()
        routes = [_starlette_route(self, path, group) for path, group in _by_path().items()]
        self._starlette = Starlette(routes=routes, exception_handlers={404: _no_route})
        self._starlette.router.redirect_slashes = False  # `/api/conversations/` is not `/api/conversations`

    def start(self, group: asyncio.TaskGroup) -> None:
        """Say who owns the tasks that outlive a request."""
        self.feeds.group = self.works.group = group

    def close(self) -> None:
        self.feeds.close_all()
        self.works.close()

    @property
    def gate(self) -> Gate:
        return self._gate()

    @property
    def openapi(self) -> bytes:
        """The OpenAPI description. It is made when it is first read, because that takes longer than starting."""
        return _openapi(self.about.version)

    # --- conversations without a message ------------------------------------------------------------------------------

    def add_new(self, id: str, person: Person, agent: str) -> None:
        own = self._new.setdefault(person.id, OrderedDict())
        own[id] = agent
        while len(own) > NEW_MAX:
            own.popitem(last=False)

    def is_new(self, id: str, person: Person) -> bool:
        return id in self._new.get(person.id, ())

    def new_agent(self, id: str) -> str:
        return next((own[id] for own in self._new.values() if id in own), "")

    def forget_new(self, id: str) -> None:
        for own in self._new.values():
            own.pop(id, None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            self.gate.check_host(dict(request.headers))
            if request.url.path.startswith(PROTOCOLS) and (origin := request.headers.get("origin")):
                # A page of another site: its origin is in `origins`, or the check above has refused it.
                if request.method == "OPTIONS":
                    await Response(status_code=204, headers=_cors(origin))(scope, receive, send)
                    return
                send = _with_headers(send, _cors(origin))
            else:
                _check_site(request)
            if (file := self._page.find(request)) is not None:
                await file(scope, receive, send)
                return
        except RondelError as error:
            await problem(error)(scope, receive, send)
            return
        await self._starlette(scope, receive, send)

    async def answer(self, route: Route, request: Request) -> Response:
        try:
            caller = Caller(Person(""))
            if route.rights != "public":
                caller = await self.people.who(self.gate, request)
                if route.rights == "admin" and ADMIN not in caller.person.roles:
                    raise Problem(403, 'only an admin may do this; give the key `roles = ["admin"]` in rondel.toml')
            query = read_query(request, route.query)
            bytes_max = STRANGERS_BYTES_MAX if route.rights == "public" else BODY_BYTES_MAX
            body = Nothing() if route.reads_body else await read_body(request, route.body, bytes_max)
            call = Call[Any, Any](self.app, self, request, caller, body, query)
            return respond(await route.handler(call))
        except RondelError as error:
            return problem(error)
        except Exception:
            log.exception("%s %s failed", route.method, route.path)
            return problem(Problem(500, "this failed; the log of the server says why"))


def _by_path() -> dict[str, list[Route]]:
    groups: dict[str, list[Route]] = {}
    for route in ROUTES:
        groups.setdefault(route.path, []).append(route)
    return groups


async def _no_route(request: Request, error: Exception) -> Response:
    return problem(Problem(404, f"there is nothing at {request.url.path[:200]!r}; /api/openapi.json lists every route"))


def _starlette_route(web: WebApp, path: str, group: list[Route]) -> StarletteRoute:
    by_method = {route.method: route for route in group}

    async def endpoint(request: Request) -> Response:
        route = by_method.get(request.method)  # type: ignore[call-overload]
        if route is None and request.method == "HEAD":
            route = by_method.get("GET")
        if route is None:
            return problem(Problem(405, f"{request.method} is not supported for {path}; use {', '.join(by_method)}"))
        return await web.answer(route, request)

    methods = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD"]
    return StarletteRoute(path, endpoint, methods=methods)


def _check_site(request: Request) -> None:
    """Refuse changes that another site's page asks for. Programs send no such header."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method not in ("GET", "HEAD") and site not in ("same-origin", "none"):
        raise Problem(403, "changes are accepted from our own page and from programs, not from other sites")


def _cors(origin: str) -> dict[str, str]:
    """Headers that let an allowed web page read the answer."""
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-headers": "*, authorization",
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "vary": "origin",
    }


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    more = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending


def problem(error: RondelError) -> Response:
    # A provider's status is not ours: its 401 would log people out of the page.
    is_theirs = isinstance(error, EngineError) and not isinstance(error, LimitReached)
    status = 502 if is_theirs else getattr(error, "status", 400)
    headers: dict[str, str] = {"cache-control": "no-store"}
    if (wait := getattr(error, "retry_after_s", None)) is not None:
        headers["retry-after"] = str(max(1, round(wait)))
    said = str(error)  # it may repeat what was sent, and often ends with what to do
    said = said if len(said) <= SAID_CHARS_MAX else f"{said[: SAID_CHARS_MAX // 2]}…{said[-SAID_CHARS_MAX // 2 :]}"
    return Response(encode({"error": said}), status, headers, "application/json")
