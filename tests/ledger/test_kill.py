"""A real process, killed between reserve and settle: what it had claimed is neither lost nor freed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.errors import TokenLimitError
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage

X = Scope("chat", "X", person="ada")
RULE = Rule({"model": "X"}, "month", tokens=1_000, mode="block")

VICTIM = """
import asyncio, sys
from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage

async def main():
    store = SqliteStore(sys.argv[1])
    ledger = Ledger(store.ledger_store, rules=[Rule({"model": "X"}, "month", tokens=1_000, mode="block")])
    scope = Scope("chat", "X", person="ada")
    await ledger.record(scope, Usage(100, 0))
    await ledger.reserve(scope, tokens=lambda: (250, 50))
    await ledger.reserve(scope, tokens=lambda: (200, 0))
    print("reserved", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start(path: Path) -> subprocess.Popen[str]:
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(path)], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "reserved\n"
    return victim


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_kill_9_between_reserve_and_settle_neither_leaks_nor_frees_too_much(path: Path):
    victim = start(path)

    async def while_it_lives() -> None:
        async with SqliteStore(path) as store:
            (state,) = await Ledger(store.ledger_store, rules=[RULE]).limit_state("X")
            assert (state.balance.tokens, state.balance.reserved_tokens) == (100, 500)

    async def after_its_death() -> None:
        async with SqliteStore(path) as store:
            ledger = Ledger(store.ledger_store, rules=[RULE])
            (state,) = await ledger.limit_state("X")
            assert (state.balance.tokens, state.balance.reserved_tokens, state.remaining_tokens) == (600, 0, 400)
            totals = await ledger.lifetime_totals("X")
            assert (totals.calls, totals.tokens_in, totals.tokens_out, totals.estimated) == (3, 550, 50, 2)
            lost = [c for c in (await store.ledger_store.charges(0, 10**6, "", 10)).charges if c.usage.estimated]
            assert [(c.metadata, c.scope.person) for c in lost] == [({"unsettled": True}, "ada")] * 2

    try:
        asyncio.run(while_it_lives())
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(30)
        asyncio.run(after_its_death())
        asyncio.run(after_its_death())  # and only once
    finally:
        victim.kill()
        victim.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
async def test_a_worker_that_dies_while_others_live_gives_its_place_up_when_somebody_needs_it(path: Path):
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store, rules=[RULE])
        victim = start(path)
        try:
            ours = await ledger.reserve(X, tokens=lambda: (400, 0))
            with pytest.raises(TokenLimitError, match="used up by calls in progress"):
                await ledger.reserve(X, tokens=lambda: (1, 0))
            ledger.void(ours)
            await ledger.record(X, Usage(350, 0))
            held = await ledger.reserve(X, tokens=lambda: (50, 0))
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait(30)
            with pytest.raises(TokenLimitError, match="used up by calls in progress"):
                await ledger.reserve(X, tokens=lambda: (1, 0))  # the dead one's count as spent: 950, and ours
            (state,) = await ledger.limit_state("X")
            assert (state.balance.tokens, state.balance.reserved_tokens) == (950, 50)
            ledger.void(held)
            ledger.void(await ledger.reserve(X, tokens=lambda: (1, 0)))
        finally:
            victim.kill()
            victim.communicate()
