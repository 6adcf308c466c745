"""The books in SQLite: charges as they come, their sums by account, and what calls that are under way have claimed.

A charge is one row. Sums are brought forward from the rows behind a mark, many at once and in the transaction that
moves the mark, so a sum is exact whoever wrote the charges, and costs the same however many there are. What an account
has come to is its sum and the few rows behind the mark. Knows no event loop and no thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec

from ...charge import (
    ALL,
    BETWEEN,
    DIMENSIONS,
    Account,
    Balance,
    Cap,
    Charge,
    ChargePage,
    Page,
    Refusal,
    Reserved,
    Row,
    Scope,
    Totals,
    dimensions_in,
)
from ...values import Usage
from ...window import WINDOWS, Window, day_of, key_of

ChargeRow: TypeAlias = tuple[Any, ...]

ROLL_UP_EVERY = 128
"""Charges that may stand behind the mark before somebody brings the sums forward."""

SCHEMA = (
    """
    create table charges (
        number               integer primary key,   -- charges are never deleted, so a new number is the greatest
        id                   text unique not null,
        at                   real not null,
        day                  integer not null,
        kind                 text not null,
        model                text not null,
        engine               text not null,
        agent                text not null,
        conversation         text not null,
        person               text not null,
        roles                text not null,         -- JSON
        channel              text not null,
        guild                text not null,
        key                  text not null,
        project              text not null,
        tokens_in            integer not null,
        tokens_out           integer not null,
        tokens_cached        integer not null,
        tokens_cache_written integer not null,
        tokens_reasoning     integer not null,
        cost                 integer,               -- billionths of a dollar; null is unknown
        price                text not null,
        estimated            integer not null,
        metadata             text not null          -- JSON
    )
    """,
    "create index charges_by_day on charges (day)",
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
    # The dimensions that are counted together, beside each single one.
    "create table dimensions (name text primary key not null) without rowid",
    "create table mark (number integer not null)",
    "insert into mark values (0)",
    """
    create table claims (
        dimension text not null,
        window    text not null,
        start     integer not null,
        value     text not null,
        tokens    integer not null,
        cost      integer not null,
        primary key (dimension, window, start, value)
    ) without rowid
    """,
    """
    create table reservations (
        id     text primary key not null,
        worker text not null,
        until  real not null,
        body   text not null                        -- JSON
    ) without rowid
    """,
)

_SUMS = "tokens_in, tokens_out, tokens_cached, tokens_cache_written, tokens_reasoning"
_TOTALS = f"calls, {_SUMS}, cost, unpriced, estimated, updated_at"
_COLUMNS = (
    "id, at, day, kind, model, engine, agent, conversation, person, roles, channel, guild, key, project, "
    f"{_SUMS}, cost, price, estimated, metadata"
)
_COUNT = len(_COLUMNS.split(","))

_encode = msgspec.json.Encoder().encode
_decode_reserved = msgspec.json.Decoder(Reserved).decode
_decode_roles = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


# --- charges ----------------------------------------------------------------------------------------------------------


def row_of(charge: Charge) -> ChargeRow:
    s, u = charge.scope, charge.usage
    return (
        charge.id,
        charge.at,
        day_of(charge.at),
        s.kind,
        s.model,
        s.engine,
        s.agent,
        s.conversation,
        s.person,
        _encode(s.roles).decode() if s.roles else "[]",
        s.channel,
        s.guild,
        s.key,
        s.project,
        u.tokens_in,
        u.tokens_out,
        u.tokens_cached,
        u.tokens_cache_written,
        u.tokens_reasoning,
        charge.cost_nanousd,
        charge.price,
        u.estimated,
        _encode(charge.metadata).decode() if charge.metadata else "{}",
    )


def _charge_of(row: ChargeRow) -> Charge:
    id, at, _, kind, model, engine, agent, conversation, person, roles, channel, guild, key, project, *rest = row
    *tokens, cost, price, estimated, metadata = rest
    scope = Scope(kind, model, engine, agent, conversation, person, _decode_roles(roles), channel, guild, key, project)
    return Charge(id, at, scope, Usage(*tokens, estimated=bool(estimated)), cost, price, _decode_metadata(metadata))


@cache
def insert_charges(rows: int) -> str:
    marks = "(" + ", ".join("?" * _COUNT) + ")"
    return f"insert into charges ({_COLUMNS}) values {', '.join([marks] * rows)} on conflict (id) do nothing"


def charges(connection: sqlite3.Connection, first: int, last: int, cursor: str, limit: int) -> ChargePage:
    rows = connection.execute(
        f"select number, {_COLUMNS} from charges where day between ? and ? and number > ? order by number limit ?",
        (first, last, int(cursor or 0), limit + 1),
    ).fetchall()
    more = str(rows[limit - 1][0]) if len(rows) > limit else ""
    return ChargePage(tuple(_charge_of(row[1:]) for row in rows[:limit]), more)


# --- sums -------------------------------------------------------------------------------------------------------------


def roll_up(connection: sqlite3.Connection, dimension: str = ALL) -> None:
    """Bring all sums forward; begin with those of several dimensions together when these have not been counted yet."""
    mark, last = connection.execute("select (select number from mark), (select max(number) from charges)").fetchone()
    combined = [name for (name,) in connection.execute("select name from dimensions").fetchall()]
    if "+" in dimension and dimension not in combined:
        connection.execute("insert into dimensions values (?)", (dimension,))
        connection.execute(_add_to_totals(dimension), (0, mark))
        combined.append(dimension)
    if last is None or last <= mark:
        return
    for name in (ALL, *DIMENSIONS, *combined):
        connection.execute(_add_to_totals(name), (mark, last))
    connection.execute("update mark set number = ?", (last,))


_STARTS = {
    "day": "day",
    "week": "day - (day + 3) % 7",
    "month": "cast(julianday(date(day * 86400, 'unixepoch', 'start of month')) - 2440587.5 as integer)",
    "lifetime": "0",
}


def _value_of(name: str) -> str:
    return "role.value" if name == "role" else f"charges.{name}"


@cache
def _add_to_totals(dimension: str) -> str:
    """Add the charges from one number to another to the sums of a dimension, in all windows."""
    names = dimensions_in(dimension)
    value = f" || char({ord(BETWEEN)}) || ".join(map(_value_of, names)) or "''"
    known = "".join(f" and {_value_of(name)} <> ''" for name in names)
    source = "charges, json_each(charges.roles) as role" if "role" in names else "charges"
    sums = ", ".join(f"sum({column}) as {column}" for column in _SUMS.split(", "))
    daily = (
        f"select day, {value} as value, count(*) as calls, {sums}, coalesce(sum(cost), 0) as cost, "
        "sum(cost is null) as unpriced, sum(estimated) as estimated, max(charges.at) as updated_at "
        f"from {source} where number > ?1 and number <= ?2{known} group by 1, 2"
    )
    again = ", ".join(f"sum({column})" for column in _TOTALS.split(", ")[:-1])
    windows = " union all ".join(
        f"select '{dimension}', '{window}', -({_STARTS[window]}) as age, value, {again}, max(updated_at) "
        "from daily group by age, value"
        for window in WINDOWS
    )
    grown = ", ".join(f"{column} = {column} + excluded.{column}" for column in _TOTALS.split(", ")[:-1])
    return (
        f"with daily as materialized ({daily}) insert into totals (dimension, window, age, value, {_TOTALS}) "
        f"select * from ({windows}) where true on conflict (dimension, window, age, value) do update set "
        f"{grown}, updated_at = max(updated_at, excluded.updated_at)"
    )


def totals(connection: sqlite3.Connection, accounts: Sequence[Account]) -> list[Totals]:
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


# --- what calls that are under way have claimed -----------------------------------------------------------------------


@cache
def _used(dimension: str, column: str, first: int) -> str:
    """What an account has come to: its sum, and the rows behind the mark. Parameters are numbered from `first`."""
    window, start, end, value = (f"?{first + offset}" for offset in range(4))
    names = dimensions_in(dimension)
    source = "charges, json_each(charges.roles) as role" if "role" in names else "charges"
    matched = f" || char({ord(BETWEEN)}) || ".join(map(_value_of, names)) or "''"
    total, single = ("tokens_in + tokens_out",) * 2 if column == "tokens" else ("cost", "coalesce(cost, 0)")
    return (
        f"(coalesce((select {total} from totals where dimension = '{dimension}' and window = {window} "
        f"and age = -{start} and value = {value}), 0) + coalesce((select sum({single}) from {source} "
        f"where number > (select number from mark) and +day >= {start} and +day < {end} and {matched} = {value}), 0))"
    )


@cache
def _claimed(dimension: str, column: str, first: int) -> str:
    window, start, _, value = (f"?{first + offset}" for offset in range(4))
    return (
        f"coalesce((select {column} from claims where dimension = '{dimension}' and window = {window} "
        f"and start = {start} and value = {value}), 0)"
    )


def _place(account: Account) -> tuple[str, int, int, str]:
    return account.window, account.start, account.end, account.value


def balances(connection: sqlite3.Connection, accounts: Iterable[Account]) -> list[Balance]:
    found: list[Balance] = []
    for account in accounts:
        prepare(connection, (account,))
        found.append(Balance(*connection.execute(_balance(account.dimension), _place(account)).fetchone()))
    return found


@cache
def _balance(dimension: str) -> str:
    used = ", ".join(_used(dimension, column, 1) for column in ("tokens", "cost"))
    return f"select {used}, " + ", ".join(_claimed(dimension, column, 1) for column in ("tokens", "cost"))


def prepare(connection: sqlite3.Connection, accounts: Iterable[Account]) -> None:
    """Have the sums of several dimensions together counted from now on."""
    for account in accounts:
        if "+" in account.dimension:
            known = connection.execute("select 1 from dimensions where name = ?", (account.dimension,)).fetchone()
            if known is None:
                roll_up(connection, account.dimension)


@cache
def _claim(dimension: str, tokens: bool, cost: bool) -> str:
    """One conditional upsert: claim on an account, unless what it has come to and all claims leave no room."""
    room = "".join(
        f" and {_used(dimension, column, 1)} + {_claimed(dimension, column, 1)} < ?{place}"
        for column, place, capped in (("tokens", 7, tokens), ("cost", 8, cost))
        if capped
    )
    return (
        "insert into claims (dimension, window, start, value, tokens, cost) "
        f"select '{dimension}', ?1, ?2, ?4, ?5, ?6 where ?8 is ?8{room} "
        "on conflict (dimension, window, start, value) do update set "
        "tokens = tokens + excluded.tokens, cost = cost + excluded.cost"
    )


def reserve(connection: sqlite3.Connection, reserved: Reserved, caps: Sequence[Cap], worker: str) -> Refusal | None:
    tokens, cost = reserved.charge.tokens, reserved.charge.cost_nanousd or 0
    prepare(connection, (cap.account for cap in caps))
    for place, cap in enumerate(caps):
        statement = _claim(cap.account.dimension, cap.tokens is not None, cap.cost_nanousd is not None)
        values = (*_place(cap.account), tokens, cost, cap.tokens, cap.cost_nanousd)
        if connection.execute(statement, values).rowcount != 1:
            _let_go(connection, [cap.account for cap in caps[:place]], tokens, cost)
            return Refusal(place, balances(connection, (cap.account,))[0])
    connection.execute(
        "insert into reservations (id, worker, until, body) values (?, ?, ?, ?)",
        (reserved.charge.id, worker, reserved.until, _encode(reserved).decode()),
    )
    return None


def _let_go(connection: sqlite3.Connection, accounts: Iterable[Account], tokens: int, cost: int) -> None:
    for account in accounts:
        connection.execute(
            "update claims set tokens = tokens - ?, cost = cost - ? "
            "where dimension = ? and window = ? and start = ? and value = ?",
            (tokens, cost, account.dimension, account.window, account.start, account.value),
        )


def release(connection: sqlite3.Connection, id: str) -> None:
    """Let go of what a call had claimed, once: a reservation that is gone was let go of before."""
    row = connection.execute("select body from reservations where id = ?", (id,)).fetchone()
    if row is not None:
        _release(connection, _decode_reserved(row[0]))


def _release(connection: sqlite3.Connection, reserved: Reserved) -> None:
    charge = reserved.charge
    connection.execute("delete from reservations where id = ?", (charge.id,))
    _let_go(connection, reserved.accounts, charge.tokens, charge.cost_nanousd or 0)


def reconcile(connection: sqlite3.Connection, now: float, is_dead: Callable[[str], bool]) -> int:
    """Count as spent what the dead had claimed, and what was never settled. How many that were."""
    dead = {id for (id,) in connection.execute("select distinct worker from reservations") if is_dead(id)}
    rows = connection.execute("select worker, until, body from reservations").fetchall()
    lost = [_decode_reserved(body) for worker, until, body in rows if worker in dead or until <= now]
    for reserved in lost:
        connection.execute(insert_charges(1), row_of(reserved.charge))
        _release(connection, reserved)
    connection.execute("delete from claims where tokens = 0 and cost = 0")
    return len(lost)
