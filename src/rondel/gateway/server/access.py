"""Access control: hosts, origins, keys. Checked on every route before the body of a request is read.

A web page must not reach a gateway on its visitor's machine, whatever name it uses for that machine (DNS rebinding). So
the Host and Origin headers are checked even if no key is needed. Knows no dialect and no network.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import urlsplit

from ...contracts.endpoint import PROVIDERS, Provider
from ...errors import ConfigError, RondelError
from ...project.config import BUILTIN_ENGINES, canonical_engine
from ...project.settings import EngineSettings, KeySettings
from ...values import Person
from ..routing.routes import AGENT

HOST_CHARS_MAX = 300  # longer Host headers are refused
KEY_CHARS_MIN = 16  # of a key that strangers can try
OTHERS = (AGENT, "knowledge:")  # what a key may use besides engines
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MISSING = "No API key: send it as `Authorization: Bearer …` or `x-api-key`."
WRONG, FOREIGN = "Invalid API key", "CORS not allowed for this origin"


class Refused(RondelError):
    """A request that is not allowed. `status` is 401 or 403."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Access:
    """`hosts` and `origins` are allowed in addition to the local ones."""

    def __init__(
        self,
        keys: Mapping[str, KeySettings],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        engines: Mapping[str, EngineSettings] | None = None,
    ) -> None:
        self.keys = keys
        self._engines = engines or {}
        self._permits = {name: Permit(key.models, self._engines) for name, key in keys.items()}
        self._keys = [(name, _data(key.key), key) for name, key in keys.items()]
        own = {f"http://{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]")}
        self._origins = own | {origin.rstrip("/").lower() for origin in origins}
        self._hosts = {*LOOPBACK, host.strip("[]").lower(), *(name.lower() for name in hosts)}
        self._any_address = bool(keys)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if the request is meant for another host, or comes from a web page of another site."""
        host = headers.get("host", "")
        name = _host_of(host) if len(host) <= HOST_CHARS_MAX else ""
        # With keys an IP address is as good as a name: DNS cannot rebind it, and a key is still needed.
        if name not in self._hosts and not (self._any_address and _is_address(name)):
            shown = host[:HOST_CHARS_MAX]
            raise Refused(403, f"this gateway is not {shown!r}; add it to `hosts` in [gateway] if it should be")
        origin = headers.get("origin", "")
        if origin and not self.allows_origin(origin):
            raise Refused(403, FOREIGN)

    def allows_origin(self, origin: str) -> bool:
        return origin.rstrip("/").lower() in self._origins

    def permit(self, key: str) -> Permit:
        return self._permits.get(key, _ANYTHING)

    def allows(self, key: str, name: str) -> bool:
        """Whether a key may use an agent (`agent:name`), or an engine with its own fallbacks, as a person wrote it."""
        if name.startswith(OTHERS):
            return self.permit(key).allows(name)
        name = canonical_engine(name, self._engines)
        settings = self._engines.get(name.partition(":")[0], EngineSettings())
        chain = (name, *(canonical_engine(other, self._engines) for other in settings.fallback))
        return all(map(self.permit(key).allows, chain))

    def person(self, key: str) -> Person:
        """Return the person that a key belongs to: the one that it names, else one of the key's own name."""
        settings = self.keys.get(key, KeySettings())
        return Person(settings.person or key, roles=settings.roles, origin="key")

    def check_key(self, headers: Mapping[str, str], now: float) -> str:
        """Return the name of the caller's key; empty if no key is needed. Raises Refused."""
        if not self._keys:
            return ""
        given = headers.get("authorization") or headers.get("x-api-key") or ""
        scheme, _, rest = given.partition(" ")
        if scheme.lower() == "bearer":
            given = rest.strip()
        if not given:
            raise Refused(401, MISSING)
        data, found = _data(given), None
        for name, other, key in self._keys:  # compare all, always: the time reveals at most their lengths
            if hmac.compare_digest(data, other):
                found = name, key
        if found is None:
            raise Refused(401, WRONG)
        name, key = found
        if key.expires and now >= _end_of(key.expires):
            raise Refused(401, f"the key {name!r} expired on {key.expires}; ask for a new one")
        return name


class Permit:
    """Which engines, agents and knowledge bases a key may use, by the patterns in its `models`; without patterns, all.

    Patterns are compared with the engine that a request was routed to, never with what its caller wrote:

    - `engine:model` is compared with the whole name.
    - An engine's name matches that engine with the models that are configured for it.
    - Any other pattern without a colon is compared with names of engines and of models. A model's name counts only if
      it is configured for that engine or belongs to a hosted provider: many servers accept any name.
    - An agent needs a pattern that begins with `agent:`, a base one with `knowledge:`. `*` matches everything.
    """

    def __init__(self, patterns: Sequence[str] = (), engines: Mapping[str, EngineSettings] | None = None) -> None:
        self._patterns = tuple(patterns)
        self._engines = engines or {}
        self._heads = frozenset((*BUILTIN_ENGINES, *PROVIDERS, *self._engines))
        self.is_limited = bool(self._patterns) and "*" not in self._patterns

    def allows(self, name: str) -> bool:
        """Whether the key may use an engine (`engine`, `engine:model`), an agent (`agent:name`) or a base."""
        if not self.is_limited:
            return True
        for prefix in OTHERS:
            if name.startswith(prefix):
                return any(fnmatchcase(name, pattern) for pattern in self._patterns if pattern.startswith(prefix))
        return any(self._fits(name, pattern) for pattern in self._patterns if not pattern.startswith(OTHERS))

    def _fits(self, name: str, pattern: str) -> bool:
        head, _, model = name.partition(":")
        settings = self._engines.get(head, EngineSettings())
        provider = PROVIDERS.get(settings.provider or head, Provider(""))
        own = settings.model or provider.model
        model = model or own
        if ":" in pattern:
            return fnmatchcase(f"{head}:{model}" if model else head, pattern)
        is_configured = model in (own, *settings.models)
        if fnmatchcase(head, pattern) and is_configured:
            return True
        is_hosted = bool(provider.base_url) and not provider.is_local and not settings.base_url
        return pattern not in self._heads and (is_configured or is_hosted) and fnmatchcase(model, pattern)


def check_binding(host: str, keys: Mapping[str, KeySettings]) -> None:
    """Raise if strangers could use the gateway: without a key, or by guessing one."""
    short = next((name for name, key in keys.items() if len(key.key) < KEY_CHARS_MIN), None)
    if short is not None and not is_loopback(host):
        raise ConfigError(
            f"the key {short!r} can be guessed: a gateway that others can reach needs keys of at least "
            f"{KEY_CHARS_MIN} characters; `openssl rand -hex 24` makes one"
        )
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"without a key the gateway listens on this machine only, and {host!r} is not; "
            'add a key, `[gateway.keys.<name>] key = "${NAME}"`, or use host = "127.0.0.1"'
        )


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_ANYTHING = Permit()


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
    moment = datetime.fromisoformat(day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
