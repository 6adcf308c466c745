"""What OpenAI's two dialects share: words for thinking efforts, audio formats, custom tools, the error envelope.

Knows neither dialect's messages nor streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec

from ..contracts.dialect import Json
from ..contracts.fitting import level_of
from ..errors import EngineError, PromptRejected
from ..prompt import Prompt
from ..values import Message, Options, OutputSchema, Part, StopReason, Text, ThinkingLevel, ToolCall
from ._failures import status_of
from ._names import choice_sent
from ._wire import encode_json, extras, maybe, merge, object_field, own, text_field

_LEVELS: dict[str, ThinkingLevel] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_EFFORTS: dict[ThinkingLevel | None, str] = {level: word for word, level in reversed(_LEVELS.items())}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}

HEADERS: Mapping[str, str] = {"authorization": "Bearer {key}"}

_CHOICES = ("auto", "none", "required")

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
AUDIO_MIMES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read_effort(raw: Json, key: str, kept: Json) -> ThinkingLevel | None:
    """Return how much to think. A word that our levels cannot express exactly is also put into `kept` under the same
    key."""
    word = text_field(raw, key, "")
    level = _LEVELS.get(word)
    if word and _EFFORTS.get(level) != word:
        kept[key] = word
    return level


def write_effort(options: Options, said: object) -> str | None:
    """Return the effort: the caller's own word if it still means this level, otherwise the level's. These dialects have
    no budget of tokens, so it becomes the nearest level."""
    level, tokens_max = options.thinking, options.thinking_tokens_max
    if isinstance(said, str) and _LEVELS.get(said) == level:
        return said
    if level is None and tokens_max is not None:
        return level_of(tokens_max)
    return _EFFORTS.get(level)


TOOL_NAME_MAX = 64  # how long the name of a tool may be here
USER_LENGTH_MAX = 64
"""How long a `user` may be here. Longer ones of other dialects are replaced by a hash."""


def read_user(raw: Json, kept: Json) -> str:
    user = text_field(raw, "user", "")
    if len(user) > USER_LENGTH_MAX:  # the server may not be OpenAI's
        kept["user"] = user
    return user


def write_user(user: str, said: object) -> str | None:
    if len(user) <= USER_LENGTH_MAX or user == said:
        return user or None
    return sha256(user.encode()).hexdigest()


# --- settings that both write alike ---------------------------------------------------------------------------------


def write_plain(message: Message, content: str | list[Json], dialect: str) -> Json:
    kept = own(message, dialect) if message.opaque else {}
    role = kept.get("role", "system") if message.role == "system" else "user"
    return merge(kept, {"role": role, "content": content})


def write_choice(options: Options, choice: str | None, *, nested: bool) -> Json:
    """Return how to choose among the tools. Chat nests a tool's name in `function`."""
    wire: object = choice
    if choice and choice.startswith("tool:"):
        named = {"name": choice_sent(choice, TOOL_NAME_MAX)}
        wire = {"type": "function", **({"function": named} if nested else named)}
    return extras({"tool_choice": wire, "parallel_tool_calls": options.parallel_calls})


def read_choice(body: Json, kept: Json, *, nested: bool) -> str | None:
    choice = body.get("tool_choice")
    if choice is None or choice in _CHOICES:
        return choice
    raw = object_field(body, "tool_choice")
    if raw.get("type") == "function":
        return f"tool:{text_field(object_field(raw, 'function') if nested else raw, 'name')}"
    kept["tool_choice"] = raw
    return None


def write_schema(output: OutputSchema) -> Json:
    described = {"name": output.name, "schema": output.schema, "description": output.description or None}
    return extras({**described, "strict": output.strict})


def read_schema(raw: Json) -> OutputSchema:
    return OutputSchema(
        object_field(raw, "schema"),
        text_field(raw, "name"),
        text_field(raw, "description", ""),
        maybe(raw, "strict", bool),
    )


def natural_stop(parts: Iterable[Part]) -> StopReason:
    held = list(parts)
    if any(isinstance(part, ToolCall) for part in held):
        return "calls"
    return "refusal" if any(isinstance(part, Text) and part.refusal for part in held) else "end"


# --- custom tools: their input is any text. To other dialects that is a function with the single argument `input` -----


def custom_schema(form: Json) -> Json:
    """Return the schema that other dialects get for a custom tool's input, with its grammar."""
    words = "The input, as plain text."
    if isinstance(grammar := form.get("definition"), str):
        words += f" It follows this grammar ({form.get('syntax', 'grammar')}):\n{grammar}"
    return {"type": "object", "properties": {"input": {"type": "string", "description": words}}, "required": ["input"]}


def custom_input(call: ToolCall) -> str:
    """Return the text of a custom call. A model that did not know the tool's kind may have written other arguments."""
    text = call.arguments.get("input")
    if isinstance(text, str):
        return text
    return call.broken or (encode_json(call.arguments).decode() if call.arguments else "")


def customs_of(prompt: Prompt | None, dialect: str) -> frozenset[str]:
    tools = () if prompt is None else prompt.tools
    return frozenset(spec.name for spec in tools if own(spec, dialect).get("type") == "custom")


def as_custom(part: Part, customs: frozenset[str], dialect: str, kind: str) -> Part:
    """Return a call of a caller's custom tool as a custom call, even if the model treated the tool as a function."""
    if not customs or not isinstance(part, ToolCall) or part.name not in customs:
        return part
    return msgspec.structs.replace(part, opaque={**part.opaque, dialect: {**own(part, dialect), "type": kind}})


def error_status(error: EngineError) -> int:
    """Return the status of an error. 529 is Anthropic's own; here an overloaded server sends 503."""
    status = status_of(error)
    return 503 if status == 529 else status


def error_fields(error: EngineError) -> Json:
    default = "invalid_request_error" if isinstance(error, PromptRejected) else "server_error"
    kind = _ERRORS.get(status_of(error), default)
    return {"message": str(error), "type": kind, "param": None, "code": error.code or None}


def usage_details(raw: Json, known: dict[str, tuple[str, ...]]) -> Json:
    """Return the details of a usage that our counts do not contain, without zeros."""
    details: Json = {}
    for key, counts in known.items():
        inner = raw.get(key)
        if isinstance(inner, dict) and (left := {k: v for k, v in extras(inner, *counts).items() if v}):  # pyright: ignore[reportUnknownArgumentType]
            details[key] = left
    return details
