"""What OpenAI's two dialects share: words for how much to think, audio formats, custom tools, the error envelope.

Knows neither dialect's messages nor streams.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec

from ..dialect import Json
from ..errors import EngineError, PromptRejected
from ..prompt import Prompt
from ..values import Options, Part, ToolCall
from ._failures import status_of
from ._wire import encode_json, extras, own, text_field

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
_BUDGETS = ((4_096, "low"), (16_384, "medium"))
"""Below so many tokens of thinking it is this effort."""
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


def write_effort(options: Options, said: object) -> str | None:
    """The effort's word: the one that was once read, while it still means this level. A budget of tokens, which these
    dialects do not have, is told as the effort that takes about as many."""
    level, tokens_max = options.thinking, options.thinking_tokens_max
    if isinstance(said, str) and _LEVELS.get(said) == level:
        return said
    if level is None and tokens_max is not None:
        return next((word for most, word in _BUDGETS if tokens_max < most), "high")
    return _EFFORTS.get(level)


TOOL_NAME_MAX = 64
"""How long the name of a tool may be here."""
USER_LENGTH_MAX = 64
"""How long a `user` may be here. Other dialects' may be longer: they are told apart by what is made of them."""


def read_user(raw: Json, kept: Json) -> str:
    user = text_field(raw, "user", "")
    if len(user) > USER_LENGTH_MAX:  # its server may be another than OpenAI's
        kept["user"] = user
    return user


def write_user(user: str, said: object) -> str | None:
    if len(user) <= USER_LENGTH_MAX or user == said:
        return user or None
    return sha256(user.encode()).hexdigest()


# --- custom tools: their input is any text. To other dialects that is a function with the single argument `input` -----


def custom_schema(form: Json) -> Json:
    """What other dialects are told of a custom tool's input, its grammar included."""
    words = "The input, as plain text."
    if isinstance(grammar := form.get("definition"), str):
        words += f" It follows this grammar ({form.get('syntax', 'grammar')}):\n{grammar}"
    return {"type": "object", "properties": {"input": {"type": "string", "description": words}}, "required": ["input"]}


def custom_input(call: ToolCall) -> str:
    """A custom call's text; a model that did not know what it is may have written other arguments."""
    text = call.arguments.get("input")
    if isinstance(text, str):
        return text
    return call.broken or (encode_json(call.arguments).decode() if call.arguments else "")


def customs_of(prompt: Prompt | None, dialect: str) -> frozenset[str]:
    """The names of a caller's custom tools."""
    tools = () if prompt is None else prompt.tools
    return frozenset(spec.name for spec in tools if own(spec, dialect).get("type") == "custom")


def as_custom(part: Part, customs: frozenset[str], dialect: str, kind: str) -> Part:
    """A call of a caller's custom tool as one, also when it comes from a model that took the tool for a function."""
    if not customs or not isinstance(part, ToolCall) or part.name not in customs:
        return part
    return msgspec.structs.replace(part, opaque={**part.opaque, dialect: {**own(part, dialect), "type": kind}})


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
