"""The requests to the threads of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ...charge import Charge
from ...contracts.ledger import Account, Cap, Reserved
from ...events import Entry
from .key_values import KeyValueRow
from .ledger import CALL
from .log import EntryRow
from .store_thread import Request


class Write(Request):
    """Something to write: how many bytes and charges it has. What is not `small` is left to the writer thread."""

    size = charges = 0
    small = True


class Append(Write):
    def __init__(
        self, conversation: str, entries: Sequence[Entry], rows: Sequence[EntryRow], *, awaited: bool = True
    ) -> None:
        self.conversation, self.entries, self.rows, self.awaited = conversation, entries, rows, awaited
        for row in rows:
            self.size += len(row[4])


class FinishJob(Write):
    """A finished job to delete. It is `late` if that has failed before."""

    def __init__(self, id: str) -> None:
        self.id, self.late = id, False


class Charged(Write):
    """A charge to write, a reservation to release, and accounts whose balances are wanted after that."""

    charges = 1

    def __init__(
        self, charge: Charge | None, reserved: Reserved | None, accounts: Sequence[Account], origin: int = CALL
    ) -> None:
        self.charge, self.reserved, self.accounts, self.origin = charge, reserved, accounts, origin


class Reserve(Write):
    """A reservation to write if all caps have room for it; the result is a refusal or None."""

    charges = 1

    def __init__(self, reserved: Reserved, caps: Sequence[Cap], now: float) -> None:
        self.reserved, self.caps, self.now = reserved, caps, now


class Call(Write):
    """Anything else: `call` runs on the thread's connection, in the order of the requests. A write runs in the
    transaction of its group; one that may wait is not small."""

    def __init__(
        self, call: Callable[[sqlite3.Connection], object], *, small: bool = False, awaited: bool = True
    ) -> None:
        self.call, self.small, self.awaited = call, small, awaited


class Put(Write):
    """A value to keep under a key, or None to remove it. No caller waits for it."""

    def __init__(self, row: KeyValueRow, now: float) -> None:
        self.row, self.now, self.size = row, now, len(row[2] or b"")
