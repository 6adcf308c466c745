"""What a writer can be asked. Knows no SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...charge import Account, Charge, Reserved
from ...events import Entry
from .lane import Request
from .ledger import CALL
from .rows import EntryRow

if TYPE_CHECKING:
    from .writer import Writer


class Append(Request):
    __slots__ = ("awaited", "conversation", "entries", "rows")

    def __init__(
        self, conversation: str, entries: Sequence[Entry], rows: Sequence[EntryRow], *, awaited: bool = True
    ) -> None:
        super().__init__()
        self.conversation, self.entries, self.rows, self.awaited = conversation, entries, rows, awaited


class FinishJob(Request):
    __slots__ = ("id",)

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id


class Charged(Request):
    """A charge to keep, a reservation to let go of, and accounts whose sums are wanted then."""

    __slots__ = ("accounts", "charge", "origin", "reserved")

    def __init__(
        self, charge: Charge | None, reserved: Reserved | None, accounts: Sequence[Account], origin: int = CALL
    ) -> None:
        super().__init__()
        self.charge, self.reserved, self.accounts, self.origin = charge, reserved, accounts, origin


class Charges(Request):
    """Charges of calls that nobody waits for, and that hold no reservation."""

    __slots__ = ("charges",)

    def __init__(self, charges: Sequence[Charge]) -> None:
        super().__init__()
        self.charges = charges


class Call(Request):
    """Anything else: `call` runs inside the group's transaction, with its place in the order."""

    __slots__ = ("call", "small")

    def __init__(self, call: Callable[[Writer], object], *, small: bool = False) -> None:
        super().__init__()
        self.call, self.small = call, small


Write: TypeAlias = Append | FinishJob | Charged | Charges | Call


def apart(group: list[Write]) -> list[Write]:
    """The same, as requests that each stand for one thing."""
    parts: list[Write] = []
    for request in group:
        if isinstance(request, Charges):
            parts += [Charges([charge]) for charge in request.charges]
        else:
            parts.append(request)
    return parts
