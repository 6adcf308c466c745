"""A transform that moves instructions, for models that accept them only at the beginning."""

from __future__ import annotations

from itertools import takewhile

import msgspec

from ...prompt import Prompt
from ...values import Message, Text, system
from .base import Transform

_OPEN, _CLOSE = "<system>\n", "\n</system>"  # the tags around an instruction in a user message


class SystemFirst(Transform, frozen=True):
    """Merges the instructions at the beginning into one, and turns later ones into user messages with tags. Coding
    agents send some in the middle, which the templates of many open models reject."""

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
