"""Replaces the marker of a soft failure in an agent's answer with a sentence that says that nothing was found.

Applies only if the agent's instructions mention the marker. tool.py does the same for tools' results.
"""

from __future__ import annotations

import msgspec

from ..machine.turn import Turn
from ..plugin import Plugin
from ..tool import NO_RESULT, NoResult
from ..values import Part, Reply, Text


class SoftFailures(Plugin):
    """Replaces an agent's marker for "found nothing" with a sentence."""

    name = "soft_failures"

    def applies(self, turn: Turn) -> bool:
        return NO_RESULT in turn.resolved.instructions

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if NO_RESULT not in reply.text:
            return reply
        parts = tuple(_in_words(part) for part in reply.message.parts)
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))


def _in_words(part: Part) -> Part:
    if isinstance(part, Text) and NO_RESULT in part.text:
        return msgspec.structs.replace(part, text=part.text.replace(NO_RESULT, str(NoResult())))
    return part
