"""The scopes of charges, each kept once: a charge names its own by a number.

Thousands of calls have the same scope, so one number replaces most of a charge's row, and sums over many rows only
compare numbers. Scopes are never changed or deleted. Knows no charge.
"""

from __future__ import annotations

import msgspec

from ...charge import Scope
from .executor import Executor

NUMBERS_MAX = 4_096  # scopes whose numbers are cached

COLUMNS = "kind, model, engine, agent, conversation, person, roles, channel, guild, key, project"
"""In the order of a scope's fields; `roles` is JSON."""
_COUNT = len(COLUMNS.split(","))

SCHEMA = (
    f"""
    create table scopes (
        number integer primary key,
        {", ".join(f"{name} text not null" for name in COLUMNS.split(", "))},
        unique (conversation, model, engine, kind, agent, person, roles, channel, guild, key, project)
    )
    """,
)

_INSERT = f"insert into scopes ({COLUMNS}) values ({', '.join('?' * _COUNT)}) on conflict do nothing"
_FIND = f"select number from scopes where ({COLUMNS}) = ({', '.join('?' * _COUNT)})"

_encode = msgspec.json.Encoder().encode
_decode_roles = msgspec.json.Decoder(tuple[str, ...]).decode


class Scopes:
    """The numbers of scopes, as one writer knows them."""

    def __init__(self) -> None:
        self._numbers: dict[Scope, int] = {}

    def number_of(self, connection: Executor, scope: Scope) -> int:
        number = self._numbers.get(scope)
        if number is None:
            if len(self._numbers) >= NUMBERS_MAX:
                del self._numbers[next(iter(self._numbers))]
            number = self._numbers[scope] = _kept(connection, scope)
        return number

    def forget(self) -> None:
        self._numbers.clear()


def _kept(connection: Executor, scope: Scope) -> int:
    kind, model, engine, agent, conversation, person, roles, *rest = msgspec.structs.astuple(scope)
    row = (kind, model, engine, agent, conversation, person, _encode(roles).decode(), *rest)
    inserted = connection.execute(_INSERT, row)
    if inserted.rowcount == 1 and inserted.lastrowid is not None:
        return inserted.lastrowid
    return connection.execute(_FIND, row).fetchone()[0]


def scope_of(row: tuple[str, ...]) -> Scope:
    kind, model, engine, agent, conversation, person, roles, *rest = row
    return Scope(kind, model, engine, agent, conversation, person, _decode_roles(roles), *rest)
