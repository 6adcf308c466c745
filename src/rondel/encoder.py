"""A dialect's prompts as bytes. What was written of a conversation before is not written again.

Rests on what dialect.py says of `messages_field`: what is written for a history is what is written for its parts, one
after the other. A prompt that a foreign program sent (it has a `model`) comes anew with each request. A short one is
written at once, and nothing of it is kept; so is a question of two messages that is no conversation's. Of the others,
those of the last few conversations are kept that may come again. Pure; knows no network.
"""

from __future__ import annotations

from itertools import takewhile
from typing import cast

import msgspec

from .dialect import Dialect, Json
from .growing import Growing
from .prompt import HISTORY, Child, Node, Prompt, flatten, only_messages
from .values import Message, user

FOREIGN_MESSAGES_MIN = 16
FOREIGN_MAX = 32
FOREIGN_BYTES_MAX = 512 * 1024
"""Of foreign programs' prompts, this many are kept, from this length on and up to that size."""
FOREIGN_LOOSE = 4
"""So many of the newest messages may bear a mark for the provider's cache, which the next request does not have."""
QUESTION_MESSAGES = 2
"""What an engine is asked besides a conversation, such as what is to be seen in an image, has an instruction and a
question."""
FRAMES_MAX = 8

_encode = msgspec.json.Encoder().encode
_ANCHOR = user("-")
"""Written before a part of a history and left out again: so a part is never taken for a beginning."""


class PromptEncoder:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._frames: list[tuple[tuple[object, ...], tuple[bytes, bytes]]] = []
        # Pieces, and not one text: joined once, in the end, because copying a long conversation is what it costs.
        self._wire = Growing[tuple[bytes, ...]]((), self._add, whole=_is_tool)
        self._foreign = Growing[tuple[bytes, ...]](
            (), self._add, whole=_is_tool, loose=FOREIGN_LOOSE, histories_max=FOREIGN_MAX
        )

    def encode(self, prompt: Prompt, *, model: str, more: Json | None = None, stream: bool = True) -> bytes:
        """The body of a request. The fields of `more` win over the dialect's; None leaves a field out."""
        if _is_short(prompt):
            body = self._dialect.write_prompt(prompt, model=model, stream=stream)
            return _encode(_with_more(body, more))
        instructions, history, rest = _parted(prompt)
        head, tail = self._ends(prompt.replace(nodes=instructions), instructions, model, more, stream)
        if prompt.once:
            pieces = self._add((), history)
        elif prompt.model:
            pieces = self._foreign.of(history)
            if sum(map(len, pieces)) > FOREIGN_BYTES_MAX:
                self._foreign.forget(history)
        else:
            pieces = self._wire.of(history)
        if rest:
            pieces = self._add(pieces, rest)
        if pieces and head.endswith(b"["):
            pieces = (pieces[0][1:], *pieces[1:])
        return b"".join((head, *pieces, tail))

    def _ends(
        self, prompt: Prompt, instructions: tuple[Message, ...], model: str, more: Json | None, stream: bool
    ) -> tuple[bytes, bytes]:
        """What stands around the history; nearly always the same as in the round before."""
        frame = (instructions, prompt.tools, prompt.options, prompt.opaque, model, more, stream)
        for known, ends in self._frames:
            if known == frame:
                return ends
        ends = self._write_frame(prompt, model, more, stream)
        self._frames = [(frame, ends), *self._frames[: FRAMES_MAX - 1]]
        return ends

    def _write_frame(self, prompt: Prompt, model: str, more: Json | None, stream: bool) -> tuple[bytes, bytes]:
        """What stands before the history and behind it."""
        field = self._dialect.messages_field
        body = self._dialect.write_prompt(prompt, model=model, stream=stream)
        first = _encode(body.pop(field))[1:-1]
        return b'{"%b":[%b' % (field.encode(), first), b"]," + _encode(_with_more(body, more))[1:]

    def _add(self, written: tuple[bytes, ...], messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """One more piece, with a comma before it."""
        wire = self._dialect.write_prompt(Prompt.of(_ANCHOR, *messages), model="")[self._dialect.messages_field][1:]
        return (*written, b"," + _encode(wire)[1:-1]) if wire else written


def _is_short(prompt: Prompt) -> bool:
    """Whether it is not worth the while to remember it."""
    if not prompt.model:
        return len(prompt.nodes) <= QUESTION_MESSAGES and not prompt.tools and all(map(_is_message, prompt.nodes))
    size = sum([len(node.children) if type(node) is Node else 1 for node in prompt.nodes])
    return size < FOREIGN_MESSAGES_MIN


def _is_message(child: Child) -> bool:
    return type(child) is Message


def _is_tool(message: Message) -> bool:
    return message.role == "tool"


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
