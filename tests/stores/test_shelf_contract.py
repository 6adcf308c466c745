"""What every shelf promises: small values by their key, some of them for a while only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rondel.clock import Clock, VirtualClock
from rondel.errors import StoreError
from rondel.store import Shelf, Store
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.shelves import SWEEP_EVERY

Make = Callable[[Clock], Store]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        return lambda clock: MemoryStore(clock=clock)
    return lambda clock: SqliteStore(tmp_path / "rondel.db", clock=clock)


def run(make: Make, test: Callable[[Store, VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        store = make(clock)
        try:
            await test(store, clock)
        finally:
            await store.aclose()

    asyncio.run(main())


def test_a_value_is_what_was_put_last(make: Make) -> None:
    async def test(store: Shelf, _: VirtualClock) -> None:
        assert await store.get("facts", "city") is None
        await store.put("facts", "city", b"K\xc3\xb6ln\x00\xff")
        await store.put("other", "city", b"")
        assert (await store.get("facts", "city"), await store.get("other", "city")) == (b"K\xc3\xb6ln\x00\xff", b"")
        await store.put("facts", "city", b"Bonn")
        assert await store.get("facts", "city") == b"Bonn"

    run(make, test)


def test_a_value_of_megabytes_is_kept_too(make: Make) -> None:
    async def test(store: Shelf, _: VirtualClock) -> None:
        value = bytes(range(256)) * 8192
        await store.put("responses", "r1", value)
        assert await store.get("responses", "r1") == value

    run(make, test)


def test_a_value_is_gone_when_its_time_is_over(make: Make) -> None:
    async def test(store: Shelf, clock: VirtualClock) -> None:
        await store.put("responses", "r1", b"x", until=clock.now() + 10)
        await store.put("responses", "r2", b"y")
        clock.advance(9)
        assert await store.get("responses", "r1") == b"x"
        assert await store.keys("responses") == ["r1", "r2"]
        clock.advance(1)
        assert await store.get("responses", "r1") is None
        assert await store.keys("responses") == ["r2"]
        assert not await store.remove("responses", "r1")
        await store.put("responses", "r1", b"z")
        assert await store.get("responses", "r1") == b"z"

    run(make, test)


def test_what_was_removed_is_gone_once(make: Make) -> None:
    async def test(store: Shelf, _: VirtualClock) -> None:
        await store.put("facts", "a", b"1")
        assert await store.remove("facts", "a")
        assert not await store.remove("facts", "a")
        assert await store.get("facts", "a") is None

    run(make, test)


def test_keys_come_in_order_by_prefix_and_in_pages(make: Make) -> None:
    async def test(store: Shelf, _: VirtualClock) -> None:
        for key in ("b/2", "a%1", "b/1", "b", "b0", "ü", "b/\U0001f600", "b/a_c", "b/abc"):
            await store.put("facts", key, b".")
        assert await store.keys("facts", "b/") == ["b/1", "b/2", "b/a_c", "b/abc", "b/\U0001f600"]
        assert await store.keys("facts", "a%") == ["a%1"]
        first = await store.keys("facts", limit=4)
        assert first == ["a%1", "b", "b/1", "b/2"]
        assert await store.keys("facts", after=first[-1]) == ["b/a_c", "b/abc", "b/\U0001f600", "b0", "ü"]
        assert await store.keys("facts", limit=0) == await store.keys("nobody") == []

    run(make, test)


@pytest.mark.parametrize(("shelf", "key"), [("", "a"), ("facts", ""), ("facts", "\ud800")])
def test_what_has_no_name_has_no_place(make: Make, shelf: str, key: str) -> None:
    async def test(store: Shelf, _: VirtualClock) -> None:
        with pytest.raises(StoreError, match="nothing can be put on shelf"):
            await store.put(shelf, key, b"x")
        assert await store.get(shelf, key) is None
        assert not await store.remove(shelf, key)

    run(make, test)


def test_expired_values_are_swept_as_others_come(tmp_path: Path) -> None:
    path = tmp_path / "rondel.db"

    async def main() -> int:
        clock = VirtualClock()
        async with SqliteStore(path, clock=clock) as store:
            for number in range(3 * SWEEP_EVERY):
                await store.put("responses", f"old{number}", b"x", until=clock.now() + 1)
            clock.advance(2)
            for number in range(SWEEP_EVERY):
                await store.put("responses", f"new{number}", b"x", until=clock.now() + 1)
            return await store.reading(
                lambda reader: reader.open().execute("select count(*) from shelves").fetchone()[0]
            )

    assert asyncio.run(main()) == SWEEP_EVERY


def test_a_shelf_survives_a_restart(tmp_path: Path) -> None:
    async def put() -> None:
        async with SqliteStore(tmp_path / "rondel.db") as store:
            await store.put("facts", "a", b"1")

    async def get() -> bytes | None:
        async with SqliteStore(tmp_path / "rondel.db") as store:
            return await store.get("facts", "a")

    asyncio.run(put())
    assert asyncio.run(get()) == b"1"
