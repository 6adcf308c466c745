"""A dialect's prompts as bytes. What was written of a conversation before is not written again.

Rests on what dialect.py says of `messages_field`: what is written for a history is what is written for its parts, one
after the other. Pure; knows no network.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from .dialect import Dialect, Json
from .growing import Growing
from .prompt import Prompt
from .values import Message, user

_ANCHOR = user("-")
"""Written before a part of a history and left out again: so a part is never taken for a beginning."""


class PromptEncoder:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._wire = Growing(b"", self._add, whole=lambda message: message.role == "tool")

    def encode(self, prompt: Prompt, *, model: str, more: Json | None = None, stream: bool = True) -> bytes:
        """The body of a request. The fields of `more` win over the dialect's; None leaves a field out."""
        messages = prompt.messages
        instructions = tuple(takewhile(lambda message: message.role == "system", messages))
        body = self._dialect.write_prompt(prompt.replace(nodes=instructions), model=model, stream=stream)
        body[self._dialect.messages_field] = msgspec.Raw(b"[%b]" % self._wire.of(messages))
        if more:
            body |= more
            body = {name: value for name, value in body.items() if more.get(name, ...) is not None}
        return msgspec.json.encode(body)

    def _add(self, written: bytes, messages: tuple[Message, ...]) -> bytes:
        field = self._dialect.messages_field
        if written:
            wire = self._dialect.write_prompt(Prompt.of(_ANCHOR, *messages), model="")[field][1:]
        else:
            wire = self._dialect.write_prompt(Prompt.of(*messages), model="")[field]
        more = msgspec.json.encode(wire)[1:-1]
        return b"%b,%b" % (written, more) if written and more else written or more
