"""Removes secrets from everything that leaves the program: answers, errors, logs, and names from an upstream.

Text of models is not searched, except in bytes that are relayed. Pure.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ..errors import EngineError

HIDDEN = "***"
KEY_CHARS_MIN = 4
VALUE_CHARS_MIN = 8  # a shorter value of a header or a query is not a secret, but a word such as `true` or `v1`
PUBLIC_HEADERS = frozenset(
    (
        *("accept", "accept-encoding", "accept-language", "content-type", "user-agent", "referer", "http-referer"),
        *("x-title", "anthropic-version", "anthropic-beta", "openai-beta"),
    )
)  # Headers whose values are not secret. The values of all others count as secrets.


_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:api_?)?(?:keys?|token|secrets?|passwords?|passwd|passphrase|authorization|cookie|credentials?)$"
)
_SECRET_WORDS = frozenset(
    ("key", "keys", "apikey", "token", "tokens", "secret", "secrets", "password", "passwd", "pass", "passphrase", "pat")
) | {"credential", "credentials", "cookie"}
KEY_PREFIX = r"\b(?:sk|pk|rk|gsk|hf|xai|r8|ghp|gho|ghs|ghu|github_pat|glpat|xox[abeprs])[-_]"
"""A pattern: how keys of many services begin."""
KEY_WITHOUT_PREFIX = r"\b(?:AKIA|ASIA|AIza)[\w-]{12,}|\beyJ[\w-]{8,1000}+\.[\w.-]{8,}"
"""A pattern: keys of AWS and Google, and signed tokens (JWT)."""
_SECRET_TEXT = re.compile(rf"(?i:{KEY_PREFIX}[\w-]{{12,}}|\bBearer\s+\S+)|{KEY_WITHOUT_PREFIX}")


def is_secret(name: str) -> bool:
    """Return whether a key, a header or a variable of this name is a secret."""
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) is not None


def looks_secret(text: str) -> bool:
    return _SECRET_TEXT.search(text) is not None


class Redactor:
    """Removes secrets from texts. Without secrets it costs nothing."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = frozenset(secret for secret in secrets if len(secret) >= KEY_CHARS_MIN)
        forms = {form for secret in self.secrets for form in _forms(secret)}
        self._texts = sorted(forms, key=len, reverse=True)  # the longest first, so that no part of one is left
        self._data = [text.encode("utf-8", "surrogatepass") for text in self._texts]

    def text(self, text: str) -> str:
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def data(self, data: bytes) -> bytes:
        for secret in self._data:
            if data.find(secret) >= 0:  # `in` is slower for bytes: it first tries them as a number
                data = data.replace(secret, HIDDEN.encode())
        return data

    def error(self, error: EngineError) -> EngineError:
        error.args = tuple(self.text(said) if isinstance(said, str) else said for said in error.args)
        error.code, error.model, error.body = self.text(error.code), self.text(error.model), self.data(error.body)
        return error


def _forms(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, in JSON as various servers write it, and in an address. A variable may contain bytes
    that are not UTF-8."""
    in_json = json.dumps(secret)[1:-1]
    in_page = in_json.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return secret, in_json, in_json.replace("/", r"\/"), in_page, quote(secret, safe="", errors="surrogatepass")


def without_secrets(
    env: Mapping[str, str], *, redactor: Redactor | None = None, keep: Collection[str] = ()
) -> dict[str, str]:
    """Return the environment for a process that a model controls: without variables that have a secret's name, look
    like one, or contain one of the redactor's. Those in `keep` stay."""
    redactor = redactor or Redactor()
    return {
        name: value
        for name, value in env.items()
        if name in keep
        or not (
            _SECRET_WORDS.intersection(name.lower().split("_"))
            or looks_secret(value)
            or any(secrets_in_url(value))
            or redactor.text(value) != value
        )
    }


def secrets_in_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret parts of headers: what follows a scheme such as `Bearer`, or the value, and the password in
    basic authentication."""
    for name, value in headers.items():
        if name.lower() in PUBLIC_HEADERS:
            continue
        scheme, _, rest = value.partition(" ")
        found = [rest.strip() if scheme.isalpha() and len(rest.strip()) >= VALUE_CHARS_MIN else value]
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):  # it is not base64
                found.append(base64.b64decode(rest, validate=True).decode().partition(":")[2])
        yield from (secret for secret in found if len(secret) >= VALUE_CHARS_MIN)


def secrets_in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.password:
        yield from {parts.password, unquote(parts.password)}
    yield from (value for _, value in parse_qsl(parts.query) if len(value) >= VALUE_CHARS_MIN)


def is_web_address(text: str) -> bool:
    """Return whether a text is the address of a host: `http://host` or `https://host`, with or without a port and a
    path."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half of an IPv6 address, or a port that is not a number
        return False


def shown_url(text: str) -> str:
    """Return a text without its user, password and query, if it is a web address."""
    if "://" not in text:
        return text
    head, _, query = text.partition("?")
    scheme, _, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" + ("?***" if query else "")
