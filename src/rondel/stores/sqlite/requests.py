"""The requests to the threads of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ...charge import Charge
from ...contracts.ledger import Account, Cap, Reserved
from ...events import Entry
from .key_values import KeyValueRow
from .ledger import CALL
from .store_thread import Request


class Write(Request):
    """Something to write: how many bytes and charges it has. What is not `small` is left to the writer thread."""

    size = charges = 0
    small = True


class Append(Write):
    conversation: str
    entries: Sequence[Entry]
    text: str  # the entries as JSON, with commas between them
    awaited: bool = True

    @property
    def size(self) -> int:
        return len(self.text)


class FinishJob(Write):
    """A finished job to delete. It is `late` if that has failed before."""

    id: str
    late: bool = False


class Charged(Write):
    """A charge to write, a reservation to release, and accounts whose balances are wanted after that."""

    charges = 1
    charge: Charge | None
    reserved: Reserved | None
    accounts: Sequence[Account]
    origin: int = CALL


class Reserve(Write):
    """A reservation to write if all caps have room for it; the result is a refusal or None."""

    charges = 1
    reserved: Reserved
    caps: Sequence[Cap]
    now: float


class Call(Write):
    """Anything else: `call` runs on the thread's connection, in the order of the requests. A write runs in the
    transaction of its group; one that may wait is not small."""

    call: Callable[[sqlite3.Connection], object]
    small: bool = False
    awaited: bool = True


class Put(Write):
    """A value to keep under a key, or None to remove it. No caller waits for it."""

    row: KeyValueRow
    now: float

    @property
    def size(self) -> int:
        return len(self.row[2] or b"")
