"""Wraps an answer in a tree of response nodes, with the model's text in one of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Node, Prompt, flatten
from ..values import Reply


class Respond(Plugin):
    """The answer is the text of the enabled nodes, joined by blank lines; the target has the model's text. A reply that
    calls tools or has no text stays as it is.

    Args:
        nodes: the answer, as a tree of nodes
        target: the node that gets the model's text
    """

    name = "respond"

    def __init__(self, *, nodes: Sequence[Node], target: str = "response") -> None:
        self._tree = Prompt(tuple(nodes))
        self._target = target

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if reply.message.calls or not reply.text.strip():
            return reply
        found = self._tree.find(self._target)
        if found is None:
            told = f"there is no response node {self._target!r}, so the answer is the model's own text"
            await turn.warn(self.entry or self.name, f"{told}; give one of the nodes this id")
            return reply
        said = msgspec.structs.replace(found.child, text=reply.text, children=())
        nodes = self._tree.replace_node(self._target, said).nodes
        text = "\n\n".join(message.text for message in flatten(nodes) if message.text).strip()
        return reply if text == reply.text else reply.with_text(text)
