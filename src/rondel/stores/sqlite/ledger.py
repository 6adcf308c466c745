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

ROLL_UP_EVERY = 1024
"""Charges that may stand behind the mark before somebody brings the sums forward."""

CALL, GIVEN = 0, 1
"""A charge of a call, which is settled once; one whose id was given from outside, which may come twice."""

SCHEMA = (
    *(
        f"drop table if exists {name}"
        for name in ("charges", "days", "totals", "dimensions", "mark", "claims", "reservations")
    ),
    """
    create table charges (
        number               integer primary key,   -- charges are never deleted, so a new number is the greatest
        id                   text not null,
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
        metadata             text not null,         -- JSON
        origin               integer not null       -- CALL or GIVEN
    )
    """,
    # Only of charges that could come twice: each page that a charge touches is most of what it costs.
    f"create unique index charges_once on charges (id) where origin = {GIVEN}",
    # Which numbers a day's charges have: they come nearly in order, so this is a small part of them.
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
    # The dimensions that are counted together, beside each single one.
    "create table dimensions (name text primary key not null) without rowid",
    "create table mark (number integer not null)",
    "insert into mark values (0)",
    # What an account has come to, as far as `upto`, and what calls that are under way have claimed of it.
    """
    create table claims (
        dimension text not null,
        window    text not null,
        start     integer not null,
        value     text not null,
        used      integer not null,
        used_cost integer not null,
        upto      integer not null,
        tokens    integer not null default 0,
        cost      integer not null default 0,
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
    f"{_SUMS}, cost, price, estimated, metadata, origin"
)
_COUNT = len(_COLUMNS.split(","))

_encode = msgspec.json.Encoder().encode
_decode_reserved = msgspec.json.Decoder(Reserved).decode
_decode_roles = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


# --- charges ----------------------------------------------------------------------------------------------------------


def row_of(charge: Charge, origin: int = CALL) -> ChargeRow:
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
        origin,
    )


def _charge_of(row: ChargeRow) -> Charge:
    id, at, _, kind, model, engine, agent, conversation, person, roles, channel, guild, key, project, *rest = row
    *tokens, cost, price, estimated, metadata, _ = rest
    scope = Scope(kind, model, engine, agent, conversation, person, _decode_roles(roles), channel, guild, key, project)
    return Charge(id, at, scope, Usage(*tokens, estimated=bool(estimated)), cost, price, _decode_metadata(metadata))


@cache
def insert_charges(rows: int) -> str:
    marks = "(" + ", ".join("?" * _COUNT) + ")"
    return f"insert into charges ({_COLUMNS}) values {', '.join([marks] * rows)} on conflict do nothing"


def charges(connection: sqlite3.Connection, first: int, last: int, cursor: str, limit: int) -> ChargePage:
    begin, end = connection.execute(
        "select coalesce(min(first), 1), coalesce(max(last), 0) from days where day between ? and ?", (first, last)
    ).fetchone()
    rows = connection.execute(
        f"select number, {_COLUMNS} from charges where number between ? and ? and day between ? and ? "
        "order by number limit ?",
        (max(begin, int(cursor or 0) + 1), end, first, last, limit + 1),
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
        _gather(connection, 0, mark)
        connection.execute(_add_to_totals(dimension))
        combined.append(dimension)
    if last is None or last <= mark:
        return
    _gather(connection, mark, last)
    for name in (ALL, *DIMENSIONS, *combined):
        connection.execute(_add_to_totals(name))
    connection.execute(
        "insert into days select day, min(number), max(number) from charges where number > ? and number <= ? "
        "group by day on conflict (day) do update set last = excluded.last",
        (mark, last),
    )
    connection.execute("update mark set number = ?", (last,))


_SCOPE = "kind, model, engine, agent, conversation, person, roles, channel, guild, key, project"


def _gather(connection: sqlite3.Connection, mark: int, last: int) -> None:
    """Sum up the charges from one number to another by all that they have in common: each is looked at once."""
    sums = ", ".join(f"sum({column})" for column in _SUMS.split(", "))
    connection.execute(f"create temp table if not exists gathered (day, {_SCOPE}, {_TOTALS})")
    connection.execute("delete from temp.gathered")
    connection.execute(
        f"insert into temp.gathered select day, {_SCOPE}, count(*), {sums}, coalesce(sum(cost), 0), "
        "sum(cost is null), sum(estimated), max(at) from main.charges where number > ? and number <= ? "
        f"group by day, {_SCOPE}",
        (mark, last),
    )


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
def _behind(dimension: str, number: str) -> str:
    """An account's charges behind a number: `?1` to `?4` are its window, start, end and value."""
    names = dimensions_in(dimension)
    source = "charges, json_each(charges.roles) as role" if "role" in names else "charges"
    matched = f" || char({ord(BETWEEN)}) || ".join(map(_value_of, names)) or "''"
    return f"from {source} where number > {number} and +day >= ?2 and +day < ?3 and {matched} = ?4"


def _spent_behind(dimension: str, number: str, sum: str) -> str:
    return f"coalesce((select sum({sum}) {_behind(dimension, number)}), 0)"


TOKENS, COST = "tokens_in + tokens_out", "charges.cost"


def _place(account: Account) -> tuple[str, int, int, str]:
    return account.window, account.start, account.end, account.value


@cache
def _begin_account(dimension: str) -> str:
    """Take an account's sum, and add what stands behind the mark."""
    total = f"from totals where dimension = '{dimension}' and window = ?1 and age = -?2 and value = ?4"
    mark = "(select number from mark)"
    return (
        "insert into claims (dimension, window, start, value, used, used_cost, upto) "
        f"select '{dimension}', ?1, ?2, ?4, "
        f"coalesce((select {TOKENS} {total}), 0) + {_spent_behind(dimension, mark, TOKENS)}, "
        f"coalesce((select cost {total}), 0) + {_spent_behind(dimension, mark, COST)}, "
        "coalesce((select max(number) from charges), 0) where true "
        "on conflict (dimension, window, start, value) do update set "
        "used = excluded.used, used_cost = excluded.used_cost, upto = excluded.upto"
    )


def _bring_forward(connection: sqlite3.Connection, account: Account) -> None:
    if "+" in account.dimension:
        roll_up(connection, account.dimension)
    connection.execute(_begin_account(account.dimension), _place(account))


def balances(connection: sqlite3.Connection, accounts: Iterable[Account]) -> list[Balance]:
    found: list[Balance] = []
    for account in accounts:
        _bring_forward(connection, account)
        row = connection.execute(
            "select used, used_cost, tokens, cost from claims "
            "where dimension = ? and window = ? and start = ? and value = ?",
            (account.dimension, account.window, account.start, account.value),
        ).fetchone()
        found.append(Balance(*row))
    return found


@cache
def _claim(dimension: str, tokens: bool, cost: bool) -> str:
    """One conditional update: claim on an account, unless what it has come to and all claims leave no room.

    It has come to what it had when somebody looked last, and what was charged since. Where that is too long ago, or
    nobody has looked yet, nothing is claimed.
    """
    seen = "claims.upto"
    room = ""
    if tokens:
        room += f" and used + tokens + {_spent_behind(dimension, seen, TOKENS)} < ?7"
    if cost:
        room += f" and used_cost + cost + {_spent_behind(dimension, seen, COST)} < ?8"
    return (
        "update claims set tokens = tokens + ?5, cost = cost + ?6, (used, used_cost) = "
        f"(select claims.used + coalesce(sum({TOKENS}), 0), claims.used_cost + coalesce(sum({COST}), 0) "
        f"{_behind(dimension, seen)}), upto = coalesce((select max(number) from charges), 0) "
        f"where dimension = '{dimension}' and window = ?1 and start = ?2 and value = ?4 "
        f"and upto >= (select number from mark) and ?8 is ?8{room}"
    )


def reserve(connection: sqlite3.Connection, reserved: Reserved, caps: Sequence[Cap], worker: str) -> Refusal | None:
    strictest = _strictest(caps)
    for place, cap in enumerate(strictest):
        if _reserve(connection, reserved, cap):
            continue
        _bring_forward(connection, cap.account)
        if not _reserve(connection, reserved, cap):
            _let_go(connection, reserved, [other.account for other in strictest[:place]])
            balance = balances(connection, (cap.account,))[0]
            full = next(n for n, one in enumerate(caps) if one.account == cap.account and not one.has_room(balance))
            return Refusal(full, balance)
    connection.execute(
        "insert into reservations (id, worker, until, body) values (?, ?, ?, ?)",
        (reserved.charge.id, worker, reserved.until, _encode(reserved).decode()),
    )
    return None


def _reserve(connection: sqlite3.Connection, reserved: Reserved, cap: Cap) -> bool:
    charge = reserved.charge
    statement = _claim(cap.account.dimension, cap.tokens is not None, cap.cost_nanousd is not None)
    claimed = (charge.tokens, charge.cost_nanousd or 0, cap.tokens, cap.cost_nanousd)
    return connection.execute(statement, (*_place(cap.account), *claimed)).rowcount == 1


def _let_go(connection: sqlite3.Connection, reserved: Reserved, accounts: Iterable[Account]) -> None:
    tokens, cost = reserved.charge.tokens, reserved.charge.cost_nanousd or 0
    for account in accounts:
        connection.execute(
            "update claims set tokens = tokens - ?, cost = cost - ? "
            "where dimension = ? and window = ? and start = ? and value = ?",
            (tokens, cost, account.dimension, account.window, account.start, account.value),
        )


def release(connection: sqlite3.Connection, reserved: Reserved) -> bool:
    """Let go of what a call had claimed. False when somebody took it for lost, and has charged what was expected."""
    there = connection.execute("delete from reservations where id = ?", (reserved.charge.id,)).rowcount == 1
    if there:
        _let_go(connection, reserved, reserved.accounts)
    return there


def _strictest(caps: Sequence[Cap]) -> Sequence[Cap]:
    """One cap for each account: several rules may count the same."""
    if len(caps) == 1:
        return caps
    merged: dict[Account, Cap] = {}
    for cap in caps:
        other = merged.get(cap.account, Cap(cap.account))
        merged[cap.account] = Cap(
            cap.account, _least(cap.tokens, other.tokens), _least(cap.cost_nanousd, other.cost_nanousd)
        )
    return list(merged.values())


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def reconcile(connection: sqlite3.Connection, now: float, is_dead: Callable[[str], bool]) -> None:
    """Count as spent what the dead had claimed, and what was never settled."""
    dead = [id for (id,) in connection.execute("select distinct worker from reservations").fetchall() if is_dead(id)]
    lost = connection.execute(
        "select body from reservations where until <= ? or worker in (select value from json_each(?))",
        (now, _encode(dead).decode()),
    ).fetchall()
    for (body,) in lost:
        reserved = _decode_reserved(body)
        release(connection, reserved)
        connection.execute(insert_charges(1), row_of(reserved.charge, GIVEN))
    connection.execute("delete from claims where tokens = 0 and cost = 0 and upto < (select number from mark)")
