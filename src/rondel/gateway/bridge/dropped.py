"""Lists the fields of a request that the model, or its dialect, does not support. Pure.

Fields that only the caller's dialect has are in the prompt's `opaque`, which other dialects ignore. Each is listed by
the caller's name for it, unless Rondel honours it in another way or its value is the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from ...contracts.fitting import fitted
from ...prompt import Prompt
from ...values import Media, ModelFacts, Options

NAMES_MAX = 30
NAME_CHARS_MAX = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_HONOURED = {
    "anthropic": ("thinking", "output_config.effort"),
    "openai-chat": ("reasoning_effort", "stream_options.include_usage", "user"),
    "openai-responses": ("store", "include", "user", "previous_response_id", "reasoning.effort", "reasoning.summary"),
}
"""Fields that are sent in another form, or that the gateway handles itself."""
_NESTED = ("output_config", "stream_options", "reasoning", "text")
"""Fields that may be sent in part: only the keys that are dropped are listed."""
_DEFAULTS: tuple[object, ...] = (None, False, 0, "", [], "auto", "default", "disabled", ["text"], {"type": "text"})
_LACKING = {"anthropic": ("seed",), "openai-chat": (), "openai-responses": ("seed", "stop", "top_k")}
"""Options that a dialect does not have."""
_SAMPLING = ("temperature", "top_p", "top_k")
_OWN_NAMES = {
    "anthropic": {"stop": "stop_sequences", "thinking": "thinking"},
    "openai-chat": {"thinking": "reasoning_effort"},
    "openai-responses": {"thinking": "reasoning.effort"},
}
"""The caller's name of an option, where dialects differ."""


def dropped(prompt: Prompt, caller: str, model: str, facts: ModelFacts, *, has_audio: bool) -> tuple[str, ...]:
    """Return the names of the fields that the model will not receive, sorted. `has_audio` says that the prompt may
    contain audio, which the model cannot take."""
    names = set(_options(prompt, caller, model, facts))
    if caller != model:
        names.update(set(_fields(prompt.opaque.get(caller))).difference(_HONOURED.get(caller, ())))
        names.update(
            f"tools.{spec.name}"
            for spec in prompt.tools
            if spec.opaque and not spec.schema and _is_server_tool(spec.opaque)
        )
        parts = (part for message in prompt.messages for part in message.parts) if has_audio else ()
        if any(isinstance(part, Media) and part.kind == "audio" for part in parts):
            names.add("input_audio")
    if not names:
        return ()
    safe = sorted({_UNSAFE.sub("?", name[:NAME_CHARS_MAX]) for name in names})
    more = len(safe) - NAMES_MAX
    return tuple(safe) if more <= 0 else (*safe[:NAMES_MAX], f"and {more} more")


def _fields(opaque: object) -> Iterator[str]:
    for name, value in cast("dict[str, Any]", opaque).items() if isinstance(opaque, dict) else ():
        if name in _NESTED and isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            yield from (f"{name}.{key}" for key in inner if inner[key] not in _DEFAULTS)
        elif value not in _DEFAULTS:
            yield name


def _options(prompt: Prompt, caller: str, model: str, facts: ModelFacts) -> Iterator[str]:
    """Yield the options that the model's dialect lacks and those that the model refuses."""
    options, sent = prompt.options, fitted(prompt, facts, model).options
    names = _OWN_NAMES.get(caller, {})
    for option in _LACKING.get(model, ()) if caller != model else ():
        if getattr(options, option) not in (None, ()):
            yield names.get(option, option)
    if sent is not options:
        yield from (option for option in _SAMPLING if getattr(options, option) != getattr(sent, option))
        if _thinks(options) and not _thinks(sent):
            yield names.get("thinking", "thinking")


def _thinks(options: Options) -> bool:
    return options.thinking not in (None, "off") or options.thinking_tokens_max is not None


def _is_server_tool(opaque: dict[str, Any]) -> bool:
    kinds = [cast("dict[str, Any]", fields).get("type") for fields in opaque.values() if isinstance(fields, dict)]
    return any(kind not in (None, "namespace") for kind in kinds)
