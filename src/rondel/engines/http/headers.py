"""Headers: which of the caller's are sent to a model's server, which of the answer's are returned, and how long to
wait.

Knows no client and no wire format.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from functools import lru_cache
from math import isnan

from ...text.redaction import Redactor

_SENT = ("anthropic-", "openai-", "x-")
"""Headers with these prefixes are for the model's server: beta features, versions, marks of an SDK."""
_SENT_ALSO = frozenset({"idempotency-key", "session_id", "session-id", "thread-id", "conversation_id", "originator"})
_KEPT_BACK = (
    *("key", "token", "auth", "secret", "cookie", "credential", "password", "csrf", "xsrf"),
    *("model", "forwarded", "-ip", "x-original-", "x-rewrite-", "x-http-method", "x-rondel-"),
    *("x-amz", "x-envoy-", "x-vercel-", "x-appengine-", "x-cloud-"),
)
"""Headers with these words are not sent: they identify the caller or belong to the network in between, or name a model,
which the gateway decides."""
_LISTS = frozenset({"anthropic-beta", "openai-beta"})
"""Headers that are lists: the values of the endpoint and of the caller are both sent."""

RETRY_AFTER_MAX_S = 30 * 86_400.0
"""Longer pauses are shortened to this: weekly limits exist, and so do servers that send nonsense."""
NAME_CHARS_MAX = 100  # longer names are ignored, because decisions are cached by name
_SHOWN = ("anthropic-", "openai-", "x-ratelimit-")
_SHOWN_ALSO = frozenset({"request-id", "x-request-id"})
_ACCOUNT = frozenset({"anthropic-organization-id", "openai-organization", "openai-project"})
"""Headers that show whose key was used; callers do not get them."""


@lru_cache(maxsize=1024)
def _is_sent(name: str) -> bool:
    if name in _SENT_ALSO:
        return True
    return name.startswith(_SENT) and not any(word in name for word in _KEPT_BACK)


@lru_cache(maxsize=1024)
def _shown_as(name: str) -> str:
    name = name.lower()
    return name if name in _SHOWN_ALSO or (name.startswith(_SHOWN) and name not in _ACCOUNT) else ""


def for_servers(caller: Mapping[str, str]) -> Mapping[str, str]:
    """Return the caller's headers that are for the model's server, without those that identify the caller or are for
    one hop only."""
    sent = {name: value for name, value in caller.items() if len(name) <= NAME_CHARS_MAX and _is_sent(name)}
    if sent and (ends_here := caller.get("connection", "keep-alive")) != "keep-alive":
        for name in _hops(ends_here):
            sent.pop(name, None)
    return sent


def sent_on(own: Mapping[str, str], endpoint: Mapping[str, str], caller: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers of a relayed request: the caller's override our own, and the endpoint's override both. `own`
    already has the endpoint's, and is returned if the caller sends none."""
    callers = for_servers(caller)
    if not callers:
        return own
    sent = {**own, **callers, **endpoint}
    for name in _LISTS & endpoint.keys() & callers.keys():
        sent[name] = ",".join(dict.fromkeys(part.strip() for part in f"{endpoint[name]},{caller[name]}".split(",")))
    return sent


def _hops(connection: str) -> set[str]:
    return {name.strip().lower() for name in connection.split(",")}


def shown(headers: Mapping[str, str], content_type: str, redactor: Redactor) -> dict[str, str]:
    """Return the headers of an answer that a caller may see, with names in lower case."""
    seen = {
        kept: redactor.text(value)
        for name, value in headers.items()
        if len(name) <= NAME_CHARS_MAX and (kept := _shown_as(name))
    }
    seen["content-type"] = content_type
    return seen


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long a server asks to wait: milliseconds, seconds, or a date by its own clock if it sends one."""
    if (wait_ms := _number(headers.get("retry-after-ms"))) is not None:
        wait_s = wait_ms / 1000
    elif (wait_s := _number(headers.get("retry-after"))) is None:
        if (until_s := _moment(headers.get("retry-after"))) is None:
            return None
        now_s = _moment(headers.get("date"))
        wait_s = until_s - (now_s if now_s is not None else time.time())
    return min(max(0.0, wait_s), RETRY_AFTER_MAX_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if isnan(number) else number


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
