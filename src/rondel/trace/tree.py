"""Builds the whole tree, with the agents that worked for its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..contracts.store import Store
from ..errors import RondelError
from ..events import Entry, JobStarted, RoundFinished
from .drafts import frozen, totals
from .fold import Folder, sources_of
from .node import Price, TraceNode

LEVELS_MAX = 32  # how many levels of agents inside agents are read; the loop's own limits are far lower


async def read(store: Store, conversation: str, *, price: Price | None = None) -> TraceNode:
    entries = await store.read(conversation)
    return build(entries, await children_of(store, conversation, entries), conversation=conversation, price=price)


async def children_of(store: Store, conversation: str, entries: Sequence[Entry]) -> dict[str, Sequence[Entry]]:
    """Return the entries of every agent that worked for a call or in a job, by its `<conversation>/<id>`."""
    children: dict[str, Sequence[Entry]] = {}
    pending = [(conversation, entries, 0)]
    while pending:
        id, known, level = pending.pop()
        for child in inner_ids(id, known) if level < LEVELS_MAX else ():
            if child not in children and (inner := await store.read(child)):
                children[child] = inner
                pending.append((child, inner, level + 1))
    return children


def inner_ids(conversation: str, entries: Sequence[Entry]) -> list[str]:
    """Return the names of the conversations that agents may have had for the calls and jobs of this one."""
    rounds = (entry.event for entry in entries if isinstance(entry.event, RoundFinished))
    calls = [call.id for event in rounds for call in event.message.calls]
    jobs = [entry.event.job for entry in entries if isinstance(entry.event, JobStarted)]
    return [f"{conversation}/{id}" for id in (*calls, *jobs)]


def build(
    entries: Sequence[Entry],
    children: Mapping[str, Sequence[Entry]],
    *,
    conversation: str = "",
    price: Price | None = None,
) -> TraceNode:
    """Return the tree of a conversation. `children` has the entries of inner agents, by `<conversation>/<call id>`."""
    folder = Folder(sources_of(children, price), conversation).fold(entries)
    before, turns = tuple(map(frozen, folder.before)), tuple(draft.freeze() for draft in folder.turns)
    return TraceNode(
        "conversation",
        conversation,
        id=conversation,
        at=entries[0].at if entries else 0.0,
        ended_at=entries[-1].at if entries else None,
        seconds=sum(turn.seconds or 0.0 for turn in turns),
        agent=turns[0].name if turns else "",
        outcome=turns[-1].outcome if turns else "",
        children=(*before, *turns),
        **totals((*before, *turns)),
    )


def only_turn(root: TraceNode, wanted: str) -> TraceNode:
    """Return the trace of one turn, named by its number (-1 counts from the end), `last`, or the end of its id."""
    turns = [node for node in root.children if node.kind == "turn"]
    chosen = [turn for turn in turns if turn.id == wanted or (len(wanted) > 5 and turn.id.endswith(wanted))]
    if not chosen and (number := _number(wanted)) is not None and 1 <= (abs(number)) <= len(turns):
        chosen = [turns[number - 1 if number > 0 else number]]
    if len(chosen) != 1:
        count = f"it has {len(turns)}; give a number from 1 to {len(turns)}, or last" if turns else "it has none yet"
        raise RondelError(f"there is no turn {wanted!r} in conversation {root.name!r}: {count}")
    (turn,) = chosen
    return msgspec.structs.replace(
        root,
        at=turn.at,
        ended_at=turn.ended_at,
        seconds=turn.seconds,
        agent=turn.name,
        outcome=turn.outcome,
        children=(turn,),
        **totals((turn,)),
    )


def _number(text: str) -> int | None:
    if text == "last":
        return -1
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 9 else None
