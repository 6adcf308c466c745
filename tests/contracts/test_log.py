"""What every store promises, whatever it keeps things in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from rondel.contracts.runtime import Job
from rondel.contracts.store import Store
from rondel.errors import StoreConflict, StoreError
from rondel.events import (
    CallHeld,
    CallStarted,
    DurableEvent,
    Entry,
    Failure,
    MessageAdded,
    Outcome,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from rondel.question import Question
from rondel.values import Media, Person, Text, ToolCall, Usage, assistant, user

Make = Callable[[], Store]

TURN: tuple[DurableEvent, ...] = (
    TurnStarted("t1", "adder", inputs={"city": "Köln", "big": 2**70}),
    MessageAdded(user("What is  2 + 40?\nPlease.", Media("image", data=b"\x00\xff", mime="image/png"), id="m1")),
    RoundFinished(
        assistant(ToolCall("c1", "add", {"a": 2, "b": [40, None, 1.5]}), opaque={"anthropic": {"id": "x"}}),
        stop="calls",
        usage=Usage(10, 5),
        seconds=0.1 + 0.2,
    ),
    CallStarted("c1", "add", {"a": 2}),
    TurnFinished("t1", Outcome.FAILED, failure=Failure("EngineDenied", "no key 🔑")),
)


def said(text: str) -> MessageAdded:
    return MessageAdded(user(text))


async def test_what_was_appended_is_read_in_order_and_unchanged(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.append("c", 1, TURN[:2], at=1000.1)
        await store.append("c", 3, TURN[2:], at=1000.2)
        expected = [Entry(i + 1, 1000.1 if i < 2 else 1000.2, event) for i, event in enumerate(TURN)]
        assert await store.read("c") == expected
        assert await store.read("c", 3) == expected[3:]
        assert await store.read("c", 99) == []
        assert await store.read("nobody") == []


async def test_a_stale_append_conflicts_and_writes_nothing(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.append("c", 1, (said("a"), said("b")), at=1.0)
        for seq in (-1, 0, 1, 2, 4):
            with pytest.raises(StoreConflict, match=f"conversation 'c' is at entry 2, so entry {seq} cannot follow"):
                await store.append("c", seq, (said("x"), said("y")), at=2.0)
        with pytest.raises(StoreConflict):
            await store.append("new", 2, (said("x"),), at=2.0)
        assert [entry.seq for entry in await store.read("c")] == [1, 2]
        assert await store.read("new") == []
        assert await store.info("new") is None


async def test_a_conflicting_append_fails_alone_among_many(make_store: Make) -> None:
    async with aclosing(make_store()) as store:

        async def append(conversation: str, seq: int) -> str:
            try:
                await store.append(conversation, seq, (said(f"{conversation}{seq}"),), at=float(seq))
            except StoreConflict:
                return "conflict"
            return "kept"

        tries = [("a", 1), ("b", 2), ("a", 2), ("a", 2), ("c", 1), ("c", 3), ("a", 3)]
        outcomes = await asyncio.gather(*(append(*one) for one in tries))
        assert outcomes == ["kept", "conflict", "kept", "conflict", "kept", "conflict", "kept"]
        assert [entry.event for entry in await store.read("a")] == [said("a1"), said("a2"), said("a3")]
        assert await store.read("b") == []


async def test_what_cannot_be_written_is_refused_with_a_reason(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        for bad in (object(), {1j: 2}, "\ud800"):
            with pytest.raises(StoreError, match="conversation 'c' cannot be written as JSON"):
                await store.append("c", 1, (said("a"), TurnStarted("t", "a", inputs={"x": bad})), at=1.0)
            with pytest.raises(StoreError, match="the payload of job 'j' cannot be written as JSON"):
                await store.put_job(Job("j", "job", "k", {"x": bad}))
        with pytest.raises(StoreError, match="nothing to append to conversation 'c'"):
            await store.append("c", 1, (), at=1.0)
        assert await store.read("c") == []
        assert await store.orphaned_jobs() == []


async def test_a_conversations_summary_is_current(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.append("c", 1, TURN[:3], at=1000.0)
        info = await store.info("c")
        assert info is not None
        assert (info.agent, info.title, info.state) == ("adder", "What is 2 + 40? Please.", "interrupted")
        assert (info.seq, info.messages, info.usage) == (3, 2, Usage(10, 5))
        await store.append("c", 4, (CallHeld(Question("q", "approve", "May I?")),), at=1001.0)
        info = await store.info("c")
        assert info is not None
        assert (info.state, info.created_at, info.updated_at) == ("waiting", 1000.0, 1001.0)


async def test_a_turn_is_at_work_while_a_living_worker_has_its_claim(make_workers: Callable[[], tuple[Store, Store]]):
    one, other = make_workers()
    await one.put_job(Job("t1", "turn", "c"))
    await one.append("c", 1, TURN[:2], at=1.0)

    async def states() -> list[str]:
        shown = await other.info("c")
        return [info.state for info in (shown, *(await other.conversations())) if info is not None]

    assert await states() == ["working", "working"]
    await one.aclose()
    assert await states() == ["interrupted", "interrupted"]
    await other.aclose()


async def test_conversations_come_newest_first_and_in_pages(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        for number in range(7):
            await store.append(f"c{number}", 1, (said(str(number)),), at=100.0 + number)
        await store.append("c6/child", 1, (said("child"),), at=900.0)
        await store.append("c0", 2, (said("again"),), at=200.0)
        first = await store.conversations(limit=3)
        assert [info.id for info in first] == ["c0", "c6", "c5"]
        second = await store.conversations(limit=10, before=first[-1])
        assert [info.id for info in second] == ["c4", "c3", "c2", "c1"]
        assert await store.conversations(limit=0) == []


async def test_the_order_of_conversations_does_not_depend_on_how_long_ago_they_were(make_store: Make) -> None:
    """Minutes, hours and days apart; and a conversation moves when something is said in it, also into another hour."""
    async with aclosing(make_store()) as store:
        times = {"a": 86_400.0 * 400, "b": 3_600.0 * 5, "c": 3_599.0, "d": 3_601.0, "e": 86_400.0 * 400 + 60}
        for id, at in times.items():
            await store.append(id, 1, (TurnStarted(f"t-{id}", "helper", person=Person("ann")),), at=at)
        for person in (None, "ann"):
            assert [info.id for info in await store.conversations(person=person)] == ["e", "a", "b", "d", "c"]
        await store.append("c", 2, (said("again"),), at=86_400.0 * 400 + 30)
        await store.append("d", 2, (said("again"),), at=3_600.0 * 5 + 1)
        for person in (None, "ann"):
            seen: list[str] = []
            page = await store.conversations(limit=2, person=person)
            while page:
                seen += [info.id for info in page]
                page = await store.conversations(limit=2, before=page[-1], person=person)
            assert seen == ["e", "c", "a", "d", "b"]


async def test_pages_lose_no_conversation_of_the_same_moment(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        for number in range(10):
            await store.append(f"c{number}", 1, (said("x"),), at=100.0)
        seen: list[str] = []
        page = await store.conversations(limit=3)
        while page:
            seen += [info.id for info in page]
            page = await store.conversations(limit=3, before=page[-1])
        assert sorted(seen) == [f"c{number}" for number in range(10)]


async def test_a_deleted_conversation_goes_with_its_children_and_no_other(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        ids = ["c", "c/1", "c/1/2", "c.x", "c0", "d", "d/c/1", "C", "c-", "%", "%/1"]
        for id in ids:
            await store.append(id, 1, (said(id), said("more")), at=1.0)
        assert await store.delete("c") is True
        assert await store.delete("c") is False
        assert await store.delete("%") is True
        left = {id for id in ids if await store.read(id)}
        assert left == {"c.x", "c0", "d", "d/c/1", "C", "c-"}
        assert await store.info("c/1") is None
        await store.append("c", 1, (said("anew"),), at=2.0)
        info = await store.info("c")
        assert info is not None
        assert (info.title, info.created_at) == ("anew", 2.0)


async def test_a_delete_between_two_appends_keeps_its_place(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        done = await asyncio.gather(
            store.append("c", 1, (said("a"),), at=1.0), store.delete("c"), store.append("c", 1, (said("b"),), at=2.0)
        )
        assert done[1] is True
        assert await store.read("c") == [Entry(1, 2.0, said("b"))]


async def test_a_job_with_the_same_id_is_kept_once(make_store: Make) -> None:
    """Q02: dedupe by id."""
    async with aclosing(make_store()) as store:
        first = Job("j1", "turn", "c", {"text": "hi", "n": [1, None]}, at=5.5)
        assert await store.put_job(first) is True
        assert await store.put_job(Job("j1", "turn", "c", {"text": "again"})) is False
        assert await store.put_job(Job("j0", "job", "c")) is True
        assert await store.orphaned_jobs() == [first, Job("j0", "job", "c")]


async def test_a_finished_job_is_forgotten_and_its_id_is_free(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        assert await store.put_job(Job("a", "turn", "c"))
        store.finish_job("a")
        store.finish_job("unknown")
        assert await store.orphaned_jobs() == []
        assert await store.put_job(Job("a", "turn", "c", {"second": True}))
        store.finish_job("a")
        assert await store.put_job(Job("a", "turn", "c", {"third": True}))
        assert await store.orphaned_jobs() == [Job("a", "turn", "c", {"third": True})]


async def test_a_closed_store_says_so(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.append("c", 1, (said("a"),), at=1.0)
        await store.aclose()
        await store.aclose()
        for use in (store.append("c", 2, (said("b"),), at=1.0), store.read("c"), store.put_job(Job("j", "job", "k"))):
            with pytest.raises(StoreError, match="is closed"):
                await use


async def test_a_store_that_was_never_used_closes(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.aclose()


async def test_a_cancelled_append_is_written_before_its_caller_learns_of_it(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        appended = asyncio.Event()

        async def append() -> None:
            # The first step runs up to the store's first wait, if it has any.
            appended.set()
            await store.append("c", 1, (said("a"),), at=1.0)
            await asyncio.Event().wait()

        task = asyncio.create_task(append())
        await appended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [entry.event for entry in await store.read("c")] == [said("a")]
        await store.append("c", 2, (said("b"),), at=2.0)


async def test_long_conversations_and_long_texts_are_read_whole(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        events: tuple[DurableEvent, ...] = tuple(
            said(f"message {number}, with 'quotes', [brackets] and ü") for number in range(1300)
        )
        await store.append("c", 1, events[:1000], at=1.0)
        for seq in range(1001, 1301):
            await store.append("c", seq, (events[seq - 1],), at=1.0)
        await store.append("c", 1301, (MessageAdded(user(Text("x" * 2_000_000))),), at=2.0)
        entries = await store.read("c")
        assert [entry.event for entry in entries[:1300]] == list(events)
        assert [entry.seq for entry in entries] == list(range(1, 1302))
        for after in (1, 999, 1000, 1128, 1300, 1301):
            assert [entry.seq for entry in await store.read("c", after)] == list(range(after + 1, 1302))


async def test_what_was_appended_together_is_read_from_any_position(make_store: Make) -> None:
    """Small and large, several at once: a store may keep them together, and a reader must not notice."""
    async with aclosing(make_store()) as store:
        seq = 0
        for size in (1, 300_000, 10, 100_000, 200_000, 5):
            events = (said("x" * size), said("y"), said("z"))
            await store.append("c", seq + 1, events, at=1.0, wait=False)
            await store.append("other", seq + 1, events, at=1.0, wait=False)
            seq += 3
        await store.append("c", seq + 1, (said("last"),), at=1.0)
        whole = await store.read("c")
        assert [entry.seq for entry in whole] == list(range(1, seq + 2))
        for after in range(seq + 2):
            assert await store.read("c", after) == whole[after:]
