"""Headers: which of a caller's go on to a model's server, which of an answer's come back, and how long to wait.

Knows no client and no wire format.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from functools import lru_cache

_SENT = ("anthropic-", "openai-", "x-")
"""What these headers say is for the model's server: beta features, versions, an SDK's own marks."""
_SENT_ALSO = frozenset({"idempotency-key", "session_id", "session-id", "thread-id", "conversation_id", "originator"})
_KEPT_BACK = (
    *("key", "token", "auth", "secret", "cookie", "credential", "password", "csrf", "xsrf"),
    *("forwarded", "-ip", "x-original-", "x-rewrite-", "x-http-method", "x-rondel-"),
    *("x-amz", "x-envoy-", "x-vercel-", "x-appengine-", "x-cloud-"),
)
"""What is the caller's or the network's own: whoever a caller is, is between it and us."""
_LISTS = frozenset({"anthropic-beta", "openai-beta"})
"""Headers that are lists: what an endpoint is set to and what a caller asks for are both wanted."""

_SHOWN = ("anthropic-", "openai-", "x-ratelimit-")
_SHOWN_ALSO = frozenset({"request-id", "x-request-id"})
_ACCOUNT = frozenset({"anthropic-organization-id", "openai-organization", "openai-project"})
"""Whose key it was that asked is not for callers to know."""


@lru_cache(maxsize=1024)
def _is_sent(name: str) -> bool:
    if name in _SENT_ALSO:
        return True
    return name.startswith(_SENT) and not any(word in name for word in _KEPT_BACK)


@lru_cache(maxsize=1024)
def _shown_as(name: str) -> str:
    """A header's name for callers; empty when they do not get to see it."""
    name = name.lower()
    return name if name in _SHOWN_ALSO or (name.startswith(_SHOWN) and name not in _ACCOUNT) else ""


def for_servers(caller: Mapping[str, str]) -> Mapping[str, str]:
    """Those of a caller's headers that are for the model's server: nothing of who it is, nothing for one hop only."""
    sent = {name: value for name, value in caller.items() if _is_sent(name)}
    if sent and (ends_here := caller.get("connection", "keep-alive")) != "keep-alive":
        for name in _hops(ends_here):
            sent.pop(name, None)
    return sent


def sent_on(own: Mapping[str, str], endpoint: Mapping[str, str], caller: Mapping[str, str]) -> Mapping[str, str]:
    """The headers of a request that is passed on: the caller's win over our own, the endpoint's over both. Our own have
    the endpoint's in them, and are what is given where the caller has none to send on."""
    callers = for_servers(caller)
    if not callers:
        return own
    sent = {**own, **callers, **endpoint}
    for name in _LISTS & endpoint.keys() & callers.keys():
        sent[name] = ",".join(dict.fromkeys(part.strip() for part in f"{endpoint[name]},{caller[name]}".split(",")))
    return sent


def _hops(connection: str) -> set[str]:
    """The headers that a caller says are for the next hop only, which is us."""
    return {name.strip().lower() for name in connection.split(",")}


def shown(headers: Mapping[str, str], content_type: str) -> dict[str, str]:
    """What a caller may see of an answer's headers, with names in lower case."""
    seen = {kept: value for name, value in headers.items() if (kept := _shown_as(name))}
    seen["content-type"] = content_type
    return seen


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait: milliseconds, seconds, or a date, by the server's own clock where it shows it."""
    if (wait_s := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, wait_s / 1000)
    if (wait_s := _number(headers.get("retry-after"))) is not None:
        return max(0.0, wait_s)
    if (until_s := _moment(headers.get("retry-after"))) is not None:
        now_s = _moment(headers.get("date"))
        return max(0.0, until_s - (now_s if now_s is not None else time.time()))
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
