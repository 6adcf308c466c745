"""The locks of the SQLite store, and files that are deleted or replaced while they are in use."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rondel import Agent, App
from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.contracts.runtime import Job
from rondel.errors import StoreError
from rondel.events import MessageAdded
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.file import CHECK_EVERY_S, DatabaseFile
from rondel.testing import Echo
from rondel.values import Usage, user
from tests.forked import run_script
from tests.helpers import STORED_ENTRIES

SAID = (MessageAdded(user("hello")),)

OPENS_AND_CLOSES = """
import asyncio, sys
from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.values import user
async def main():
    async with SqliteStore(sys.argv[1]) as store:
        await store.read("c")
        await store.append(sys.argv[2], 1, (MessageAdded(user("hello")),), at=1.0)
asyncio.run(main())
"""

COUNTS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute(sys.argv[2]).fetchone()[0])
connection.close()
"""

COUNTS_ALL = """
import sqlite3, sys
for path in sys.argv[1:]:
    connection = sqlite3.connect(path)
    connection.execute("select count(*) from log").fetchone()
    connection.close()
"""


def another_process(path: Path, conversation: str) -> None:
    """Let another process open, use and close the store."""
    run_script(OPENS_AND_CLOSES, path, conversation).check_returncode()


def counted(path: Path, query: str) -> int:
    """What another process finds in the file."""
    return int(run_script(COUNTS, path, query).stdout)


def use(path: Path, test: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SqliteStore(path) as store:
            await test(store)

    asyncio.run(main())


# --- locks ------------------------------------------------------------------------------------------------------------


async def test_reading_drops_no_lock_of_the_writer(path: Path) -> None:
    """Trust 1: what was acknowledged beside a process that opened and closed the store is there."""
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0)
        await store.read("c")  # opens a second connection, for reading
        log = os.stat(f"{path}-wal")
        another_process(path, "other")
        assert os.path.samestat(log, os.stat(f"{path}-wal")), "another process deleted the log that is in use"
        for seq in range(2, 7):
            await store.append("c", seq, SAID, at=1.0)
        assert counted(path, f"select count(*) from {STORED_ENTRIES} where conversation = 'c'") == 6
        another_process(path, "third")
        assert counted(path, f"select count(*) from {STORED_ENTRIES}") == 8


async def test_a_second_store_in_one_process_drops_no_lock_of_the_first(path: Path) -> None:
    """Trust 1: locks belong to the process, so opening and closing another store must not release them."""
    async with SqliteStore(path) as store:
        await store.append("c", 1, SAID, at=1.0)
        async with SqliteStore(path) as second:
            await second.read("c")
            await second.append("d", 1, SAID, at=1.0)
        another_process(path, "other")
        await store.append("c", 2, SAID, at=1.0)
        assert counted(path, f"select count(*) from {STORED_ENTRIES}") == 4


async def test_a_store_that_is_reached_through_a_link_is_the_same_store(tmp_path: Path) -> None:
    """Trust 1: two processes that reach the file through different links see each other's locks and jobs."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "rondel.db")
    async with SqliteStore(tmp_path / "real" / "rondel.db") as store:
        await store.put_job(Job("j", "turn", "c"))
        async with SqliteStore(tmp_path / "link.db") as other:
            assert await other.orphaned_jobs() == [], "its worker lives"


def test_threads_that_make_a_file_at_once_drop_no_lock_of_each_other(tmp_path: Path) -> None:
    """Trust 1: the file that one thread creates is not closed by hand after another one has opened it."""
    paths = [tmp_path / f"{number}.db" for number in range(10)]
    start, opened, done = threading.Barrier(4), threading.Barrier(5), threading.Event()

    def open_all() -> None:
        connections: list[sqlite3.Connection] = []
        for path in paths:
            start.wait(30)
            connections.append(DatabaseFile(path, durability="normal", busy_timeout_s=30).open())
        opened.wait(30)
        done.wait(60)
        for connection in connections:
            connection.close()

    threads = [threading.Thread(target=open_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    opened.wait(30)
    try:
        run_script(COUNTS_ALL, *paths).check_returncode()
        assert [path for path in paths if not Path(f"{path}-wal").exists()] == [], "logs in use were deleted"
    finally:
        done.set()
        for thread in threads:
            thread.join()


async def test_a_log_that_another_process_deleted_ends_the_acknowledging(path: Path) -> None:
    """Trust 1: code that opens the file by hand drops the locks; what that leads to is noticed, and nothing is lost."""
    async with SqliteStore(path) as store:
        await append_one(store)
        await store.append("c", 2, SAID, at=1.0)
        path.read_bytes()
        another_process(path, "other")
        with pytest.raises(StoreError, match=r"rondel.db-wal was deleted, moved or replaced"):
            await store.append("c", 3, SAID, at=1.0)
        with pytest.raises(StoreError, match=r"rondel.db-wal was deleted, moved or replaced"):
            await store.read("c")
        another_process(path, "third")
    assert counted(path, f"select count(*) from {STORED_ENTRIES} where conversation = 'c'") == 2
    assert counted(path, f"select count(*) from {STORED_ENTRIES}") == 4
    assert counted(path, "select count(*) from pragma_integrity_check where integrity_check <> 'ok'") == 0


# --- files that go away -----------------------------------------------------------------------------------------------


def _delete(path: Path) -> None:
    path.unlink()


def _delete_with_log(path: Path) -> None:
    for file in path.parent.glob("rondel.db*"):
        file.unlink()


def _delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _replace(path: Path) -> None:
    other = path.with_name("backup.db")
    use(other, append_one)
    other.rename(path)


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


async def append_one(store: SqliteStore) -> None:
    await store.append("c", 1, SAID, at=1.0)


GOES_AWAY = [_delete, _delete_with_log, _delete_log, _replace, _remove_folder, _move_folder]


@pytest.mark.parametrize("go_away", GOES_AWAY)
async def test_a_file_that_is_deleted_or_replaced_while_in_use_is_noticed(
    tmp_path: Path, go_away: Callable[[Path], None]
) -> None:
    """Trust 1: nothing more is acknowledged, and one sentence says what happened and what to do."""
    path = tmp_path / "store" / "rondel.db"
    sentence = rf"{path}(-wal)? was deleted, moved or replaced while it was in use.*: put it back, .*restart"
    store = SqliteStore(path)
    ledger = Ledger(store.ledger_store)
    await store.append("c", 1, SAID, at=1.0)
    await store.read("c")
    await asyncio.to_thread(go_away, path)
    await asyncio.sleep(CHECK_EVERY_S)
    uses = [
        store.append("c", 2, SAID, at=1.0),
        store.append("c", 2, SAID, at=1.0),  # and again
        store.append("d", 1, (MessageAdded(user("x" * 200_000)),), at=1.0),  # too large for the loop's thread
        store.put_job(Job("j", "turn", "c")),
        store.put("namespace", "key", b"value"),
        store.delete("c"),
        ledger.record(Scope("chat", "m"), Usage(1, 1)),
        store.read("c"),
        store.info("c"),
    ]
    for one in uses:
        with pytest.raises(StoreError, match=sentence):
            await one
    await store.aclose()


async def test_a_file_that_comes_back_is_used_again(path: Path, tmp_path: Path) -> None:
    """Trust 1: a file that is moved away and back is the same file."""
    async with SqliteStore(path) as store:
        await append_one(store)
        path.rename(tmp_path / "away")
        await asyncio.sleep(CHECK_EVERY_S)
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await store.append("c", 2, SAID, at=1.0)
        (tmp_path / "away").rename(path)
        await store.append("c", 2, SAID, at=1.0)
        assert counted(path, f"select count(*) from {STORED_ENTRIES}") == 2


async def test_a_turn_whose_store_is_gone_fails_with_the_reason(path: Path) -> None:
    """Trust 1: through the app, a turn after that is not said to be done."""
    store = SqliteStore(path)
    async with App(Agent("helper", engine=Echo()), store=store) as app:
        conversation = app.conversation("c")
        await (await conversation.send("one")).result()
        path.unlink()
        await asyncio.sleep(CHECK_EVERY_S)
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await (await conversation.send("two")).result()


async def test_a_blocking_limit_admits_nothing_when_the_books_are_gone(path: Path) -> None:
    """Trust 1: a limit that cannot be counted any more lets nothing through."""
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store, rules=[Rule({}, "day", tokens=1_000, mode="block")])
        ledger.void(await ledger.reserve(Scope("chat", "m"), tokens=lambda: (1, 1)))
        await append_one(store)
        path.unlink()
        await asyncio.sleep(CHECK_EVERY_S)
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await ledger.reserve(Scope("chat", "m"), tokens=lambda: (1, 1))


async def test_a_device_is_not_taken_for_a_file(tmp_path: Path) -> None:
    """Trust 1: a path that is not a regular file is refused by name."""
    os.mkfifo(tmp_path / "pipe")
    async with SqliteStore(tmp_path / "pipe") as store:
        with pytest.raises(StoreError, match="pipe is not a regular file"):
            await append_one(store)
