"""Who may come in: hosts, origins, keys. Checked on every route before anything of a request is read.

A web page that somebody visits must not reach a gateway on their own machine, whatever name it gives that machine (DNS
rebinding), so the Host and Origin headers are checked even where no key is needed. Knows no dialect and no network.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import urlsplit

from ..errors import RondelError
from ..settings import KeySettings

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MISSING, WRONG, FOREIGN = "APIKEY is missing", "Invalid API key", "CORS not allowed for this origin"


class Refused(RondelError):
    """A request that does not come in. `status` is 401 or 403."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Access:
    """`hosts` and `origins` are allowed beside the machine's own."""

    def __init__(
        self,
        keys: Mapping[str, KeySettings],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self._keys = [(name, _data(key.key), key) for name, key in keys.items()]
        own = {f"http://{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]")}
        self._origins = own | {origin.rstrip("/").lower() for origin in origins}
        self._hosts = {*LOOPBACK, host.strip("[]").lower(), *(name.lower() for name in hosts)}
        self._any_address = bool(keys)

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Raises Refused when the request was meant for another host, or comes from another site's page."""
        host = headers.get("host", "")
        name = _host_of(host)
        # With keys an address by number is as good as a name: it cannot be rebound, and a key is still needed.
        if name not in self._hosts and not (self._any_address and _is_address(name)):
            raise Refused(403, f"this gateway is not {host!r}; add it to `hosts` in [gateway] if it should be")
        origin = headers.get("origin", "")
        if origin and not self.allows_origin(origin):
            raise Refused(403, FOREIGN)

    def allows_origin(self, origin: str) -> bool:
        return origin.rstrip("/").lower() in self._origins

    def check_key(self, headers: Mapping[str, str], now: float) -> str:
        """The name of the caller's key; empty where none is needed. Raises Refused."""
        if not self._keys:
            return ""
        given = headers.get("authorization") or headers.get("x-api-key") or ""
        scheme, _, rest = given.partition(" ")
        if scheme.lower() == "bearer":
            given = rest.strip()
        if not given:
            raise Refused(401, MISSING)
        data, found = _data(given), None
        for name, other, key in self._keys:  # all of them, always: how long it takes tells at most how long they are
            if hmac.compare_digest(data, other):
                found = name, key
        if found is None:
            raise Refused(401, WRONG)
        name, key = found
        if key.expires and now >= _end_of(key.expires):
            raise Refused(401, f"the key {name!r} expired on {key.expires}; ask for a new one")
        return name


def may_use(key: KeySettings | None, engine: str, asked: str = "") -> bool:
    """Whether a key may use an engine, by the patterns of its `models`. They may also be of the names that callers ask
    for, and that routes give an engine to; a name with an engine in it stands for that engine alone."""
    if key is None or not key.models:
        return True
    names = {engine, engine.partition(":")[2], "" if ":" in asked else asked}
    return any(fnmatchcase(name, pattern) for name in names if name for pattern in key.models)


def check_binding(host: str, keys: Mapping[str, KeySettings]) -> None:
    """Raises when a gateway without keys would listen where others can reach it."""
    if not keys and not is_loopback(host):
        raise RondelError(
            f"without a key the gateway listens on this machine only, and {host!r} is not; "
            'add a key, `[gateway.keys.<name>] key = "${NAME}"`, or take host = "127.0.0.1"'
        )


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _host_of(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _data(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _end_of(day: str) -> float:
    """When a key that expires on this day or at this moment is no longer good."""
    moment = datetime.fromisoformat(day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
