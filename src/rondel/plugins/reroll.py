"""Throws a reply away that says what it must not, and asks once more.

    plugins: [{reroll: {search: "as an AI language model", max: 3}}]

Nobody sees what was thrown away, neither while it streams nor later; its tokens count. Knows no model.
"""

from __future__ import annotations

import msgspec

from ..errors import RondelError
from ..plugin import Plugin
from ..trigger import Trigger
from ..turn import Turn
from ..values import Message, Reply


class Reroll(Plugin):
    """Asks again when one of the phrases is in the reply, whatever its case: at most `max` times in a turn, then the
    reply stays. One that calls tools always stays."""

    holds_stream = True

    def __init__(self, *, search: str | tuple[str, ...], max: int = 3) -> None:
        if not search:
            raise RondelError("a reroll searches for nothing; give it a phrase, or several as a list")
        if max < 1:
            raise RondelError(f"max is {max!r}; a reply is asked for again 1 time or more")
        phrases = (search,) if isinstance(search, str) else search
        self._trigger, self._max = Trigger(search=phrases), max

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if reply.message.calls or turn.transcript.rerolls >= self._max:
            return reply
        if not await self._trigger.holds(turn, reply.text, by=self.entry or self.name):
            return reply
        return msgspec.structs.replace(reply, message=Message("assistant"), next="again", next_message=None)
