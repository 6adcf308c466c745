"""Keeps the marker of a soft failure from people: an agent that answers it has found nothing, and says so in words.

Takes part only where the agent's own instructions speak of the marker. Tools' results are put into words by tool.py.
"""

from __future__ import annotations

import msgspec

from ..plugin import Plugin
from ..tool import NO_RESULT, NoResult
from ..turn import Turn
from ..values import Part, Reply, Text


class SoftFailures(Plugin):
    name = "soft_failures"
    holds_stream = True

    def applies(self, turn: Turn) -> bool:
        return NO_RESULT in turn.crew.instructions

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if NO_RESULT not in reply.text:
            return reply
        parts = tuple(_in_words(part) for part in reply.message.parts)
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))


def _in_words(part: Part) -> Part:
    if isinstance(part, Text) and NO_RESULT in part.text:
        return msgspec.structs.replace(part, text=part.text.replace(NO_RESULT, str(NoResult())))
    return part
