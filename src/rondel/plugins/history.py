"""Puts the conversation into a node of the prompt and replaces what the node contained.

Reads the conversation from the prompt, so that what other plugins left out stays out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import RondelError, nearest
from ..machine.prefix_cache import PrefixCache
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import HISTORY, Node, Prompt
from ..values import Media, Message, Messages, Part, Text, ToolCall, ToolResult

ROLES = ("native", "plain")


class History(Plugin):
    """Replaces the children of a node with the conversation: `history-0`, `history-1`, …

    Args:
        target: the node; its own text is removed
        empty: the node's text as long as there is no earlier turn
        roles: `native` keeps calls and results as tool calls; `plain` makes calls text of the assistant and results
            text of the user. Errors are user messages either way
    """

    name = "history"

    def __init__(self, *, target: str = HISTORY, empty: str = "", roles: str = "native") -> None:
        if roles not in ROLES:
            raise RondelError(f"{roles!r} is not a way to map roles{nearest(roles, ROLES)}")
        self._target, self._empty = target, empty
        self._is_plain = roles == "plain"
        self._named = PrefixCache[Messages](Messages(), self._add)
        # The placeholder comes before the conversation and is removed once there is one.
        self.moves_prefix = bool(empty)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        found = prompt.find(self._target)
        if found is None or not isinstance(found.child, Node):
            told = f"there is no node {self._target!r} in the prompt, so the conversation stays where it was"
            await turn.warn(self.entry or self.name, f"{told}; give the id of one")
            return prompt
        messages = self._named.of(prompt.history, turn.transcript.size)
        if self._target != HISTORY or found.siblings is not prompt.nodes:
            prompt = prompt.with_history(())
        text = "" if turn.transcript.turns_done else self._empty
        return prompt.replace_node(self._target, msgspec.structs.replace(found.child, text=text, children=messages))

    def _add(self, named: Messages, messages: tuple[Message, ...]) -> Messages:
        return Messages((*named, *[self._mapped(message, n) for n, message in enumerate(messages, len(named))]))

    def _mapped(self, message: Message, number: int) -> Message:
        role, parts = message.role, message.parts
        if role != "error" and not self._is_plain:
            return msgspec.structs.replace(message, id=f"history-{number}")
        if self._is_plain:
            role, parts = "user" if role == "tool" else role, tuple(_in_words(parts))
        return msgspec.structs.replace(
            message, role="user" if role == "error" else role, parts=parts, id=f"history-{number}"
        )


def _in_words(parts: tuple[Part, ...]) -> Iterator[Part]:
    """Turn calls and results into text; images in a result stay images."""
    for part in parts:
        if isinstance(part, ToolCall):
            body = part.broken or msgspec.json.encode(part.arguments).decode()
            yield Text(f'\n<tool_use name="{part.name}">{body}</tool_use>')
        elif isinstance(part, ToolResult):
            kind = "Error" if part.is_error else "Result"
            text = part.text.replace("</functions_result>", "<\\/functions_result>")  # must not close early
            yield Text(f"<functions_result>\nTool: {part.name}\n{kind}: {text}\n</functions_result>\n")
            yield from (inner for inner in part.parts if isinstance(inner, Media))
        else:
            yield part
