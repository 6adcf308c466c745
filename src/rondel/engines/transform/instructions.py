"""A transform of where instructions stand, for models that only take them at the beginning."""

from __future__ import annotations

from itertools import takewhile

import msgspec

from ...prompt import Prompt
from ...values import Message, Text, system
from .base import Transform

_OPEN, _CLOSE = "<system>\n", "\n</system>"
"""What stands around an instruction that a user's message carries."""


class SystemFirst(Transform, frozen=True):
    """One instruction at the beginning; those that come later are told by the user, between tags. Coding agents give
    some in the middle, and the templates of many open models refuse that."""

    name = "systemfirst"

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        messages = prompt.messages
        first = list(takewhile(_instructs, messages))
        rest = messages[len(first) :]
        if len(first) <= 1 and not any(map(_instructs, rest)):
            return prompt
        nodes = [_told(message) if _instructs(message) else message for message in rest]
        if text := "\n\n".join(message.text for message in first if message.text):
            nodes.insert(0, system(text))
        return prompt.replace(nodes=tuple(nodes))


def _instructs(message: Message) -> bool:
    return message.role == "system"


def _told(message: Message) -> Message:
    return msgspec.structs.replace(message, role="user", parts=(Text(f"{_OPEN}{message.text}{_CLOSE}"),), opaque={})
