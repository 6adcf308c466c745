"""Watching a log: entries as they are written, and live events, by whichever worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rondel.contracts.runtime import Job
from rondel.contracts.store import Live, Store, Subscription
from rondel.events import DurableEvent, Entry, Lagged, MessageAdded, Outcome, TurnFinished, TurnStarted
from rondel.values import PartDelta, user
from tests.contracts.conftest import Workers, opened


def said(text: str) -> DurableEvent:
    return MessageAdded(user(text))


class Watch:
    """A subscription that is read whenever it changes."""

    def __init__(self, store: Store, conversation: str, after: int = 0) -> None:
        self._changed = asyncio.Event()
        self.subscription: Subscription = store.subscribe(conversation, self._changed.set)
        self._after = after
        self.found: list[Entry | Live] = []

    async def begin(self) -> None:
        self.found += await self.subscription.read(self._after)

    async def until(self, is_there: Callable[[list[Entry | Live]], bool]) -> list[Entry | Live]:
        while not is_there(self.found):
            await self._changed.wait()
            self._changed.clear()
            entries = [one.seq for one in self.found if isinstance(one, Entry)]
            self.found += await self.subscription.read(max(entries, default=self._after))
        return self.found


def shown(found: list[Entry | Live]) -> list[str]:
    """Entries by their position, live events by their text."""
    lines: list[str] = []
    for one in found:
        if isinstance(one, Entry):
            lines.append(f"{one.seq}")
        else:
            lines += [
                f"{one.seq}:{event.text if isinstance(event, PartDelta) else type(event).__name__}"
                for event in one.events
            ]
    return lines


async def test_a_tail_yields_what_is_there_and_then_what_comes_from_any_worker(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.append("c", 1, (said("1"), said("2")), at=1.0)
        await one.append("d", 1, (said("elsewhere"),), at=1.0)
        seen: list[int] = []
        tail = one.tail("c", after=1)
        seen.append((await anext(tail)).seq)
        await other.append("c", 3, (said("3"),), at=1.0)
        seen.append((await anext(tail)).seq)
        await one.append("c", 4, (said("4"), said("5")), at=1.0, wait=False)
        seen += [(await anext(tail)).seq, (await anext(tail)).seq]
        await tail.aclose()
        assert seen == [2, 3, 4, 5]


async def test_a_tail_sees_entries_of_a_turn_that_runs_here_and_elsewhere(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.put_job(Job("t", "turn", "c"))
        tails = one.tail("c"), other.tail("c")
        await one.append("c", 1, (TurnStarted("t", "helper"),), at=1.0)
        assert [(await anext(tail)).seq for tail in tails] == [1, 1]
        await one.append("c", 2, (said("hi"),), at=1.0, wait=False)
        await one.append("c", 3, (TurnFinished("t", Outcome.DONE),), at=1.0)
        assert [[(await anext(tail)).seq for _ in range(2)] for tail in tails] == [[2, 3], [2, 3]]
        for tail in tails:
            await tail.aclose()


async def test_live_events_reach_other_workers_in_their_order_among_the_entries(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        watch = Watch(other, "c")
        await watch.begin()
        await one.put_job(Job("t", "turn", "c"))
        await one.append("c", 1, (TurnStarted("t", "helper"),), at=1.0)
        one.publish("c", 1, PartDelta(0, "a"))
        one.publish("c", 1, PartDelta(0, "b"))
        await watch.until(lambda found: "1:b" in shown(found))
        one.publish("c", 1, PartDelta(0, "c"))
        await one.append("c", 2, (said("abc"),), at=1.0, wait=False)
        one.publish("c", 2, PartDelta(0, "d"))
        await one.append("c", 3, (TurnFinished("t", Outcome.DONE),), at=1.0)
        found = await watch.until(lambda found: "3" in shown(found))
        assert shown(found) == ["1", "1:a", "1:b", "1:c", "2", "2:d", "3"]
        watch.subscription.close()


async def test_live_events_are_for_subscribers_of_other_workers_only(make_workers: Workers) -> None:
    """A worker shows its own live events itself; what happened before a subscription is not kept for it."""
    async with opened(make_workers) as (one, other):
        await one.append("c", 1, (said("1"),), at=1.0)
        assert "c" not in one.subscribed
        one.publish("c", 1, PartDelta(0, "nobody watches"))
        here, there, elsewhere = Watch(one, "c"), Watch(other, "c"), Watch(other, "d")
        for watch in (here, there, elsewhere):
            await watch.begin()
        await one.append("c", 2, (said("2"),), at=1.0)
        assert "c" in one.subscribed
        assert "d" in one.subscribed
        one.publish("c", 2, PartDelta(0, "x"))
        await one.append("c", 3, (said("3"),), at=1.0)
        await one.append("d", 1, (said("1"),), at=1.0)
        assert shown(await there.until(lambda found: "3" in shown(found))) == ["1", "2", "2:x", "3"]
        assert shown(await here.until(lambda found: "3" in shown(found))) == ["1", "2", "3"]
        assert shown(await elsewhere.until(lambda found: "1" in shown(found))) == ["1"]
        there.subscription.close()
        there.subscription.close()


async def test_live_events_are_bounded(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        watch = Watch(other, "c")
        await watch.begin()
        await one.append("c", 1, (said("1"),), at=1.0)
        for number in range(10_000):
            one.publish("c", 1, PartDelta(0, f"{number}"))
        await one.append("c", 2, (said("2"),), at=1.0)
        lines = shown(await watch.until(lambda found: "2" in shown(found)))
        assert [lines[0], *lines[-2:]] == ["1", "1:9999", "2"]
        assert "1:Lagged" in lines
        assert len(lines) < 5_000
        assert Lagged(1) in [event for one in watch.found if isinstance(one, Live) for event in one.events]
