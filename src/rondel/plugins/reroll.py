"""Discards a reply that contains a forbidden phrase, and asks again.

    plugins: [{reroll: {search: "as an AI language model", max: 3}}]

A discarded reply is never shown, not even while it streams; its tokens count.
"""

from __future__ import annotations

import msgspec

from ..errors import RondelError
from ..machine.trigger import Trigger
from ..machine.turn import Turn
from ..plugin import Plugin
from ..values import Message, Reply


class Reroll(Plugin):
    """Asks again if the reply contains one of the phrases. A reply that calls tools always stays.

    Args:
        search: a phrase or several, compared without case
        max: how often, in a turn
    """

    def __init__(self, *, search: str | tuple[str, ...], max: int = 3) -> None:
        if not search:
            raise RondelError("a reroll needs a phrase to search for, or a list of phrases")
        if max < 1:
            raise RondelError(f"max is {max!r}; it must be at least 1")
        phrases = (search,) if isinstance(search, str) else search
        self._trigger, self._max = Trigger(search=phrases), max

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if reply.message.calls or turn.transcript.rerolls >= self._max:
            return reply
        if not await self._trigger.holds(turn, reply.text, by=self.entry or self.name):
            return reply
        return msgspec.structs.replace(reply, message=Message("assistant"), next="again", next_message=None)
