"""The queue of jobs that workers share: claims, their order, and signals. Every store must pass this unchanged."""

from __future__ import annotations

import pytest

from rondel.contracts.runtime import Job, Signal
from rondel.contracts.store import Store
from rondel.errors import StoreConflict
from rondel.events import MessageAdded
from rondel.values import user
from tests.contracts.conftest import Workers, opened


def turn(id: str, key: str = "c", at: float = 0.0) -> Job:
    return Job(id, "turn", key, at=at)


async def claimed_by_others(store: Store, key: str, wanted: bool) -> None:
    """Wait for what another worker writes without being waited for."""
    while await store.is_claimed(key) is not wanted:
        await store.wait_for_others()


async def signals_of(store: Store) -> list[Signal]:
    while not (signals := await store.wait_for_others()):
        pass
    return signals


async def test_a_key_is_claimed_by_one_worker_at_a_time(make_workers: Workers) -> None:
    """Trust 2: a second worker waits until the first one's job is over."""
    async with opened(make_workers) as (one, other):
        assert await one.put_job(turn("a"))
        assert await one.claim_job("a") == "granted"
        assert await one.claim_job("a") == "granted", "asking twice changes nothing"
        assert await other.put_job(turn("b"))
        assert await other.claim_job("b") == "waiting"
        assert await other.put_job(turn("elsewhere", key="d"))
        assert await other.claim_job("elsewhere") == "granted"
        assert (await one.is_claimed("c"), await other.is_claimed("c")) == (False, True)
        one.finish_job("a")
        await claimed_by_others(other, "c", False)
        assert await other.claim_job("b") == "granted"


async def test_claims_are_granted_in_the_order_in_which_jobs_came(make_workers: Workers) -> None:
    """Trust 2: a worker that has a key does not pass another one that waits for it."""
    async with opened(make_workers) as (one, other):
        await one.put_job(turn("first"))
        await one.put_job(turn("second"))
        assert await one.claim_job("second") == "granted", "nobody else waits: a worker orders its own jobs"
        await other.put_job(turn("third"))
        await one.put_job(turn("fourth"))
        assert await one.claim_job("fourth") == "waiting"
        one.finish_job("first")
        assert await other.claim_job("third") == "waiting"
        one.finish_job("second")
        await claimed_by_others(other, "c", False)
        assert await one.claim_job("fourth") == "waiting", "the third comes first"
        assert await other.claim_job("third") == "granted"
        assert await one.claim_job("fourth", patient=False) == "waiting", "a claim is never passed"
        other.finish_job("third")
        await claimed_by_others(one, "c", False)
        assert await one.claim_job("fourth") == "granted"


async def test_one_that_loses_its_patience_passes_a_job_that_has_not_begun(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.put_job(turn("a"))
        await other.put_job(turn("b"))
        await one.put_job(turn("c"))
        one.finish_job("a")
        assert await one.claim_job("c") == "waiting"
        assert await one.claim_job("c", patient=False) == "granted"
        assert await other.claim_job("b") == "waiting"


async def test_a_job_for_later_holds_nobody_up_and_is_claimed_when_its_time_comes(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.put_job(turn("late", at=9e12))
        await other.put_job(turn("now"))
        assert await other.claim_job("now") == "granted"
        assert await one.claim_job("late") == "waiting"
        other.finish_job("now")
        await claimed_by_others(one, "c", False)
        assert await one.claim_job("late") == "granted"


async def test_the_claims_of_a_dead_worker_are_free_and_its_jobs_can_be_taken_up(make_workers: Workers) -> None:
    """Trust 2: who is gone holds nothing, and what it left is not begun by somebody who did not take it up."""
    async with opened(make_workers) as (one, other):
        await one.put_job(turn("a"))
        await other.put_job(turn("b"))
        assert await other.claim_job("b") == "waiting"
        await one.aclose()
        assert await other.is_claimed("c") is False
        assert await other.claim_job("a") == "gone"
        assert await other.claim_job("b") == "granted"
        assert await other.orphaned_jobs("c") == [turn("a"), turn("b")]
        assert await other.claim_job("a") == "granted", "both are its own now"


async def test_only_who_has_the_claim_can_append(make_workers: Workers) -> None:
    """Trust 2: the fence. What is refused has written nothing, and others may write when nobody works there."""
    async with opened(make_workers) as (one, other):
        said = (MessageAdded(user("hi")),)
        await other.append("c", 1, said, at=1.0)
        await one.put_job(turn("a"))
        assert await one.claim_job("a") == "granted"
        assert await one.last_seq("c") == 1
        with pytest.raises(StoreConflict, match="another process works on conversation 'c'"):
            await other.append("c", 2, said, at=1.0)
        await other.append("c/below", 1, said, at=1.0)  # has keys of its own
        await one.append("c", 2, said, at=1.0)
        assert (await one.last_seq("c"), await other.last_seq("c")) == (2, 2)
        one.finish_job("a")
        await claimed_by_others(other, "c", False)
        await other.append("c", 3, said, at=1.0)
        assert await one.last_seq("c") == 3


async def test_a_signal_reaches_the_worker_that_runs_the_job_once(make_workers: Workers) -> None:
    """Trust 2: with the job that ran when it was sent."""
    async with opened(make_workers) as (one, other):
        stop = Signal("stop", {"n": 1}, "c")
        assert await other.signal_job(stop) is False, "nobody is there"
        await one.put_job(turn("a"))
        await one.put_job(turn("queued"))
        assert await one.signal_job(stop) is False, "it is for other workers"
        assert await other.signal_job(stop) is True
        assert await signals_of(one) == [Signal("stop", {"n": 1}, "c", "a")]
        assert await one.wait_for_others() == []
        assert await other.wait_for_others() == []
        await one.aclose()
        assert await other.signal_job(stop) is False, "the dead hear nothing"


async def test_signals_that_nobody_takes_have_a_limit(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.put_job(turn("a"))
        sent = [await other.signal_job(Signal("steer", {}, "c")) for _ in range(120)]
        assert sent == [True] * 100 + [False] * 20
        assert len(await signals_of(one)) == 100


async def test_a_key_with_several_slots_is_claimed_that_often_by_all_workers_together(make_workers: Workers) -> None:
    def job(id: str) -> Job:
        return Job(id, "job", "k", slots=3)

    async with opened(make_workers) as (one, other):
        for id in ("a", "b"):
            assert await one.put_job(job(id))
        for id in ("c", "d"):
            assert await other.put_job(job(id))
        assert await one.put_job(job("e"))
        claims = [await worker.claim_job(id) for worker, id in ((one, "a"), (one, "b"), (other, "c"), (other, "d"))]
        assert claims == ["granted", "granted", "granted", "waiting"]
        one.finish_job("a")
        assert await one.claim_job("e") == "waiting", "d came first"
        while await other.claim_job("d") == "waiting":
            await other.wait_for_others()
        assert await one.claim_job("e") == "waiting"
        await other.aclose()
        assert await one.claim_job("e") == "granted", "the dead hold no slot"
        assert {job.slots for job in await one.orphaned_jobs("k")} == {3}


async def test_a_signal_may_name_its_job(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        for id in ("a", "b"):
            await one.put_job(Job(id, "job", "k", slots=2))
        assert await other.signal_job(Signal("cancel", key="k", job="b"))
        assert not await other.signal_job(Signal("cancel", key="k", job="unknown"))
        assert await signals_of(one) == [Signal("cancel", key="k", job="b")]


async def test_a_deleted_conversation_takes_its_turns_along_but_for_those_that_run(make_workers: Workers) -> None:
    async with opened(make_workers) as (one, other):
        await one.append("c", 1, (MessageAdded(user("hi")),), at=1.0)
        await one.put_job(turn("runs", key="c#q2"))
        for id, key in (("turn", "c"), ("deadline", "c#q1"), ("work", "c/jobs"), ("near", "c0"), ("far", "d")):
            await one.put_job(turn(id, key=key, at=5.0))
        assert await other.delete("c") is True
        assert [await one.claim_job(id) for id in ("turn", "deadline")] == ["gone"] * 2
        assert [await one.claim_job(id) for id in ("runs", "work", "near", "far")] == ["granted"] * 4
