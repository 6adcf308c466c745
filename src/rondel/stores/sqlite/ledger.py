"""Charges in SQLite as they come, and their sums by account.

A charge is one row. Sums are updated from the rows after a mark, many at once and in the transaction that moves the
mark, so a sum is exact whichever process wrote the charges, and its cost does not grow with their number. An account
has spent its sum and the few rows after the mark. All rows up to the mark are final: a row that is only reserved is
moved behind it. Knows no limit, no event loop and no thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec

from ...charge import ALL, BETWEEN, DIMENSIONS, Charge, Scope
from ...contracts.ledger import Account, ChargePage, Page, Row, Totals, dimensions_in
from ...contracts.window import WINDOWS, Window, day_of, key_of, start_of
from ...values import Usage
from . import scopes
from .executor import Executor

ChargeRow: TypeAlias = tuple[Any, ...]

ROLL_UP_EVERY = 1024  # charges after the mark at which the sums are updated

CALL, GIVEN = 0, 1
"""A charge of a call, which is settled once; a charge whose id came from outside, which may come twice."""

SCHEMA = (
    """
    create table charges (
        number               integer primary key,   -- a new number is the greatest: what was spent is never deleted
        id                   text not null,
        at                   real not null,
        day                  integer not null,
        scope                integer not null,      -- a number of `scopes`
        tokens_in            integer not null,
        tokens_out           integer not null,
        tokens_cached        integer not null,
        tokens_cache_written integer not null,
        tokens_reasoning     integer not null,
        cost                 integer,               -- billionths of a dollar; null is unknown
        price                text not null,
        estimated            integer not null,
        metadata             text not null,         -- JSON
        origin               integer not null       -- CALL or GIVEN
    )
    """,
    # Only for charges that could come twice: the pages that a charge touches are most of its cost.
    f"create unique index charges_once on charges (id) where origin = {GIVEN}",
    # The range of numbers of a day's charges: they come nearly in order, so a day is a small range.
    "create table days (day integer primary key, first integer not null, last integer not null)",
    # `age` is the window's first day, negated: the newest come first in the order of the key.
    """
    create table totals (
        dimension            text not null,
        window               text not null,
        age                  integer not null,
        value                text not null,
        calls                integer not null,
        tokens_in            integer not null,
        tokens_out           integer not null,
        tokens_cached        integer not null,
        tokens_cache_written integer not null,
        tokens_reasoning     integer not null,
        cost                 integer not null,
        unpriced             integer not null,
        estimated            integer not null,
        updated_at           real not null,
        primary key (dimension, window, age, value)
    ) without rowid
    """,
    # The dimensions that are counted together, in addition to each single one.
    "create table dimensions (name text primary key not null) without rowid",
    "create table mark (number integer not null)",
    "insert into mark values (0)",
)

RESERVED_COLUMNS = ("alter table charges add column worker text", "alter table charges add column until real")
"""A charge with a worker is only reserved: a call of that process is expected to make it. It counts as spent when the
call is settled, the worker is dead, or the time `until` has come."""
RESERVED = "worker is not null and number > (select number from mark)"

_SUMS = "tokens_in, tokens_out, tokens_cached, tokens_cache_written, tokens_reasoning"
_TOTALS = f"calls, {_SUMS}, cost, unpriced, estimated, updated_at"
COLUMNS = f"id, at, day, scope, {_SUMS}, cost, price, estimated, metadata, origin"
_SCOPED = "charges cross join scopes on scopes.number = charges.scope"
"""Charges with their scopes; `cross` makes SQLite begin with the charges, because only a few are looked at."""

_encode = msgspec.json.Encoder().encode
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


# --- charges ----------------------------------------------------------------------------------------------------------


def row_of(charge: Charge, scope: int, origin: int = CALL) -> ChargeRow:
    """Return the row of a charge whose scope has a number."""
    return charge.id, charge.at, day_of(charge.at), *spent_by(charge, scope), origin


def spent_by(charge: Charge, scope: int) -> ChargeRow:
    """Return the values of a charge that are known only when its call is settled."""
    u = charge.usage
    return (
        scope,
        u.tokens_in,
        u.tokens_out,
        u.tokens_cached,
        u.tokens_cache_written,
        u.tokens_reasoning,
        -1 if charge.cost_nanousd is None else charge.cost_nanousd,
        charge.price,
        int(u.estimated),
        _encode(charge.metadata).decode() if charge.metadata else "{}",
    )


def _charge_of(row: ChargeRow) -> Charge:
    id, at, *tokens, cost, price, estimated, metadata = row[: -len(Scope.__struct_fields__)]
    scope = scopes.scope_of(row[-len(Scope.__struct_fields__) :])
    return Charge(id, at, scope, Usage(*tokens, estimated=bool(estimated)), cost, price, _decode_metadata(metadata))


def bound(columns: str) -> str:
    """Return the parameters for some columns of a charge. An unknown cost is bound as -1: binding None or a bool, which
    Python's module tries to adapt, takes longer than all the other values together."""
    return ", ".join("nullif(?, -1)" if name == "cost" else "?" for name in columns.split(", "))


@cache
def insert_charges(rows: int) -> str:
    return f"insert into charges ({COLUMNS}) values {', '.join([f'({bound(COLUMNS)})'] * rows)} on conflict do nothing"


def charges(connection: sqlite3.Connection, first: int, last: int, cursor: str, limit: int) -> ChargePage:
    begin, end = connection.execute(
        "select coalesce(min(first), 1), coalesce(max(last), 0) from days where day between ? and ?", (first, last)
    ).fetchone()
    rows = connection.execute(
        f"select charges.number, id, at, {_SUMS}, cost, price, estimated, metadata, {scopes.COLUMNS} from {_SCOPED} "
        "where charges.number between ? and ? and day between ? and ? order by charges.number limit ?",
        (max(begin, int(cursor or 0) + 1), end, first, last, limit + 1),
    ).fetchall()
    more = str(rows[limit - 1][0]) if len(rows) > limit else ""
    return ChargePage(tuple(_charge_of(row[1:]) for row in rows[:limit]), more)


# --- sums -------------------------------------------------------------------------------------------------------------


def roll_up(connection: Executor, dimension: str = ALL) -> None:
    """Bring all sums up to date, first those of several dimensions together if they have not been counted yet."""
    (mark,) = connection.execute("select number from mark").fetchone()
    combined = [name for (name,) in connection.execute("select name from dimensions").fetchall()]
    if "+" in dimension and dimension not in combined:
        connection.execute("insert into dimensions values (?)", (dimension,))
        _gather(connection, 0, mark)
        connection.execute(_add_to_totals(dimension))
        combined.append(dimension)
    last = move_reserved(connection)
    if last <= mark:
        return
    _gather(connection, mark, last)
    for name in (ALL, *DIMENSIONS, *combined):
        connection.execute(_add_to_totals(name))
    connection.execute(
        "insert into days select day, min(first), max(last) from temp.gathered where true "
        "group by day on conflict (day) do update set last = excluded.last"
    )
    connection.execute("update mark set number = ?", (last,))


def unrolled(connection: Executor) -> int:
    """Return how many charges the sums may lack."""
    return connection.execute("select coalesce(max(number), 0) - (select number from mark) from charges").fetchone()[0]


def move_reserved(connection: Executor) -> int:
    """Move reserved charges behind the last spent one, and return the number of that one; 0 if there is none."""
    row = connection.execute("select number from charges where worker is null order by number desc limit 1").fetchone()
    last: int = row[0] if row else 0
    columns = f"{COLUMNS}, worker, until"
    connection.execute(
        f"insert into charges ({columns}) select {columns} from charges where {RESERVED} and number < ?", (last,)
    )
    connection.execute(f"delete from charges where {RESERVED} and number < ?", (last,))
    return last


def is_counted(connection: Executor, dimension: str) -> bool:
    """Return whether there are sums of several dimensions together."""
    return connection.execute("select 1 from dimensions where name = ?", (dimension,)).fetchone() is not None


def _gather(connection: Executor, mark: int, last: int) -> None:
    """Sum up the charges from one number to another, grouped by everything that they have in common, so that each is
    read once.

    Each row also says which windows its day belongs to.
    """
    sums = ", ".join(f"sum({column}) as {column}" for column in _SUMS.split(", "))
    columns = f"day, first, last, {scopes.COLUMNS}, {_TOTALS}"
    connection.execute(f"create temp table if not exists gathered ({columns})")
    connection.execute("delete from temp.gathered")
    connection.execute(
        f"insert into temp.gathered select {columns} from (select day, scope, min(number) as first, "
        f"max(number) as last, count(*) as calls, {sums}, coalesce(sum(cost), 0) as cost, "
        "sum(cost is null) as unpriced, sum(estimated) as estimated, max(at) as updated_at "
        "from main.charges where number > ? and number <= ? group by day, scope) as charges "
        "cross join main.scopes on scopes.number = charges.scope",
        (mark, last),
    )
    connection.execute("create temp table if not exists windows (day, window, age)")
    connection.execute("delete from temp.windows")
    for (day,) in connection.execute("select distinct day from temp.gathered").fetchall():
        windows = ((day, window, -start_of(window, day)) for window in WINDOWS)
        connection.executemany("insert into temp.windows values (?, ?, ?)", windows)


@cache
def _add_to_totals(dimension: str) -> str:
    """Add what was gathered to the sums of a dimension, in all windows."""
    names = dimensions_in(dimension)
    values = ["role.value" if name == "role" else f"gathered.{name}" for name in names]
    value = f" || char({ord(BETWEEN)}) || ".join(values) or "''"
    known = " and ".join(f"{one} <> ''" for one in values) or "true"
    source = "temp.gathered, json_each(gathered.roles) as role" if "role" in names else "temp.gathered"
    sums = ", ".join(f"sum({column}) as {column}" for column in _TOTALS.split(", ")[:-1])
    daily = (
        f"select day, {value} as value, {sums}, max(updated_at) as updated_at from {source} where {known} group by 1, 2"
    )
    grown = ", ".join(f"{column} = {column} + excluded.{column}" for column in _TOTALS.split(", ")[:-1])
    return (
        f"with daily as materialized ({daily}) insert into totals (dimension, window, age, value, {_TOTALS}) "
        f"select '{dimension}', window, age, value, {_TOTALS} from temp.windows cross join daily using (day) "
        "where true on conflict (dimension, window, age, value) do update set "
        f"{grown}, updated_at = max(updated_at, excluded.updated_at)"
    )


def totals(connection: Executor, accounts: Sequence[Account]) -> list[Totals]:
    found: list[Totals] = []
    for account in accounts:
        row = connection.execute(
            f"select {_TOTALS} from totals where dimension = ? and window = ? and age = ? and value = ?",
            (account.dimension, account.window, -account.start, account.value),
        ).fetchone()
        found.append(Totals(*row) if row else Totals())
    return found


def page(
    connection: sqlite3.Connection,
    dimension: str,
    window: Window,
    value: str | None,
    days: tuple[int, int],
    cursor: str,
    limit: int,
) -> Page:
    first, last = days
    start, _, behind = cursor.partition(":")
    after = (-int(start), behind) if cursor else (-(1 << 60), "")
    chosen = "" if value is None else " and value = ?"
    rows = connection.execute(
        f"select age, value, {_TOTALS} from totals where dimension = ? and window = ? and age between ? and ? "
        f"and (age, value) > (?, ?){chosen} order by age, value limit ?",
        (dimension, window, -last, -first, *after, *(() if value is None else (value,)), limit + 1),
    ).fetchall()
    more = f"{-rows[limit - 1][0]}:{rows[limit - 1][1]}" if len(rows) > limit else ""
    return Page(tuple(_row_of(dimension, window, row) for row in rows[:limit]), more)


def top(connection: sqlite3.Connection, dimension: str, window: Window, start: int, limit: int) -> list[Row]:
    rows = connection.execute(
        f"select age, value, {_TOTALS} from totals where dimension = ? and window = ? and age = ? "
        "order by tokens_in + tokens_out desc, value limit ?",
        (dimension, window, -start, limit),
    )
    return [_row_of(dimension, window, row) for row in rows]


def _row_of(dimension: str, window: Window, row: Sequence[Any]) -> Row:
    age, value, *sums = row
    return Row(dimension, value, window, key_of(window, -age), Totals(*sums))
