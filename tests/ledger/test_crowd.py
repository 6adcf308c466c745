"""Several processes that spend on one store, and die at random: nothing is lost, counted twice or let past a limit."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from rondel.charge import Scope
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.values import Usage
from tests.helpers import STORED_ENTRIES
from tests.ledger.crowd import IN, OUT, TOKENS_MAX

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")

AT_THE_LIMIT = """
import asyncio, sys
from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.errors import TokenLimitError
from rondel.charge import Scope
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore

SCOPE = Scope("chat", "X", key="k", person="ada")

async def call(ledger):
    try:
        await ledger.reserve(SCOPE, tokens=lambda: (1, 5))
    except TokenLimitError:
        return 0
    return 1

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        rules = [Rule({"key": "*", "person": "*"}, "day", tokens=1_000, mode="block")]
        ledger = Ledger(store.ledger_store, rules=rules)
        await ledger.limit_state(SCOPE)  # it remembers the balance
        print("ready", flush=True)
        sys.stdin.readline()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(ledger)) for _ in range(200)]
        print(sum(one.result() for one in calls), flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


async def test_600_calls_at_once_of_three_processes_at_one_below_the_limit_let_exactly_one_through(path: Path) -> None:

    async with SqliteStore(path) as store:
        await Ledger(store.ledger_store).record(Scope("chat", "X", key="k", person="ada"), Usage(999, 0))
    command = [sys.executable, "-c", AT_THE_LIMIT, str(path)]
    pipe = subprocess.PIPE
    callers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    try:
        said: list[str] = []
        for go in ("ready", "counted"):
            for caller in callers:
                assert caller.stdout is not None
                said.append(caller.stdout.readline().strip())
            if go == "ready":
                for caller in callers:
                    assert caller.stdin is not None
                    caller.stdin.write("go\n")
                    caller.stdin.flush()
        assert sorted(said) == ["0", "0", "1", "ready", "ready", "ready"]
    finally:
        for caller in callers:
            caller.kill()
            caller.communicate()


@pytest.mark.parametrize("seconds", [4, pytest.param(40, marks=pytest.mark.slow)])
async def test_what_processes_spend_that_die_at_random_is_counted_once_and_within_the_limit(
    path: Path, tmp_path: Path, seconds: int
) -> None:
    promises = tmp_path / "said"
    command = [sys.executable, "-m", "tests.ledger.crowd", str(path), str(promises), str(seconds), "1"]
    subprocess.run(command, check=True, timeout=seconds + 60)
    async with SqliteStore(path) as store:
        ledger = Ledger(store.ledger_store)
        totals = await ledger.summary(by="key", window="lifetime", limit=200)  # this counts what the dead had reserved

    said = [line.split() for line in promises.read_text().splitlines()]
    assert not [words for words in said if words[0] == "failed"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        rows = connection.execute("select id, tokens_in + tokens_out, worker from charges").fetchall()
        entries = connection.execute(
            f"select conversation, count(*), max(seq) from {STORED_ENTRIES} group by 1"
        ).fetchall()
        recount = connection.execute(
            "select key, count(*), sum(tokens_in + tokens_out) from charges join scopes on scopes.number = scope "
            "where key <> '' group by key order by key"
        ).fetchall()
    spent = {id: tokens for id, tokens, _ in rows}

    assert len(rows) == len(spent), "nothing is counted twice"
    assert not [id for id, _, worker in rows if worker], "nothing stays reserved"
    assert [(row.value, row.totals.calls, row.totals.tokens) for row in totals.rows] == recount
    assert all(tokens <= TOKENS_MAX + OUT for _, _, tokens in recount), "an answer may be longer than what was left"
    voided = {words[1] for words in said if words[0] == "voids"}
    for what, *words in said:
        if what == "reserved":
            assert spent.get(words[0], 0) >= IN or words[0] in voided
        elif what == "settled":
            assert spent[words[0]] == int(words[1])
        elif what == "recorded":
            assert spent[words[0]] == 7
    appended = {conversation: count for conversation, count, last in entries if count == last}
    assert len(appended) == len(entries)
    assert all(appended[words[1]] >= int(words[2]) for words in said if words[0] == "appended")
    kinds = Counter(words[0] for words in said)
    assert min(kinds[what] for what in ("reserved", "settled", "refused", "recorded", "appended")) > 5, kinds
