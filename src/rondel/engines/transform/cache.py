"""A transform that removes cache marks from prompts, for servers that reject them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ...machine.rewriting import rewrite_runs
from ...prompt import Prompt
from ...values import Message, Opaque, Part, ToolResult
from .base import Transform

MARK = "cache_control"
S = TypeVar("S", bound=msgspec.Struct)


class CleanCache(Transform, frozen=True):
    name = "cleancache"

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        prompt = rewrite_runs(prompt, lambda run: tuple(map(_message, run)))
        return _clean(prompt.replace(tools=tuple(map(_clean, prompt.tools))))


def _message(message: Message) -> Message:
    return _clean(msgspec.structs.replace(message, parts=tuple(map(_part, message.parts))))


def _part(part: Part) -> Part:
    if isinstance(part, ToolResult) and part.parts:
        part = msgspec.structs.replace(part, parts=tuple(map(_clean, part.parts)))
    return _clean(part)


def _clean(value: S) -> S:
    opaque: Opaque = getattr(value, "opaque", {})
    marked: dict[str, dict[str, Any]] = {
        name: own for name, own in opaque.items() if isinstance(own, dict) and MARK in own
    }
    if not marked:
        return value
    rest = {name: {key: item for key, item in own.items() if key != MARK} for name, own in marked.items()}
    return msgspec.structs.replace(value, opaque={name: own for name, own in {**opaque, **rest}.items() if own != {}})
