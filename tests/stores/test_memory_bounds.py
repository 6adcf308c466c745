"""What a memory store keeps is bounded: it is the default of an app that may run for months."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc

import pytest

from rondel import Agent, App, tool
from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.ledger.ledger import Ledger
from rondel.stores.memory import MemoryStore
from rondel.stores.memory.ledger_store import MemoryLedgerStore
from rondel.testing import Echo, Scripted, VirtualClock, call
from rondel.values import Usage
from tests.helpers import play, scripted

TURNS = 500


@pytest.mark.slow
def test_finished_turns_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch):
    """Trust 9: hundreds of turns, each in a conversation of its own, cost what the kept conversations cost."""
    monkeypatch.setattr("rondel.machine.journals.JOURNALS_MAX", 50)
    monkeypatch.setattr("rondel.ledger.ledger.SCOPES_MAX", 50)

    async def main() -> tuple[int, int]:
        store = MemoryStore(conversations_max=100)
        store.ledger_store = MemoryLedgerStore(VirtualClock(), charges_max=100)
        async with App(Agent("helper", engine=Echo()), store=store) as app:

            async def talk(turns: int) -> int:
                for _ in range(turns):
                    await (await app.conversation().send("hello")).result()
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            tracemalloc.start()
            try:
                return await talk(200), await talk(TURNS)
            finally:
                tracemalloc.stop()

    before, after = asyncio.run(main())
    assert (after - before) / TURNS < 100, "bytes of each finished turn stay"


def test_the_default_store_of_an_app_has_a_bound():
    """Trust 9."""
    app = App(Agent("helper", engine=Echo()))
    assert isinstance(app.store, MemoryStore)
    assert app.store.conversations_max == 10_000
    assert app.store.ledger_store.charges_max == 10_000


def test_the_conversation_that_rests_longest_is_forgotten_with_its_children(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Trust 9: with a warning, once."""
    monkeypatch.setattr("rondel.machine.journals.JOURNALS_MAX", 0)
    worker = Agent("worker", template="worked")
    boss = Agent("boss", engine=Scripted(*[call("worker", input="x"), "done"] * 9), tools=["worker"])

    async def main() -> tuple[list[str], list[str]]:
        store = MemoryStore(conversations_max=2)
        async with App(boss, worker, store=store) as app:
            for id in ("one", "two", "three", "one", "four"):
                await (await app.conversation(id).send("go")).result()
            kept = [info.id for info in await store.conversations()]
            ids = ("one", "two", "three", "four")
            return kept, [id for id in ids if await store.read(f"{id}/call-worker")]

    with caplog.at_level(logging.WARNING, "rondel.store"):
        kept, children = asyncio.run(main())
    assert kept == ["four", "one"]
    assert children == ["one", "four"]
    assert [record.getMessage() for record in caplog.records] == [
        "the memory store keeps 2 conversations and forgets the oldest; raise conversations_max, or use a SqliteStore, "
        "to keep more"
    ]


def test_a_conversation_that_waits_or_is_open_is_never_forgotten(monkeypatch: pytest.MonkeyPatch):
    """Trust 9: only what rests goes."""
    monkeypatch.setattr("rondel.machine.journals.JOURNALS_MAX", 0)

    @tool(approval="confirm")
    async def book() -> str:
        return "booked"

    asks, _ = scripted(call("book"), "Booked.", tools=[book])
    echo = Agent("echo", engine=Echo())

    async def scene(app: App) -> tuple[str, str]:
        waiting = app.conversation("waiting", agent="helper")
        await (await waiting.send("go")).result()
        opened = app.conversation("open", agent="echo")
        await (await opened.send("first")).result()
        with await opened.watch():
            for _ in range(20):
                await (await app.conversation(agent="echo").send("hello")).result()
            (question,) = await waiting.questions()
            answered = await (await waiting.answer(question.id, "yes")).result()
            await (await opened.send("second")).result()
            return answered.output, (await opened.transcript()).messages[0].text

    store = MemoryStore(conversations_max=2)
    assert play(scene, asks, echo, store=store) == ("Booked.", "first")


async def test_sums_and_limits_count_charges_that_are_no_longer_kept_one_by_one():
    """Trust 9: a limit of a person holds, also one that is new; so does the sum of a day, by any dimension."""
    clock = VirtualClock()
    ledger_store = MemoryLedgerStore(clock, charges_max=10)
    ledger = Ledger(ledger_store, clock=clock)
    for n in range(100):
        scope = Scope("chat", "m", "e:m", conversation=f"c{n}", person="ann" if n % 2 else "bob")
        await ledger.record(scope, Usage(10, 0))
        if n == 50:
            assert (await ledger.summary(by="person", window="day")).rows[0].totals.tokens  # asked for on the way
    assert len((await ledger_store.charges(-10, 1 << 40, "", 1_000)).charges) < 30
    sums = {row.value: row.totals for row in (await ledger.summary(by="person", window="day")).rows}
    assert {who: (totals.calls, totals.tokens) for who, totals in sums.items()} == {"ann": (50, 500), "bob": (50, 500)}
    (both,) = (await ledger.summary(by="model", window="lifetime")).rows
    assert both.totals.tokens == 1_000
    assert len((await ledger.summary(by="conversation", window="lifetime", limit=100)).rows) < 30
    ledger.configure([Rule({"person": "ann", "model": "m"}, "day", tokens=500, mode="block")])
    (state,) = await ledger.limit_state(Scope("chat", "m", person="ann"))
    assert state.blocked


async def test_pages_of_charges_go_on_behind_those_that_were_merged():
    """Trust 9: a cursor from before stays good."""
    ledger_store = MemoryLedgerStore(VirtualClock(), charges_max=10)
    ledger = Ledger(ledger_store, clock=VirtualClock())
    for n in range(15):
        await ledger.record(Scope("chat", f"m{n}"), Usage(1, 0), id=f"u{n}")
    first = await ledger_store.charges(-10, 1 << 40, "", 12)
    assert [charge.id for charge in first.charges] == [f"u{n}" for n in range(12)]
    for n in range(15, 20):
        await ledger.record(Scope("chat", f"m{n}"), Usage(1, 0), id=f"u{n}")
    rest = await ledger_store.charges(-10, 1 << 40, first.cursor, 100)
    assert [charge.id for charge in rest.charges] == [f"u{n}" for n in range(12, 20)]
