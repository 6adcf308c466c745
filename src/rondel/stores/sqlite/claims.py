"""What calls in progress have reserved on their accounts, in SQLite.

An account that was looked at has a row: what was spent until then, and what is reserved. The charges since are added at
the next look, so a reservation is one conditional update that reads a few charges. Knows no event loop and no thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import msgspec

from ...charge import BETWEEN, Charge
from ...contracts.ledger import Account, Balance, Cap, Refusal, Reserved, dimensions_in
from .ledger import roll_up

SCHEMA = (
    # What was spent on an account up to charge `upto`, and what calls in progress have reserved.
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
        body   text not null    -- JSON
    ) without rowid
    """,
)

TOKENS, COST = "tokens_in + tokens_out", "charges.cost"

_NOTHING = 0, 0

_encode = msgspec.json.Encoder().encode
_decode_reserved = msgspec.json.Decoder(Reserved).decode


@cache
def _behind(dimension: str, number: str) -> str:
    """The charges of an account after a number: `?1` to `?4` are its window, start, end and value."""
    names = dimensions_in(dimension)
    source = "charges"
    if names:
        source += " cross join scopes on scopes.number = charges.scope"
    if "role" in names:
        source += " cross join json_each(scopes.roles) as role"
    values = ("role.value" if name == "role" else f"scopes.{name}" for name in names)
    matched = f" || char({ord(BETWEEN)}) || ".join(values) or "''"
    return f"from {source} where charges.number > {number} and +day >= ?2 and +day < ?3 and {matched} = ?4"


def _spent_behind(dimension: str, number: str, sum: str) -> str:
    return f"coalesce((select sum({sum}) {_behind(dimension, number)}), 0)"


def _key(account: Account) -> tuple[str, int, int, str]:
    return account.window, account.start, account.end, account.value


@cache
def _begin_account(dimension: str) -> str:
    """Start an account with its sum and the charges after the mark."""
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


@cache
def _claiming(dimension: str, tokens: bool, cost: bool) -> str:
    """One conditional update: reserve on an account if what was spent and reserved leaves room.

    What was spent is the sum of the last look and the charges since. If there was no look, or it was too long ago,
    nothing is reserved.
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


class Claims:
    """The reservations, in the open transaction.

    A release is written with the next reservation on the same account, or at the end of the transaction: calls that
    follow each other cost one update each.
    """

    def __init__(self) -> None:
        self._freed: dict[Account, tuple[int, int]] = {}

    def reserve(
        self, connection: sqlite3.Connection, reserved: Reserved, caps: Sequence[Cap], worker: str
    ) -> Refusal | None:
        tokens, cost = reserved.charge.tokens, reserved.charge.cost_nanousd or 0
        strictest = _strictest(caps)
        for index, cap in enumerate(strictest):
            if self._claim(connection, cap, tokens, cost):
                continue
            self._bring_forward(connection, cap.account)
            if not self._claim(connection, cap, tokens, cost):
                for other in strictest[:index]:
                    self._free(other.account, tokens, cost)
                balance = self.balances(connection, (cap.account,))[0]
                full = next(n for n, one in enumerate(caps) if one.account == cap.account and not one.has_room(balance))
                return Refusal(full, balance)
        connection.execute(
            "insert into reservations (id, worker, until, body) values (?, ?, ?, ?)",
            (reserved.charge.id, worker, reserved.until, _encode(reserved).decode()),
        )
        return None

    def release(self, connection: sqlite3.Connection, reserved: Reserved) -> bool:
        """Release what a call had reserved. Return False if it was taken for lost, and its expected charge written."""
        charge = reserved.charge
        if connection.execute("delete from reservations where id = ?", (charge.id,)).rowcount != 1:
            return False
        for account in reserved.accounts:
            self._free(account, charge.tokens, charge.cost_nanousd or 0)
        return True

    def take_lost(self, connection: sqlite3.Connection, now: float, is_dead: Callable[[str], bool]) -> list[Charge]:
        """Release what dead workers had reserved and what was never settled. Return the charges to write for it."""
        workers = connection.execute("select distinct worker from reservations").fetchall()
        dead = [id for (id,) in workers if is_dead(id)]
        bodies = connection.execute(
            "select body from reservations where until <= ? or worker in (select value from json_each(?))",
            (now, _encode(dead).decode()),
        ).fetchall()
        lost = [_decode_reserved(body) for (body,) in bodies]
        for reserved in lost:
            self.release(connection, reserved)
        self.write(connection)
        connection.execute("delete from claims where tokens = 0 and cost = 0 and upto < (select number from mark)")
        return [reserved.charge for reserved in lost]

    def balances(self, connection: sqlite3.Connection, accounts: Iterable[Account]) -> list[Balance]:
        self.write(connection)
        found: list[Balance] = []
        for account in accounts:
            self._bring_forward(connection, account)
            row = connection.execute(
                "select used, used_cost, tokens, cost from claims "
                "where dimension = ? and window = ? and start = ? and value = ?",
                (account.dimension, account.window, account.start, account.value),
            ).fetchone()
            found.append(Balance(*row))
        return found

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the releases of this transaction."""
        for account, (tokens, cost) in self._freed.items():
            connection.execute(
                "update claims set tokens = tokens - ?, cost = cost - ? "
                "where dimension = ? and window = ? and start = ? and value = ?",
                (tokens, cost, account.dimension, account.window, account.start, account.value),
            )
        self._freed.clear()

    def forget(self) -> None:
        self._freed.clear()

    def _free(self, account: Account, tokens: int, cost: int) -> None:
        freed_tokens, freed_cost = self._freed.get(account, _NOTHING)
        self._freed[account] = freed_tokens + tokens, freed_cost + cost

    def _claim(self, connection: sqlite3.Connection, cap: Cap, tokens: int, cost: int) -> bool:
        account, tokens_max, cost_max = cap.account, cap.tokens, cap.cost_nanousd
        freed_tokens, freed_cost = self._freed.get(account, _NOTHING)
        statement = _claiming(account.dimension, tokens_max is not None, cost_max is not None)
        claimed = (
            *_key(account),
            tokens - freed_tokens,
            cost - freed_cost,
            None if tokens_max is None else tokens_max + freed_tokens,
            None if cost_max is None else cost_max + freed_cost,
        )
        if connection.execute(statement, claimed).rowcount != 1:
            return False
        self._freed.pop(account, None)
        return True

    def _bring_forward(self, connection: sqlite3.Connection, account: Account) -> None:
        """Add the charges since the last look; start from the sums if that was too long ago."""
        if not self._claim(connection, Cap(account), 0, 0):
            if "+" in account.dimension:
                roll_up(connection, account.dimension)
            connection.execute(_begin_account(account.dimension), _key(account))


def _strictest(caps: Sequence[Cap]) -> Sequence[Cap]:
    """Merge the caps of each account: several rules may limit the same one."""
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
