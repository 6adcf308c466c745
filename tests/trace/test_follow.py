"""A trace as it grows, in a store that somebody else writes."""

from __future__ import annotations

import asyncio

from rondel.events import DurableEvent
from rondel.stores.memory import MemoryStore
from rondel.trace.follow import follow
from rondel.values import ToolCall
from tests.trace.journals import called, said, turn


async def test_lines_come_as_they_happen_and_again_when_they_change():
    begin, hello, *_, end = turn(text="look it up")
    steps: list[tuple[list[DurableEvent], int]] = [
        ([begin, hello], 1),
        ([said("", ToolCall("c", "look", {"at": "it"}))], 2),
        ([*called("c", "look", "nowhere", error=True), said("Sorry."), end], 3),
    ]
    store, seq, lines = MemoryStore(), 1, list[list[str]]()
    following = follow(store, "talk")
    async with asyncio.timeout(10):
        for events, expected in steps:
            await store.append("talk", seq, tuple(events), at=float(seq))
            seq += len(events)
            lines.append([await anext(following) for _ in range(expected)])
    first, second, third = lines
    assert first == ["Depth 0: agent helper was asked 'look it up': at work"]
    assert second == ["Depth 0: asked x:model (500 ms)", 'Depth 1: called tool look with args {"at":"it"}']
    assert third == [
        "Depth 0: agent helper was asked 'look it up': done",
        'Depth 1: called tool look with args {"at":"it"}, failed: nowhere',
        "Depth 0: asked x:model (500 ms)",
    ]
