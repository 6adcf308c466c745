"""Repairs arguments of native calls that are not valid JSON. If that fails, the model gets an error."""

from __future__ import annotations

import msgspec

from ..machine.turn import Turn
from ..plugin import Plugin
from ..text.lenient import repair_arguments
from ..values import Part, Reply, ToolCall


class RepairArguments(Plugin):
    """Repairs arguments of calls that are not valid JSON."""

    name = "repair"
    holds_stream = False  # it changes only calls, which are not shown before they run

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        calls = reply.message.calls
        if not calls or not any([call.broken for call in calls]):
            return reply
        # The last call of a reply that ran out of tokens is incomplete: repaired, it might write half a file.
        cut_off = calls[-1] if reply.stop == "length" else None
        parts = tuple(part if part is cut_off else _repaired(part) for part in reply.message.parts)
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))


def _repaired(part: Part) -> Part:
    if isinstance(part, ToolCall) and part.broken and (arguments := repair_arguments(part.broken)):
        return msgspec.structs.replace(part, arguments=arguments, broken="")
    return part
