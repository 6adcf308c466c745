"""A transform that takes cache marks out of prompts, for servers that refuse them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ...prompt import Prompt
from ...values import Message, Opaque, Part, ToolResult
from .base import Transform, with_messages

MARK = "cache_control"
S = TypeVar("S", bound=msgspec.Struct)


class CleanCache(Transform, frozen=True):
    """No part, message or tool says any more that it should be cached."""

    name = "cleancache"

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        return _clean(with_messages(prompt, _message).replace(tools=tuple(map(_clean, prompt.tools))))


def _message(message: Message) -> Message:
    return _clean(msgspec.structs.replace(message, parts=tuple(map(_part, message.parts))))


def _part(part: Part) -> Part:
    if isinstance(part, ToolResult) and part.parts:
        part = msgspec.structs.replace(part, parts=tuple(map(_clean, part.parts)))
    return _clean(part)


def _clean(value: S) -> S:
    opaque: Opaque = getattr(value, "opaque", {})
    if not any(_is_marked(own) for own in opaque.values()):
        return value
    kept = {name: _without(own) if _is_marked(own) else own for name, own in opaque.items()}
    return msgspec.structs.replace(value, opaque={name: own for name, own in kept.items() if own != {}})


def _is_marked(own: Any) -> bool:
    return isinstance(own, dict) and MARK in own


def _without(own: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if key != MARK}
