"""The SQLite store and other processes: one that is killed, some that start at once, one that fills the disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rondel.contracts.runtime import Job
from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.values import user

PROLOGUE = """
import asyncio, sys
from rondel.errors import *
from rondel.events import MessageAdded
from rondel.contracts.runtime import Job
from rondel.stores.sqlite import SqliteStore
from rondel.values import user
path = sys.argv[1]
def say(*words):
    print(*words, flush=True)
"""

APPENDS_FOREVER = """
async def main():
    store = SqliteStore(path)
    await store.put_job(Job("first", "turn", "c", {"n": 1}))
    await store.put_job(Job("second", "turn", "c"))
    seq = 0
    while True:
        seq += 1
        await store.append("c", seq, (MessageAdded(user(f"message {seq}")),), at=float(seq))
        say(seq)
asyncio.run(main())
"""

HOLDS_A_JOB = """
async def main():
    async with SqliteStore(path) as store:
        await store.put_job(Job("theirs", "turn", "c"))
        say("ready")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
asyncio.run(main())
"""

APPENDS_ONCE = """
async def main():
    async with SqliteStore(path) as store:
        await store.append(sys.argv[2], 1, (MessageAdded(user("hello")),), at=1.0)
        assert len(await store.read(sys.argv[2])) == 1
say("ready")
sys.stdin.readline()
asyncio.run(main())
"""

FILLS_THE_DISK = """
import resource
def limit_files(size):
    # What is beyond the limit fails like a write to a full disk; Python ignores the signal that comes with it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
async def append(store, conversation, seq, chars):
    await store.append(conversation, seq, (MessageAdded(user("x" * chars)), MessageAdded(user("y"))), at=1.0)
async def main():
    async with SqliteStore(path) as store:
        await append(store, "c", 1, 10)
        limit_files(300_000)
        seq = 3
        try:
            while True:
                await append(store, "c", seq, 20_000)
                seq += 2
        except StoreFull as error:
            say(error)
        assert len(await store.read("c")) == seq - 1, "nothing is half written"
        limit_files(400_000)
        # Of two that come together, the one that fits is written.
        results = await asyncio.gather(
            append(store, "big", 1, 1_000_000), append(store, "small", 1, 10), return_exceptions=True)
        say([type(result).__name__ for result in results])
        limit_files(resource.RLIM_INFINITY)
        await append(store, "c", seq, 20_000)
        say(len(await store.read("c")) == seq + 1, len(await store.read("big")))
asyncio.run(main())
"""


@contextmanager
def child(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROLOGUE + script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_what_was_acknowledged_survives_kill_9(path: Path, tmp_path: Path) -> None:
    """Q02: history survives the death of the process."""
    with child(APPENDS_FOREVER, path) as process:
        for _ in range(50):
            assert line_of(process)
        process.kill()
        assert process.stdout is not None
        acknowledged = int((process.stdout.read().split("\n")[-2:-1] or ["50"])[0])

    async with SqliteStore(path) as store:
        entries = await store.read("c")
        assert len(entries) in (acknowledged, acknowledged + 1)
        assert [entry.event for entry in entries] == [
            MessageAdded(user(f"message {number}")) for number in range(1, len(entries) + 1)
        ]
        info = await store.info("c")
        assert info is not None
        assert info.seq == info.messages == len(entries)
        assert len(list(tmp_path.glob("*.worker-*"))) == 1
        assert await store.orphaned_jobs() == [Job("first", "turn", "c", {"n": 1}), Job("second", "turn", "c")]
        await store.append("c", len(entries) + 1, (MessageAdded(user("on")),), at=1.0)
        assert len(list(tmp_path.glob("*.worker-*"))) == 1, "the dead one's is gone, this one's is there"
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    connection.close()


async def test_the_jobs_of_a_living_process_are_no_orphans(path: Path) -> None:
    async with SqliteStore(path) as store:
        with child(HOLDS_A_JOB, path) as process:
            assert line_of(process) == "ready"
            assert await store.orphaned_jobs() == []
            assert await store.put_job(Job("theirs", "turn", "c")) is False
            store.finish_job("theirs")  # not ours to forget
            assert await store.orphaned_jobs() == []
            process.kill()
            process.wait()
            assert await store.orphaned_jobs() == [Job("theirs", "turn", "c")]
            async with SqliteStore(path) as other:
                assert await other.orphaned_jobs() == [], "this store holds it now"
        store.finish_job("theirs")
        assert await store.orphaned_jobs() == []


async def test_the_jobs_of_a_store_that_was_closed_are_orphans(path: Path) -> None:
    """Q02: pending jobs survive a restart."""
    async with SqliteStore(path) as store:
        await store.put_job(Job("a", "turn", "c"))
        await store.put_job(Job("b", "job", "d", at=9.0))
        store.finish_job("a")
    async with SqliteStore(path) as store:
        assert await store.put_job(Job("b", "job", "d")) is False
        assert await store.orphaned_jobs() == [Job("b", "job", "d", at=9.0)]


def test_processes_that_start_at_once_on_a_new_file_all_work(path: Path) -> None:
    with child(APPENDS_ONCE, path, "a") as a, child(APPENDS_ONCE, path, "b") as b, child(APPENDS_ONCE, path, "c") as c:
        for process in (a, b, c):
            assert line_of(process) == "ready"
        for process in (a, b, c):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(timeout=60) for process in (a, b, c)] == [0, 0, 0]


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_a_full_disk_is_a_clear_sentence_and_passes_when_there_is_space(path: Path) -> None:
    with child(FILLS_THE_DISK, path) as process:
        assert line_of(process).startswith(f"no space is left to write the database {path} (")
        assert line_of(process) == "['StoreFull', 'NoneType']"
        assert line_of(process) == "True 0"
        assert process.wait(timeout=60) == 0
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
