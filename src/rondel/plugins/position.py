"""Puts a text at a place in the prompt: before a node, after it, or inside it. Knows nodes by their ids only."""

from __future__ import annotations

import msgspec

from ..errors import RondelError, nearest
from ..plugin import Plugin
from ..prompt import Node, Prompt
from ..turn import Turn
from ..values import Role

POSITIONS = ("before", "after", "child", "relative")
"""`relative` is another word for `child`: the last inside the target."""


class Position(Plugin):
    """Inserts one node in every round. Without a role its text belongs to the message that it stands in.

    Each entry of an agent inserts its own node, once. A target that is not there is a warning, and nothing changes.
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
        if position not in POSITIONS:
            raise RondelError(f"{position!r} is no position{nearest(position, POSITIONS)}")
        if not target:
            raise RondelError("the target is empty; give the id of the node to insert at")
        if not text.strip():
            raise RondelError(f"the text to insert at {target!r} is blank; write one, or leave this entry out")
        self._target, self._position, self._id = target, position, id
        self._node = Node(id, text=text, role=role, caption=caption)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        edited = self._insert(prompt)
        if edited is prompt:
            await turn.warn(
                self.entry or self.name,
                f"there is no node {self._target!r} in the prompt, so nothing was inserted; give the id of one",
            )
        return edited

    def _insert(self, prompt: Prompt) -> Prompt:
        # Made here, because an entry gets its name after it is made.
        entry = self.entry or self.name
        node = msgspec.structs.replace(self._node, id=self._id or f"{entry}-{self._target}", source=("plugins", entry))
        if self._position == "before":
            return prompt.insert_before(self._target, node)
        if self._position == "after":
            return prompt.insert_after(self._target, node)
        return prompt.insert_into(self._target, node)
