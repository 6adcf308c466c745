"""What calls in progress have reserved on their accounts, and the balances of accounts, in SQLite.

A balance is read from the sums, the charges and the reservations. What was spent up to a charge never changes, so it is
remembered, and the next look reads only the charges since. Knows no event loop and no thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from ...charge import BETWEEN, Charge
from ...contracts.ledger import Account, Balance, Cap, Refusal, Reserved, dimensions_in
from .ledger import is_counted, roll_up

SCHEMA = (
    # A row for each account on which a call reserves; `body` is the charge to write if the call is never settled.
    """
    create table reservations (
        id        text not null,
        dimension text not null,
        value     text not null,
        window    text not null,
        start     integer not null,
        tokens    integer not null,
        cost      integer not null,
        worker    text not null,
        until     real not null,
        body      text not null,    -- JSON
        primary key (id, dimension, value, window, start)
    ) without rowid
    """,
)

ACCOUNTS_MAX = 4_096  # accounts whose spending is remembered

TOKENS = "tokens_in + tokens_out"
_NEVER = 0, 0, -1  # tokens, cost, and the number of the last charge in them: of an account that was never looked at

_encode = msgspec.json.Encoder().encode
_decode_charge = msgspec.json.Decoder(Charge).decode


@cache
def _look(dimension: str) -> str:
    """Read what was spent on an account and what is reserved. `?1` to `?4` are its window, start, end and value.

    What was spent is what is known, `?5` and `?6`, and the charges after number `?7`. If the sums of the account are
    newer than that, it is these and the charges after the mark.
    """
    names = dimensions_in(dimension)
    source = "charges"
    if names:
        source += " cross join scopes on scopes.number = charges.scope"
    if "role" in names:
        source += " cross join json_each(scopes.roles) as role"
    values = ("role.value" if name == "role" else f"scopes.{name}" for name in names)
    matched = f" || char({ord(BETWEEN)}) || ".join(values) or "''"
    mark = "(select number from mark)"
    total = f"from totals where dimension = '{dimension}' and window = ?1 and age = -?2 and value = ?4"
    reserved = f"from reservations where dimension = '{dimension}' and window = ?1 and start = ?2 and value = ?4"
    return (
        f"select iif(?7 >= {mark}, ?5, coalesce((select {TOKENS} {total}), 0)) + coalesce(sum({TOKENS}), 0), "
        f"iif(?7 >= {mark}, ?6, coalesce((select cost {total}), 0)) + coalesce(sum(cost), 0), "
        "coalesce((select max(number) from charges), 0), "
        f"coalesce((select sum(tokens) {reserved}), 0), coalesce((select sum(cost) {reserved}), 0) "
        f"from {source} where charges.number > max(?7, {mark}) and +day >= ?2 and +day < ?3 and {matched} = ?4"
    )


class Reservations:
    """The reservations and balances, as one writer sees them in its open transaction."""

    def __init__(self) -> None:
        self._spent: dict[Account, tuple[int, int, int]] = {}
        self._balances: dict[Account, Balance] = {}
        """Balances that are true until a charge or a release is written, or the transaction ends."""

    def reserve(
        self, connection: sqlite3.Connection, reserved: Reserved, caps: Sequence[Cap], worker: str
    ) -> Refusal | None:
        for index, cap in enumerate(caps):
            balance = self.balance(connection, cap.account)
            if not cap.has_room(balance):
                return Refusal(index, balance)
        charge = reserved.charge
        tokens, cost, body = charge.tokens, charge.cost_nanousd or 0, _encode(charge).decode()
        for account in reserved.accounts:
            connection.execute(
                "insert into reservations values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (charge.id, *msgspec.structs.astuple(account), tokens, cost, worker, reserved.until, body),
            )
            if (seen := self._balances.get(account)) is not None:
                held, held_cost = seen.reserved_tokens + tokens, seen.reserved_nanousd + cost
                self._balances[account] = Balance(seen.tokens, seen.cost_nanousd, held, held_cost)
        return None

    def release(self, connection: sqlite3.Connection, reserved: Reserved) -> bool:
        """Release what a call had reserved. Return False if it was taken for lost, and its expected charge written."""
        self.look_again()
        return connection.execute("delete from reservations where id = ?", (reserved.charge.id,)).rowcount > 0

    def take_lost(self, connection: sqlite3.Connection, now: float, is_dead: Callable[[str], bool]) -> list[Charge]:
        """Release what dead workers had reserved and what was never settled. Return the charges to write for it."""
        self.look_again()
        workers = connection.execute("select distinct worker from reservations").fetchall()
        dead = _encode([id for (id,) in workers if is_dead(id)]).decode()
        lost = "until <= ? or worker in (select value from json_each(?))"
        rows = connection.execute(
            f"delete from reservations where {lost} returning id, body",
            (now, dead),
        ).fetchall()
        return [_decode_charge(body) for body in dict(rows).values()]

    def balance(self, connection: sqlite3.Connection, account: Account) -> Balance:
        found = self._balances.get(account)
        if found is None:
            dimension = account.dimension
            if "+" in dimension and not is_counted(connection, dimension):
                roll_up(connection, dimension)
            key = account.window, account.start, account.end, account.value
            row = connection.execute(_look(dimension), (*key, *self._spent.get(account, _NEVER))).fetchone()
            tokens, cost, number, reserved_tokens, reserved_cost = row
            if len(self._spent) >= ACCOUNTS_MAX:
                del self._spent[next(iter(self._spent))]
            self._spent[account] = tokens, cost, number
            found = self._balances[account] = Balance(tokens, cost, reserved_tokens, reserved_cost)
        return found

    def look_again(self) -> None:
        """Charges were written, or the transaction has ended: balances must be read again."""
        self._balances.clear()

    def forget(self) -> None:
        """The transaction was rolled back: numbers of charges that were seen may be used again."""
        self._spent.clear()
        self._balances.clear()
