"""What the ledger costs: a call that is reserved and settled, against one bare commit; a question, against the same one
when a hundredth as much was charged."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec

from bench.measure import Ratio, compare
from rondel.charge import Charge, Scope
from rondel.contracts.ledger import Rule
from rondel.contracts.window import DAY_S
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.file import DatabaseFile
from rondel.stores.sqlite.ledger import ChargeRow, insert_charges, roll_up, row_of
from rondel.stores.sqlite.scopes import Scopes
from rondel.values import Usage

CALLS = 300
SCOPE = Scope("chat", "gpt-6.1-terra", "bench:gpt-6.1-terra", "helper", "c_019a7f3c2b1e", "ada", key="desk")
BLOCK = Rule({"model": "gpt-6.1-terra"}, "month", tokens=10**12, mode="block")
COLUMNS = 24
FEW, MANY = 10_000, 1_000_000
DAYS = 120
BEGAN_AT = 1_790_000_000.0


def expected() -> tuple[int, int]:
    return 900, 100


class Bare:
    """A table with a row that has all that is known of a charge, and one commit for each."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = normal")
        self.connection.execute(f"create table rows ({', '.join(f'c{n}' for n in range(COLUMNS))})")
        self.statement = f"insert into rows values ({', '.join('?' * COLUMNS)})"
        charge = Charge("u_019a7f3c2b1e5d3", 1.0, SCOPE, Usage(900, 100), 12_345, "genai-prices 0.2.1")
        texts = [value or "" for value in msgspec.structs.astuple(SCOPE)]
        row = row_of(charge, 1)
        self.row = (*row[:3], *texts, *row[4:])

    async def commits(self) -> None:
        for _ in range(CALLS):
            self.connection.execute("begin immediate")
            self.connection.execute(self.statement, self.row)
            self.connection.execute("commit")


async def calls(ledger: Ledger) -> None:
    """One after the other, each waited for: nothing is shared."""
    for _ in range(CALLS):
        ledger.settle(await ledger.reserve(SCOPE, tokens=expected), Usage(900, 100))


async def calls_at_once(ledger: Ledger) -> None:
    async def one() -> None:
        ledger.settle(await ledger.reserve(SCOPE, tokens=expected), Usage(900, 100))

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLS):
            group.create_task(one())


async def against_a_bare_commit(folder: Path) -> list[Ratio]:
    bare = Bare(folder / "bare.db")
    ratios: list[Ratio] = []
    with closing(bare.connection):
        for what, work, rules, limit in (
            ("a call under a limit, reserved and settled, one by one, against a bare commit", calls, [BLOCK], 4.0),
            ("the same, 300 at once", calls_at_once, [BLOCK], 4.0),
            ("a call under no limit", calls, [], 1.0),
        ):
            async with SqliteStore(folder / f"{len(ratios)}.db") as store:
                ledger = Ledger(store.ledger_store, rules=rules)
                await ledger.record(SCOPE, Usage(1, 1))

                async def ours(ledger: Ledger = ledger, work: object = work) -> None:
                    await work(ledger)  # type: ignore[operator]
                    await ledger._store.balances([])  # pyright: ignore[reportPrivateUsage]

                ratios.append(await compare(what, ours, bare.commits, limit=limit, per=CALLS))
    return ratios


def fill(path: Path, count: int) -> None:
    """Charges of many models, people and conversations over some months, as they would be after a long time."""
    with closing(DatabaseFile(path, durability="normal", busy_timeout_s=5).open()) as connection:
        connection.execute("begin immediate")
        scopes = Scopes()

        def row(number: int) -> ChargeRow:
            model, agent, conversation = f"m{number % 7}", f"a{number % 5}", f"c{number % 50}"
            scope = Scope("chat", model, f"e:{model}", agent, conversation, "ada")
            charge = Charge(f"u{number}", BEGAN_AT + number * DAYS * DAY_S / count, scope, Usage(900, 100))
            return row_of(charge, scopes.number_of(connection, scope))

        rows = map(row, range(count))
        connection.executemany(insert_charges(1), rows)
        roll_up(connection)
        connection.execute("commit")


async def question(ledger: Ledger) -> None:
    for _ in range(20):
        await ledger.summary(by="model", window="day", limit=50)
        await ledger.summary(by="agent", window="month", limit=50)
        await ledger.lifetime_totals()


async def against_fewer_charges(folder: Path) -> Ratio:
    for count in (FEW, MANY):
        fill(folder / f"{count}.db", count)
    async with SqliteStore(folder / f"{FEW}.db") as few, SqliteStore(folder / f"{MANY}.db") as many:
        short, long = Ledger(few.ledger_store), Ledger(many.ledger_store)
        what = f"a summary over {MANY:,} charges, against one over {FEW:,}"
        return await compare(what, lambda: question(long), lambda: question(short), limit=1.5, per=60)


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*asyncio.run(against_a_bare_commit(folder)), asyncio.run(against_fewer_charges(folder))]
