"""Frames an answer: a tree of response nodes, with the model's text in one of them. Knows no prompt and no engine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..plugin import Plugin
from ..prompt import Node, Prompt, flatten
from ..turn import Turn
from ..values import Reply


class Respond(Plugin):
    """The answer is the text of the enabled nodes, joined by blank lines; the target's text is what the model said.

    A reply that calls tools is not yet an answer and stays as it is, and so does one without text.
    """

    name = "respond"
    holds_stream = True

    def __init__(self, *, nodes: Sequence[Node], target: str = "response") -> None:
        self._tree = Prompt(tuple(nodes))
        self._target = target

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if reply.message.calls or not reply.text.strip():
            return reply
        found = self._tree.find(self._target)
        if found is None:
            await turn.warn(
                self.entry or self.name,
                f"there is no response node {self._target!r}, so the answer stays as the model gave it; "
                f"give one of the nodes this id",
            )
            return reply
        said = msgspec.structs.replace(found.child, text=reply.text, children=())
        nodes = self._tree.replace_node(self._target, said).nodes
        text = "\n\n".join(message.text for message in flatten(nodes) if message.text).strip()
        return reply if text == reply.text else reply.with_text(text)
