"""The contract of a transform, whose fields are its options in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from ...prompt import Prompt
from ...values import Delta, Value

Fields: TypeAlias = dict[str, msgspec.Raw]  # the top level of a caller's body; its values are not decoded
Editor: TypeAlias = Callable[[Delta], Iterable[Delta]]
"""Edits the deltas of one reply in order; it may hold some back until the last one."""

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
TOKENS_MAX_FIELDS = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    RESPONSES: ("max_output_tokens",),
    ANTHROPIC: ("max_tokens",),
}


class Transform(Value, frozen=True):
    """The base of all transforms, which changes nothing."""

    name: ClassVar[str] = ""
    edits_fields: ClassVar[bool] = False
    """Whether it can work on the top level of a body alone, so that requests are relayed."""
    takes_any: ClassVar[bool] = False  # whether its only field is a table of arbitrary options, which is not checked

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        return prompt

    def on_fields(self, fields: Fields, dialect: str) -> None:
        """Make the same edit in place, on a body of this dialect that is relayed."""

    def editor(self, prompt: Prompt) -> Editor | None:
        """Return an editor for the reply to this prompt, which is the prompt before `on_prompt`."""
        return None


def value_of(fields: Fields, name: str) -> Any:
    raw = fields.get(name)
    return None if raw is None else msgspec.json.decode(raw)


def put(fields: Fields, name: str, value: Any) -> None:
    fields[name] = msgspec.Raw(msgspec.json.encode(value))


def merged(given: Any, more: Any) -> Any:
    """Merge tables recursively; the given value wins over the other one."""
    if not (isinstance(given, dict) and isinstance(more, dict)):
        return cast(Any, given)
    both = dict(cast("dict[str, Any]", given))
    for key, value in cast("dict[str, Any]", more).items():
        both[key] = merged(both[key], value) if key in both else value
    return both
