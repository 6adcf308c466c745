"""A trace as it grows, in a store that somebody else writes."""

from __future__ import annotations

import asyncio

from rondel.events import Kept
from rondel.stores.memory import MemoryStore
from rondel.trace.follow import follow
from rondel.values import ToolCall
from tests.trace.journals import called, said, turn


def test_lines_come_as_they_happen_and_again_when_they_change():
    begin, hello, *_, end = turn(text="look it up")
    steps: list[list[Kept]] = [
        [begin, hello],
        [said("", ToolCall("c", "look", {"at": "it"}))],
        [*called("c", "look", "nowhere", error=True), said("Sorry."), end],
        [],
    ]

    async def main() -> list[list[str]]:
        store, seq, heard = MemoryStore(), 1, [[]]

        async def wait() -> None:
            nonlocal seq
            heard.append([])
            if not steps:
                raise EOFError
            if events := tuple(steps.pop(0)):
                await store.append("talk", seq, events, at=float(seq))
                seq += len(events)

        try:
            async for line in follow(store, "talk", wait):
                heard[-1].append(line)
        except EOFError:
            return heard
        raise AssertionError("it ends when nobody waits any more")

    nothing, first, second, third, fourth, *_ = asyncio.run(main())
    assert nothing == []
    assert first == ["Depth 0: agent helper was asked 'look it up': at work"]
    assert second == ["Depth 0: asked x:model (500 ms)", 'Depth 1: called tool look with args {"at":"it"}']
    assert third == [
        "Depth 0: agent helper was asked 'look it up': done",
        'Depth 1: called tool look with args {"at":"it"}, failed: nowhere',
        "Depth 0: asked x:model (500 ms)",
    ]
    assert fourth == []
