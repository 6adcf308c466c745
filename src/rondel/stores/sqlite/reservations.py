"""What calls in progress have reserved, and the balances of accounts, in SQLite.

A reservation is the charge that its call is expected to make, with the worker that makes the call. Settling the call
replaces the charge, in place, by what was spent; if the worker dies, the charge stays as it is.

Balances are cached and kept up to date with this writer's own writes, until another process has written. Knows no event
loop and no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from ...charge import BETWEEN, Charge
from ...contracts.ledger import Account, Balance, Cap, Refusal, Reserved, dimensions_in, values_in
from ...contracts.window import Window
from ...values import Value
from .executor import Executor
from .ledger import CALL, COLUMNS, RESERVED, ChargeRow, bound, is_counted, row_of, spent_by
from .scopes import Scopes

OPEN_MAX = 4_096  # reservations whose numbers are cached
ACCOUNTS_MAX = 4_096  # accounts whose balances are cached

_TOKENS = "tokens_in + tokens_out"
_SPENT = ", ".join(COLUMNS.split(", ")[3:-1])  # all but its id, its time and its origin
_REPLACE = (
    f"update charges set ({_SPENT}, worker, until) = ({bound(_SPENT)}, null, null) "
    "where number = ? and id = ? and worker is not null"
)
_REMOVE = "delete from charges where number = ? and id = ? and worker is not null"
_RESERVE = f"insert into charges ({COLUMNS}, worker, until) values ({bound(COLUMNS)}, ?, ?)"

_encode = msgspec.json.Encoder().encode


@cache
def _look(dimension: str) -> str:
    """Read what an account has spent and reserved. `?1` to `?4` are its window, start, end and value."""
    names = dimensions_in(dimension)
    source = "charges"
    if names:
        source += " cross join scopes on scopes.number = charges.scope"
    if "role" in names:
        source += " cross join json_each(scopes.roles) as role"
    values = ("role.value" if name == "role" else f"scopes.{name}" for name in names)
    matched = f" || char({ord(BETWEEN)}) || ".join(values) or "''"
    total = f"from totals where dimension = '{dimension}' and window = ?1 and age = -?2 and value = ?4"
    spent, reserved = "filter (where worker is null)", "filter (where worker is not null)"
    return (
        f"select coalesce((select {_TOKENS} {total}), 0) + coalesce(sum({_TOKENS}) {spent}, 0), "
        f"coalesce((select cost {total}), 0) + coalesce(sum(cost) {spent}, 0), "
        f"coalesce(sum({_TOKENS}) {reserved}, 0), coalesce(sum(cost) {reserved}, 0) "
        f"from {source} where charges.number > (select number from mark) "
        f"and +day >= ?2 and +day < ?3 and {matched} = ?4"
    )


class _Known:
    """The balance of an account, kept up to date with this writer's own writes."""

    def __init__(self, tokens: int, nanousd: int, reserved_tokens: int, reserved_nanousd: int) -> None:
        self.tokens, self.nanousd = tokens, nanousd
        self.reserved_tokens, self.reserved_nanousd = reserved_tokens, reserved_nanousd

    @property
    def balance(self) -> Balance:
        return Balance(self.tokens, self.nanousd, self.reserved_tokens, self.reserved_nanousd)


class _Open(Value, frozen=True):
    """A reservation: the number of its charge, unless it was moved since, and what it counts on."""

    number: int
    scope: int
    day: int


class Reservations:
    """The reservations and balances, as one writer sees them in its open transaction."""

    def __init__(self, scopes: Scopes, roll_up: Callable[[Executor, str], None]) -> None:
        """`roll_up` brings the sums of a dimension up to date."""
        self._scopes, self._roll_up = scopes, roll_up
        self._open: dict[str, _Open] = {}
        self._known: dict[Account, _Known] = {}
        self._kinds: set[tuple[str, Window]] = set()  # the dimensions and windows of these accounts
        self._counting: dict[tuple[int, int], list[_Known]] = {}
        """The known balances on which charges count, by the numbers of their scopes and by their days."""

    def reserve(self, connection: Executor, reserved: Reserved, caps: Sequence[Cap], worker: str) -> Refusal | None:
        for index, cap in enumerate(caps):
            known = self._known.get(cap.account) or self._read(connection, cap.account)
            tokens = known.tokens + known.reserved_tokens + reserved.tokens_min
            if not cap.allows(tokens, known.nanousd + known.reserved_nanousd + reserved.nanousd_min):
                return Refusal(index, known.balance)
        charge = reserved.charge
        scope = self._scopes.number_of(connection, charge.scope)
        row = row_of(charge, scope)
        number = connection.execute(_RESERVE, (*row, worker, reserved.until)).lastrowid
        assert number is not None, "a row that was inserted has a number"
        if len(self._open) >= OPEN_MAX:
            self._open.clear()
        day = row[2]
        self._open[charge.id] = _Open(number, scope, day)
        tokens, nanousd = charge.tokens, charge.cost_nanousd or 0
        for known in self._counted_on(charge, scope, day):
            known.reserved_tokens += tokens
            known.reserved_nanousd += nanousd
        return None

    def settle(self, connection: Executor, reserved: Charge, charge: Charge | None) -> None:
        """Replace a reservation by what was spent, or remove it. Does nothing if it no longer exists, because it was
        settled before, or was considered lost and charged as expected."""
        found = self._open.pop(reserved.id, None)
        # Usually the model that was called has answered, so the scope is the same.
        same = charge is None or charge.scope is reserved.scope
        scope = found.scope if same and found else self._scopes.number_of(connection, (charge or reserved).scope)
        spent = None if charge is None else spent_by(charge, scope)
        if found is None or not _settled(connection, reserved.id, found.number, spent):
            # Reservations were moved, or this one is not there.
            rows = connection.execute(f"select id, number, scope, day from charges where {RESERVED}").fetchall()
            self._open = {id: _Open(*row) for id, *row in rows}
            found = self._open.pop(reserved.id, None)
            if found is None or not _settled(connection, reserved.id, found.number, spent):
                return
        tokens, nanousd = reserved.tokens, reserved.cost_nanousd or 0
        held = self._counted_on(reserved, found.scope, found.day)
        for known in held:
            known.reserved_tokens -= tokens
            known.reserved_nanousd -= nanousd
        if charge is not None:
            tokens, nanousd = charge.tokens, charge.cost_nanousd or 0
            for known in held if scope == found.scope else self._counted_on(charge, scope, found.day):
                known.tokens += tokens
                known.nanousd += nanousd

    def charged(self, charge: Charge, row: ChargeRow) -> None:
        """Note a charge that was written, unless its id came from outside and was there before."""
        *_, day, scope = row[:4]
        if row[-1] == CALL:
            tokens, nanousd = charge.tokens, charge.cost_nanousd or 0
            for known in self._counted_on(charge, scope, day):
                known.tokens += tokens
                known.nanousd += nanousd
        else:
            self.invalidate()

    def count_lost(self, connection: Executor, now: float, is_dead: Callable[[str], bool]) -> None:
        """Count as spent what dead workers had reserved, and what was not settled in time."""
        workers = connection.execute(f"select distinct worker from charges where {RESERVED}").fetchall()
        dead = _encode([id for (id,) in workers if is_dead(id)]).decode()
        connection.execute(
            f"update charges set worker = null, until = null where {RESERVED} "
            "and (until <= ? or worker in (select value from json_each(?)))",
            (now, dead),
        )
        self.invalidate()

    def balance(self, connection: Executor, account: Account) -> Balance:
        return (self._known.get(account) or self._read(connection, account)).balance

    def _read(self, connection: Executor, account: Account) -> _Known:
        dimension = account.dimension
        if "+" in dimension and not is_counted(connection, dimension):
            self._roll_up(connection, dimension)
        key = account.window, account.start, account.end, account.value
        if len(self._known) >= ACCOUNTS_MAX:
            self._known.clear()
        known = self._known[account] = _Known(*connection.execute(_look(dimension), key).fetchone())
        self._kinds.add((dimension, account.window))
        self._counting.clear()
        return known

    def _counted_on(self, charge: Charge, scope: int, day: int) -> list[_Known]:
        """Return the known balances on which a charge counts."""
        counted = self._counting.get((scope, day))
        if counted is None:
            if len(self._counting) >= ACCOUNTS_MAX:
                self._counting.clear()
            accounts = (
                Account.at(dimension, value, window, charge.at)
                for dimension, window in self._kinds
                for value in values_in(charge.scope, dimensions_in(dimension))
            )
            counted = self._counting[scope, day] = [self._known[one] for one in accounts if one in self._known]
        return counted

    def invalidate(self) -> None:
        """Read balances again, because another connection may have written."""
        self._known.clear()
        self._kinds.clear()
        self._counting.clear()


def _settled(connection: Executor, id: str, number: int, spent: ChargeRow | None) -> bool:
    if spent is None:
        return connection.execute(_REMOVE, (number, id)).rowcount > 0
    return connection.execute(_REPLACE, (*spent, number, id)).rowcount > 0
