"""A disk that is full: what calls spend is kept until it can be written, and somebody is told."""

from __future__ import annotations

import http.client
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Place
from tests.cli.serving import Serving
from tests.forked import run_script
from tests.helpers import rest_slow

if sys.platform != "linux":
    pytest.skip("limits of other processes' files are Linux's", allow_module_level=True)

import resource

WAIT_S = 30.0

PROLOGUE = """
import asyncio, resource, sys
from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite import backlog
from rondel.values import Usage

path, X = sys.argv[1], Scope("chat", "X")
def limit_files(size):
    # What is beyond the limit fails like a write to a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def fill():
    limit_files(100_000)
def free():
    limit_files(resource.RLIM_INFINITY)
async def call(ledger):
    ledger.settle(await ledger.reserve(X, tokens=lambda: (10, 10)), Usage(10, 1))
    await asyncio.sleep(0)
async def until(test):
    async with asyncio.timeout(30):
        while not test():
            await asyncio.sleep(0.01)
"""

FULL_FOR_A_WHILE = """
async def main():
    async with SqliteStore(path) as store:
        heard = []
        ledger = Ledger(store.ledger_store)
        if sys.argv[2] == "heard":
            ledger.on("usage.recorded", heard.append)
        await ledger.record(X, Usage(10, 1))
        fill()
        for n in range(2_000):
            await call(ledger)
            if n % 100 == 0:
                await asyncio.sleep(0.06)
        await until(lambda: store.ledger_store.unwritten.charges)
        print(store.ledger_store.unwritten.charges > 100, "no space is left" in store.ledger_store.unwritten.reason)
        free()
        await until(lambda: not store.ledger_store.unwritten.charges)
        totals = await ledger.lifetime_totals("X")
        print(totals.calls, totals.tokens_in, len(heard), store.ledger_store.unwritten.lost_charges)
asyncio.run(main())
"""


def child(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_script(PROLOGUE + script, *arguments)


@pytest.mark.parametrize("listens", rest_slow(["heard", "unheard"]))
def test_charges_wait_for_space_and_are_written_then(tmp_path: Path, listens: str) -> None:
    """Trust 24: without a rule that blocks, calls go on; no charge is lost, and listeners hear of each."""
    done = child(FULL_FOR_A_WHILE, tmp_path / "rondel.db", listens)
    heard = 2_001 if listens == "heard" else 0
    assert done.stdout.splitlines() == ["True True", f"2001 20010 {heard} 0"], done.stderr
    told = [line for line in done.stderr.splitlines() if "no space is left" in line]
    assert len(told) == 1, "once, not for each charge"
    assert "charges are kept in memory until they can be written" in told[0]


LOST = """
async def main():
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store)
        await ledger.record(X, Usage(10, 1))
        fill()
        for n in range(2_000):
            await call(ledger)
        await until(lambda: store.ledger_store.unwritten.charges)
asyncio.run(main())
"""


def test_what_cannot_be_written_until_the_end_is_reported_with_its_number_and_tokens(path: Path) -> None:
    """Trust 24: a program that ends on a full disk says what was lost."""
    done = child(LOST, path)
    with closing(sqlite3.connect(path)) as connection:
        kept: int = connection.execute("select count(*) from charges").fetchone()[0]
    lost = 2_001 - kept
    assert lost > 100
    assert f"{lost:,} charges ({lost * 11:,} tokens) were lost" in done.stderr


BOUND = """
backlog.KEPT_MAX = 100
async def main():
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store)
        await ledger.record(X, Usage(10, 1))
        fill()
        for n in range(2_000):
            await call(ledger)
        await until(lambda: store.ledger_store.unwritten.lost_charges)
        await store.call(lambda _: None)  # all that was posted before it has been tried
        before = store.ledger_store.unwritten
        print(before.charges, before.lost_tokens == 11 * before.lost_charges)
        free()
        await until(lambda: not store.ledger_store.unwritten.charges)
        totals = await ledger.lifetime_totals("X")
        print(totals.calls + before.lost_charges)
asyncio.run(main())
"""


@pytest.mark.slow
def test_the_charges_that_are_kept_have_a_bound_and_the_rest_is_counted(tmp_path: Path) -> None:
    """Trust 24: memory is not filled instead of the disk."""
    done = child(BOUND, tmp_path / "rondel.db")
    assert done.stdout.splitlines() == ["100 True", "2001"], done.stderr
    assert "were lost" in done.stderr


BLOCKS = """
async def main():
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store, on_write_failure="block")
        await ledger.record(X, Usage(10, 1))
        fill()
        answered = 1
        try:
            for n in range(5_000):
                await call(ledger)
                answered += 1
                await asyncio.sleep(0.001)
        except Exception as error:
            print(type(error).__name__, error)
        free()
        await until(lambda: not store.ledger_store.unwritten.charges)
        await call(ledger)
        print((await ledger.lifetime_totals("X")).calls - answered)
asyncio.run(main())
"""


def test_calls_can_be_refused_while_the_ledger_cannot_be_written(tmp_path: Path) -> None:
    """Trust 24: `on_write_failure = "block"` admits nothing that could not be charged."""
    done = child(BLOCKS, tmp_path / "rondel.db")
    first, second = done.stdout.splitlines()
    assert first.startswith("StoreFull the ledger cannot be written, and `on_write_failure` is 'block'"), done.stdout
    assert second == "1", done.stderr


A_RESERVATION = """
async def main():
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store, rules=[Rule({}, "day", tokens=1_000_000, mode="block")])
        reservations = [await ledger.reserve(X, tokens=lambda: (10, 10)) for _ in range(20)]
        fill()
        limit_files(1)
        for reservation in reservations[:10]:
            ledger.settle(reservation, Usage(10, 1))
        for reservation in reservations[10:]:
            ledger.void(reservation)
        await until(lambda: store.ledger_store.unwritten.charges)
        free()
        await until(lambda: not store.ledger_store.unwritten.charges)
        (state,) = await ledger.limit_state("X")
        print(state.balance.tokens, state.balance.reserved_tokens)
asyncio.run(main())
"""


def test_a_reservation_is_settled_and_let_go_of_when_there_is_space_again(tmp_path: Path) -> None:
    """Trust 24: what a call had reserved does not stay reserved because the disk was full when it ended."""
    done = child(A_RESERVATION, tmp_path / "rondel.db")
    assert done.stdout.splitlines() == ["110 0"], done.stderr


# --- through the gateway ----------------------------------------------------------------------------------------------


def health(gateway: Serving) -> dict[str, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)) as connection:
        connection.request("GET", "/health")
        return json.loads(connection.getresponse().read())


def wait_health(gateway: Serving, status: str) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while (told := health(gateway))["status"] != status:
        assert time.monotonic() < deadline, told
        time.sleep(0.02)
    return told


@pytest.mark.slow
def test_a_gateway_on_a_full_disk_answers_says_so_and_charges_all_in_the_end(place: Place) -> None:
    """Trust 24: 633 were answered and 344 charged, without a word."""
    place.write("rondel.toml", 'engine = "echo"\n[store]\npath = "rondel.db"\n')
    path = place.project / "rondel.db"
    with Serving(place, "serve", "--port", "0") as gateway:
        assert gateway.ask("one").end() == 200
        assert health(gateway)["status"] == "ok"
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        for _ in range(20):
            assert gateway.ask("one").end() == 200
        told = wait_health(gateway, "degraded")
        assert 0 < told["ledger"]["unwritten"] <= 21
        assert str(place.folder) not in str(told), "anybody may ask for it"
        gateway.wait_said("charges are kept in memory until they can be written: no space is left")
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_health(gateway, "ok")
        gateway.signal(signal.SIGTERM)
        gateway.wait_end()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from charges").fetchone() == (21,)
