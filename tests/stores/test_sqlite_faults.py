"""What fails beside a commit, or for a while: nothing is written twice, and nothing is held for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rondel.contracts.runtime import Job, Signal
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.writer import AT_ONCE_COMMITS_MAX
from tests.forked import run_script
from tests.helpers import STORED_ENTRIES

WAIT_S = 20.0

needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

NO_ROOM_IN_THE_DATABASE = """
import asyncio, resource, sys
from pathlib import Path
from rondel.charge import Charge, Scope
from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage, user

async def main(path, rounds):
    async with SqliteStore(path) as store:
        for seq in range(1, 401):
            await store.append("large", seq, (MessageAdded(user("x" * 50_000)),), at=1.0)
    # The log, which begins anew, has room; the database, to which a checkpoint adds, has none.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, resource.RLIM_INFINITY))
    async with SqliteStore(path) as store:
        for seq in range(1, rounds + 1):
            store.ledger_store.settle(Charge(f"u{seq}", 1.0, Scope("chat", "X"), Usage(1, 1)))
            await store.append("c", seq, (MessageAdded(user(str(seq))),), at=1.0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes")
def test_a_checkpoint_that_fails_changes_nothing_about_what_was_committed(tmp_path: Path) -> None:
    """Trust 24: it was committed, so it is acknowledged, and charged once."""
    path, rounds = tmp_path / "rondel.db", AT_ONCE_COMMITS_MAX + 50
    done = run_script(NO_ROOM_IN_THE_DATABASE, path, rounds)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(path)) as connection:
        charged = connection.execute("select count(*), count(distinct id) from charges").fetchone()
        entries = connection.execute(f"select count(*) from {STORED_ENTRIES} where conversation = 'c'").fetchone()
    assert (charged, entries) == ((rounds, rounds), (rounds,))


async def test_a_job_that_cannot_be_forgotten_at_once_is_forgotten_later(path: Path) -> None:
    """Trust 2: else its key would be blocked for all other processes for as long as this one lives."""
    async with SqliteStore(path, busy_timeout_s=0.1) as one, SqliteStore(path) as other:
        await one.put_job(Job("a", "turn", "c"))
        await other.put_job(Job("b", "turn", "c"))
        assert await other.claim_job("b") == "waiting"
        with closing(sqlite3.connect(path, isolation_level=None)) as locker:
            locker.execute("begin immediate")
            one.finish_job("a")
            await asyncio.sleep(0.5)
            locker.execute("rollback")
        async with asyncio.timeout(WAIT_S):
            while await other.claim_job("b") != "granted":
                await other.wait_for_others()


async def test_a_signal_that_this_version_does_not_know_is_dropped(path: Path) -> None:
    """Trust 2: it may be that of a newer Rondel; what comes with it arrives."""
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        await one.put_job(Job("a", "turn", "c"))
        await one.wait_for_others()
        with closing(sqlite3.connect(path)) as connection, connection:
            (worker,) = connection.execute("select worker from jobs").fetchone()
            connection.execute('insert into signals (worker, body) values (?, \'{"kind": "dance"}\')', (worker,))
        assert await other.signal_job(Signal("stop", key="c"))
        async with asyncio.timeout(WAIT_S):
            while not (signals := await one.wait_for_others()):
                pass
        assert [one.kind for one in signals] == ["stop"]


async def test_a_signal_is_not_missed_when_the_first_try_to_take_it_fails(path: Path) -> None:
    """Trust 2: a stop that was acknowledged arrives, even when nothing else is written after it."""
    async with SqliteStore(path, busy_timeout_s=0.1) as one, SqliteStore(path) as other:
        await one.put_job(Job("a", "turn", "c"))
        await one.wait_for_others()
        assert await other.signal_job(Signal("stop", key="c"))
        with closing(sqlite3.connect(path, isolation_level=None)) as locker:
            locker.execute("begin immediate")
            with pytest.raises(Exception, match="locked"):
                await one.wait_for_others()
            locker.execute("rollback")
        assert [one.kind for one in await one.wait_for_others()] == ["stop"]


FORKS = """
import asyncio, os, sys, time
from rondel.contracts.runtime import Job
from rondel.stores.sqlite import SqliteStore

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        await store.put_job(Job("a", "turn", "c"))
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@needs_posix
def test_a_process_that_died_holds_nothing_through_a_process_that_it_forked(path: Path) -> None:
    """Trust 2: a pool of processes that a tool left behind does not keep a dead one's conversations."""
    process = subprocess.Popen([sys.executable, "-c", FORKS, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())

    async def main() -> None:
        async with SqliteStore(path) as store:
            assert await store.is_claimed("c"), "the fork does not cost the living one its claim"
            process.kill()
            process.wait(WAIT_S)
            async with asyncio.timeout(WAIT_S):  # the forked one may not have run yet
                while await store.is_claimed("c"):
                    await asyncio.sleep(0.01)

    try:
        asyncio.run(main())
    finally:
        process.kill()
        process.stdout.close()
        process.wait(WAIT_S)
        os.kill(child, signal.SIGKILL)
