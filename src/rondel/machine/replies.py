"""Appends a reply to a turn's transcript: gives its calls ids of their own, and stores where control goes next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ..events import DurableEvent, HandedOff, MessageAdded, RoundFinished
from ..text.template import is_directive
from ..values import NOTICE_CHARS_MAX, Message, Reply, Text, ToolCall, is_nested_deeper

if TYPE_CHECKING:
    from .turn import Turn

ARGUMENTS_LEVELS_MAX = 100
"""Levels of lists and objects in the arguments of a call. Deeper ones could not be encoded everywhere."""
TOO_DEEP = f"(arguments nested more than {ARGUMENTS_LEVELS_MAX} levels deep)"


async def append_reply(
    turn: Turn,
    reply: Reply,
    *,
    ran: bool = True,
    seconds: float = 0.0,
    first_token_s: float | None = None,
    played_ms: int | None = None,
) -> None:
    """Append a reply and where control goes next, all or nothing.

    Its calls are answered first: a handoff or a message for the user takes effect after them.
    """
    message, target = _with_ids(turn, reply.message), reply.next
    calls = () if target == "again" else message.calls  # calls of a reply that is thrown away are not made
    events: list[DurableEvent] = []
    if target.startswith("agent:"):
        agent = target.removeprefix("agent:")
        if turn.services.registry.knows_agent(agent):
            events += () if calls else (HandedOff(agent, by=turn.agent.name),)
        else:
            target = "human"
            events.append(error_message(turn, f"control cannot go to the agent {agent!r}, which does not exist"))
    elif target == "self" and reply.next_message is not None:
        added = reply.next_message
        author = added.author if added.author.startswith("plugin:") else f"plugin:{added.author}"
        events.append(MessageAdded(msgspec.structs.replace(added, id=added.id or turn.new_id("msg"), author=author)))
        target = "message"
    notices = turn.builder.notices if turn.builder is not None else ()
    turn.builder = None
    without_model = turn.without_model
    turn.budget.rounds += not without_model
    turn.budget.calls += len(calls)
    await turn.append(
        RoundFinished(
            message,
            stop=reply.stop,
            usage=reply.usage,
            engine=turn.engine.name,
            model=reply.model,
            agent=turn.agent.name,
            next=target,
            ran=ran,
            seconds=seconds,
            first_token_s=first_token_s,
            without_model=without_model,
            played_ms=played_ms,
            notices=_shown(notices) if notices else (),
            answered_by=reply.engine,
        ),
        *events,
        wait=False,
    )


def _shown(notices: Iterable[str]) -> tuple[str, ...]:
    """Return notices as they are stored: each on one line, without what looks like a secret."""
    from ..text.masking import mask  # slow to import, and rarely needed
    from ..text.printable import one_line

    return tuple([one_line(mask(text), NOTICE_CHARS_MAX) for text in notices])


def own_message(turn: Turn, text: str) -> MessageAdded:
    """Return a message that the agent writes without an engine."""
    return MessageAdded(Message("assistant", (Text(text),), id=turn.new_id("msg"), author=turn.agent.name))


def error_message(turn: Turn, text: str) -> MessageAdded:
    """Return an error message, which people see, and models only in the next round."""
    return MessageAdded(Message("error", (Text(text),), id=turn.new_id("msg"), duration=1))


def _with_ids(turn: Turn, message: Message) -> Message:
    """Give the message and each call a new id: models leave ids out or repeat them."""
    parts = message.parts
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    if ids and (len(set(ids)) != len(ids) or not all(ids) or not turn.transcript.called.isdisjoint(ids)):
        seen = set(turn.transcript.called)
        fresh: list[Any] = []
        for part in parts:
            if isinstance(part, ToolCall):
                if not part.id or part.id in seen:
                    part = msgspec.structs.replace(part, id=turn.new_id("call"))
                seen.add(part.id)
            fresh.append(part)
        parts = tuple(fresh)
    if ids:
        parts = tuple([_encodable(part) if isinstance(part, ToolCall) else part for part in parts])
    author = message.author or turn.agent.name
    # Models do not see directives and their results: what a directive gave is part of the text that they get.
    directs = turn.words is not None and any(isinstance(part, ToolCall) and is_directive(part) for part in parts)
    duration = 0 if directs else message.duration
    id, turn.reply_id = message.id or turn.reply_id or turn.new_id("msg"), ""
    return msgspec.structs.replace(message, parts=parts, id=id, author=author, duration=duration)


def _encodable(call: ToolCall) -> ToolCall:
    if is_nested_deeper(call.arguments, ARGUMENTS_LEVELS_MAX):
        return msgspec.structs.replace(call, arguments={}, broken=TOO_DEEP)
    return call
