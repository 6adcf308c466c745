"""Errors of model servers, as all dialects tell them: an answer with a status, an envelope with a type and a message.

Knows no network; what a status or an error's type means is the same everywhere.
"""

from __future__ import annotations

import re

import msgspec

from ..dialect import Json
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

QUOTE_MAX = 500
"""How many characters of a server's own words an error quotes."""

_KINDS: tuple[tuple[type[EngineError], tuple[str, ...]], ...] = (
    (EngineDenied, ("auth", "permission", "api_key", "forbidden", "billing")),
    (EngineOverloaded, ("overloaded", "rate_limit", "api_error", "server_error", "internal", "unavailable")),
    (EngineTimeout, ("timeout", "timed_out")),
    (PromptRejected, ("invalid", "not_found", "too_large", "too_small", "policy", "context_length", "unsupported")),
)

_REJECTED = {"404": 404, "413": 413, "422": 422, "not_found_error": 404, "request_too_large": 413}


def error_of_answer(status: int, body: bytes, *, provider: str, model: str) -> EngineError:
    """The error that an HTTP answer means, with the server's own words and what to do."""
    who = provider or "the model server"
    said, code = _words(body)
    said = said.removesuffix(".") if not said.endswith("..") else said  # the sentence goes on
    quoted = f": {said}" if said else ""
    code = code or str(status)
    if status in (401, 403):
        message = f"{who} refused the key (status {status}){quoted}; check that the key is right and may use {model!r}"
        return EngineDenied(message, provider=provider, model=model, code=code)
    if status == 402:
        message = f"{who} wants to be paid first (status 402){quoted}; check the account that the key belongs to"
        return EngineDenied(message, provider=provider, model=model, code=code)
    if status == 408:
        message = f"{who} gave up waiting (status 408){quoted}; try again"
        return EngineTimeout(message, provider=provider, model=model, code=code)
    if status == 429 or status >= 500:
        message = f"{who} has no capacity now (status {status}){quoted}; try again later"
        return EngineOverloaded(message, provider=provider, model=model, code=code)
    if status >= 400:
        message = f"{who} rejected the request (status {status}){quoted}; change what is asked"
        return PromptRejected(message, provider=provider, model=model, code=code)
    message = f"{who} answered with status {status}, which is neither a reply nor an error{quoted}; check the base URL"
    return EngineGarbled(message, provider=provider, model=model, code=code)


def error_in_stream(error: object, *, fallback: str = "") -> EngineError:
    """The error that a server wrote into its stream, from its `error` object (or its plain words)."""
    said, code = _words_of(error)
    number = _status_of(error)
    kind = next((kind for kind, marks in _KINDS if any(mark in code.lower() for mark in marks)), None)
    if kind is None and number:
        kind = type(error_of_answer(number, b"", provider="", model=""))
    kind = kind or EngineOverloaded
    reason = said or fallback or code or "it gave no reason"
    return kind(f"the model server broke off with an error: {reason}", code=code)


def status_of(error: EngineError) -> int:
    """The HTTP status with which a gateway passes an error on.

    A provider that refuses the key has refused ours (it is named in the error): the caller's own key is good, and a
    client that is told 401 asks its person to log in again. So that is 502, a fault behind the gateway. Only a refusal
    by the gateway itself, which is no provider's, is the caller's 401 or 403. What a provider says of the request
    itself, or of its load, keeps its status: clients know what to do about 413 or 429.
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
    """What an answer's body says, and its error code."""
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
    """Some servers put an HTTP status into `code`."""
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
