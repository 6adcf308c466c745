"""What a route declares, the request that its function gets, and problems as one sentence.

The table of routes is the only list: Starlette's routes, the OpenAPI description and the tests are made from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...app.app import App
from ...charge import Scope
from ...errors import RondelError
from ...values import Value

if TYPE_CHECKING:
    from .people import Caller
    from .server import WebApp

BODY_BYTES_MAX = 48_000_000  # attachments come in the body, in Base64
STRANGERS_BYTES_MAX = 16_000  # of a body that is read before its sender is known
QUERY_CHARS_MAX = 4_000
NAME_CHARS_MAX = 512  # of an agent, or of an engine with its model

Rights: TypeAlias = Literal["public", "person", "admin"]
"""Who may call a route: everyone, everyone with a key or a session, or only admins."""
Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]

B = TypeVar("B", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)


class Nothing(Value, frozen=True):
    """No body, or no query."""


class Open(Value, frozen=True, rename="camel"):
    """A body in the form of a public protocol: fields that we do not know are allowed, and ignored."""


class Done(Value, frozen=True):
    """The answer of a route that has nothing else to say."""

    ok: bool = True


class Problem(RondelError):
    """A request that cannot be answered. `status` is its HTTP status."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        super().__init__(message)


@contextmanager
def refused_with(status: int) -> Generator[None]:
    """Answer errors of the block with this status."""
    try:
        yield
    except Problem:
        raise
    except RondelError as error:
        raise Problem(status, str(error)) from None


class Call(Generic[B, Q]):
    """A request, after access and shape were checked."""

    def __init__(self, app: App, web: WebApp, request: Request, caller: Caller, body: B, query: Q) -> None:
        self.app = app
        self.web = web
        self.request = request
        self.person, self.key, self.session = caller
        self.body = body
        self.query = query

    @property
    def is_admin(self) -> bool:
        return "admin" in self.person.roles

    @property
    def scope(self) -> Scope:
        """What is spent for this request counts for its key."""
        return Scope(key=self.key)

    def check_agent(self, name: str) -> None:
        """Raise if the caller's key may not use this agent."""
        self.check_engine(f"agent:{name}")

    def agent(self, name: str = "") -> str:
        """Return the agent of this name, or the first that the key may use. Raises if there is none."""
        agents = [agent.name for agent in self.app.registry.agents]
        name = name or next((one for one in agents if self.web.gate.allows(self.key, f"agent:{one}")), agents[0])
        if not self.app.registry.knows_agent(name):
            raise Problem(404, f"there is no agent {name[:80]!r}")
        self.check_agent(name)
        return name

    def check_engine(self, name: str) -> None:
        """Raise if no engine has this name, or if the caller's key may not use this engine."""
        if len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise Problem(400, f"{name[:80]!r} is not a name: it may have {NAME_CHARS_MAX} characters on one line")
        if not self.web.gate.allows(self.key, name):
            raise Problem(403, f"the key {self.key!r} may not use {name[:80]!r}; ask the person who gave it to you")

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    @property
    def address(self) -> str:
        """Where the caller reaches this server."""
        return str(self.request.base_url).rstrip("/")

    async def is_still_allowed(self) -> bool:
        """Whether a stream may continue: its key or session may have been revoked."""
        try:
            person = (await self.web.people.who(self.web.gate, self.request)).person
        except RondelError:
            return False
        return person.id == self.person.id and set(self.person.roles) <= set(person.roles)


Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True):
    """One method of one path. `returns` is the type of the JSON answer; a handler may also return a Response."""

    method: Method
    path: str
    handler: Handler
    summary: str
    rights: Rights = "person"
    body: type[Any] = Nothing
    query: type[Any] = Nothing
    returns: Any = Done
    media: str = "application/json"
    reads_body: bool = False
    """The handler reads the body itself, to answer mistakes in the form of its protocol."""


def read_query(request: Request, kind: type[Q]) -> Q:
    if len(request.url.query) > QUERY_CHARS_MAX:
        raise Problem(414, f"the query is longer than {QUERY_CHARS_MAX} characters; shorten it")
    return _convert(dict(request.query_params), kind, "the query", strict=False)


async def read_body(request: Request, kind: type[B], bytes_max: int = BODY_BYTES_MAX) -> B:
    """Read and check the JSON body."""
    if kind is Nothing:
        return kind()
    too_large = Problem(413, f"the body is larger than {bytes_max // 1_000:,} KB; send less")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise too_large
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "the body must be JSON: send it with content-type application/json")
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        size += len(piece)
        if size > bytes_max:
            raise too_large
        pieces.append(piece)
    try:
        raw = msgspec.json.decode(b"".join(pieces))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    return _convert(raw, kind, "the body", strict=True)


def _convert(raw: Any, kind: type[Q], what: str, *, strict: bool) -> Q:
    if isinstance(raw, Mapping) and not issubclass(kind, Open):
        known = {field.encode_name for field in msgspec.structs.fields(kind)}
        if unknown := sorted(set(map(str, raw)) - known):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            listed = ", ".join(sorted(known)) or "nothing"
            raise Problem(400, f"{what} has an unknown field {unknown[0][:80]!r}; it may have: {listed}")
    try:
        return msgspec.convert(raw, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise Problem(400, f"{what} is wrong: {error}") from None


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def sse(value: Any) -> bytes:
    """Return a value as a server-sent event without a name."""
    return b"data: %b\n\n" % encode(value)


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


def respond(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    return Response(encode(value), media_type="application/json")
