"""Routes of people: who am I, log in, log out, my sessions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...values import Person, Value
from .people import ADMIN, COOKIE, SESSION_S, SessionInfo
from .route import Call, Done, Nothing, Problem, Route, respond


class LogIn(Value, frozen=True):
    key: str


class Me(Value, frozen=True):
    """`needs_key` is False where everyone on this machine is the same local person."""

    person: Person
    needs_key: bool
    version: str
    engine: str
    engine_why: str
    hints: tuple[str, ...]


async def me(call: Call[Nothing, Nothing]) -> Me:
    return _me(call, call.person)


async def log_in(call: Call[LogIn, Nothing]) -> Response:
    gate = call.web.gate
    if not gate.keys:
        raise Problem(400, "no key is needed here")
    browser, client = call.request.headers.get("user-agent", ""), call.request.client
    person, token = await call.web.people.log_in(gate, call.body.key, browser, client.host if client else "")
    answer = respond(_me(call, person))
    answer.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=call.request.url.scheme == "https",
    )
    return answer


async def log_out(call: Call[Nothing, Nothing]) -> Response:
    if call.session:
        await call.web.people.forget(call.session)
    answer = respond(Done())
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


async def sessions(call: Call[Nothing, Nothing]) -> tuple[SessionInfo, ...]:
    return tuple(await call.web.people.sessions(call.web.gate, call.person))


async def end_session(call: Call[Nothing, Nothing]) -> Done:
    if not await call.web.people.end(call.web.gate, call.person, call.path("session")):
        raise Problem(404, "there is no such session")
    return Done()


def _me(call: Call[Any, Any], person: Person) -> Me:
    about, is_admin = call.web.about, ADMIN in person.roles
    why, hints = (about.why, about.hints) if is_admin else ("the owner of this server chose it", ())  # may name a path
    return Me(person, bool(call.web.gate.keys), about.version, about.engine, why, hints)


ROUTES = (
    Route("GET", "/api/me", me, "Show who you are and which engine answers by default.", returns=Me),
    Route("POST", "/api/session", log_in, "Log in with a key; the answer sets a cookie.", "public", body=LogIn,
          returns=Me),
    Route("DELETE", "/api/session", log_out, "Log out."),
    Route("GET", "/api/sessions", sessions, "List your open sessions.", returns=tuple[SessionInfo, ...]),
    Route("DELETE", "/api/sessions/{session}", end_session, "End a session."),
)  # fmt: skip
