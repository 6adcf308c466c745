"""A dialect's prompts as bytes. What was written of a conversation before is not written again.

Rests on what dialect.py says of `messages_field`: what is written for a history is what is written for its parts, one
after the other. A prompt that a foreign program sent (it has a `model`) comes anew with each request: it is written at
once, and nothing of it is kept. Pure; knows no network.
"""

from __future__ import annotations

from itertools import takewhile
from typing import cast

import msgspec

from .dialect import Dialect, Json
from .growing import Growing
from .prompt import HISTORY, Node, Prompt, flatten, only_messages
from .values import Message, user

_ANCHOR = user("-")
"""Written before a part of a history and left out again: so a part is never taken for a beginning."""


class PromptEncoder:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._frame: tuple[object, ...] = ()
        self._ends = b"", b""
        # Pieces, and not one text: joined once, in the end, because copying a long conversation is what it costs.
        self._wire = Growing[tuple[bytes, ...]]((), self._add, whole=lambda message: message.role == "tool")

    def encode(self, prompt: Prompt, *, model: str, more: Json | None = None, stream: bool = True) -> bytes:
        """The body of a request. The fields of `more` win over the dialect's; None leaves a field out."""
        if prompt.model:
            body = self._dialect.write_prompt(prompt, model=model, stream=stream)
            return msgspec.json.encode(_with_more(body, more))
        instructions, history, rest = _parted(prompt)
        frame = (instructions, prompt.tools, prompt.options, prompt.opaque, model, more, stream)
        if frame != self._frame:  # nearly always the same as in the round before
            self._frame, self._ends = frame, self._write_frame(prompt.replace(nodes=instructions), model, more, stream)
        head, tail = self._ends
        pieces = self._wire.of(history)
        if rest:
            pieces = self._add(pieces, rest)
        if pieces and head.endswith(b"["):
            pieces = (pieces[0][1:], *pieces[1:])
        return b"".join((head, *pieces, tail))

    def _write_frame(self, prompt: Prompt, model: str, more: Json | None, stream: bool) -> tuple[bytes, bytes]:
        """What stands before the history and behind it."""
        field = self._dialect.messages_field
        body = self._dialect.write_prompt(prompt, model=model, stream=stream)
        first = msgspec.json.encode(body.pop(field))[1:-1]
        return b'{"%b":[%b' % (field.encode(), first), b"]," + msgspec.json.encode(_with_more(body, more))[1:]

    def _add(self, written: tuple[bytes, ...], messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """One more piece, with a comma before it."""
        wire = self._dialect.write_prompt(Prompt.of(_ANCHOR, *messages), model="")[self._dialect.messages_field][1:]
        return (*written, b"," + msgspec.json.encode(wire)[1:-1]) if wire else written


def _with_more(body: Json, more: Json | None) -> Json:
    if not more:
        return body
    return {name: value for name, value in (body | more).items() if more.get(name, ...) is not None}


def _parted(prompt: Prompt) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """The instructions at the beginning of a prompt, the conversation, and what follows it."""
    nodes = prompt.nodes
    place = next((n for n, node in enumerate(nodes) if isinstance(node, Node) and node.id == HISTORY), None)
    if place is not None:
        node = cast(Node, nodes[place])
        before, after = tuple(flatten(nodes[:place])), tuple(flatten(nodes[place + 1 :]))
        plain = node.enabled and not node.text and all(message.role == "system" for message in before)
        kept = only_messages(node) if plain else ()
        if kept and kept[0].role != "system" and not (after and after[0].role == "tool"):
            return before, kept, after
    messages = prompt.messages
    instructions = tuple(takewhile(lambda message: message.role == "system", messages))
    return instructions, messages[len(instructions) :], ()
