"""Who asks: the holder of a key, a session that a key opened, or the local person where no keys are needed.

Nothing of a key is stored, only a hash: a session ends when its key is changed, removed or has expired.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import NamedTuple, Protocol

import msgspec
from starlette.requests import Request

from ...contracts.clock import Clock
from ...contracts.store import KeyValueStore
from ...project.settings import KeySettings
from ...values import Person, Value
from .route import Problem

COOKIE = "rondel_session"
NAMESPACE = "web-session"
SESSION_S = 30 * 86_400.0
SESSIONS_MAX = 1_000  # of all people; if there are more, the key with the most sessions loses its oldest
WRONG_MAX, WRONG_S = 10, 60.0  # how many wrong keys an address may try to log in with in this time
ADDRESSES_MAX = 1_000  # addresses whose wrong keys are remembered
ADDRESS_CHARS_MAX = 64  # a proxy may pass on anything as an address
IPV6_BITS = 64  # of an address: what a provider gives to one customer
LOCAL = Person("user", roles=("admin",))
"""The person at this machine, the same as in the terminal."""
ADMIN = "admin"


class Gate(Protocol):
    """The gateway's access control. It raises an error with a `status` for what it refuses."""

    @property
    def keys(self) -> Mapping[str, KeySettings]: ...

    def check_host(self, headers: Mapping[str, str]) -> None: ...

    def check_key(self, headers: Mapping[str, str], now: float) -> str: ...

    def allows(self, key: str, name: str) -> bool: ...

    def person(self, key: str) -> Person: ...


class Caller(NamedTuple):
    """Who asks, with the name of the key and the id of the session, if there is one."""

    person: Person
    key: str = ""
    session: str = ""


class SessionInfo(Value, frozen=True):
    """An open log-in, as its owner sees it. `id` ends it."""

    id: str
    key: str
    created_at: float
    until: float
    browser: str = ""


class _Session(Value, frozen=True):
    key: str  # the name of the key that opened it
    print: str  # a hash of the key's value
    created_at: float
    until: float
    browser: str = ""


class People:
    def __init__(self, store: KeyValueStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()  # by address: when it tried a wrong key

    async def who(self, gate: Gate, request: Request) -> Caller:
        """Return who asks. Raises for strangers."""
        if not gate.keys:
            return Caller(LOCAL)
        headers = dict(request.headers)
        if headers.get("authorization") or headers.get("x-api-key"):
            key = gate.check_key(headers, self._clock.now())
            return Caller(gate.person(key), key)
        token = request.cookies.get(COOKIE, "")
        if token:
            session = await self._read(_hash(token))
            if session is not None and self._is_valid(gate, session):
                return Caller(gate.person(session.key), session.key, _hash(token))
        raise Problem(401, "log in first: POST /api/session with a key, or send the key as a bearer token")

    async def log_in(self, gate: Gate, key: str, browser: str, address: str) -> tuple[Person, str]:
        """Open a session with a key. Returns its person and the secret for the cookie.

        Wrong keys slow down only the address that they come from, so that a stranger cannot lock people out.
        """
        address = _source(address)
        now, wrong = self._clock.now(), self._wrong.get(address, ())
        if len(wrong) == WRONG_MAX and now - wrong[0] < WRONG_S:
            wait = WRONG_S - (now - wrong[0])
            raise Problem(429, f"too many wrong keys; try again in {wait:.0f} s", retry_after_s=wait)
        try:
            name = gate.check_key({"authorization": f"Bearer {key}"}, now)
        except Exception:
            self._wrong.setdefault(address, deque(maxlen=WRONG_MAX)).append(now)
            self._wrong.move_to_end(address)
            if len(self._wrong) > ADDRESSES_MAX:
                self._wrong.popitem(last=False)
            raise
        await self._make_room()
        token = secrets.token_urlsafe(32)
        session = _Session(name, _hash(gate.keys[name].key), now, now + SESSION_S, browser[:200])
        await self._store.put(NAMESPACE, _hash(token), msgspec.json.encode(session), until=session.until)
        return gate.person(name), token

    async def sessions(self, gate: Gate, person: Person) -> list[SessionInfo]:
        """Return a person's open sessions; an admin's list has everyone's."""
        found: list[SessionInfo] = []
        for id in await self._store.keys(NAMESPACE, limit=SESSIONS_MAX):
            session = await self._read(id)
            if session is None or not self._is_valid(gate, session):
                continue
            if ADMIN in person.roles or gate.person(session.key).id == person.id:
                found.append(SessionInfo(id, session.key, session.created_at, session.until, session.browser))
        return found

    async def end(self, gate: Gate, person: Person, id: str) -> bool:
        if id not in [session.id for session in await self.sessions(gate, person)]:
            return False
        return await self._store.remove(NAMESPACE, id)

    async def forget(self, id: str) -> None:
        await self._store.remove(NAMESPACE, id)

    async def _make_room(self) -> None:
        ids = await self._store.keys(NAMESPACE, limit=SESSIONS_MAX)
        if len(ids) < SESSIONS_MAX:
            return
        by_key: dict[str, list[tuple[float, str]]] = {}
        for id in ids:
            if (session := await self._read(id)) is not None:
                by_key.setdefault(session.key, []).append((session.created_at, id))
        if by_key:
            _, oldest = min(max(by_key.values(), key=len))
            await self._store.remove(NAMESPACE, oldest)

    async def _read(self, id: str) -> _Session | None:
        raw = await self._store.get(NAMESPACE, id)
        return None if raw is None else msgspec.json.decode(raw, type=_Session)

    def _is_valid(self, gate: Gate, session: _Session) -> bool:
        key = gate.keys.get(session.key)
        if key is None or session.until <= self._clock.now() or _hash(key.key) != session.print:
            return False
        try:
            gate.check_key({"authorization": f"Bearer {key.key}"}, self._clock.now())  # it may have expired
        except Exception:
            return False
        return True


def _source(address: str) -> str:
    """Return what counts as one address, however it is written: of IPv6 a network, because one caller has all of it."""
    try:
        found = ip_address(address[:ADDRESS_CHARS_MAX])
    except ValueError:
        return address[:ADDRESS_CHARS_MAX]
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found), IPV6_BITS), strict=False))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
