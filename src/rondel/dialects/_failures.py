"""Errors of model servers, which all dialects write alike: a status, and an envelope with a type and a message.

Knows no network. A status, or the type of an error, means the same in all dialects.
"""

from __future__ import annotations

import re

import msgspec

from ..contracts.dialect import Json
from ..errors import (
    EngineDenied,
    EngineError,
    EngineGarbled,
    EngineOverloaded,
    EngineTimeout,
    EngineUnreachable,
    PromptRejected,
)
from ._wire import as_object, decode_json

QUOTE_MAX = 500  # how many characters of a server's own words an error quotes

_KINDS: tuple[tuple[type[EngineError], tuple[str, ...]], ...] = (
    (EngineDenied, ("auth", "permission", "api_key", "forbidden", "billing")),
    (EngineOverloaded, ("overloaded", "rate_limit", "api_error", "server_error", "internal", "unavailable")),
    (EngineTimeout, ("timeout", "timed_out")),
    (PromptRejected, ("invalid", "not_found", "too_large", "too_small", "policy", "context_length", "unsupported")),
)

_NO_CAPACITY = (429, 503, 529)
_REJECTED = {"404": 404, "413": 413, "422": 422, "not_found_error": 404, "request_too_large": 413}


def error_of_answer(status: int, body: bytes, *, provider: str, model: str) -> EngineError:
    """Return the error that an HTTP answer means, with the server's message and what to do."""
    who = provider or "the model server"
    said, code = _words(body)
    said = said.removesuffix(".") if not said.endswith("..") else said  # it is quoted inside a longer sentence
    quoted = f": {said}" if said else ""
    code = code or str(status)
    if status in (401, 403):
        message = f"{who} refused the key (status {status}){quoted}; check that the key is right and may use {model!r}"
        return EngineDenied(message, provider=provider, model=model, code=code)
    if status == 402:
        message = f"{who} requires payment (status 402){quoted}; check the account that the key belongs to"
        return EngineDenied(message, provider=provider, model=model, code=code)
    if status == 408:
        message = f"{who} gave up waiting (status 408){quoted}; try again"
        return EngineTimeout(message, provider=provider, model=model, code=code)
    if status == 429 or status >= 500:
        has_capacity = status not in _NO_CAPACITY and "overloaded" not in code
        what = "had an internal error" if has_capacity else "has no capacity now"
        what = "refused the request (429)" if status == 429 else f"{what} (status {status})"
        message = f"{who} {what}{quoted}; try again later"
        return EngineOverloaded(message, provider=provider, model=model, code=code)
    if status >= 400:
        fix = f"check the name of the model {model!r}, and the base URL" if status == 404 else "change the request"
        message = f"{who} rejected the request (status {status}){quoted}; {fix}"
        return PromptRejected(message, provider=provider, model=model, code=code)
    message = f"{who} answered with status {status}, which is neither a reply nor an error{quoted}; check the base URL"
    return EngineGarbled(message, provider=provider, model=model, code=code)


def error_in_stream(error: object, *, fallback: str = "") -> EngineError:
    """Return the error that a server wrote into its stream, from its `error` object or text."""
    said, code = _words_of(error)
    number = _status_of(error)
    kind = next((kind for kind, marks in _KINDS if any(mark in code.lower() for mark in marks)), None)
    if kind is None and number:
        kind = type(error_of_answer(number, b"", provider="", model=""))
    kind = kind or EngineOverloaded
    reason = said or fallback or code or "it gave no reason"
    return kind(f"the model server broke off with an error: {reason}", code=code)


def status_of(error: EngineError) -> int:
    """Return the HTTP status with which the gateway passes an error on.

    If a provider refuses the key (the error then names the provider), it is the gateway's key and not the caller's.
    Clients that get 401 ask people to log in again, so this is 502. Only what the gateway itself refuses is 401 or 403.
    Errors about the request or the load keep the provider's status: clients know what to do about 413 or 429.
    """
    if isinstance(error, EngineDenied):
        if error.provider:
            return 502
        return 403 if "permission" in error.code or error.code == "403" else 401
    if isinstance(error, PromptRejected):
        if 400 <= error.status < 500:
            return error.status
        return _REJECTED.get(error.code, 400)
    if isinstance(error, EngineOverloaded):
        if error.status == 429 or error.status >= 500:
            return error.status
        return 429 if "rate" in error.code or error.code == "429" else 503
    if isinstance(error, EngineTimeout):
        return 504
    if isinstance(error, (EngineUnreachable, EngineGarbled)):
        return 502
    return 500


def _words(body: bytes) -> tuple[str, str]:
    """Return the message in an answer's body, and its error code."""
    if _is_html(body):
        return "it answered an HTML page, not JSON; is the base URL right?" + _title(body), ""
    try:
        value = decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _cut(body.decode("utf-8", "replace")), ""
    if isinstance(value, list) and value:  # some servers wrap the envelope in a list
        value = value[0]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return _cut(str(value)), ""  # pyright: ignore[reportUnknownArgumentType]
    raw = as_object(value)  # pyright: ignore[reportUnknownArgumentType]
    inner = next((raw[key] for key in ("error", "detail", "message") if raw.get(key)), raw)
    said, code = _words_of(inner)
    return said, code


def _words_of(error: object) -> tuple[str, str]:
    if not isinstance(error, dict):
        return _cut(error if isinstance(error, str) else msgspec.json.encode(error).decode() if error else ""), ""
    raw = as_object(error)  # pyright: ignore[reportUnknownArgumentType]
    said = raw.get("message") or raw.get("detail")
    code = next((str(raw[key]) for key in ("code", "type", "status") if raw.get(key)), "")
    return _cut(said if isinstance(said, str) else msgspec.json.encode(raw).decode()), code


def _status_of(error: object) -> int:
    """Return the HTTP status in `code`, where some servers put it."""
    if not isinstance(error, dict):
        return 0
    raw: Json = as_object(error)  # pyright: ignore[reportUnknownArgumentType]
    return next((int(raw[key]) for key in ("code", "status") if str(raw.get(key, "")).isdigit()), 0)


def _is_html(body: bytes) -> bool:
    return body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))


def _title(body: bytes) -> str:
    match = re.search(rb"<title[^>]*>(.{1,120}?)</title>", body[:20_000], re.IGNORECASE | re.DOTALL)
    return f" (its title: {_cut(match[1].decode('utf-8', 'replace').strip())!r})" if match else ""


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= QUOTE_MAX else text[: QUOTE_MAX - 3] + "..."
