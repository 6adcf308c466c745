"""Random appends, deletes and reads, one by one and at once, against a dictionary of lists."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rondel.contracts.store import ConversationInfo, Store
from rondel.errors import StoreConflict
from rondel.events import (
    CallStarted,
    DurableEvent,
    Entry,
    MessageAdded,
    Outcome,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.values import Message, Text, ToolCall, Usage, Value

IDS = ("a", "b", "a/1", "a/1/2")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
PARTS = st.builds(Text, TEXTS) | st.builds(ToolCall, TEXTS, TEXTS, OBJECTS, opaque=OBJECTS)
MESSAGES = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(PARTS, max_size=3).map(tuple), id=TEXTS, opaque=OBJECTS
)
EVENTS = st.one_of(
    st.builds(TurnStarted, TEXTS, TEXTS, inputs=OBJECTS),
    st.builds(MessageAdded, MESSAGES),
    st.builds(RoundFinished, MESSAGES, usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9))),
    st.builds(CallStarted, TEXTS, TEXTS, OBJECTS),
    st.builds(TurnFinished, TEXTS, st.sampled_from(Outcome)),
)


class Append(Value, frozen=True):
    """`off` is how far the seq is from the right one."""

    conversation: str
    events: tuple[DurableEvent, ...]
    off: int = 0


class Delete(Value, frozen=True):
    conversation: str


APPENDS = st.builds(
    Append,
    st.sampled_from(IDS),
    st.lists(EVENTS, min_size=1, max_size=3).map(tuple),
    st.sampled_from([0, 0, 0, 0, 1, -1]),
)
STEPS = st.lists(
    st.lists(APPENDS | APPENDS | APPENDS | st.builds(Delete, st.sampled_from(IDS)), min_size=1, max_size=5)
)


class Model:
    """The simplest store that could be right."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}
        self.at = 1000.0

    def place(self, append: Append) -> tuple[int, float]:
        """The seq and the time that this append is tried with."""
        self.at += 1
        return len(self.entries.get(append.conversation, [])) + 1 + append.off, self.at

    def append(self, append: Append, seq: int, at: float) -> str:
        if append.off:
            return "conflict"
        entries = self.entries.setdefault(append.conversation, [])
        entries.extend(Entry(seq + i, at, event) for i, event in enumerate(append.events))
        return "kept"

    def delete(self, conversation: str) -> bool:
        doomed = [id for id in self.entries if id == conversation or id.startswith(conversation + "/")]
        for id in doomed:
            del self.entries[id]
        return bool(doomed)

    def infos(self) -> dict[str, ConversationInfo]:
        infos: dict[str, ConversationInfo] = {}
        for id, entries in self.entries.items():
            infos[id] = ConversationInfo(id)
            for entry in entries:
                infos[id] = infos[id].after(entry)
            if infos[id].state == "working":  # without a claim
                infos[id] = msgspec.structs.replace(infos[id], state="interrupted")
        return infos


async def do(store: Store, act: Append | Delete, seq: int, at: float) -> str | bool:
    if isinstance(act, Delete):
        return await store.delete(act.conversation)
    try:
        await store.append(act.conversation, seq, act.events, at=at)
    except StoreConflict:
        return "conflict"
    return "kept"


async def check(store: Store, model: Model) -> None:
    infos = model.infos()
    for id in IDS:
        entries = model.entries.get(id, [])
        assert await store.read(id) == entries
        assert await store.read(id, 2) == entries[2:]
        assert await store.info(id) == infos.get(id)
    parents = sorted((info for info in infos.values() if "/" not in info.id), key=lambda info: -info.updated_at)
    assert await store.conversations() == parents


async def compare(make: Callable[[], Store], steps: list[list[Append | Delete]]) -> None:
    store, model = make(), Model()
    for step in steps:
        acts: list[tuple[Append | Delete, int, float]] = []
        expected: list[str | bool] = []
        for act in step:
            if isinstance(act, Delete):
                acts.append((act, 0, 0.0))
                expected.append(model.delete(act.conversation))
            else:
                acts.append((act, *model.place(act)))
                expected.append(model.append(*acts[-1]))  # type: ignore[arg-type]
        assert await asyncio.gather(*(do(store, *act) for act in acts)) == expected
        await check(store, model)
    if isinstance(store, SqliteStore):
        await store.aclose()
        store = make()
        await check(store, model)
    await store.aclose()


@given(steps=STEPS)
def test_the_memory_store_agrees_with_the_model(steps: list[list[Append | Delete]]) -> None:
    asyncio.run(compare(MemoryStore, steps))


@given(steps=STEPS)
def test_the_sqlite_store_agrees_with_the_model_and_so_does_its_file(steps: list[list[Append | Delete]]) -> None:
    """Q02: history survives a restart."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(lambda: SqliteStore(Path(folder) / "rondel.db"), steps))
