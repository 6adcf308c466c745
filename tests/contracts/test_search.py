"""Every store finds conversations by what was said in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from rondel.contracts.store import Store
from rondel.events import MessageAdded, Outcome, Renamed, RoundFinished, TurnFinished, TurnStarted, TurnsUndone
from rondel.stores.sqlite import SqliteStore
from rondel.values import Person, assistant, user

Make = Callable[[], Store]


async def talk(
    store: Store, id: str, asked: str, answered: str, *, at: float = 1.0, turn: str = "t1", seq: int = 1, by: str = ""
):
    events = (
        TurnStarted(turn, "a", person=Person(by)),
        MessageAdded(user(asked)),
        RoundFinished(assistant(answered)),
        TurnFinished(turn, Outcome.DONE),
    )
    await store.append(id, seq, events, at=at)


async def ids(store: Store, words: str, **options: Any) -> list[str]:
    return [found.info.id for found in await store.search(words, **options)]


async def test_words_are_found_in_questions_answers_and_titles_newest_first(make_store: Make):
    async with aclosing(make_store()) as store:
        await talk(store, "c1", "Where is the Café?", "In Porto, near the river.", at=1)
        await talk(store, "c2", "Who lives in porto?", "Many people.", at=2)
        await store.append("c2", 5, (Renamed("About people"),), at=3)
        await talk(store, "c2/call", "porto inside", "porto", at=4)
        assert await ids(store, "PORTO") == ["c2", "c1"]
        assert await ids(store, "cafe") == ["c1"]
        assert await ids(store, "near riv") == ["c1"]
        assert await ids(store, "near people") == []
        assert await ids(store, "about") == ["c2"]
        assert await ids(store, "porto", limit=1) == ["c2"]
        (found,) = await store.search("river")
        assert "near the river" in found.excerpt


@pytest.mark.parametrize("words", ["", "  ", '"', "''", "?!", "AND", "near(", "text:porto", "-", "*", "a\0b", "NOT (x"])
async def test_whatever_is_searched_for_is_words(make_store: Make, words: str):
    async with aclosing(make_store()) as store:
        await talk(store, "c1", "hello", "you")
        assert await ids(store, words) == []


async def test_what_was_deleted_or_undone_is_not_found_and_what_is_new_is(make_store: Make):
    async with aclosing(make_store()) as store:
        await talk(store, "c1", "apples", "pears")
        await talk(store, "c1", "plums", "cherries", turn="t2", seq=5)
        assert await ids(store, "plums") == ["c1"]
        await store.append("c1", 9, (TurnsUndone("t2"),), at=2)
        assert await ids(store, "plums") == []
        assert await ids(store, "pears") == ["c1"]
        await talk(store, "c1", "grapes", "figs", turn="t3", seq=10)
        assert await ids(store, "figs") == ["c1"]
        await store.delete("c1")
        assert await ids(store, "pears") == []
        await talk(store, "c1", "bananas", "dates")
        assert await ids(store, "dates") == ["c1"]


async def test_the_limit_counts_only_what_the_person_may_find(make_store: Make):
    async with aclosing(make_store()) as store:
        await talk(store, "mine", "apples", "pears", by="ann", at=1)
        for number in range(3):
            await talk(store, f"other{number}", "apples", "pears", by="bob", at=2 + number)
        assert await ids(store, "apples", limit=2, person="ann") == ["mine"]
        assert await ids(store, "apples", limit=2, person="bob") == ["other2", "other1"]
        assert await ids(store, "apples", person="") == []


async def test_two_processes_search_one_file(tmp_path: Path):
    async with aclosing(SqliteStore(tmp_path / "s.db")) as here, aclosing(SqliteStore(tmp_path / "s.db")) as there:
        await talk(here, "c1", "apples", "pears")
        assert await ids(there, "pears") == ["c1"]
        await talk(there, "c2", "apples", "figs", at=2)
        assert await ids(here, "apples") == ["c2", "c1"]


@pytest.mark.slow
async def test_ten_thousand_conversations_are_searched_in_a_moment(tmp_path: Path):
    async with aclosing(SqliteStore(tmp_path / "s.db")) as store:
        for number in range(10_000):
            await talk(
                store, f"c{number}", f"question {number} about apples", f"answer {number} about pears", at=number
            )
        began = time.process_time()  # of all threads: the machine may be busy
        await store.search("nothing")
        indexed = time.process_time()
        assert await ids(store, "answer 4711") == ["c4711"]
        one = time.process_time()
        assert len(await store.search("apples")) == 20
        all_s = time.process_time() - one
        assert indexed - began < 60  # once
        assert one - indexed < 1
        assert all_s < 2
