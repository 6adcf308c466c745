"""The file of the SQLite store: how it is made and brought up to date, and its faults, each with one clear sentence."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from rondel.charge import Charge, Scope
from rondel.contracts.ledger import Account, Balance
from rondel.contracts.runtime import Job
from rondel.errors import StoreBusy, StoreDamaged, StoreError, StoreTooNew
from rondel.events import Entry, MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.file import MIGRATIONS, DatabaseFile
from rondel.stores.sqlite.key_values import SWEEP_EVERY
from rondel.stores.sqlite.log import entries
from rondel.stores.sqlite.reader import SqliteReader
from rondel.stores.sqlite.requests import Call
from rondel.testing import VirtualClock
from rondel.values import Usage, user

SAID = (MessageAdded(user("hello")),)


def use(path: Path, test: Callable[[SqliteStore], Awaitable[None]], *, busy_timeout_s: float = 5.0) -> None:
    async def main() -> None:
        async with SqliteStore(path, busy_timeout_s=busy_timeout_s) as store:
            await test(store)

    asyncio.run(main())


async def append_one(store: SqliteStore) -> None:
    await store.append("c", 1, SAID, at=1.0)


def test_making_a_store_touches_nothing(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new" / "rondel.db")
    assert list(tmp_path.iterdir()) == []


async def test_folder_and_file_are_made_and_belong_to_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "rondel.db"
    async with SqliteStore(path) as store:
        await append_one(store)
        await store.put_job(Job("j", "job", "k"))
        files = list(path.parent.iterdir())
        assert len(files) == 4  # the database, its log, its shared memory, this worker's sign of life
        if os.name == "posix":
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_the_path_memory_is_a_file_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    use(Path(":memory:"), append_one)
    assert (tmp_path / ":memory:").stat().st_size > 0


@pytest.mark.parametrize(("durability", "synchronous"), [("normal", 1), ("full", 2)])
def test_durability_is_what_the_file_is_opened_with(tmp_path: Path, durability: str, synchronous: int) -> None:
    connection = DatabaseFile(tmp_path / "x.db", durability=durability, busy_timeout_s=1).open()  # type: ignore[arg-type]
    assert connection.execute("pragma synchronous").fetchone() == (synchronous,)
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert connection.execute("pragma foreign_keys").fetchone() == (1,)
    connection.close()


def test_an_unknown_durability_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"durability 'fulll' is unknown; did you mean 'full'\?"):
        SqliteStore(tmp_path / "x.db", durability="fulll")  # type: ignore[arg-type]


def test_a_file_of_an_older_version_is_brought_up_to_date(path: Path) -> None:
    use(path, append_one)
    newer = (*MIGRATIONS, ("alter table jobs add column note text not null default 'old'", "create table extra (x)"))
    DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=newer).open().close()
    connection = DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=newer).open()
    assert connection.execute("pragma user_version").fetchone() == (len(newer),)
    assert connection.execute("select count(*) from log").fetchone() == (1,)
    connection.execute("select note from jobs, extra")
    connection.close()


async def test_what_a_dead_worker_of_an_older_version_had_reserved_is_charged(path: Path) -> None:
    before = DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=MIGRATIONS[:8]).open()
    charge = Charge("u1", 1.0, Scope("chat", "m"), Usage(900, 100), cost_nanousd=7)
    of = Account.at("model", "m", "day", 1.0)
    body = msgspec.json.encode({"charge": charge, "accounts": (of,), "until": 1e12}).decode()
    before.execute("insert into reservations (id, worker, until, body) values ('u1', 'dead', 1e12, ?)", (body,))
    before.close()
    async with SqliteStore(path) as store:
        assert await store.ledger_store.balances((of,)) == [Balance(1000, 7)]
        assert (await store.ledger_store.charges(0, 1, "", 10)).charges == (charge,)


async def test_conversations_of_an_older_version_are_listed_in_order(path: Path) -> None:
    before = DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=MIGRATIONS[:10]).open()
    for id, at, person in (("old", 5.0, "ann"), ("new", 86_400.0, "ann"), ("of bob", 90_000.0, "bob")):
        before.execute(
            "insert into conversations (id, agent, title, state, seq, messages, usage, created_at, updated_at, person) "
            "values (?, '', '', 'done', 1, 0, '{}', ?, ?, ?)",
            (id, at, at, person),
        )
    before.close()
    async with SqliteStore(path) as store:
        assert [info.id for info in await store.conversations()] == ["of bob", "new", "old"]
        assert [info.id for info in await store.conversations(person="ann")] == ["new", "old"]


async def test_the_log_of_an_older_version_is_read_and_continued(path: Path) -> None:
    before = DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=MIGRATIONS[:11]).open()
    before.execute(
        "insert into conversations (id, agent, title, state, seq, messages, usage, created_at, updated_at) "
        "values ('c', '', '', '', 3, 3, '{}', 1, 3)"
    )
    for seq in (3, 1, 2):
        body = msgspec.json.encode(Entry(seq, 1.0, SAID[0])).decode()
        before.execute("insert into entries values ('c', ?, 1.0, 'message_added', ?)", (seq, body))
    before.close()
    async with SqliteStore(path) as store:
        await store.append("c", 4, SAID, at=1.0)
        assert await store.read("c") == [Entry(seq, 1.0, SAID[0]) for seq in (1, 2, 3, 4)]
        assert await store.delete("c")
        assert await store.read("c") == []


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    use(path, append_one)
    broken = (*MIGRATIONS, ("create table extra (x)", "this is no SQL"))
    with pytest.raises(sqlite3.OperationalError):
        DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=broken).open()

    async def test(store: SqliteStore) -> None:
        assert len(await store.read("c")) == 1

    use(path, test)
    connection = sqlite3.connect(path)
    assert connection.execute("select count(*) from sqlite_master where name = 'extra'").fetchone() == (0,)
    connection.close()


async def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    newest = len(MIGRATIONS)
    DatabaseFile(path, durability="normal", busy_timeout_s=1, migrations=(*MIGRATIONS, (), ())).open().close()
    async with SqliteStore(path) as store:
        for use_it in (append_one(store), store.read("c")):
            with pytest.raises(StoreTooNew, match=rf"{path} has version {newest + 2} .* up to {newest}: update Rondel"):
                await use_it


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table bookmarks (url)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    async with SqliteStore(path) as store:
        with pytest.raises(StoreError, match="belongs to another program and was not changed"):
            await append_one(store)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_named_and_kept(path: Path) -> None:
    path.write_text("Dear diary, " * 500)
    async with SqliteStore(path) as store:
        with pytest.raises(StoreDamaged, match=rf"{path} is damaged \(file is not a database\).*move it") as caught:
            await append_one(store)
        assert f"a backup in its place at {path}" in str(caught.value)
    assert path.read_text() == "Dear diary, " * 500


async def test_a_malformed_page_is_reported_as_damage_by_reads_and_appends(path: Path) -> None:
    async with SqliteStore(path) as store:
        for seq in range(1, 200):
            await store.append("c", seq, (MessageAdded(user("x" * 500)),), at=1.0)
    # All pages but the first, which holds the schema.
    data = bytearray(path.read_bytes())
    data[2048:] = b"\xa5" * (len(data) - 2048)
    path.write_bytes(data)
    async with SqliteStore(path) as store:
        for use_it in (store.read("c"), store.append("c", 200, SAID, at=1.0), store.conversations()):
            with pytest.raises(StoreDamaged, match="malformed"):
                await use_it
    assert path.read_bytes() == data


def test_an_entry_that_is_no_event_is_reported_as_damage(path: Path) -> None:
    use(path, append_one)
    connection = sqlite3.connect(path)
    connection.execute("""update log set entries = '{"seq": 1, "at": 1.0, "event": {"type": "party"}}'""")
    connection.commit()
    connection.close()

    async def test(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match=r"conversation 'c' after entry 0: Invalid value 'party'"):
            await store.read("c")

    use(path, test)


async def test_entries_that_are_too_large_together_are_read_in_smaller_pieces(path: Path) -> None:
    async with SqliteStore(path) as store:
        for seq in range(1, 40):
            await store.append("c", seq, (MessageAdded(user("x" * 10_000)),), at=1.0)
    reader = SqliteReader(DatabaseFile(path, durability="normal", busy_timeout_s=1))

    def read(length: int) -> Call:
        def call(connection: sqlite3.Connection) -> list[int]:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
            return [entry.seq for entry in entries(connection, "c", 0)]

        request = Call(call)
        reader.serve([request])
        return request

    assert read(90_000).result == list(range(1, 40))
    request = read(9_000)
    reader.close()
    assert isinstance(request.error, StoreError)
    assert "too large for one entry" in str(request.error)


async def test_a_folder_is_not_taken_for_a_file(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path) as store:
        with pytest.raises(StoreError, match=rf"{tmp_path} is a folder"):
            await append_one(store)


async def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with SqliteStore(tmp_path / "file" / "rondel.db") as store:
        with pytest.raises(StoreError, match=r"cannot be opened for writing \((Not a directory|File exists)\)"):
            await append_one(store)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_without_permission_is_a_clear_sentence(tmp_path: Path) -> None:
    """In a child that gives up being root, because root may do anything."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    script = f"""
import asyncio, os
from rondel.errors import StoreError
from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.values import user
async def main():
    if os.getuid() == 0:
        os.setuid(65534)
    async with SqliteStore({str(folder / "rondel.db")!r}) as store:
        try:
            await store.append("c", 1, (MessageAdded(user("x")),), at=1.0)
        except StoreError as error:
            print(error)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "rondel.db cannot be opened for writing (Permission denied): check the permissions" in done.stdout


def test_a_locked_file_is_busy_and_works_again_when_it_is_free(path: Path, caplog: pytest.LogCaptureFixture):
    use(path, append_one)

    async def test(store: SqliteStore) -> None:
        await store.append("c", 2, SAID, at=1.0)
        store.finish_job("j")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin exclusive")
        with pytest.raises(StoreBusy, match=rf"another process holds the database {path} locked: close it, or wait"):
            await store.append("c", 3, SAID, at=1.0)
        # Readers never wait for a writer.
        assert len(await store.read("c")) == 2
        other.execute("rollback")
        other.close()
        await store.append("c", 3, SAID, at=1.0)

    use(path, test, busy_timeout_s=0.01)
    assert "job 'j' has finished but cannot be deleted yet" in caplog.text


async def test_a_file_that_is_locked_when_it_is_opened_is_tried_again_at_the_next_use(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    async with SqliteStore(path, busy_timeout_s=0.01) as store:
        with pytest.raises(StoreBusy):
            await append_one(store)
        with pytest.raises(StoreBusy):
            await store.read("c")
        other.execute("rollback")
        other.close()
        await append_one(store)
        assert len(await store.read("c")) == 1


async def test_two_stores_on_one_file_fence_each_other(path: Path) -> None:
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        await store.append("c", 1, SAID, at=1.0)
        await other.append("c", 2, SAID, at=2.0)
        with pytest.raises(StoreError, match="is at entry 2, so entry 2 cannot follow"):
            await store.append("c", 2, SAID, at=2.0)
        await store.append("c", 3, SAID, at=3.0)
        assert await other.delete("c")
        with pytest.raises(StoreError, match="is at entry 0, so entry 4 cannot follow"):
            await store.append("c", 4, SAID, at=4.0)
        info = await store.info("c")
        assert info is None


def test_a_store_belongs_to_one_event_loop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rondel.db")

    async def again() -> None:
        for use_it in (store.read("c"), store.aclose()):
            with pytest.raises(StoreError, match="belongs to another event loop"):
                await use_it
        with pytest.raises(StoreError, match="belongs to another event loop"):  # nothing would write it
            store.put_soon("a", "b", b"c")

    async def begin() -> None:
        await append_one(store)
        store.put_soon("a", "b", b"c")  # sets a timer

    with asyncio.Runner() as first:
        first.run(begin())
        with asyncio.Runner() as second:
            second.run(again())
        first.run(store.aclose())


def test_a_closed_store_leaves_no_thread(tmp_path: Path) -> None:
    use(tmp_path / "rondel.db", append_one)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rondel-store")]


async def test_expired_values_are_swept_as_others_come(path: Path) -> None:
    clock = VirtualClock()
    async with SqliteStore(path, clock=clock) as store:
        for number in range(3 * SWEEP_EVERY):
            await store.put("responses", f"old{number}", b"x", until=clock.now() + 1)
        clock.advance(2)
        for number in range(SWEEP_EVERY):
            await store.put("responses", f"new{number}", b"x", until=clock.now() + 1)
        found = await store.reading(lambda c: c.execute("select count(*) from key_values").fetchone()[0])
    assert found == SWEEP_EVERY


async def test_a_value_survives_a_restart(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "rondel.db") as store:
        await store.put("facts", "a", b"1")
    async with SqliteStore(tmp_path / "rondel.db") as store:
        assert await store.get("facts", "a") == b"1"


RELEASED = [
    "d149f98b2b51",
    "ac640a4258fd",
    "e3b0c44298fc",
    "e3b0c44298fc",
    "e3ac62d90750",
    "8fb115745f02",
    "d8e6a2468033",
    "4143d9f01a2e",
    "fd875ef9b906",
    "67084160a258",
    "cc34b093880f",
    "428f16bea9e0",
]
"""The digests of the steps, each added when it is final: files that were brought up to it are never brought again."""


def test_no_final_step_of_the_migrations_ever_changes() -> None:
    """A step also changes if it uses a constant such as `scopes.COLUMNS`: write its old value out, and add a step."""
    texts = (" ".join(" ".join(step).split()) for step in MIGRATIONS)
    digests = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts]
    assert digests[: len(RELEASED)] == RELEASED[: len(digests)]
