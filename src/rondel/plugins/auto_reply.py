"""Answers in the user's place when a reply would end the turn: a writer goes on by itself, a form is filled in.

    plugins: [{auto_reply: {text: "Go on.", trigger: {search: "to be continued"}, max: 5}}]

The text is a user message like any other, said by the plugin, and it starts a round. Knows no other plugin.
"""

from __future__ import annotations

import msgspec

from ..errors import RondelError
from ..plugin import Plugin
from ..trigger import Trigger
from ..turn import Turn
from ..values import Reply, user


class AutoReply(Plugin):
    """Says `text` when the trigger holds for the reply, at most `max` times for each message of a person.

    It stays silent when the reply calls tools, and when another plugin has said where control goes.
    """

    def __init__(self, *, text: str, trigger: Trigger | None = None, max: int = 5) -> None:
        if not text.strip():
            raise RondelError("the text of an auto reply is blank; write what is said in the user's place")
        if max < 1:
            raise RondelError(f"max is {max!r}; an auto reply is sent 1 time or more")
        self._text, self._trigger, self._max = text, trigger or Trigger(), max

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        by = self.entry or self.name
        if reply.next != "human" or reply.message.calls or self._said(turn, by) >= self._max:
            return reply
        if not await self._trigger.holds(turn, reply.text, by=by):
            return reply
        return msgspec.structs.replace(reply, next="self", next_message=user(self._text, author=f"plugin:{by}"))

    def _said(self, turn: Turn, by: str) -> int:
        """How often it has spoken since a person did."""
        count = 0
        for message in reversed(turn.transcript.messages):
            if message.role == "user" and not message.author.startswith("plugin:"):
                break
            count += message.author == f"plugin:{by}" and message.text == self._text
        return count
