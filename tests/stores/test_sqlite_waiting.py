"""Where an append waits, and where it does not: the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from rondel.charge import Charge, Scope
from rondel.contracts.ledger import Rule
from rondel.contracts.runtime import Job, Signal
from rondel.errors import StoreConflict, StoreError, TokenLimitError
from rondel.events import MessageAdded
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.file import LOG_BYTES_MAX
from rondel.stores.sqlite.requests import AT_ONCE_BYTES_MAX
from rondel.stores.sqlite.writer import AT_ONCE_COMMITS_MAX
from rondel.values import Usage, user
from tests.contracts.workshop import turn
from tests.helpers import STORED_ENTRIES

SAID = (MessageAdded(user("hello")),)


def use(path: Path, test: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), SqliteStore(path) as store:
            await test(store)

    asyncio.run(main())


async def test_the_loop_runs_on_while_another_process_holds_the_file(path: Path) -> None:
    """The one that lets go runs on the same loop: were it blocked, this would end as busy."""
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        async with asyncio.TaskGroup() as group:
            appended = group.create_task(store.append("c", 2, SAID, at=2.0))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not appended.done()
            assert len(await store.read("c")) == 1
            other.execute("commit")
        other.close()
        assert [entry.seq for entry in await store.read("c")] == [1, 2]


async def test_a_write_that_is_due_at_once_does_not_disturb_the_next(tmp_path: Path, loop: Any) -> None:
    """uvloop gives a timer that is due no time of its own."""
    async with SqliteStore(tmp_path / "rondel.db") as store:
        for seq in (1, 2):
            await store.append("c", seq, SAID, at=1.0, wait=False)
            store.write_within(0)
        assert len(await store.read("c")) == 2


async def test_a_store_that_was_closed_before_its_timer_was_due_refuses_a_charge(path: Path) -> None:
    async with SqliteStore(path) as store:
        charge = Charge("a", 1.0, Scope("chat", "X"), Usage(1, 1))
        store.ledger_store.settle(charge)
    with pytest.raises(StoreError, match="is closed"):
        store.ledger_store.settle(charge)


async def test_what_nobody_waits_for_is_written_with_the_next_that_somebody_does(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "rondel.db") as store:
        for seq in (1, 2, 3):
            await store.append("c", seq, SAID, at=1.0, wait=False)
        await store.append("c", 4, SAID, at=1.0)
        other = sqlite3.connect(store.path)
        assert other.execute(f"select count(*) from {STORED_ENTRIES}").fetchone() == (4,)
        other.close()


async def test_what_nobody_waits_for_is_read_at_once_and_written_at_the_close(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0, wait=False)
        assert [entry.seq for entry in await store.read("c")] == [1]
        await store.append("c", 2, SAID, at=1.0, wait=False)
    async with SqliteStore(path) as store:
        assert [entry.seq for entry in await store.read("c")] == [1, 2]


async def test_why_an_append_failed_that_nobody_waited_for_is_told_to_the_next(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "rondel.db") as store:
        await store.append("c", 1, SAID, at=1.0)
        await store.append("c", 5, SAID, at=1.0, wait=False)
        with pytest.raises(StoreConflict, match="is at entry 1, so entry 5 cannot follow"):
            await store.append("c", 6, SAID, at=1.0)
        await store.append("c", 2, SAID, at=1.0)


async def test_why_an_append_failed_is_told_also_if_something_else_fails_with_the_next(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "rondel.db") as store:
        await store.append("c", 1, SAID, at=1.0)
        await store.append("c", 5, SAID, at=1.0, wait=False)
        assert len(await store.read("c")) == 1
        unwritable = Charge("a", 1.0, Scope("chat", "X"), Usage(1, 1), metadata={"not": object()})
        store.ledger_store.settle(unwritable)
        with pytest.raises(StoreConflict, match="is at entry 1, so entry 5 cannot follow"):
            await store.append("c", 7, SAID, at=1.0)


async def test_many_commits_on_the_loops_thread_are_followed_by_a_checkpoint(path: Path, tmp_path: Path) -> None:
    async with SqliteStore(path) as store:
        for seq in range(1, 3 * AT_ONCE_COMMITS_MAX):
            await store.append("c", seq, SAID, at=1.0)
        # Without checkpoints the log would hold every page that was ever written, several for each commit.
        assert (tmp_path / "rondel.db-wal").stat().st_size < AT_ONCE_COMMITS_MAX * 6 * 2048
        assert len(await store.read("c")) == 3 * AT_ONCE_COMMITS_MAX - 1


def log_begun(path: Path) -> bytes:
    """What identifies a write-ahead log since it was begun: its header's number of the checkpoint, and the salts."""
    with Path(f"{path}-wal").open("rb") as log:
        return log.read(24)[12:]


@pytest.mark.parametrize("size", [AT_ONCE_BYTES_MAX + 1, 3_000_000])
async def test_no_commit_on_the_loops_thread_begins_a_log(path: Path, size: int) -> None:
    """The first commit of a log waits for the disk: it syncs the log's header."""
    async with SqliteStore(path) as store:
        large = (MessageAdded(user("x" * size)),)
        begun: set[bytes] = set()
        for seq in range(1, 200, 2):
            await store.append("c", seq, large if len(begun) < 3 else SAID, at=1.0)
            begun.add(before := log_begun(path))
            await store.append("c", seq + 1, SAID, at=1.0)
            assert log_begun(path) == before
        assert len(begun) == 3, "the log was moved into the database twice"


async def test_a_job_with_a_large_payload_is_written_beside_the_loop(path: Path) -> None:
    async with SqliteStore(path) as store, asyncio.TaskGroup() as group:
        await store.append("d", 1, SAID, at=1.0)
        for size in (10, AT_ONCE_BYTES_MAX):
            putting = group.create_task(store.put_job(Job(f"j{size}", "job", "k", {"text": "x" * size})))
            await asyncio.sleep(0)
            assert putting.done() == (size == 10)
            assert await putting


async def test_a_log_that_another_process_moved_is_begun_beside_the_loop(path: Path) -> None:
    async with SqliteStore(path) as store, asyncio.TaskGroup() as group:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            await store.append("d", 1, SAID, at=1.0)
            other.execute("delete from conversations where id = 'd'")
            begun: list[bytes] = []
            for seq in range(1, 9, 2):
                await store.append("c", seq, SAID, at=1.0)
                begun.append(log_begun(path))
                moved = other.execute("pragma wal_checkpoint(passive)").fetchone()
                assert moved[1] == moved[2]
                appended = group.create_task(store.append("c", seq + 1, SAID, at=1.0))
                await asyncio.sleep(0)
                assert not appended.done(), "the loop's thread has begun the log"
                await appended
        assert len(set(begun)) == len(begun)


@pytest.mark.slow
async def test_a_log_that_a_reader_kept_long_is_short_again_when_the_reader_is_gone(path: Path) -> None:
    large = (MessageAdded(user("x" * 8_000_000)),)
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from log").fetchone()
            for seq in range(2, 8):
                await store.append("c", seq, large, at=1.0)
            assert Path(f"{path}-wal").stat().st_size > 6 * 8_000_000
        for seq in (8, 9):
            await store.append("c", seq, large, at=1.0)
        assert Path(f"{path}-wal").stat().st_size <= LOG_BYTES_MAX
        assert len(await store.read("c")) == 9


async def test_a_rule_of_several_dimensions_adds_up_what_is_old_beside_the_loop(path: Path) -> None:
    """There may be millions of charges, and all of them are looked at when such a rule is new."""
    scope = Scope("chat", "X", key="k", person="ada")
    async with SqliteStore(path) as store:
        await Ledger(store.ledger_store).record(scope, Usage(100, 0))
        rules = [Rule({"key": "*", "person": "*"}, "day", tokens=150, mode="block")]
        ledger = Ledger(store.ledger_store, rules=rules)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count_turns())
            reservation = await ledger.reserve(scope, tokens=lambda: (20, 0))
            assert turns > 0, "the loop ran meanwhile"
            counting.cancel()
        with pytest.raises(TokenLimitError):
            await ledger.reserve(scope, tokens=lambda: (31, 0))
        ledger.void(reservation)


@pytest.mark.parametrize("wait", [True, False])
async def test_everybody_here_sees_what_had_to_wait_for_another_process(path: Path, wait: bool) -> None:
    seen: list[list[int]] = [[], []]
    async with asyncio.timeout(20), SqliteStore(path) as store:
        await store.put_job(turn("a"))  # the claim: nobody else can write, so nobody looks for that
        await store.append("c", 1, SAID, at=1.0)

        async def watch(seqs: list[int]) -> None:
            async for entry in store.tail("c"):
                seqs.append(entry.seq)
                if entry.seq == 2:
                    break

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            async with asyncio.TaskGroup() as group:
                for seqs in seen:
                    group.create_task(watch(seqs))
                while seen != [[1], [1]]:
                    await asyncio.sleep(0.001)
                other.execute("begin immediate")
                group.create_task(store.append("c", 2, SAID, at=1.0, wait=wait))
                await asyncio.sleep(0.1)
                assert seen == [[1], [1]]
                other.execute("commit")
    assert seen == [[1, 2], [1, 2]]


async def test_what_nobody_waits_for_is_read_by_everybody(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            await store.append("c", 2, SAID, at=1.0, wait=False)
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(store.read("c")) for _ in range(3)]
                await asyncio.sleep(0.1)
                other.execute("commit")
        assert [len(read.result()) for read in reads] == [2, 2, 2]


async def test_a_job_that_was_taken_over_is_not_claimed_before_it_runs(path: Path) -> None:
    """Trust 2: who takes up what a dead worker has left holds nothing yet."""
    dead, heir, third = (SqliteStore(path) for _ in range(3))
    async with aclosing(third), aclosing(heir), aclosing(dead):
        await dead.put_job(turn("a"))
        assert await dead.claim_job("a") == "granted"
        await dead.aclose()
        assert await heir.orphaned_jobs("c") == [turn("a")]
        assert await third.is_claimed("c") is False
        assert await heir.claim_job("a") == "granted"
        assert await third.is_claimed("c") is True


async def test_a_busy_worker_looks_for_others_with_its_commits_and_hears_their_signals(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(path) as one, SqliteStore(path) as other, asyncio.timeout(30), asyncio.TaskGroup() as group:
        await one.put_job(turn("a"))
        assert await other.is_claimed("c")
        reads: list[object] = []
        reading = one.reading

        def counted(call: Any) -> Any:
            reads.append(call)
            return reading(call)

        monkeypatch.setattr(one, "reading", counted)

        async def commit() -> None:
            while True:
                await one.put("busy", "key", b"")
                await asyncio.sleep(0.001)

        busy = group.create_task(commit())
        await one.wait_for_others()
        reads.clear()
        assert await one.wait_for_others() == []
        assert reads == []
        assert await other.signal_job(Signal("stop", key="c"))
        while not (signals := await one.wait_for_others()):
            pass
        assert [signal.kind for signal in signals] == ["stop"]
        busy.cancel()
