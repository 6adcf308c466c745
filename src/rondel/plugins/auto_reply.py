"""Answers instead of the user when a reply would end the turn, for example to let a writer continue.

    plugins: [{auto_reply: {text: "Go on.", trigger: {search: "to be continued"}, max: 5}}]

The text is an ordinary user message, with the plugin as its author, and starts another round.
"""

from __future__ import annotations

import msgspec

from ..errors import RondelError
from ..machine.trigger import Trigger
from ..machine.turn import Turn
from ..plugin import Plugin
from ..values import Reply, user


class AutoReply(Plugin):
    """Says `text` when the trigger holds for the reply, at most `max` times for each message of a person. Does nothing
    if the reply calls tools, or if another plugin has redirected control.

    Args:
        text: what to say instead of the user
        trigger: when to say it; without conditions, after every reply
        max: how often, for each message of a person
    """

    holds_stream = False

    def __init__(self, *, text: str, trigger: Trigger | None = None, max: int = 5) -> None:
        if not text.strip():
            raise RondelError("the text of an auto reply is blank; write what to answer instead of the user")
        if max < 1:
            raise RondelError(f"max is {max!r}; it must be at least 1")
        self._text, self._trigger, self._max = text, trigger or Trigger(), max

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        by = self.entry or self.name
        if reply.next != "human" or reply.message.calls or self._said(turn, by) >= self._max:
            return reply
        if not await self._trigger.holds(turn, reply.text, by=by):
            return reply
        return msgspec.structs.replace(reply, next="self", next_message=user(self._text, author=f"plugin:{by}"))

    def _said(self, turn: Turn, by: str) -> int:
        count = 0
        for message in reversed(turn.transcript.messages):
            if message.role == "user" and not message.author.startswith("plugin:"):
                break
            count += message.author == f"plugin:{by}" and message.text == self._text
        return count
