"""Transforms of options: token caps, sampling, more parameters. All of them also edit fields."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ...prompt import Prompt
from ...values import Options, ThinkingLevel
from .base import ANTHROPIC, CHAT, RESPONSES, TOKENS_MAX_FIELDS, Fields, Transform, merged, put, value_of

_LEVELS: dict[str, ThinkingLevel] = {"none": "off", "minimal": "minimal", "low": "low", "medium": "medium"}
"""Efforts by name; others become `high`."""


class MaxToken(Transform, frozen=True):
    """Caps the length of answers, whatever the caller allows; thinking gets at most half of it."""

    name = "maxtoken"
    edits_fields = True
    max_tokens: int

    def __post_init__(self) -> None:
        _check_tokens(self.max_tokens)

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        return prompt.replace(options=_capped(prompt.options, self.max_tokens))

    def on_fields(self, fields: Fields, dialect: str) -> None:
        _cap_fields(fields, dialect, self.max_tokens)


class MaxCompletionTokens(Transform, frozen=True):
    """Renames `max_tokens` to `max_completion_tokens` in relayed bodies, as OpenAI's newer models demand. Prompts
    need no such edit: the dialect writes the newer name."""

    name = "maxcompletiontokens"
    edits_fields = True

    def on_fields(self, fields: Fields, dialect: str) -> None:
        if dialect == CHAT and "max_tokens" in fields:
            old = fields.pop("max_tokens")
            fields.setdefault("max_completion_tokens", old)


class Sampling(Transform, frozen=True):
    """Replaces the caller's sampling options; `max_tokens` is a cap."""

    name = "sampling"
    edits_fields = True
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_tokens(self.max_tokens)

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        options = prompt.options if self.max_tokens is None else _capped(prompt.options, self.max_tokens)
        prompt = prompt.replace(options=msgspec.structs.replace(options, **self._given()))
        if self.repetition_penalty is None:
            return prompt
        kept = {**prompt.opaque.get(dialect, {}), "repetition_penalty": self.repetition_penalty}
        return prompt.replace(opaque={**prompt.opaque, dialect: kept})

    def on_fields(self, fields: Fields, dialect: str) -> None:
        if self.max_tokens is not None:
            _cap_fields(fields, dialect, self.max_tokens)
        for name, value in self._given().items():
            if not (name == "top_k" and dialect == RESPONSES):  # which has no such field
                put(fields, name, value)
        if self.repetition_penalty is not None:
            put(fields, "repetition_penalty", self.repetition_penalty)

    def _given(self) -> dict[str, float]:
        names = ("temperature", "top_p", "top_k")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class StreamOptions(Transform, frozen=True):
    """Asks for the usage at the end of relayed streams, also for callers that did not. Prompts need no such edit: the
    dialect always asks."""

    name = "streamoptions"
    edits_fields = True

    def on_fields(self, fields: Fields, dialect: str) -> None:
        if dialect == CHAT and value_of(fields, "stream") is True:
            said = value_of(fields, "stream_options")
            put(fields, "stream_options", {**(said if isinstance(said, dict) else {}), "include_usage": True})


class CustomParams(Transform, frozen=True):
    """Adds fields to each body, including nested ones. The caller's own values win."""

    name = "customparams"
    edits_fields = True
    takes_any = True
    params: dict[str, Any] = {}

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        kept = merged(prompt.opaque.get(dialect, {}), self.params)
        options = _asked_to_think(prompt.options, self.params)
        return prompt.replace(options=options, opaque={**prompt.opaque, dialect: kept})

    def on_fields(self, fields: Fields, dialect: str) -> None:
        for name, value in self.params.items():
            if name not in fields:
                put(fields, name, value)
            elif isinstance(value, dict):
                put(fields, name, merged(value_of(fields, name), value))


def _check_tokens(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ValueError(f"'max_tokens' is {max_tokens!r}; it must be at least 1")


def _capped(options: Options, cap: int) -> Options:
    thinking = options.thinking_tokens_max
    return msgspec.structs.replace(
        options,
        tokens_max=min(options.tokens_max or cap, cap),
        thinking_tokens_max=None if thinking is None else min(thinking, cap // 2) if thinking >= cap else thinking,
    )


def _cap_fields(fields: Fields, dialect: str, cap: int) -> None:
    names = TOKENS_MAX_FIELDS.get(dialect, ("max_tokens",))
    name = next((name for name in names if name in fields), names[0])
    asked = value_of(fields, name)
    if not isinstance(asked, int) or asked > cap:
        put(fields, name, cap)
    thinking = value_of(fields, "thinking") if dialect == ANTHROPIC else None
    if isinstance(thinking, dict):
        table = cast("dict[str, Any]", thinking)
        if isinstance(budget := table.get("budget_tokens"), int) and budget >= cap:
            put(fields, "thinking", {**table, "budget_tokens": cap // 2})


def _asked_to_think(options: Options, params: dict[str, Any]) -> Options:
    """Turn parameters for thinking into the option for it; a dialect writes them back as they were. The caller's own
    option wins."""
    if options.thinking is not None or options.thinking_tokens_max is not None:
        return options
    thinking, reasoning, output = (_table(params.get(name)) for name in ("thinking", "reasoning", "output_config"))
    effort = params.get("reasoning_effort") or reasoning.get("effort") or output.get("effort")
    level = _LEVELS.get(effort, "high") if isinstance(effort, str) else None
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind == "disabled":
        level = "off"
    elif kind == "adaptive":
        level = level or "high"
    tokens_max = budget if kind == "enabled" and isinstance(budget, int) else None
    return msgspec.structs.replace(options, thinking=level, thinking_tokens_max=tokens_max)


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
