"""The requests to the threads of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...charge import Charge
from ...contracts.ledger import Account, Reserved
from ...events import Entry
from .key_values import KeyValueRow
from .ledger import CALL
from .log import EntryRow
from .store_thread import Request


class Append(Request):
    def __init__(
        self, conversation: str, entries: Sequence[Entry], rows: Sequence[EntryRow], *, awaited: bool = True
    ) -> None:
        self.conversation, self.entries, self.rows, self.awaited = conversation, entries, rows, awaited


class FinishJob(Request):
    """A finished job to delete. It is `late` if that has failed before."""

    def __init__(self, id: str) -> None:
        self.id, self.late = id, False


class Charged(Request):
    """A charge to write, a reservation to release, and accounts whose balances are wanted after that."""

    def __init__(
        self, charge: Charge | None, reserved: Reserved | None, accounts: Sequence[Account], origin: int = CALL
    ) -> None:
        self.charge, self.reserved, self.accounts, self.origin = charge, reserved, accounts, origin


class Call(Request):
    """Anything else: `call` runs on the thread's connection, in the order of the requests. A write runs in the
    transaction of its group; one that is not `small` or may wait is left to the writer thread."""

    def __init__(
        self, call: Callable[[sqlite3.Connection], object], *, small: bool = False, awaited: bool = True
    ) -> None:
        self.call, self.small, self.awaited = call, small, awaited


class Put(Request):
    """A value to keep under a key, or None to remove it. No caller waits for it."""

    def __init__(self, row: KeyValueRow, now: float) -> None:
        self.row, self.now, self.awaited = row, now, False


Write: TypeAlias = Append | FinishJob | Charged | Put | Call
