"""Encodes prompts as the bytes of a dialect. The bytes of a conversation's history are written once and kept.

This relies on a promise of contracts/dialect.py about `messages_field`: the bytes of a history are the bytes of its
parts, one after the other. Instructions and tools are mostly those of an earlier prompt, and are kept, too. A history
that another program sent through the gateway (its prompt has a `model`) is not kept, since its messages are read again
with each request. Nothing is kept of a single question outside a conversation. Knows no network.
"""

from __future__ import annotations

from itertools import takewhile
from typing import cast

import msgspec

from ...contracts.dialect import Dialect, Json
from ...machine.prefix_cache import PrefixCache
from ...prompt import HISTORY, Node, Prompt, flatten, only_messages
from ...values import Media, Message, ToolResult, user

QUESTION_MESSAGES = 2  # A question outside a conversation, such as what an image shows, is an instruction and a message
FRAMES_MAX = 8
FRAME_BYTES_MAX = 1024 * 1024

_encode = msgspec.json.Encoder().encode
_ANCHOR = user("-")
"""Written before a part of a history and removed again, so that no dialect treats the part as a beginning."""


class PromptEncoder:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._frames: list[tuple[tuple[object, ...], tuple[bytes, bytes]]] = []
        # In pieces that are joined once, at the end: copying a long conversation is most of the cost.
        self._wire = PrefixCache[tuple[bytes, ...]]((), self._add, whole=_is_one)

    def encode(self, prompt: Prompt, *, model: str, more: Json | None = None, stream: bool = True) -> bytes:
        """Return the body of a request. The fields of `more` win over the dialect's; None leaves a field out."""
        if _is_question(prompt):
            body = self._dialect.write_prompt(prompt, model=model, stream=stream)
            return _encode(_with_more(body, more))
        instructions, history, rest = _split(prompt)
        head, tail = self._ends(prompt.replace(nodes=instructions), instructions, model, more, stream)
        pieces = self._add((), history) if prompt.model else self._wire.of(history)
        if rest:
            pieces = self._add(pieces, rest)
        if pieces and head.endswith(b"["):
            pieces = (pieces[0][1:], *pieces[1:])
        return b"".join((head, *pieces, tail))

    def _ends(
        self, prompt: Prompt, instructions: tuple[Message, ...], model: str, more: Json | None, stream: bool
    ) -> tuple[bytes, bytes]:
        """Return the bytes before and after the history, which are nearly always those of the previous round."""
        frame = (instructions, prompt.tools, prompt.options, prompt.opaque, model, more, stream)
        for known, ends in self._frames:
            if known == frame:
                return ends
        ends = self._write_frame(prompt, model, more, stream)
        if sum(map(len, ends)) <= FRAME_BYTES_MAX:
            self._frames = [(frame, ends), *self._frames[: FRAMES_MAX - 1]]
        return ends

    def _write_frame(self, prompt: Prompt, model: str, more: Json | None, stream: bool) -> tuple[bytes, bytes]:
        field = self._dialect.messages_field
        body = self._dialect.write_prompt(prompt, model=model, stream=stream)
        first = _encode(body.pop(field))[1:-1]
        return b'{"%b":[%b' % (field.encode(), first), b"]," + _encode(_with_more(body, more))[1:]

    def _add(self, written: tuple[bytes, ...], messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """Add one more piece, which begins with a comma."""
        wire = self._dialect.write_prompt(Prompt.of(_ANCHOR, *messages), model="")[self._dialect.messages_field][1:]
        return (*written, b"," + _encode(wire)[1:-1]) if wire else written


def _is_question(prompt: Prompt) -> bool:
    nodes = prompt.nodes
    return len(nodes) <= QUESTION_MESSAGES and not prompt.tools and all(type(node) is Message for node in nodes)


def _is_one(before: Message, behind: Message) -> bool:
    """Return whether two messages must be written together: a result follows its call, and media of results may move
    into the user's next message."""
    return behind.role == "tool" or (before.role == "tool" and behind.role != "assistant" and _has_media(before))


def _has_media(message: Message) -> bool:
    results = (part for part in message.parts if isinstance(part, ToolResult))
    return any(isinstance(part, Media) for result in results for part in result.parts)


def _with_more(body: Json, more: Json | None) -> Json:
    if not more:
        return body
    return {name: value for name, value in (body | more).items() if more.get(name, ...) is not None}


def _split(prompt: Prompt) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Split a prompt into the instructions at its beginning, the conversation, and what follows it."""
    nodes = prompt.nodes
    index = next((n for n, node in enumerate(nodes) if isinstance(node, Node) and node.id == HISTORY), None)
    if index is not None:
        node = cast(Node, nodes[index])
        before, after = tuple(flatten(nodes[:index])), tuple(flatten(nodes[index + 1 :]))
        plain = node.enabled and not node.text and all(message.role == "system" for message in before)
        kept = only_messages(node) if plain else ()
        if kept and kept[0].role != "system" and not (after and _is_one(kept[-1], after[0])):
            return before, kept, after
    messages = prompt.messages
    instructions = tuple(takewhile(lambda message: message.role == "system", messages))
    return instructions, messages[len(instructions) :], ()
