"""The contract of a transform: a small edit of prompts on their way to an engine and of replies on their way back.

Its fields are its options, as a file writes them. Knows no engine, no network, and of a dialect only its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from ...prompt import Child, Prompt
from ...values import Delta, Message, Value

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The top level of a caller's body, with its values undecoded."""
Editor: TypeAlias = Callable[[Delta], Iterable[Delta]]
"""Edits the deltas of one reply, in their order; it may hold some back until the last."""

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
TOKENS_MAX_FIELDS = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    RESPONSES: ("max_output_tokens",),
    ANTHROPIC: ("max_tokens",),
}


class Transform(Value, frozen=True):
    """Every default changes nothing."""

    name: ClassVar[str] = ""
    edits_fields: ClassVar[bool] = False
    """Whether all that it does can be done to the top level of a body, so that bodies need not be understood."""
    takes_any: ClassVar[bool] = False
    """Its options are one table that is not checked: its only field."""

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        return prompt

    def on_fields(self, fields: Fields, dialect: str) -> None:
        """The same edit in place, on a body of this dialect that is passed on."""

    def editor(self, prompt: Prompt) -> Editor | None:
        """What edits the reply to this prompt, which is as it was before `on_prompt`."""
        return None


def with_messages(prompt: Prompt, edit: Callable[[Message], Message]) -> Prompt:
    """The prompt with each message edited, in their order, wherever it stands."""

    def edited(child: Child) -> Child:
        if isinstance(child, Message):
            return edit(child)
        if not child.children:
            return child
        return msgspec.structs.replace(child, children=tuple(map(edited, child.children)))

    return prompt.replace(nodes=tuple(map(edited, prompt.nodes)))


def value_of(fields: Fields, name: str) -> Any:
    raw = fields.get(name)
    return None if raw is None else msgspec.json.decode(raw)


def put(fields: Fields, name: str, value: Any) -> None:
    fields[name] = msgspec.Raw(msgspec.json.encode(value))


def merged(given: Any, more: Any) -> Any:
    """Tables become one; where both have a value that is no table, the given one stays."""
    if not (isinstance(given, dict) and isinstance(more, dict)):
        return cast(Any, given)
    both = dict(cast("dict[str, Any]", given))
    for key, value in cast("dict[str, Any]", more).items():
        both[key] = merged(both[key], value) if key in both else value
    return both
