"""The requests to the threads of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ...charge import Charge
from ...contracts.ledger import Account, Cap, Reserved
from ...events import Entry
from .key_values import KeyValueRow
from .ledger import CALL
from .store_thread import StoreRequest

AT_ONCE_BYTES_MAX = 64 * 1024
"""The size of a group that is committed on the loop's thread: more would block the loop for too long."""
ROW_BYTES = 1_024  # takes about as long to write as a row; 64 rows are written at once


class Write(StoreRequest, kw_only=True):
    """Something to write. The size of a group decides on which thread it is committed."""

    size: float = ROW_BYTES


class Append(Write):
    """`text` is the entries as JSON, with commas between them; its length is the size."""

    conversation: str
    entries: Sequence[Entry]
    text: str
    awaited: bool = True


class FinishJob(Write):
    """A finished job to delete. It is `late` if that has failed before."""

    id: str
    late: bool = False


class Charged(Write):
    """A charge to write, a reservation to release, and the accounts whose balances are wanted after that."""

    charge: Charge | None
    reserved: Reserved | None
    accounts: Sequence[Account]
    origin: int = CALL


class Reserve(Write):
    """A reservation to write if all caps have room for it; the result is a refusal or None."""

    reserved: Reserved
    caps: Sequence[Cap]
    now: float


class Call(Write):
    """Anything else: `call` runs on the thread's connection, in the order of the requests. A write runs in the
    transaction of its group; one that may have to wait has the size `inf`."""

    call: Callable[[sqlite3.Connection], object]
    awaited: bool = True


class Put(Write):
    """A value to keep under a key, or None to remove it. No caller waits for it."""

    row: KeyValueRow
    now: float
