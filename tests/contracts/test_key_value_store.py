"""What every key-value store promises: small values by key, some of which expire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from rondel.contracts.clock import Clock
from rondel.contracts.store import Store
from rondel.errors import StoreError
from rondel.testing import VirtualClock

Make = Callable[[Clock], Store]


@asynccontextmanager
async def opened(make: Make) -> AsyncIterator[tuple[Store, VirtualClock]]:
    clock = VirtualClock()
    async with aclosing(make(clock)) as store:
        yield store, clock


async def test_a_value_is_what_was_put_last(make_store: Make) -> None:
    async with opened(make_store) as (store, _):
        assert await store.get("facts", "city") is None
        await store.put("facts", "city", b"K\xc3\xb6ln\x00\xff")
        await store.put("other", "city", b"")
        assert (await store.get("facts", "city"), await store.get("other", "city")) == (b"K\xc3\xb6ln\x00\xff", b"")
        await store.put("facts", "city", b"Bonn")
        assert await store.get("facts", "city") == b"Bonn"


async def test_a_value_of_megabytes_is_kept_too(make_store: Make) -> None:
    async with opened(make_store) as (store, _):
        value = bytes(range(256)) * 8192
        await store.put("responses", "r1", value)
        assert await store.get("responses", "r1") == value


async def test_a_value_is_gone_when_its_time_is_over(make_store: Make) -> None:
    async with opened(make_store) as (store, clock):
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


async def test_what_was_removed_is_gone_once(make_store: Make) -> None:
    async with opened(make_store) as (store, _):
        await store.put("facts", "a", b"1")
        assert await store.remove("facts", "a")
        assert not await store.remove("facts", "a")
        assert await store.get("facts", "a") is None


async def test_what_is_put_soon_is_there_with_the_next_write(make_store: Make) -> None:
    async with opened(make_store) as (store, clock):
        await store.put("facts", "old", b"1")
        store.put_soon("facts", "a", b"1", until=clock.now() + 10)
        store.put_soon("facts", "b", bytes(200_000))
        store.put_soon("facts", "old", None)
        await store.put("facts", "c", b"3")
        assert await store.keys("facts") == ["a", "b", "c"]
        clock.advance(10)
        assert await store.get("facts", "a") is None
        with pytest.raises(StoreError, match="nothing can be stored in namespace"):
            store.put_soon("", "a", b"x")


async def test_keys_come_in_order_by_prefix_and_in_pages(make_store: Make) -> None:
    async with opened(make_store) as (store, _):
        for key in ("b/2", "a%1", "b/1", "b", "b0", "ü", "b/\U0001f600", "b/a_c", "b/abc"):
            await store.put("facts", key, b".")
        assert await store.keys("facts", "b/") == ["b/1", "b/2", "b/a_c", "b/abc", "b/\U0001f600"]
        assert await store.keys("facts", "a%") == ["a%1"]
        first = await store.keys("facts", limit=4)
        assert first == ["a%1", "b", "b/1", "b/2"]
        assert await store.keys("facts", after=first[-1]) == ["b/a_c", "b/abc", "b/\U0001f600", "b0", "ü"]
        assert await store.keys("facts", limit=0) == await store.keys("nobody") == []


@pytest.mark.parametrize(("namespace", "key"), [("", "a"), ("facts", ""), ("facts", "\ud800")])
async def test_what_has_no_name_has_no_place(make_store: Make, namespace: str, key: str) -> None:
    async with opened(make_store) as (store, _):
        with pytest.raises(StoreError, match="nothing can be stored in namespace"):
            await store.put(namespace, key, b"x")
        assert await store.get(namespace, key) is None
        assert not await store.remove(namespace, key)


async def test_the_last_of_several_values_that_are_put_soon_counts(make_store: Make) -> None:
    async with opened(make_store) as (store, _):
        await store.put("facts", "was", b"old")
        for key, values in {"was": (None, b"new"), "gone": (b"1", None), "twice": (b"1", b"2")}.items():
            for value in values:
                store.put_soon("facts", key, value)
        await store.put("facts", "x", b"")
        assert [await store.get("facts", key) for key in ("was", "gone", "twice")] == [b"new", None, b"2"]
        # One that is waited for comes after all that were put before it.
        store.put_soon("facts", "was", b"soon")
        await store.put("facts", "was", b"now")
        await store.put("facts", "x", b"")
        assert await store.get("facts", "was") == b"now"
