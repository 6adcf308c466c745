"""A conversation's whole tree, with the agents that worked for its calls. Only `read` touches a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..events import Entry, RoundFinished
from ..store import Store
from ..values import Usage
from .drafts import turn_drafts
from .node import TraceNode

LEVELS_MAX = 32
"""Agents inside agents that `read` follows; the loop's own limits are far lower."""


async def read(store: Store, conversation: str) -> TraceNode:
    """The trace of a stored conversation and of every agent that worked for it."""
    entries = await store.read(conversation)
    children: dict[str, Sequence[Entry]] = {}
    pending = [(conversation, entries, 0)]
    while pending:
        id, known, level = pending.pop()
        rounds = (entry.event for entry in known if isinstance(entry.event, RoundFinished))
        for call in (call for event in rounds for call in event.message.calls if level < LEVELS_MAX):
            child = f"{id}/{call.id}"
            if child not in children and (inner := await store.read(child)):
                children[child] = inner
                pending.append((child, inner, level + 1))
    return build(entries, children, conversation=conversation)


def build(entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]], *, conversation: str = "") -> TraceNode:
    """The tree of a conversation. `children` has the entries of the agents inside, by `<conversation>/<call id>`."""
    turns = tuple(draft.freeze() for draft in turn_drafts(entries, children, conversation))
    usage = sum((turn.usage for turn in turns), Usage())
    agent = turns[0].name if turns else ""
    at = entries[0].at if entries else 0.0
    seconds = sum(turn.seconds or 0.0 for turn in turns)
    outcome = turns[-1].outcome if turns else ""
    return TraceNode(
        "conversation",
        conversation,
        id=conversation,
        at=at,
        seconds=seconds,
        usage=usage,
        agent=agent,
        outcome=outcome,
        children=turns,
    )
