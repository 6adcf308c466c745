"""What OpenAI's two dialects share: words for how much to think, audio formats, the error envelope.

Knows neither dialect's messages nor streams.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..dialect import Json
from ..errors import EngineError, PromptRejected
from ._failures import status_of
from ._wire import extras, text_field

Level: TypeAlias = Literal["off", "minimal", "low", "medium", "high"]

_LEVELS: dict[str, Level] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_EFFORTS: dict[Level | None, str] = {
    "off": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
AUDIO_MIMES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read_effort(raw: Json, key: str, kept: Json) -> Level | None:
    """How much to think; a word that says more than our levels is put into `kept` under the same key."""
    word = text_field(raw, key, "")
    level = _LEVELS.get(word)
    if word and _EFFORTS.get(level) != word:
        kept[key] = word
    return level


def write_effort(level: Level | None, said: object) -> str | None:
    """The effort's word: the one that was once read, while it still means this level."""
    if isinstance(said, str) and _LEVELS.get(said) == level:
        return said
    return _EFFORTS.get(level)


def error_status(error: EngineError) -> int:
    """529 is Anthropic's own; here a server that is overloaded says 503."""
    status = status_of(error)
    return 503 if status == 529 else status


def error_fields(error: EngineError) -> Json:
    """The inner object of an error's envelope."""
    default = "invalid_request_error" if isinstance(error, PromptRejected) else "server_error"
    kind = _ERRORS.get(status_of(error), default)
    return {"message": str(error), "type": kind, "param": None, "code": error.code or None}


def usage_details(raw: Json, known: dict[str, tuple[str, ...]]) -> Json:
    """The details of a usage that our counts do not hold, zeros left out."""
    details: Json = {}
    for key, counts in known.items():
        inner = raw.get(key)
        if isinstance(inner, dict) and (left := {k: v for k, v in extras(inner, *counts).items() if v}):  # pyright: ignore[reportUnknownArgumentType]
            details[key] = left
    return details
