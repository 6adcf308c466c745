"""Inserts a text into the prompt: before a node, after it, or inside it."""

from __future__ import annotations

import msgspec

from ..errors import RondelError
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Node, Prompt, position_of
from ..prompt import Position as Where
from ..values import Role


class Position(Plugin):
    """Inserts one node in every round. A missing target is a warning, and nothing changes.

    Args:
        target: the node to insert it at
        text: its text
        position: `before`, `after` or `child` of the target
        id: the id of the new node; by default, made from the names of the entry and the target
        role: its role; without one its text becomes part of the surrounding message
        caption: a name for it in previews
    """

    name = "position"

    def __init__(
        self,
        *,
        target: str,
        text: str,
        position: str = "before",
        id: str = "",
        role: Role | None = None,
        caption: str = "",
    ) -> None:
        if not target:
            raise RondelError("the target is empty; give the id of the node to insert at")
        if not text.strip():
            raise RondelError(f"the text to insert at {target!r} is blank; write one, or leave this entry out")
        self._target, self._id = target, id
        self._position: Where = position_of(position)
        self._node = Node(id, text=text, role=role, caption=caption)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        # The node is made here, because an entry gets its name after it is constructed.
        entry = self.entry or self.name
        node = msgspec.structs.replace(self._node, id=self._id or f"{entry}-{self._target}", source=("plugins", entry))
        edited = prompt.insert(node, self._position, self._target)
        if edited is prompt:
            told = f"there is no node {self._target!r} in the prompt, so nothing was inserted; give the id of one"
            await turn.warn(entry, told)
        return edited
